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
"""Default size below which a file counts as small."""


Mode = Literal["error", "append", "overwrite"]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class FilesOptions(CatalogConnectionOptions):
    """Target folder, files and engine of a job that writes files."""

    CHANGEABLE: ClassVar = frozenset(
        {"shared_paths", "overwrite_foreign", "job_id", "engine", "target_file_bytes", "tasks", "catalog"}
    )

    dest: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    mode: Mode = "error"
    """Action if the target already has files."""
    shared_paths: bool = False
    """All Spark workers see the same local paths, for example by NFS."""
    overwrite_foreign: bool = False
    """Let ``mode=overwrite`` also delete files that ddbio did not write."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the run. A committed run is reported, not repeated."""
    engine: Engine = "auto"
    """Threads of this process (``local``) or Spark. ``auto``: by size."""
    target_file_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024**3)] = ByteSize(256 * 1024 * 1024)
    """Size at which a file is closed."""
    compression: Compression | None = None
    """Codec of the files. Default: zstd, for text gzip."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of tasks. Default: the engine's parallelism, or fewer."""
    partition_by: Names | None = None
    """Partition attributes, or ``year(ts)``, ``month(ts)``, ``day(ts)``, ``hour(ts)``. Folders are ``name=value``."""
    partition_time_unit: TimeUnit = "auto"
    """Format of ``ts``: ISO 8601, or units since 1970. ``auto`` detects numbers by magnitude."""
    partition_time_zone: str = "UTC"
    """Time zone of ``year(ts)`` and the others, such as ``Europe/Berlin``."""
    keep_partition_columns: bool = False
    """Also write the partition columns to the files."""
    overwrite_partitions: bool = False
    """Replace only the partitions that the job writes (``mode`` is then ``overwrite``)."""
    catalog: str | None = None
    """Table ``glue://database.table`` to create or update after the commit, on S3 only."""

    @model_validator(mode="after")
    def _check_partitions(self) -> FilesOptions:
        if self.partition_by is None:
            for name in ("keep_partition_columns", "overwrite_partitions"):
                if getattr(self, name):
                    raise ValueError(f"{name} needs partition_by")
        if self.overwrite_partitions:
            if self.mode == "append":
                raise ValueError("overwrite_partitions replaces files and mode=append keeps them: give only one")
            object.__setattr__(self, "mode", "overwrite")
        try:
            ZoneInfo(self.partition_time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"there is no time zone {self.partition_time_zone!r}: give a name such as Europe/Berlin"
            ) from None
        return self


def check_lake(options: FilesOptions, table_format: str, refused: tuple[str, ...]) -> None:
    """Raise if an option does not apply to a lake table or to its format. Other formats are not checked."""
    if table_format not in LAKE_FORMATS:
        return
    for name in refused:
        if getattr(options, name) is not None:
            raise ValueError(f"a lake table has all attributes, in buckets: leave {name} out")
    check_engine_of(table_format, options.engine)
    LAKE_FORMATS[table_format].check(options.mode)
