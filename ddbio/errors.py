"""Exceptions of ddbio. Each is a failure that the caller can act on.

DdbioError
├── OptionError          (ValueError)       unknown, malformed or contradictory option
├── SchemaError          (TypeError)        items do not fit the declared or merged schema
├── DecodeError          (ValueError)       bytes are not DynamoDB JSON; has .uri .line
├── EncodeError          (ValueError)       a row is not a valid item of DynamoDB; has .row .attribute .rule
├── NotFoundError        (LookupError)      no such table, index, export or object
├── AccessDeniedError    (PermissionError)  credentials missing, or IAM or KMS refused; has .action .resource
├── EndpointError        (ConnectionError)  the endpoint does not respond, or not as DynamoDB or S3; has .endpoint_url
├── ServiceError         (RuntimeError)     AWS refused the request for another reason; has .code
├── LimitError           (RuntimeError)     a job would consume more than max_units, max_seconds or max_usd, or did
├── ThrottledError       (TimeoutError)     no progress within the deadline; has .consumed .elapsed_seconds
├── TargetError          (OSError)          the target is not empty, not writable or full; has .uri
├── PartialWriteError    (RuntimeError)     has .accepted .rejected .rejects_uri
├── ExportIncompleteError (ValueError)      manifest, count or checksum mismatch
├── KernelError           (ImportError)      the compiled loops are missing, or cannot be loaded or built
└── ValidationError      (ValueError)       source and sink differ; has .report

Every constructor passes all its arguments to ``Exception.__init__``, so that an error survives pickling from a worker.
"""

from __future__ import annotations

from typing import Any


class DdbioError(Exception):
    """Base of every failure that ddbio reports on purpose."""

    retryable = False
    """Whether Spark may run the failed task again: only if it may succeed later without changes.

    Throttling is not retryable: the task has already retried for ``deadline_seconds``.
    """

    def __str__(self) -> str:
        """Return the message only. Other arguments are attributes."""
        return str(self.args[0]) if self.args else ""


class OptionError(DdbioError, ValueError):
    """Unknown, malformed or contradictory option."""


class SchemaError(DdbioError, TypeError):
    """Items do not fit the declared or merged schema."""


class DecodeError(DdbioError, ValueError):
    """Bytes are not DynamoDB JSON."""

    def __init__(self, message: str, uri: str | None = None, line: int | None = None) -> None:
        super().__init__(message, uri, line)
        self.uri = uri
        self.line = line


class EncodeError(DdbioError, ValueError):
    """A row is not a valid item of DynamoDB."""

    def __init__(self, message: str, row: int | None = None, attribute: str = "", rule: str = "") -> None:
        super().__init__(message, row, attribute, rule)
        self.row = row
        self.attribute = attribute
        self.rule = rule


class KernelError(DdbioError, ImportError):
    """The compiled loops are missing, or cannot be loaded or built."""


class NotFoundError(DdbioError, LookupError):
    """A table, index, export or object does not exist."""


class AccessDeniedError(DdbioError, PermissionError):
    """Credentials are missing, or IAM or KMS refused."""

    def __init__(self, message: str, action: str | None = None, resource: str | None = None) -> None:
        super().__init__(message, action, resource)
        self.action = action
        self.resource = resource


class EndpointError(DdbioError, ConnectionError):
    """An endpoint does not respond, or not as the expected service."""

    retryable = True

    def __init__(self, message: str, endpoint_url: str | None = None) -> None:
        super().__init__(message, endpoint_url)
        self.endpoint_url = endpoint_url


class ServiceError(DdbioError, RuntimeError):
    """AWS refused a request for a reason without a specific class."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message, code)
        self.code = code


class LimitError(DdbioError, RuntimeError):
    """A job would consume more than its limit, or did."""


class ThrottledError(DdbioError, TimeoutError):
    """Throttling prevented any progress within the deadline."""

    def __init__(self, message: str, consumed: float = 0.0, elapsed_seconds: float = 0.0) -> None:
        super().__init__(message, consumed, elapsed_seconds)
        self.consumed = consumed
        self.elapsed_seconds = elapsed_seconds


class TargetError(DdbioError, OSError):
    """A target is not empty, not writable or full."""

    def __init__(self, message: str, uri: str | None = None) -> None:
        super().__init__(message, uri)
        self.uri = uri


class PartialWriteError(DdbioError, RuntimeError):
    """Only a part of a write was accepted."""

    def __init__(self, message: str, accepted: int = 0, rejected: int = 0, rejects_uri: str | None = None) -> None:
        super().__init__(message, accepted, rejected, rejects_uri)
        self.accepted = accepted
        self.rejected = rejected
        self.rejects_uri = rejects_uri


class GapError(DdbioError, LookupError):
    """A stream discarded changes before they were read."""

    def __init__(self, message: str, shard: str | None = None, position: str | None = None) -> None:
        super().__init__(message, shard, position)
        self.shard = shard
        self.position = position


class ExportIncompleteError(DdbioError, ValueError):
    """Manifest, counts or checksums of an export do not match its files."""


class ValidationError(DdbioError, ValueError):
    """Source and sink differ."""

    def __init__(self, message: str, report: dict[str, Any] | None = None) -> None:
        super().__init__(message, report)
        self.report = report
