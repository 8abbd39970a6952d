"""Decompress answers of the service; refuses what is not whole or grows beyond any answer of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import HTTPClientError
from isal import isal_zlib

from ddbio.aws.connection import LARGEST_BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

_GZIP_BITS = 31
# isal's stubs take the class for an instance.
_BROKEN: Any = isal_zlib.error


class BrokenCompressionError(HTTPClientError):
    """Report an answer that cannot be decompressed: the same page must be asked again."""

    fmt = "the compressed body is broken: {reason}"


def content_of(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return what an answer says, whether it came compressed or not.

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
        If it is broken, cut, or too large.
    """
    stream = isal_zlib.decompressobj(wbits=_GZIP_BITS)
    try:
        content = stream.decompress(body, LARGEST_BODY_BYTES)
    except _BROKEN as error:
        raise BrokenCompressionError(reason=error, error=error) from error
    if not stream.eof or stream.unused_data:
        reason = "it ends early, goes on behind its end, or is larger than any answer"
        raise BrokenCompressionError(reason=reason, error=reason)
    return content
