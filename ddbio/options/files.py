"""Options of the files that a scan, an export read or a fold writes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AwareDatetime, ByteSize, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.catalog import CatalogConnectionOptions
from ddbio.options.limits import TimeLimitOptions
from ddbio.options.parsing import CONFIG, Engine, Names
from ddbio.options.reading import ExportReadOptions, ScanOptions

Mode = Literal["error", "append", "overwrite"]
Compression = Literal["zstd", "snappy", "gzip", "lz4", "none"]
TimeUnit = Literal["auto", "iso", "s", "ms", "us", "ns"]
LAKE_FORMATS = ("delta", "iceberg", "hudi")
"""Formats that are tables of files: see ``docs/apply.md``."""
FileFormatName = Literal["parquet", "orc", "avro", "csv", "json", "dynamodb-json"]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class FilesOptions(CatalogConnectionOptions):
    """Choose the target folder, the files and the engine of a job that writes files."""

    CHANGEABLE: ClassVar = frozenset(
        {"shared_paths", "overwrite_foreign", "job_id", "engine", "target_file_bytes", "tasks", "catalog"}
    )

    dest: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    mode: Mode = "error"
    """What to do if the target holds files already."""
    shared_paths: bool = False
    """All workers of the cluster see local paths as this machine does, for example through NFS."""
    overwrite_foreign: bool = False
    """Let ``mode=overwrite`` also delete files that no earlier job of ddbio wrote."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of this run: if a job of this name is committed, it is reported and not run again. Default is a new one."""
    engine: Engine = "auto"
    """Run on threads of this process (``local``), on Spark, or choose by size."""
    target_file_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024**3)] = ByteSize(256 * 1024 * 1024)
    """Size at which a file is closed and the next one begun."""
    compression: Compression | None = None
    """Codec of the files; default is zstd, and gzip for text, which every reader of text knows."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of tasks; default is the engine's parallelism, fewer for small jobs."""
    partition_by: Names | None = None
    """Attributes that become folders ``name=value``; or ``year(ts)``, ``month(ts)``, ``day(ts)``, ``hour(ts)``."""
    partition_time_unit: TimeUnit = "auto"
    """How ``year(ts)`` reads ``ts``: ISO 8601, or units since 1970; ``auto`` tells numbers by their magnitude."""
    partition_time_zone: str = "UTC"
    """Time zone of ``year(ts)`` and the like, such as ``Europe/Berlin``."""
    keep_partition_columns: bool = False
    """Keep the columns that folders say in the files, too."""
    overwrite_partitions: bool = False
    """Replace only the partitions that the job writes to, and leave the others (``mode`` is then ``overwrite``)."""
    catalog: str | None = None
    """Table of a catalog, ``glue://database.table``, to make or update when the files are there; on S3 only."""

    @model_validator(mode="after")
    def _check_partitions(self) -> FilesOptions:
        if self.partition_by is None:
            for name in ("keep_partition_columns", "overwrite_partitions"):
                if getattr(self, name):
                    raise ValueError(f"{name} needs partition_by")
        if self.overwrite_partitions:
            if self.mode == "append":
                raise ValueError("overwrite_partitions replaces files and mode=append keeps them: give one of them")
            object.__setattr__(self, "mode", "overwrite")
        try:
            ZoneInfo(self.partition_time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"there is no time zone {self.partition_time_zone!r}: give a name such as Europe/Berlin"
            ) from None
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ScanToFilesOptions(FilesOptions, ScanOptions):
    """Choose what of a table is scanned, and the files that its rows go to."""

    CHANGEABLE: ClassVar = frozenset({"buckets", "page_journal"})

    format: Literal[FileFormatName, "dynamodb-export", "delta", "iceberg", "hudi"] = "parquet"
    """Format of the files; ``dynamodb-export``, the layout of a native full export: gzipped DynamoDB JSON, unchanged,
    and manifests; or ``delta``, ``iceberg``, ``hudi``: a lake table, which ``apply`` merges changes into."""
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    """Partitions ``_b`` of a lake table that is made; those of a table never change."""
    digest: bool = False
    """Compute the order-independent digest of the items as the service returned them."""
    page_journal: Annotated[str, Field(min_length=1)] | None = None
    """Folder that keeps pages until their files are complete, for jobs that are killed; ``s3://``: a PUT a page."""

    @model_validator(mode="after")
    def _check_format(self) -> ScanToFilesOptions:
        if self.page_journal is not None and self.job_id is None:
            raise ValueError("page_journal is for a later run of the same job: give job_id, too")
        if self.page_journal is not None and self.format in {"dynamodb-export", *LAKE_FORMATS}:
            raise ValueError(f"a job of format {self.format} begins anew: leave page_journal out")
        if self.format in LAKE_FORMATS:
            _check_lake(self, ("partition_by", "catalog", "index", "columns"))
        if self.format == "hudi":
            _check_hudi(self)
        if self.format == "dynamodb-export" and self.mode == "append":
            raise ValueError("an export is made by one job: give mode error or overwrite")
        if self.format == "dynamodb-export" and self.partition_by is not None:
            raise ValueError("an export has no partitions: leave partition_by out, or give another format")
        if self.format == "dynamodb-export" and self.compression not in {None, "gzip"}:
            raise ValueError("the files of an export are gzip: leave compression out")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PlanScanOptions(ScanToFilesOptions):
    """Choose what of a table would be scanned, and the files that its rows would go to, if any."""

    dest: str | None = None  # type: ignore[assignment]
    """Target of the scan, which is then checked as well; without it the scan is one into memory."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportToFilesOptions(FilesOptions, ExportReadOptions, TimeLimitOptions):
    """Choose an export, and the files that its rows go to."""

    format: Literal[FileFormatName, "delta", "iceberg", "hudi"] = "parquet"
    """Format of the files; or ``delta``, ``iceberg``, ``hudi``: a lake table, which ``apply`` merges changes into."""
    key: Names | None = None
    """Key attributes of a lake table that is made; default is what DynamoDB says of the export's table."""
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    """Partitions ``_b`` of a lake table that is made; those of a table never change."""

    @model_validator(mode="after")
    def _check_table(self) -> ExportToFilesOptions:
        if self.format in LAKE_FORMATS:
            _check_lake(self, ("partition_by", "catalog"))
        if self.format == "hudi":
            _check_hudi(self)
        return self


def _check_lake(options: FilesOptions, refused: tuple[str, ...]) -> None:
    for name in refused:
        if getattr(options, name) is not None:
            raise ValueError(f"a lake table has all attributes of a table, by buckets: leave {name} out")


def check_hudi_engine(engine: str) -> None:
    """Refuse another engine than Spark for a Hudi table.

    Raises
    ------
    ValueError
        If it is another.
    """
    if engine != "spark":
        raise ValueError(
            "format hudi is written by Hudi's own writer for Spark 3.5: give engine='spark' and a session with its jar "
            "(org.apache.hudi:hudi-spark3.5-bundle_2.12), or choose delta or iceberg"
        )


def _check_hudi(options: FilesOptions) -> None:
    check_hudi_engine(options.engine)
    if options.mode == "append":
        raise ValueError("a key is in a Hudi table once: give mode error or overwrite, and merge changes by apply")


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportFoldOptions(ExportToFilesOptions):
    """Choose a full export, the time up to which changes are applied, and the files that its rows go to."""

    as_of: AwareDatetime | None = None
    """Time, with its zone, of the wanted state: the end of a window; default is the end of the last one."""
    spill: str | None = None
    """Folder for intermediate rows, which all workers reach; default is a temporary one, with Spark in the target."""

    @model_validator(mode="after")
    def _check_folded(self) -> ExportFoldOptions:
        if self.format == "hudi":
            raise ValueError("a fold makes no Hudi table: make one of the full export by 'ddbio export read'")
        return self
