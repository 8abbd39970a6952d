"""Options of lake tables: changes applied, maintenance, verification, views."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, ByteSize, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.cdc.options import CaptureHealOptions
from ddbio.options.connection import CatalogConnectionOptions, ConnectionOptions, WaitPolicyOptions
from ddbio.options.format_names import Compression, LakeFormatName
from ddbio.options.lake_formats import LAKE_FORMATS, check_engine_of
from ddbio.options.limits import LimitOptions
from ddbio.options.parsing import CONFIG, LongAge, Names, seconds_of

_MIN_TOMBSTONE_HOURS, _MIN_VACUUM_HOURS = 48, 24


_REASONS = {
    "tombstones_older_than": "changes may arrive late while a stream keeps them",
    "expire_snapshots_older_than": "readers and running jobs may use older versions",
    "vacuum_older_than": "readers and running jobs may use files that no version needs any more, or not yet",
}


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ApplyOptions(CatalogConnectionOptions):
    """Changes, and the lake table that they are merged into."""

    source: Annotated[str, Field(min_length=1)]
    """Folder of a log or of an incremental export."""
    table: Annotated[str, Field(min_length=1)]
    """Folder of the lake table, which is created if missing."""
    format: LakeFormatName = "delta"
    """Format of the lake table. ``hudi`` needs engine ``spark``: Spark 3.5 with the Hudi jar."""
    engine: Literal["local", "spark"] = "local"
    """Merge in this process without a JVM, or by Spark tasks. Delta and Iceberg need no jar."""
    shared_paths: bool = False
    """All Spark workers see the same local paths, for example by NFS."""
    catalog: str | None = None
    """Catalog table of the lake table: ``glue://database.table`` (S3 only); Iceberg:
    ``iceberg://catalog/namespace.table`` (pyiceberg: REST, Hive, SQL); Hudi: ``hive://database.table`` (metastore of
    the Spark session)."""
    job_id: str | None = None
    """Capture whose changes are applied. Default: all of the log. For rows: their writer."""
    key: Names | None = None
    """Key attributes of a new table, for rows only."""
    stream: str | None = None
    """Stream of the rows, which ``_sequence`` orders. Default: ``rows``."""
    batch_id: Annotated[int, Field(ge=0)] | None = None
    """Number of the batch of rows. Applied numbers are skipped."""
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    """Buckets (partitions ``_b``) of a new lake table. They never change."""
    max_records_per_batch: Annotated[int, Field(ge=1)] = 1_000_000
    """Approximate changes per commit (complete batches of the log)."""
    target_file_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024**3)] = ByteSize(256 * 1024 * 1024)
    """Size at which a file is closed."""
    compression: Compression = "zstd"
    """Codec of the files."""

    @model_validator(mode="after")
    def _check_format(self) -> ApplyOptions:
        check_engine_of(self.format, self.engine)
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class MaintainOptions(CatalogConnectionOptions):
    """Lake table, and the files and rows to remove or rewrite."""

    table: Annotated[str, Field(min_length=1)]
    """Folder of the lake table."""
    format: LakeFormatName = "delta"
    """Format of the lake table. ``hudi`` needs engine ``spark``: Spark 3.5 with the Hudi jar."""
    engine: Literal["local", "spark"] = "local"
    """Rewrite in this process without a JVM, or by Hudi's services on Spark (Hudi only)."""
    catalog: str | None = None
    """Catalog table of the lake table, as for ``apply``."""
    tombstones_older_than: LongAge | None = None
    """Remove items deleted this long before the newest change: ``7d``, at least ``48h``."""
    vacuum_older_than: LongAge | None = None
    """Delete files unused since then: ``7d``, at least ``24h``, and longer than readers and jobs run."""
    expire_snapshots_older_than: LongAge | None = None
    """Remove versions replaced this long ago from the table's log: ``30d``, at least ``24h``."""
    sort_by: Names | None = None
    """Sort the rows of each bucket by these attributes, in memory."""
    z_order_by: Names | None = None
    """Delta: cluster by these attributes (Z-order). Each run rewrites all files."""
    target_file_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024**3)] = ByteSize(256 * 1024 * 1024)
    """Combine files of a bucket below three quarters of this."""

    @model_validator(mode="after")
    def _check_age(self) -> MaintainOptions:
        for name, reason in _REASONS.items():
            min_hours = _MIN_TOMBSTONE_HOURS if name == "tombstones_older_than" else _MIN_VACUUM_HOURS
            age = getattr(self, name)
            if age is not None and seconds_of(age) < min_hours * 3_600:
                raise ValueError(f"{name} must be at least {min_hours}h: {reason}")
        snapshot_age, file_age = self.expire_snapshots_older_than, self.vacuum_older_than
        if snapshot_age is not None and file_age is not None and seconds_of(snapshot_age) < seconds_of(file_age):
            raise ValueError("expire_snapshots_older_than must be at least vacuum_older_than: versions list the files")
        if self.sort_by is not None and self.z_order_by is not None:
            raise ValueError("give sort_by or z_order_by, not both")
        facts = LAKE_FORMATS[self.format]
        if self.z_order_by is not None:
            facts.check("z_order_by")
        check_engine_of(self.format, self.engine)
        if self.engine == "spark" and not facts.is_written_by_spark:
            raise ValueError(f"this process maintains tables of format {self.format}: leave engine out")
        return self


AnyTableFormat = Literal["auto", LakeFormatName]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class VerifyOptions(WaitPolicyOptions, LimitOptions):
    """Table or its full export, the lake table to compare, and the time of the comparison."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table, or folder of its full export."""
    target: Annotated[str, Field(min_length=1)]
    """Folder of the lake table."""
    format: AnyTableFormat = "auto"
    """Format of the lake table. ``auto`` detects it."""
    at: AwareDatetime | None = None
    """Compare as of this time (with time zone), by a full export. Default: now, by a scan."""
    export_to: str | None = None
    """``s3://bucket/prefix`` for the full export that ddbio requests."""
    log: str | None = None
    """Folder of the applied log, for earlier states of changed items."""
    version: Annotated[int, Field(ge=0)] | None = None
    """Version of the lake table. Default: the newest."""
    margin_seconds: Annotated[float, Field(ge=0, le=3600)] = 60.0
    """Allowed clock difference between changes and the export."""
    examples: Annotated[int, Field(ge=0, le=1_000)] = 10
    """Differing keys of each kind, with both items. 0 saves the second read."""
    consistent: bool = True
    """Use strongly consistent reads, at twice the read units."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read budget of the whole job, in RCU/s."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """Read budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""

    @model_validator(mode="after")
    def _check_verify(self) -> VerifyOptions:
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class HistoryOptions(ConnectionOptions):
    """Log of changes or lake table, and the key of an item."""

    source: Annotated[str, Field(min_length=1)]
    """Folder of a log or of a lake table."""
    key: str | None = None
    """Key of the item: ``S:user#7|N:19`` (as in ``_key``), ``{"pk": "user#7", "sk": 19}``, or a plain value. Default:
    all items."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ViewOptions(ConnectionOptions):
    """View of a log of changes, and its SQL dialect."""

    source: Annotated[str, Field(min_length=1)]
    """Folder of the log."""
    target: str | None = None
    """Folder of the lake table. A history view needs none."""
    dialect: Literal["spark", "duckdb", "athena"] = "spark"
    """SQL engine of the view."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*$")] | None = None
    """Name of the view. Default: only the query."""
    log_relation: str | None = None
    """Name of the log's table in the engine. Default: its folder."""
    lake_relation: str | None = None
    """Name of the lake table in the engine. Default: its folder."""
    format: AnyTableFormat = "auto"
    """Format of the lake table. ``auto`` detects it."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ReconcileOptions(CaptureHealOptions):
    """Log of changes, the windows to compare with exports, and the lake table to update."""

    target: str | None = None
    """Folder of the lake table to update afterwards."""
    format: AnyTableFormat = "auto"
    """Format of the lake table. ``auto`` detects it."""
    engine: Literal["local", "spark"] = "local"
    """Engine of ``apply``. A Hudi table needs ``spark``."""
    since: AwareDatetime | None = None
    """Start of the first window (with time zone). Default: end of the last window, or start of the capture."""
    until: AwareDatetime | None = None
    """End of the last window (with time zone). Default: ten minutes ago, or earlier if the capture lags."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BootstrapOptions(WaitPolicyOptions, LimitOptions, CatalogConnectionOptions):
    """Table, the log of its changes, and the lake table that follows it."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table, which needs a stream."""
    target: Annotated[str, Field(min_length=1)]
    """Folder of the lake table."""
    log: Annotated[str, Field(min_length=1)]
    """Folder of the log, into which changes are captured."""
    format: LakeFormatName = "delta"
    """Format of the lake table. ``hudi`` needs engine ``spark``: Spark 3.5 with the Hudi jar."""
    engine: Literal["local", "spark"] = "local"
    """Load and merge in this process without a JVM, or by Spark tasks."""
    catalog: str | None = None
    """Catalog table of the lake table, as for ``apply``."""
    base: Literal["scan", "export"] = "scan"
    """Source of the base: a scan, or a full export that ddbio requests."""
    export_to: str | None = None
    """``s3://bucket/prefix`` for exports. Without it, a gap needs a new base."""
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    """Buckets (partitions ``_b``) of a new lake table. They never change."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read budget of the whole job, in RCU/s."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """Read budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""

    @model_validator(mode="after")
    def _check_bootstrap(self) -> BootstrapOptions:
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        if self.base == "export" and self.export_to is None:
            raise ValueError("base=export needs export_to, an s3:// prefix for the export")
        check_engine_of(self.format, self.engine)
        return self
