"""What all jobs of the service share: their place on S3, and the error of one that failed."""

from __future__ import annotations

from ddbio.errors import AccessDeniedError, DdbioError, NotFoundError, OptionError, ServiceError


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
