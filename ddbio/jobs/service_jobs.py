"""What all jobs of the service share: their place on S3, and the error of one that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.errors import AccessDeniedError, DdbioError, NotFoundError, OptionError, ServiceError
from ddbio.options.connection import OBJECT_OPTIONS

if TYPE_CHECKING:
    from ddbio.options import ConnectionOptions

S3_KEY = "aws/s3"
"""KMS's key for S3, which requests to the service name by naming none."""


def s3_place(uri: str) -> tuple[str, str]:
    """Return bucket and prefix of ``s3://bucket/prefix``.

    Raises
    ------
    OptionError
        If it is no such URI.
    """
    scheme, mark, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme not in {"s3", "s3a"} or not mark or not bucket:
        raise OptionError(f"{uri!r} is not s3://bucket/prefix: the service itself reaches nothing but S3")
    return bucket, prefix.strip("/")


def service_key(options: ConnectionOptions, kms_key: str | None) -> str | None:
    """Return the KMS key of objects that DynamoDB writes; None if S3's own keys encrypt them.

    Parameters
    ----------
    kms_key
        The key that is given for these objects; by default it is that of all objects.

    Raises
    ------
    OptionError
        If an option of objects is given that the service has no parameter for.
    """
    for name in OBJECT_OPTIONS:
        if getattr(options, name):
            raise OptionError(
                f"option {name!r}: DynamoDB writes these objects itself and has no parameter for it: leave it out"
            )
    if options.s3_sse == "aws:kms:dsse":
        raise OptionError(
            "option 's3_sse': DynamoDB writes these objects itself, by AES256 or aws:kms: give one of them"
        )
    return kms_key or options.s3_sse_kms_key_id or (S3_KEY if options.s3_sse == "aws:kms" else None)


def kms_members(key: str | None) -> dict[str, str]:
    """Return what a request to the service says of the encryption of its objects."""
    if key is None:
        return {}
    return {"S3SseAlgorithm": "KMS"} | ({} if key == S3_KEY else {"S3SseKmsKeyId": key})


def failure_of(what: str, code: str | None, message: str | None, left: str = "") -> DdbioError:
    """Return the error of a job that the service says has failed.

    Parameters
    ----------
    what
        The job, like ``export arn:…``.
    left
        What it leaves behind, if anything.
    """
    text = f"{what} failed: {code or 'no code'} ({(message or 'no text').rstrip('.')})"
    if code is not None and "NoSuch" in code:
        return NotFoundError(f"{text}; check the bucket's name and region")
    if code is not None and ("AccessDenied" in code or "KMS" in code.upper()):
        return AccessDeniedError(f"{text}; check the policies of the bucket and of its key", None, what)
    return ServiceError(f"{text}; {left}" if left else text, code)
