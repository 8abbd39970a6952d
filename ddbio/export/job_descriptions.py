"""Plan and describe jobs that the service runs itself: exports, backups and restores; and what all of them share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ddbio.errors import AccessDeniedError, DdbioError, NotFoundError, OptionError, ServiceError
from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
from ddbio.options.connection import OBJECT_OPTIONS
from ddbio.result import Result

if TYPE_CHECKING:
    from datetime import datetime

    from ddbio.aws.table_description import RecoveryDescription, TableDescription
    from ddbio.export.options import ExportStartOptions
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


@dataclass(frozen=True)
class ExportPlan(EstimatedPlan):
    """Describe an export completely before it is requested.

    ``items`` and ``size_bytes`` are those of DescribeTable; a full export is billed by the size of the table.
    """

    table: str
    table_arn: str
    kind: Literal["full", "incremental"]
    bucket: str
    prefix: str
    format: str
    at: datetime | None
    from_time: datetime | None
    to_time: datetime | None
    view: str | None
    kms_key: str | None
    bucket_owner: str | None
    client_token: str
    enables_recovery: bool
    items: int
    size_bytes: int
    estimate: Estimate = field(default_factory=Estimate)


@dataclass(frozen=True)
class ExportEntry(Result):
    """Hold one entry of a list of exports."""

    arn: str
    status: str
    kind: str


@dataclass(frozen=True)
class ExportJob(Result):
    """Describe one export as the service does; times are ISO 8601.

    Attributes
    ----------
    arn, status, kind
        ``IN_PROGRESS``, ``COMPLETED`` or ``FAILED``; ``full`` or ``incremental``.
    uri
        The folder to read it from, once it has completed.
    export_time
        The time whose state a full export holds.
    from_time, to_time, view
        Window and view of an incremental export.
    filtered
        Whether it leaves out items or attributes.
    items, billed_bytes
        Known once it has completed.
    client_token
        For eight hours the same request with the same token starts no second export.
    planned, actual
        Bytes, USD and seconds, as planned where it was started, and as billed where it has ended.
    """

    arn: str
    status: str
    kind: str
    table_arn: str
    uri: str | None
    format: str
    export_time: str | None
    from_time: str | None
    to_time: str | None
    view: str | None
    filtered: bool
    started_at: str | None
    ended_at: str | None
    items: int | None
    billed_bytes: int | None
    client_token: str | None
    failure_code: str | None
    failure_message: str | None
    planned: Figures | None = None
    actual: Figures | None = None


def plan_export(
    facts: TableDescription, recovery: RecoveryDescription, options: ExportStartOptions, client_token: str
) -> ExportPlan:
    """Return the plan of an export.

    Raises
    ------
    OptionError
        If point-in-time recovery is off and may not be turned on, or does not reach back to a requested time; or
        an option of objects is given that the service has no parameter for.
    """
    turns_on = not recovery.is_on
    if turns_on and not options.enable_pitr:
        raise OptionError(
            f"table {facts.name!r} has no point-in-time recovery, which exports need: turn it on, or give enable_pitr "
            "to have it turned on (AWS bills it by the table's size)"
        )
    for name in ("at", "from_time", "to_time"):
        if getattr(options, name) is not None:
            recovery.check(name, getattr(options, name))
    bucket, prefix = s3_place(options.dest)
    return ExportPlan(
        table=facts.name,
        table_arn=facts.arn,
        kind="full" if options.from_time is None else "incremental",
        bucket=bucket,
        prefix=prefix,
        format=options.format,
        at=options.at,
        from_time=options.from_time,
        to_time=options.to_time,
        view=None if options.from_time is None else options.view,
        kms_key=service_key(options, options.kms_key),
        bucket_owner=options.bucket_owner or options.s3_expected_bucket_owner,
        client_token=client_token,
        enables_recovery=turns_on,
        items=facts.item_count,
        size_bytes=facts.size_bytes,
    )


@dataclass(frozen=True)
class BackupJob(Result):
    """Describe a backup; times are ISO 8601.

    Attributes
    ----------
    arn, name, status, kind
        ``CREATING``, ``AVAILABLE`` or ``DELETED``; ``USER``, ``SYSTEM`` (of a deleted table) or ``AWS_BACKUP``.
    table, table_arn
        The table that was backed up.
    size_bytes, table_items
        As the service says; it counts items about every six hours.
    created_at, expires_at
        Time of the backup, and the time at which the service deletes it.
    items, digest
        Items and digest of the table, if requested.
    planned, actual
        Read units of the digest, bytes, seconds and USD of the first month, as planned and as it was.
    """

    arn: str
    name: str
    status: str
    kind: str
    table: str
    table_arn: str
    size_bytes: int
    created_at: str
    expires_at: str | None
    table_items: int | None = None
    items: int | None = None
    digest: str | None = None
    planned: Figures | None = None
    actual: Figures | None = None


@dataclass(frozen=True)
class BackupPlan(EstimatedPlan):
    """Describe a backup before it is requested: the table as DescribeTable has it, and what the backup costs."""

    table: TableDescription
    estimate: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return the table and the estimate as one."""
        return {**self.table.to_dict(), **self.estimate.to_dict()}


@dataclass(frozen=True)
class RestorePlan(EstimatedPlan):
    """Describe a restore completely before it is requested; ``at`` is None for a backup and for the latest time."""

    target: str
    source: str
    source_table: str
    backup_arn: str | None
    at: datetime | None
    size_bytes: int
    estimate: Estimate = field(default_factory=Estimate)


@dataclass(frozen=True)
class RestoreJob(Result):
    """Describe a restored table.

    Attributes
    ----------
    arn, table, status
        The new table; ``CREATING``, then ``ACTIVE``.
    source, restored_at
        The backup or table it was restored from, and the time whose state it has.
    items, digest
        Items and digest of the new table, if they were compared.
    verified
        Whether they were compared.
    seconds
        Time from the request until the table was usable.
    planned, actual
        Read units of the verification, bytes, seconds and USD, as planned and as it was.
    """

    arn: str
    table: str
    status: str
    source: str
    restored_at: str | None
    items: int | None = None
    digest: str | None = None
    verified: bool = False
    seconds: float = 0.0
    planned: Figures | None = None
    actual: Figures | None = None
