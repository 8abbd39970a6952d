"""Options of native exports, and of other jobs of the service: imports, bulk puts, backups."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AwareDatetime, BeforeValidator, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.columns import ColumnOptions
from ddbio.options.connection import ConnectionOptions, WaitPolicyOptions
from ddbio.options.files import FilesOptions, check_lake
from ddbio.options.format_names import FileFormatName, ImportCompression, ImportFormat, LakeFormatName, ServiceFormat
from ddbio.options.lake_formats import LAKE_FORMATS
from ddbio.options.limits import LimitOptions, TimeLimitOptions
from ddbio.options.parsing import CONFIG, Names, split_indexes


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportReadOptions(ColumnOptions):
    """Choose a native export and the columns that its items are decoded into."""

    source: Annotated[str, Field(min_length=1)]
    """The export's folder, which holds manifest-summary.json: ``s3://bucket/…/AWSDynamoDB/ID`` or a local path."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportWindowsOptions(ConnectionOptions):
    """Choose the full export from which, and the time until which, changes are wanted."""

    source: Annotated[str, Field(min_length=1)]
    """The full export's folder, as for reading it."""
    until: AwareDatetime | None = None
    """Time, with its zone, until which changes are wanted; default is now."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportToFilesOptions(FilesOptions, ExportReadOptions, TimeLimitOptions):
    """Choose an export, and the files that its rows go to."""

    format: Literal[FileFormatName, LakeFormatName] = "parquet"
    """Format of the files; or ``delta``, ``iceberg``, ``hudi``: a lake table, which ``apply`` merges changes into."""
    key: Names | None = None
    """Key attributes of a lake table that is made; default is what DynamoDB says of the export's table."""
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    """Partitions ``_b`` of a lake table that is made; those of a table never change."""

    @model_validator(mode="after")
    def _check_table(self) -> ExportToFilesOptions:
        check_lake(self, self.format, ("partition_by", "catalog"))
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportFoldOptions(ExportToFilesOptions):
    """Choose a full export, the time up to which changes are applied, and the files that its rows go to."""

    as_of: AwareDatetime | None = None
    """Time, with its zone, of the wanted state: the end of a window; default is the end of the last one."""
    spill: str | None = None
    """Folder for intermediate rows, which all workers reach; default is a temporary one, with Spark in the target."""

    @model_validator(mode="after")
    def _check_folded(self) -> ExportFoldOptions:
        if self.format in LAKE_FORMATS:
            LAKE_FORMATS[self.format].check("fold")
        return self


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_IncrementalExportSpecification.html
_SHORTEST, _LONGEST = timedelta(minutes=15), timedelta(hours=24)


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CreateBackup.html
_BACKUP_NAME = r"^[a-zA-Z0-9_.-]{3,255}$"


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class WaitOptions(WaitPolicyOptions):
    """Choose a job of the service, and how long it is awaited."""

    arn: Annotated[str, Field(pattern=r"^arn:")]
    """ARN of the job, as its start reported it."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportStartOptions(LimitOptions):
    """Choose the table that is exported, as of which time, and where to."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    dest: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix``; the service puts ``AWSDynamoDB/ID`` below it."""
    at: AwareDatetime | None = None
    """Time, with its zone, whose state a full export holds; default is now."""
    from_time: AwareDatetime | None = None
    """Begin of the window of an incremental export, with its zone."""
    to_time: AwareDatetime | None = None
    """End of that window, 15 minutes to 24 hours after its begin."""
    view: Literal["new_image", "new_and_old_images"] = "new_and_old_images"
    """Whether an incremental export also has each item as it was before the window."""
    format: ServiceFormat = "dynamodb_json"
    """Format of the data files."""
    kms_key: str | None = None
    """KMS key that encrypts the objects; default is S3's own."""
    bucket_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account that owns the bucket, if it is another one."""
    client_token: Annotated[str, Field(pattern=r"^[^$]+$")] | None = None
    """Idempotency token: within eight hours, the same request with it is the same export; default is a new one."""
    enable_pitr: bool = False
    """Turn point-in-time recovery on if it is off; AWS bills it."""

    @model_validator(mode="after")
    def _check_times(self) -> ExportStartOptions:
        if (self.from_time is None) != (self.to_time is None):
            raise ValueError("from_time and to_time belong together: give both or neither")
        if self.from_time is None or self.to_time is None:
            return self
        if self.at is not None:
            raise ValueError("at is for a full export, from_time and to_time for an incremental one")
        if not _SHORTEST <= self.to_time - self.from_time <= _LONGEST:
            raise ValueError("the window from from_time to to_time has to be 15 minutes to 24 hours long")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ImportStartOptions(LimitOptions):
    """Choose the objects that are imported, how they are read, and what the new table is like."""

    source: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix``; all objects below it are read. Give the target of ``import files``, or ``data`` in it."""
    table: Annotated[str, Field(min_length=3, max_length=255)]
    """Name of the new table."""
    key: str | None = None
    """Key of the table: ``pk:S`` or ``pk:S,sk:N``; default is that in the manifest of ``import files``."""
    gsi: Annotated[tuple[str, ...], BeforeValidator(split_indexes)] = ()
    """Global indexes, separated by ``;``: ``name=pk:S,sk:N``, with ``/KEYS_ONLY`` appended to project keys only.

    Default is those in the manifest of ``import files``.
    """
    billing: Literal["on_demand", "provisioned"] = "on_demand"
    """How the table is billed."""
    rcu: Annotated[int, Field(ge=1)] | None = None
    """Read units per second of a provisioned table and of each of its indexes."""
    wcu: Annotated[int, Field(ge=1)] | None = None
    """Write units per second likewise; the import itself uses none."""
    format: ImportFormat | None = None
    """Format of the objects; default is the manifest's, else dynamodb_json."""
    compression: ImportCompression | None = None
    """Compression of the objects, the same for all; default is the manifest's."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """Delimiter of CSV fields: comma, semicolon, colon, bar, tab or space; default is a comma."""
    bucket_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account that owns the bucket, if it is another one."""
    client_token: Annotated[str, Field(pattern=r"^[^$]+$")] | None = None
    """Idempotency token: while an import runs, the same start with it is the same import; default is a new one."""

    @model_validator(mode="after")
    def _check_start(self) -> ImportStartOptions:
        if (self.billing == "provisioned") != (self.rcu is not None and self.wcu is not None):
            raise ValueError("billing=provisioned and both rcu and wcu belong together")
        if self.delimiter is not None and self.format != "csv":
            raise ValueError("delimiter is for format=csv")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ImportWaitOptions(WaitOptions):
    """Choose an import that is awaited, and what of its table is compared with the files."""

    verify: bool = False
    """Scan the new table, at the price of a scan, and compare count and digest with those of the files."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BulkStartOptions(LimitOptions):
    """Choose the objects that are put, into which table, how fast, and where reports go."""

    source: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix``; all objects below it are read. Give the target of ``import files``, or ``data`` in it."""
    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table, which has to exist."""
    reports: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` to which the service writes what it could not put; not below the source."""
    format: ServiceFormat | None = None
    """Format of the objects; default is the manifest's, else dynamodb_json."""
    compression: ImportCompression | None = None
    """Compression of the objects, the same for all; default is the manifest's."""
    wcu_per_second: Annotated[int, Field(ge=1024)] | None = None
    """Write units per second that the operation may use, at least 1,024; default is the service's."""
    tier: Literal["standard", "accelerated"] = "standard"
    """Performance tier."""
    kms_key: str | None = None
    """KMS key that encrypts the reports; default is the bucket's own way."""
    bucket_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account that owns the source's bucket, if it is another one."""
    client_token: Annotated[str, Field(pattern=r"^[^$]+$")] | None = None
    """Idempotency token: within eight hours, the same start with it is the same operation; default is a new one."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BulkReportOptions(ConnectionOptions):
    """Choose the bulk put whose reports are read, and where refused items are kept."""

    place: Annotated[str, Field(min_length=1)]
    """ARN of the bulk operation, or the folder or ``s3://`` prefix of its reports."""
    reject_to: str | None = None
    """Folder or s3:// prefix for the refused items, as ``load`` with ``retry_rejects`` takes them."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BackupCreateOptions(WaitPolicyOptions, LimitOptions):
    """Choose the table that is backed up."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    name: Annotated[str, Field(pattern=_BACKUP_NAME)] | None = None
    """Name of the backup; default is the table's with the time."""
    digest: bool = False
    """Scan the table and report its count and digest, to compare after a restore; nobody should write meanwhile."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class RestoreOptions(WaitPolicyOptions, LimitOptions):
    """Choose what a new table is restored from, and what it is compared with."""

    source: Annotated[str, Field(min_length=1)]
    """ARN of a backup; or a table, by name or ARN, that has point-in-time recovery."""
    target: Annotated[str, Field(min_length=3, max_length=255)]
    """Name of the new table."""
    at: AwareDatetime | None = None
    """Time, with its zone, whose state of the table is restored; default is the latest restorable time."""
    expect_digest: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    """Digest that the new table must have; the table is scanned to compare."""
    verify: bool = False
    """Compare count and digest with those of the source table as it is now; both tables are scanned."""

    @model_validator(mode="after")
    def _check_restore(self) -> RestoreOptions:
        if self.at is not None and "/backup/" in self.source:
            raise ValueError("a backup has one time: at is for a table with point-in-time recovery")
        if self.verify and self.expect_digest is not None:
            raise ValueError("expect_digest compares with what was, verify with what is: give one of them")
        return self
