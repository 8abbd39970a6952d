"""Plans and descriptions of jobs that the service runs: exports, imports, bulk puts, backups and restores."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ddbio.errors import AccessDeniedError, DdbioError, NotFoundError, OptionError, ServiceError
from ddbio.jobs.create_table import NewTable, format_key, new_table_request, parse_key
from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
from ddbio.options.connection import OBJECT_OPTIONS
from ddbio.result import Result

if TYPE_CHECKING:
    from datetime import datetime

    from ddbio.aws.table_description import RecoveryDescription, TableDescription
    from ddbio.export.options import BulkStartOptions, ExportStartOptions, ImportStartOptions
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


# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataImport.Validation.html
_MAX_OBJECTS = 50_000
FOLDER = "data/"
"""The folder of the objects of ``import files`` below its target: the service reads all that is below a prefix."""


@dataclass(frozen=True)
class ImportedFiles:
    """Hold what the manifest of import files says; a field is None if it says nothing."""

    key: str | None = None
    format: str | None = None
    compression: str | None = None
    delimiter: str | None = None
    gsi: tuple[str, ...] = ()
    condition: str | None = None
    items: int | None = None
    json_bytes: int | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, manifest: bytes) -> ImportedFiles | None:
        """Return what a job's manifest says, or None if the job wrote no files for an import."""
        try:
            members = json.loads(manifest)["source"]["import"]
            texts = {name: members[name] for name in ("key", "format", "compression", "digest")}
            texts |= {name: members.get(name) for name in ("delimiter", "condition")}
            gsi = tuple(members.get("gsi", ()))
            counts = {name: members[name] for name in ("items", "json_bytes")}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if not all(isinstance(text, str) for text in (*texts.values(), *gsi) if text is not None):
            return None
        return cls(**texts, gsi=gsi, **counts) if all(type(count) is int for count in counts.values()) else None


@dataclass(frozen=True)
class ImportPlan(EstimatedPlan):
    """Describe an import completely before it is requested.

    ``items`` and ``json_bytes`` are None without a manifest. ``unchecked`` are the indexes for whose keys the items
    were not checked when the files were written.
    """

    table: str
    bucket: str
    prefix: str
    key: str
    indexes: tuple[str, ...]
    unchecked: tuple[str, ...]
    billing: str
    rcu: int | None
    wcu: int | None
    format: str
    compression: str
    delimiter: str | None
    bucket_owner: str | None
    client_token: str
    objects: int
    object_bytes: int
    items: int | None
    json_bytes: int | None
    estimate: Estimate = field(default_factory=Estimate)


@dataclass(frozen=True)
class ImportEntry(Result):
    """Hold one entry of a list of imports."""

    arn: str
    status: str
    table_arn: str
    source: str


@dataclass(frozen=True)
class ImportJob(Result):
    """Describe one import as the service does; times are ISO 8601, counts are 0 until it ends.

    Attributes
    ----------
    arn, status
        ``IN_PROGRESS``, ``COMPLETED``, ``CANCELLING``, ``CANCELLED`` or ``FAILED``.
    table, table_arn, source
        The new table, and the prefix that is read.
    format, compression
        How the objects are read.
    started_at, ended_at
        Times of its start and its end.
    processed_items, imported_items, errors
        Items read, items written, and errors. The service stops reading an object at its first bad line: that line and
        the rest of the object count as one error.
    processed_bytes
        Bytes of text read, uncompressed.
    log_group
        The log group to which the service writes its errors.
    items, verified
        Items of the files, if their manifest was found; whether count and digest of the table were compared with them.
    client_token, failure_code, failure_message
        As the service gives them.
    planned, actual
        Bytes, USD and seconds, as planned where it was started, and as billed where it has ended.
    """

    arn: str
    status: str
    table: str
    table_arn: str
    source: str
    format: str
    compression: str
    started_at: str | None
    ended_at: str | None
    processed_items: int
    imported_items: int
    errors: int
    processed_bytes: int
    log_group: str | None
    client_token: str | None
    failure_code: str | None
    failure_message: str | None
    items: int | None = None
    verified: bool = False
    planned: Figures | None = None
    actual: Figures | None = None


def plan_import(
    options: ImportStartOptions, files: ImportedFiles, objects: tuple[int, ...], client_token: str
) -> ImportPlan:
    """Return the plan of an import.

    Parameters
    ----------
    files
        What the manifest of the files says.
    objects
        Sizes of the objects below the prefix.

    Raises
    ------
    OptionError
        If key or compression are neither given nor in the manifest, or differ from it, there are too many objects, or
        the items have conditions.
    """
    bucket, prefix = s3_place(options.source)
    if files.condition is not None:
        raise OptionError(f"items with the condition {files.condition} are for a bulk put: write them without it")
    if len(objects) > _MAX_OBJECTS:
        raise OptionError(
            f"{options.source} holds {len(objects)} objects, an import takes {_MAX_OBJECTS}: make larger ones"
        )
    key = resolved("key", None if options.key is None else format_key(parse_key(options.key)), files.key)
    file_format = resolved("format", options.format, files.format or options.format or "dynamodb_json")
    return ImportPlan(
        table=options.table,
        bucket=bucket,
        # Without the slash, "a/b" would also match the objects below "a/bc".
        prefix=f"{prefix}/" if prefix else "",
        key=key,
        indexes=options.gsi or files.gsi,
        unchecked=tuple(each for each in options.gsi if each not in files.gsi),
        billing=options.billing,
        rcu=options.rcu,
        wcu=options.wcu,
        format=file_format,
        compression=resolved("compression", options.compression, files.compression),
        delimiter=options.delimiter or files.delimiter,
        bucket_owner=options.bucket_owner or options.s3_expected_bucket_owner,
        client_token=client_token,
        objects=len(objects),
        object_bytes=sum(objects),
        items=files.items,
        json_bytes=files.json_bytes,
    )


def table_definition(plan: ImportPlan) -> dict[str, Any]:
    """Return the new table as parameters of CreateTable.

    Raises
    ------
    OptionError
        If an index is not written as ``name=key``, or an attribute has two types.
    """
    return new_table_request(NewTable(plan.table, plan.key, plan.indexes, plan.rcu, plan.wcu))


def resolved(name: str, given: str | None, recorded: str | None) -> str:
    """Return the value of an option, as given or from the manifest of the files.

    Raises
    ------
    OptionError
        If both are there and differ, or neither is there.
    """
    if given is not None and recorded is not None and given != recorded:
        raise OptionError(f"{name} is given as {given}, but the manifest of the files says {recorded}")
    value = given or recorded
    if value is None:
        raise OptionError(f"there is no manifest of these files that says their {name}: give {name}")
    return value


@dataclass(frozen=True)
class BulkPlan(EstimatedPlan):
    """Describe a bulk put completely before it is requested; ``items`` is None if there is no manifest."""

    table: str
    bucket: str
    prefix: str
    report_bucket: str
    report_prefix: str
    format: str
    compression: str
    wcu_per_second: int | None
    tier: str
    kms_key: str | None
    bucket_owner: str | None
    client_token: str
    objects: int
    object_bytes: int
    items: int | None
    estimate: Estimate = field(default_factory=Estimate)
    report_owner: str | None = None


@dataclass(frozen=True)
class BulkEntry(Result):
    """Hold one entry of a list of bulk operations."""

    arn: str
    status: str
    started_at: str | None
    ended_at: str | None


@dataclass(frozen=True)
class BulkJob(Result):
    """Describe one bulk put as the service does; times are ISO 8601.

    Attributes
    ----------
    arn, status
        ``IN_PROGRESS``, ``COMPLETED``, ``COMPLETED_WITH_ERRORS``, ``CANCELLING``, ``CANCELLED`` or ``FAILED``.
    table, source, reports
        The table, the place of the objects, and the place of the reports about items that were not put.
    processed_items, failed_items
        Items read, and those of them that were errors. An item whose condition did not hold is no error.
    processed_bytes, total_bytes
        Bytes of the objects as stored; the total is None until the service knows it.
    planned, actual
        Units, bytes, USD and seconds as planned where it was started; seconds and bytes where it has ended.
    """

    arn: str
    status: str
    table: str
    source: str
    reports: str
    started_at: str | None
    ended_at: str | None
    processed_items: int
    failed_items: int
    processed_bytes: int
    total_bytes: int | None
    client_token: str | None
    failure_code: str | None
    failure_message: str | None
    planned: Figures | None = None
    actual: Figures | None = None


def plan_bulk(
    facts: TableDescription,
    options: BulkStartOptions,
    files: ImportedFiles,
    objects: tuple[int, ...],
    client_token: str,
) -> BulkPlan:
    """Return the plan of a bulk put.

    Raises
    ------
    OptionError
        If the files are CSV or were written for another key, their compression is not known, or the reports would lie
        among the objects.
    """
    bucket, prefix = s3_place(options.source)
    report_bucket, report_prefix = s3_place(options.reports)
    if report_bucket == bucket and f"{report_prefix}/".startswith(f"{prefix}/" if prefix else ""):
        raise OptionError(f"reports at {options.reports} would lie below the source {options.source}")
    if files.format == "csv":
        raise OptionError("a bulk put reads dynamodb_json or ion: write the files in one of these")
    key = ",".join(f"{name}:{tag}" for name, tag in facts.key_types)
    if files.key not in (None, key):
        raise OptionError(f"the files were written for the key {files.key}, table {facts.name!r} has {key}")
    return BulkPlan(
        table=options.table,
        bucket=bucket,
        prefix=f"{prefix}/" if prefix else "",
        report_bucket=report_bucket,
        report_prefix=report_prefix,
        format=resolved("format", options.format, files.format or options.format or "dynamodb_json"),
        compression=resolved("compression", options.compression, files.compression),
        wcu_per_second=options.wcu_per_second,
        tier=options.tier,
        kms_key=service_key(options, options.kms_key),
        bucket_owner=options.bucket_owner or options.s3_expected_bucket_owner,
        report_owner=options.s3_expected_bucket_owner,
        client_token=client_token,
        objects=len(objects),
        object_bytes=sum(objects),
        items=files.items,
    )
