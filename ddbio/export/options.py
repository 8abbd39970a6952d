"""Options of the service's exports, imports, bulk puts and backups."""

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
from ddbio.options.parsing import CONFIG, Names, check_columns, split_indexes


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportReadOptions(ColumnOptions):
    """Native export, and the columns of its items."""

    source: Annotated[str, Field(min_length=1)]
    """Export folder with ``manifest-summary.json``: ``s3://bucket/…/AWSDynamoDB/ID`` or local."""
    where: Annotated[str, Field(min_length=1)] | None = None
    """PartiQL condition of the rows: ``total > 9``. Python evaluates it, slower than a full read."""
    columns: Names | None = None
    """Attributes to read. Default: all."""

    @model_validator(mode="after")
    def _check_selection(self) -> ExportReadOptions:
        check_columns(self.columns)
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportWindowsOptions(ConnectionOptions):
    """Full export at the start of the changes, and their end."""

    source: Annotated[str, Field(min_length=1)]
    """Folder of the full export."""
    until: AwareDatetime | None = None
    """End of the changes (with time zone). Default: now."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportToFilesOptions(FilesOptions, ExportReadOptions, TimeLimitOptions):
    """Export, and the output files."""

    format: Literal[FileFormatName, LakeFormatName] = "parquet"
    """File format, or a lake table for ``apply``: ``delta``, ``iceberg``, ``hudi``."""
    key: Names | None = None
    """Key attributes of a new lake table. Default: from DescribeTable."""
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    """Buckets (partitions ``_b``) of a new lake table. They never change."""

    @model_validator(mode="after")
    def _check_table(self) -> ExportToFilesOptions:
        check_lake(self, self.format, ("partition_by", "catalog", "where", "columns"))
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportFoldOptions(ExportToFilesOptions):
    """Full export, the time of the last applied change, and the output files."""

    as_of: AwareDatetime | None = None
    """End of the last window to apply (with time zone). Default: the last one."""
    spill: str | None = None
    """Folder for intermediate rows that all workers reach. Default: temporary; on Spark, in the target."""

    @model_validator(mode="after")
    def _check_folded(self) -> ExportFoldOptions:
        if self.format in LAKE_FORMATS:
            LAKE_FORMATS[self.format].check("fold")
        return self


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_IncrementalExportSpecification.html
_MIN_WINDOW, _MAX_WINDOW = timedelta(minutes=15), timedelta(hours=24)


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CreateBackup.html
_BACKUP_NAME = r"^[a-zA-Z0-9_.-]{3,255}$"


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class WaitOptions(WaitPolicyOptions):
    """Job of the service, and the waiting time."""

    arn: Annotated[str, Field(pattern=r"^arn:")]
    """ARN of the job."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportStartOptions(LimitOptions):
    """Table to export, the time of its state, and the target."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    dest: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix``. The service writes to ``AWSDynamoDB/ID`` below it."""
    at: AwareDatetime | None = None
    """Time of a full export (with time zone). Default: now."""
    from_time: AwareDatetime | None = None
    """Start of an incremental export (with time zone)."""
    to_time: AwareDatetime | None = None
    """End of an incremental export, 15 minutes to 24 hours after its start."""
    view: Literal["new_image", "new_and_old_images"] = "new_and_old_images"
    """Images in an incremental export."""
    format: ServiceFormat = "dynamodb_json"
    """Format of the data files."""
    kms_key: str | None = None
    """KMS key for the objects. Default: SSE-S3."""
    bucket_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account that owns the bucket, if another one."""
    client_token: Annotated[str, Field(pattern=r"^[^$]+$")] | None = None
    """Idempotency token, valid for eight hours. Default: a new one."""
    enable_pitr: bool = False
    """Turn on point-in-time recovery if it is off. AWS bills it."""
    where: Annotated[str, Field(min_length=1)] | None = None
    """PartiQL condition of the exported items: ``id = 'a' AND total > 9``. One partition key value reads less."""
    columns: Names | None = None
    """Attributes to export. Default: all."""

    @model_validator(mode="after")
    def _check_filter(self) -> ExportStartOptions:
        check_columns(self.columns)
        return self

    @model_validator(mode="after")
    def _check_times(self) -> ExportStartOptions:
        if (self.from_time is None) != (self.to_time is None):
            raise ValueError("from_time and to_time belong together: give both or neither")
        if self.from_time is None or self.to_time is None:
            return self
        if self.at is not None:
            raise ValueError("at is for a full export, from_time and to_time for an incremental one")
        if not _MIN_WINDOW <= self.to_time - self.from_time <= _MAX_WINDOW:
            raise ValueError("the window from from_time to to_time must have 15 minutes to 24 hours")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ImportStartOptions(LimitOptions):
    """Objects to import, their format, and the new table."""

    source: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` of the objects: the target of ``import files``, or its ``data``."""
    table: Annotated[str, Field(min_length=3, max_length=255)]
    """Name of the new table."""
    key: str | None = None
    """Key of the table: ``pk:S`` or ``pk:S,sk:N``. Default: from the manifest."""
    gsi: Annotated[tuple[str, ...], BeforeValidator(split_indexes)] = ()
    """Global secondary indexes, as for ``table create``. Default: from the manifest."""
    billing: Literal["on_demand", "provisioned"] = "on_demand"
    """Billing mode of the table."""
    rcu: Annotated[int, Field(ge=1)] | None = None
    """Provisioned RCU/s of the table and of each index."""
    wcu: Annotated[int, Field(ge=1)] | None = None
    """Provisioned WCU/s of the table and of each index."""
    format: ImportFormat | None = None
    """Format of the objects. Default: from the manifest, else ``dynamodb_json``."""
    compression: ImportCompression | None = None
    """Compression of all objects. Default: from the manifest."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """CSV delimiter: comma, semicolon, colon, bar, tab or space. Default: comma."""
    bucket_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account that owns the bucket, if another one."""
    client_token: Annotated[str, Field(pattern=r"^[^$]+$")] | None = None
    """Idempotency token, valid while the import runs. Default: a new one."""

    @model_validator(mode="after")
    def _check_start(self) -> ImportStartOptions:
        if (self.billing == "provisioned") != (self.rcu is not None and self.wcu is not None):
            raise ValueError("billing=provisioned and both rcu and wcu belong together")
        if self.delimiter is not None and self.format != "csv":
            raise ValueError("delimiter is for format=csv")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ImportWaitOptions(WaitOptions):
    """Import to wait for, and the verification of its table."""

    verify: bool = False
    """Scan the new table (billed), and compare count and digest."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BulkStartOptions(LimitOptions):
    """Objects to put, the table, the write rate and the folder of reports."""

    source: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` of the objects: the target of ``import files``, or its ``data``."""
    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of an existing table."""
    reports: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` for reports of failed items, outside the source."""
    format: ServiceFormat | None = None
    """Format of the objects. Default: from the manifest, else ``dynamodb_json``."""
    compression: ImportCompression | None = None
    """Compression of all objects. Default: from the manifest."""
    wcu_per_second: Annotated[int, Field(ge=1024)] | None = None
    """Write budget in WCU/s, at least 1,024. Default: the service's."""
    tier: Literal["standard", "accelerated"] = "standard"
    """Performance tier."""
    kms_key: str | None = None
    """KMS key for the reports. Default: the bucket's encryption setting."""
    bucket_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account that owns the bucket, if another one."""
    client_token: Annotated[str, Field(pattern=r"^[^$]+$")] | None = None
    """Idempotency token, valid for eight hours. Default: a new one."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BulkReportOptions(ConnectionOptions):
    """Bulk put whose reports are read, and the folder of refused items."""

    place: Annotated[str, Field(min_length=1)]
    """ARN of the bulk operation, or the folder of its reports."""
    reject_to: str | None = None
    """Folder for refused items, which ``load`` with ``retry_rejects`` reads."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BackupCreateOptions(WaitPolicyOptions, LimitOptions):
    """Table to back up."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    name: Annotated[str, Field(pattern=_BACKUP_NAME)] | None = None
    """Name of the backup. Default: table name and time."""
    digest: bool = False
    """Scan the table for count and digest. Stop writers meanwhile."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class RestoreOptions(WaitPolicyOptions, LimitOptions):
    """Source of a restored table, and its verification."""

    source: Annotated[str, Field(min_length=1)]
    """ARN of a backup, or a table (name or ARN) with point-in-time recovery."""
    target: Annotated[str, Field(min_length=3, max_length=255)]
    """Name of the new table."""
    at: AwareDatetime | None = None
    """Point in time to restore (with time zone). Default: the latest."""
    expect_digest: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    """Digest that the new table must have. The table is scanned."""
    verify: bool = False
    """Compare count and digest with the current source table. Both are scanned."""

    @model_validator(mode="after")
    def _check_restore(self) -> RestoreOptions:
        if self.at is not None and "/backup/" in self.source:
            raise ValueError("a backup has one time: at is for a table with point-in-time recovery")
        if self.verify and self.expect_digest is not None:
            raise ValueError("expect_digest compares with an earlier state, verify with the current one: give only one")
        return self
