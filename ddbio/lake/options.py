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

_LEAST_HOURS, _LEAST_VACUUM_HOURS = 48, 24


_REASONS = {
    "tombstones_older_than": "changes may come late while a stream keeps them",
    "expire_snapshots_older_than": "readers and running jobs are at versions that are not the newest any more",
    "vacuum_older_than": "readers and running jobs have files that no version needs any more, or not yet",
}


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ApplyOptions(CatalogConnectionOptions):
    """Choose changes, and the lake table that they are merged into."""

    source: Annotated[str, Field(min_length=1)]
    """Folder of the log of ``capture``, or of an incremental export: ``s3://bucket/prefix`` or a local folder."""
    table: Annotated[str, Field(min_length=1)]
    """Folder of the lake table; it is made if there is none."""
    format: LakeFormatName = "delta"
    """Format of the lake table; ``hudi`` takes engine ``spark``, on Spark 3.5 with the jar of Hudi."""
    engine: Literal["local", "spark"] = "local"
    """What merges: this process, without a JVM, or the tasks of Spark. Both write the same, without a jar for Delta and
    Iceberg."""
    shared_paths: bool = False
    """All workers of the cluster see local paths as this machine does, for example through NFS."""
    catalog: str | None = None
    """Table of a catalog that is to name the lake table: ``glue://database.table``, on S3 only; of Iceberg
    ``iceberg://catalog/namespace.table``, a catalog of pyiceberg's configuration: REST, Hive, SQL; of Hudi
    ``hive://database.table``, in the metastore of Spark's session."""
    job_id: str | None = None
    """The capture whose changes are applied; default is all that write the log. Of rows: who gives them."""
    key: Names | None = None
    """Key attributes of a table that is made from rows; logs and exports know them."""
    stream: str | None = None
    """The stream that given rows come from: ``_sequence`` orders the rows of one stream; default is ``rows``."""
    batch_id: Annotated[int, Field(ge=0)] | None = None
    """Number of a batch of given rows: one that the table has, or a smaller one, is not applied again."""
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    """Partitions ``_b`` of a table that is made; those of a table never change."""
    max_records_per_batch: Annotated[int, Field(ge=1)] = 1_000_000
    """Changes that are merged in one commit, about: whole batches of the log."""
    target_file_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024**3)] = ByteSize(256 * 1024 * 1024)
    """Size at which a file is closed and the next one begun."""
    compression: Compression = "zstd"
    """Codec of the files."""

    @model_validator(mode="after")
    def _check_format(self) -> ApplyOptions:
        check_engine_of(self.format, self.engine)
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class MaintainOptions(CatalogConnectionOptions):
    """Choose a lake table, and what of it goes or is rewritten."""

    table: Annotated[str, Field(min_length=1)]
    """Folder of the lake table."""
    format: LakeFormatName = "delta"
    """Format of the lake table; ``hudi`` takes engine ``spark``, on Spark 3.5 with the jar of Hudi."""
    engine: Literal["local", "spark"] = "local"
    """What rewrites: this process, without a JVM, or Hudi's own services on Spark, for its tables alone."""
    catalog: str | None = None
    """Table of a catalog that is to name the newest version, as of ``apply``."""
    tombstones_older_than: LongAge | None = None
    """Let rows of items go that were deleted so long before the newest applied change: ``7d``; at least ``48h``."""
    vacuum_older_than: LongAge | None = None
    """Delete files that no version since then has: ``7d``; at least ``24h``, and longer than readers and jobs run."""
    expire_snapshots_older_than: LongAge | None = None
    """Forget versions that were replaced so long ago, in the table's own log: ``30d``; at least ``24h``."""
    sort_by: Names | None = None
    """Attributes by which the rows of each bucket are sorted; a bucket is sorted in memory."""
    z_order_by: Names | None = None
    """Attributes by which Delta tables are clustered (Z-order), all files anew in each run."""
    target_file_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024**3)] = ByteSize(256 * 1024 * 1024)
    """Files of a bucket that are smaller than three quarters of this are rewritten as one."""

    @model_validator(mode="after")
    def _check_age(self) -> MaintainOptions:
        for name, reason in _REASONS.items():
            least = _LEAST_HOURS if name == "tombstones_older_than" else _LEAST_VACUUM_HOURS
            age = getattr(self, name)
            if age is not None and seconds_of(age) < least * 3_600:
                raise ValueError(f"{name} is at least {least}h: {reason}")
        kept, swept = self.expire_snapshots_older_than, self.vacuum_older_than
        if kept is not None and swept is not None and seconds_of(kept) < seconds_of(swept):
            raise ValueError("expire_snapshots_older_than is at least vacuum_older_than: files are found by versions")
        if self.sort_by is not None and self.z_order_by is not None:
            raise ValueError("give sort_by or z_order_by, not both")
        facts = LAKE_FORMATS[self.format]
        if self.z_order_by is not None:
            facts.check("z_order_by")
        check_engine_of(self.format, self.engine)
        if self.engine == "spark" and not facts.is_written_by_spark:
            raise ValueError(f"a table of format {self.format} is maintained by this process: leave engine out")
        return self


AnyTableFormat = Literal["auto", LakeFormatName]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class VerifyOptions(WaitPolicyOptions, LimitOptions):
    """Choose a table or its full export, the lake table that should hold the same, and as of which time."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table; or the folder of a full export of it, whose time is then taken."""
    target: Annotated[str, Field(min_length=1)]
    """Folder of the lake table: ``s3://bucket/prefix`` or a local folder."""
    format: AnyTableFormat = "auto"
    """Format of the lake table; by default its files tell."""
    at: AwareDatetime | None = None
    """Time, with its zone, as of which both are compared, by a full export; default is now, by a scan."""
    export_to: str | None = None
    """``s3://bucket/prefix`` for the full export that the service is asked for."""
    log: str | None = None
    """Folder of the log that is applied: it tells what items were that have changed since the time."""
    version: Annotated[int, Field(ge=0)] | None = None
    """Version of the lake table to compare; default is the newest."""
    margin_seconds: Annotated[float, Field(ge=0, le=3600)] = 60.0
    """How far the times of changes and the time of an export may be apart: clocks differ."""
    examples: Annotated[int, Field(ge=0, le=1_000)] = 10
    """Differing keys to show of each kind, with both items; 0 saves the second reading that finds them."""
    consistent: bool = True
    """Scan by strongly consistent reads, at twice the read units."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that the table may be scanned with."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the table's provisioned (or maximum on-demand) read units; provisioned: 0.5."""

    @model_validator(mode="after")
    def _check_verify(self) -> VerifyOptions:
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class HistoryOptions(ConnectionOptions):
    """Choose a log of changes or a lake table, and the item whose history is wanted."""

    source: Annotated[str, Field(min_length=1)]
    """Folder of the log of ``capture``, or of a lake table: ``s3://bucket/prefix`` or a local folder."""
    key: str | None = None
    """The item's key: ``S:user#7|N:19`` as in the column ``_key``, ``{"pk": "user#7", "sk": 19}``, or the plain
    value of a key of one attribute; default is every item."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ViewOptions(ConnectionOptions):
    """Choose a view over a log of changes, and the engine whose SQL it is written in."""

    source: Annotated[str, Field(min_length=1)]
    """Folder of the log of ``capture``: ``s3://bucket/prefix`` or a local folder."""
    target: str | None = None
    """Folder of the lake table that the log is applied to; a view of the history needs none."""
    dialect: Literal["spark", "duckdb", "athena"] = "spark"
    """Engine that the view is for."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*$")] | None = None
    """Name of the view; default is the query alone."""
    log_relation: str | None = None
    """How the engine calls the log: the name of a table; default is its folder."""
    lake_relation: str | None = None
    """How the engine calls the lake table; default is its folder."""
    format: AnyTableFormat = "auto"
    """Format of the lake table; by default its files tell."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ReconcileOptions(CaptureHealOptions):
    """Choose a log of changes, the windows in which it is reconciled with exports, and the lake table that follows."""

    target: str | None = None
    """Folder of the lake table that the log is applied to afterwards; default is none."""
    format: AnyTableFormat = "auto"
    """Format of the lake table; by default its files tell."""
    engine: Literal["local", "spark"] = "local"
    """What applies the log, as of ``apply``; a Hudi table takes ``spark``."""
    since: AwareDatetime | None = None
    """Begin of the first window, with its zone; default is the end of the last one, or when the capture began."""
    until: AwareDatetime | None = None
    """End of the last window, with its zone; default is up to when all changes are captured, ten minutes ago."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BootstrapOptions(WaitPolicyOptions, LimitOptions, CatalogConnectionOptions):
    """Choose a table, the log of its changes, and the lake table that is to follow it."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table, which has a stream."""
    target: Annotated[str, Field(min_length=1)]
    """Folder of the lake table: ``s3://bucket/prefix`` or a local folder."""
    log: Annotated[str, Field(min_length=1)]
    """Folder of the log of changes, which is captured meanwhile."""
    format: LakeFormatName = "delta"
    """Format of the lake table; ``hudi`` takes engine ``spark``, on Spark 3.5 with the jar of Hudi."""
    engine: Literal["local", "spark"] = "local"
    """What loads the base and applies the log: this process, without a JVM, or the tasks of Spark."""
    catalog: str | None = None
    """Table of a catalog that is to name the lake table, as of ``apply``."""
    base: Literal["scan", "export"] = "scan"
    """What the base is read from: the table, by a scan, or a full export that the service is asked for."""
    export_to: str | None = None
    """``s3://bucket/prefix`` for exports: the base, and those that heal gaps; without it a gap means a new base."""
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    """Partitions ``_b`` of a table that is made; those of a table never change."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that the base may be scanned with."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the table's provisioned (or maximum on-demand) read units; provisioned: 0.5."""

    @model_validator(mode="after")
    def _check_bootstrap(self) -> BootstrapOptions:
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        if self.base == "export" and self.export_to is None:
            raise ValueError("base=export needs export_to, an s3:// prefix for the export")
        check_engine_of(self.format, self.engine)
        return self
