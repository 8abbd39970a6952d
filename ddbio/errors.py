"""Every failure that a caller can act on, as a tree of exceptions.

DdbioError
├── OptionError          (ValueError)       unknown, malformed or contradictory option
├── SchemaError          (TypeError)        items do not fit the declared or merged schema
├── DecodeError          (ValueError)       bytes are not DynamoDB JSON; has .uri .line
├── EncodeError          (ValueError)       a row is no item DynamoDB takes; has .row .attribute .rule
├── NotFoundError        (LookupError)      no such table, index, export or object
├── AccessDeniedError    (PermissionError)  credentials missing, or IAM or KMS refused; has .action .resource
├── EndpointError        (ConnectionError)  the endpoint does not answer, or not as DynamoDB or S3; has .endpoint_url
├── ServiceError         (RuntimeError)     AWS refused the request for another reason; has .code
├── LimitError           (RuntimeError)     a job would consume more than max_units, max_seconds or max_usd, or did
├── ThrottledError       (TimeoutError)     no progress within the deadline; has .consumed .elapsed_seconds
├── TargetError          (OSError)          the target is not empty, not writable or full; has .uri
├── PartialWriteError    (RuntimeError)     has .accepted .rejected .rejects_uri
├── ExportIncompleteError (ValueError)      manifest, count or checksum mismatch
├── KernelError           (ImportError)      the compiled loops are missing, or cannot be loaded or built
└── ValidationError      (ValueError)       source and sink differ; has .report

Every constructor hands all its arguments to ``Exception.__init__``, so that an error survives pickling from a worker.
"""

from __future__ import annotations

from typing import Any


class DdbioError(Exception):
    """Base of every failure that ddbio reports on purpose."""

    retryable = False
    """Whether Spark may run the failed task again: only if nothing but time can make it succeed.

    Throttling is not: the task has tried for ``deadline_seconds`` already.
    """

    def __str__(self) -> str:
        """Return the message alone; further arguments are attributes."""
        return str(self.args[0]) if self.args else ""


class OptionError(DdbioError, ValueError):
    """Report an unknown, malformed or contradictory option."""


class SchemaError(DdbioError, TypeError):
    """Report items that do not fit the declared or merged schema."""


class DecodeError(DdbioError, ValueError):
    """Report bytes that are not DynamoDB JSON."""

    def __init__(self, message: str, uri: str | None = None, line: int | None = None) -> None:
        super().__init__(message, uri, line)
        self.uri = uri
        self.line = line


class EncodeError(DdbioError, ValueError):
    """Report a row that is no item DynamoDB takes."""

    def __init__(self, message: str, row: int | None = None, attribute: str = "", rule: str = "") -> None:
        super().__init__(message, row, attribute, rule)
        self.row = row
        self.attribute = attribute
        self.rule = rule


class KernelError(DdbioError, ImportError):
    """Report that the compiled loops are missing, or cannot be loaded or built."""


class NotFoundError(DdbioError, LookupError):
    """Report a table, index, export or object that does not exist."""


class AccessDeniedError(DdbioError, PermissionError):
    """Report missing credentials, or a refusal by IAM or KMS."""

    def __init__(self, message: str, action: str | None = None, resource: str | None = None) -> None:
        super().__init__(message, action, resource)
        self.action = action
        self.resource = resource


class EndpointError(DdbioError, ConnectionError):
    """Report an endpoint that does not answer, or not as the service it should be."""

    retryable = True

    def __init__(self, message: str, endpoint_url: str | None = None) -> None:
        super().__init__(message, endpoint_url)
        self.endpoint_url = endpoint_url


class ServiceError(DdbioError, RuntimeError):
    """Report a refusal by AWS that no other class names."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message, code)
        self.code = code


class LimitError(DdbioError, RuntimeError):
    """Report a job that would consume more than it may, or did."""


class ThrottledError(DdbioError, TimeoutError):
    """Report that throttling let nothing through within the deadline."""

    def __init__(self, message: str, consumed: float = 0.0, elapsed_seconds: float = 0.0) -> None:
        super().__init__(message, consumed, elapsed_seconds)
        self.consumed = consumed
        self.elapsed_seconds = elapsed_seconds


class TargetError(DdbioError, OSError):
    """Report a target that is not empty, not writable or full."""

    def __init__(self, message: str, uri: str | None = None) -> None:
        super().__init__(message, uri)
        self.uri = uri


class PartialWriteError(DdbioError, RuntimeError):
    """Report a write of which only a part was accepted."""

    def __init__(self, message: str, accepted: int = 0, rejected: int = 0, rejects_uri: str | None = None) -> None:
        super().__init__(message, accepted, rejected, rejects_uri)
        self.accepted = accepted
        self.rejected = rejected
        self.rejects_uri = rejects_uri


class GapError(DdbioError, LookupError):
    """Report changes that a stream forgot before they were read."""

    def __init__(self, message: str, shard: str | None = None, position: str | None = None) -> None:
        super().__init__(message, shard, position)
        self.shard = shard
        self.position = position


class ExportIncompleteError(DdbioError, ValueError):
    """Report an export whose manifest, counts or checksums disagree with its files."""


class ValidationError(DdbioError, ValueError):
    """Report that source and sink differ."""

    def __init__(self, message: str, report: dict[str, Any] | None = None) -> None:
        super().__init__(message, report)
        self.report = report
