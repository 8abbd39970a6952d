"""Options of the files that a job writes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import ByteSize, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import CatalogConnectionOptions
from ddbio.options.format_names import Compression, TimeUnit
from ddbio.options.lake_formats import LAKE_FORMATS, check_engine_of
from ddbio.options.parsing import CONFIG, Engine, Names

SMALL_FILE_BYTES = 128 * 1024 * 1024
"""Size below which a file counts as small, unless a caller says otherwise."""


Mode = Literal["error", "append", "overwrite"]


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


def check_lake(options: FilesOptions, table_format: str, refused: tuple[str, ...]) -> None:
    """Refuse options that have no meaning for a lake table, or that its format cannot have; other formats pass."""
    if table_format not in LAKE_FORMATS:
        return
    for name in refused:
        if getattr(options, name) is not None:
            raise ValueError(f"a lake table has all attributes of a table, by buckets: leave {name} out")
    check_engine_of(table_format, options.engine)
    LAKE_FORMATS[table_format].check(options.mode)
