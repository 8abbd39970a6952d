"""Options of the verbs about tables of a lake."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ByteSize, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.catalog import CatalogConnectionOptions
from ddbio.options.files import Compression, check_hudi_engine
from ddbio.options.parsing import CONFIG, Names

TableFormat = Literal["delta", "iceberg", "hudi"]
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
    format: TableFormat = "delta"
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
        if self.format == "hudi":
            check_hudi_engine(self.engine)
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class MaintainOptions(CatalogConnectionOptions):
    """Choose a lake table, and what of it goes or is rewritten."""

    table: Annotated[str, Field(min_length=1)]
    """Folder of the lake table."""
    format: TableFormat = "delta"
    """Format of the lake table; ``hudi`` takes engine ``spark``, on Spark 3.5 with the jar of Hudi."""
    engine: Literal["local", "spark"] = "local"
    """What rewrites: this process, without a JVM, or Hudi's own services on Spark, for its tables alone."""
    catalog: str | None = None
    """Table of a catalog that is to name the newest version, as of ``apply``."""
    tombstones_older_than: Annotated[str, Field(pattern=r"^\d+[hdw]$")] | None = None
    """Let rows of items go that were deleted so long before the newest applied change: ``7d``; at least ``48h``."""
    vacuum_older_than: Annotated[str, Field(pattern=r"^\d+[hdw]$")] | None = None
    """Delete files that no version since then has: ``7d``; at least ``24h``, and longer than readers and jobs run."""
    expire_snapshots_older_than: Annotated[str, Field(pattern=r"^\d+[hdw]$")] | None = None
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
            if age is not None and _hours(age) < least:
                raise ValueError(f"{name} is at least {least}h: {reason}")
        kept, swept = self.expire_snapshots_older_than, self.vacuum_older_than
        if kept is not None and swept is not None and _hours(kept) < _hours(swept):
            raise ValueError("expire_snapshots_older_than is at least vacuum_older_than: files are found by versions")
        if self.sort_by is not None and self.z_order_by is not None:
            raise ValueError("give sort_by or z_order_by, not both")
        if self.z_order_by is not None and self.format != "delta":
            raise ValueError("z_order_by is for Delta tables: give sort_by")
        if self.format == "hudi":
            check_hudi_engine(self.engine)
        elif self.engine == "spark":
            raise ValueError(f"a table of format {self.format} is maintained by this process: leave engine out")
        return self


def _hours(age: str) -> int:
    return int(age[:-1]) * {"h": 1, "d": 24, "w": 168}[age[-1]]
