"""HTTP bodies as DynamoDB sends and takes them: verify them, decompress responses, compress requests.

A response is verified against its length and its CRC-32. A broken one is raised as botocore raises broken connections,
so that a retry policy takes it for transient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import HTTPClientError
from isal import igzip, isal_zlib

from ddbio.aws.http_connection import MAX_BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

# https://docs.aws.amazon.com/sdkref/latest/guide/feature-compression.html: the least size that SDKs compress.
MIN_COMPRESSED_BYTES: Final = 10_240
_LEVEL = 1
_GZIP_BITS = 31
# isal's stubs take the class for an instance.
_BROKEN: Any = isal_zlib.error


class ChecksumMismatchError(HTTPClientError):
    """Report a body that is not what the service sent: the same page must be requested again."""

    fmt = "the body does not match its x-amz-crc32 header ({found} is not {stated})"


class TruncatedBodyError(HTTPClientError):
    """Report a body that ended early, or did not end where it should: the same page must be requested again."""

    fmt = "the body has {found} bytes, not the {stated} of its content-length header"


class BrokenCompressionError(HTTPClientError):
    """Report a body that cannot be decompressed: the same page must be requested again."""

    fmt = "the compressed body is broken: {reason}"


def verify_body(body: bytes, headers: Mapping[str, str]) -> None:
    """Check a body against the length and the checksum that its headers declare.

    Raises
    ------
    botocore.exceptions.HTTPClientError
        If they differ.
    """
    length = headers.get("content-length")
    if length is not None and length.strip() != str(len(body)):
        raise TruncatedBodyError(found=len(body), stated=length, error="content-length")
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html
    declared = headers.get("x-amz-crc32")
    if declared is not None and declared.strip() != (found := str(isal_zlib.crc32(body))):
        raise ChecksumMismatchError(found=found, stated=declared, error="crc32")


def decompress_body(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a body decompressed, if its headers say that it is compressed.

    Raises
    ------
    botocore.exceptions.HTTPClientError
        As :func:`gunzip`.
    """
    return gunzip(body) if headers.get("content-encoding", "").lower() == "gzip" else body


def gunzip(body: bytes) -> bytes:
    """Return the content of one gzip member.

    Raises
    ------
    botocore.exceptions.HTTPClientError
        If it is broken, cut, or larger than any response of the service.
    """
    stream = isal_zlib.decompressobj(wbits=_GZIP_BITS)
    try:
        content = stream.decompress(body, MAX_BODY_BYTES)
    except _BROKEN as error:
        raise BrokenCompressionError(reason=error, error=error) from error
    if not stream.eof or stream.unused_data:
        reason = "it ends early, goes on behind its end, or is larger than any answer"
        raise BrokenCompressionError(reason=reason, error=reason)
    return content


def compress_body(body: bytes) -> bytes:
    """Return a request body as one gzip member."""
    compressed: bytes = igzip.compress(body, _LEVEL)
    return compressed
