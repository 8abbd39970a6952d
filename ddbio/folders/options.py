"""Options of the folder verbs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ByteSize, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import CatalogConnectionOptions, ConnectionOptions
from ddbio.options.files import SMALL_FILE_BYTES
from ddbio.options.format_names import CompactFormat, Compression, InputFormat
from ddbio.options.limits import PriceOptions, TimeLimitOptions
from ddbio.options.parsing import CONFIG, Age, Engine, Names


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class FilesListOptions(ConnectionOptions):
    """Folder of files, and its version."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    at_version: Annotated[int, Field(ge=1)] | None = None
    """Version of the folder. Default: the newest."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CompactOptions(CatalogConnectionOptions, PriceOptions):
    """Files of a folder to rewrite as fewer files, and their format."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    target_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024**3)] = ByteSize(256 * 1024 * 1024)
    """Size at which a file is closed."""
    small_than: Annotated[ByteSize, Field(ge=1)] | None = None
    """Rewrite only smaller files. Default: three quarters of ``target_bytes``."""
    partition: Names | None = None
    """Rewrite only these partitions: ``column=value``."""
    closed_hours: Age | None = None
    """Rewrite only ``year=…/month=…/day=…/hour=…`` folders that ended this long ago: ``1h``, ``1d``."""
    format: CompactFormat | None = None
    """Format of the new files. Default: unchanged."""
    compression: Compression | None = None
    """Codec of the new files. Default: unchanged."""
    sort_by: Names | None = None
    """Sort rewritten rows by these columns, nulls last. Default: file order."""
    verify: Literal["digest", "rewritten", "rows"] = "digest"
    """``digest``: compare digests of rewritten rows and report the folder's. ``rewritten``: only compare. ``rows``:
    only count rows."""
    catalog: str | None = None
    """Table ``glue://database.table`` to create or update after the commit, on S3 only."""
    keep_old: bool = False
    """Keep old files until a vacuum, for readers of older versions. Listings show both."""
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    """Start no rewrite after this time, and publish the finished ones."""
    shared_paths: bool = False
    """All Spark workers see the same local paths, for example by NFS."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the run. A committed run is reported, not repeated."""
    engine: Engine = "auto"
    """Threads of this process (``local``) or Spark. ``auto``: Spark if a session is running."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of tasks. Default: the engine's parallelism."""

    @model_validator(mode="after")
    def _check_partition(self) -> CompactOptions:
        if any("=" not in partition for partition in self.partition or ()):
            raise ValueError("partition is column=value")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class VacuumOptions(ConnectionOptions):
    """Old versions and files of a folder to delete."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    older_than: Age = "7d"
    """Keep younger files, and the newest versions of this time: ``12h``, ``7d``, ``4w``."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PublishOptions(CatalogConnectionOptions, TimeLimitOptions):
    """Folder to publish, its target, and its required contents."""

    source: Annotated[str, Field(min_length=1)]
    """Folder whose live files are published."""
    dest: Annotated[str, Field(min_length=1)]
    """Folder that readers use."""
    expect_rows: Annotated[int, Field(ge=0)] | None = None
    """Publish only if the files have this number of rows."""
    expect_digest: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = None
    """Publish only if the rows have this digest (``ddbio digest``)."""
    rules: str | None = None
    """Publish only if the rows pass these quality rules (YAML file)."""
    catalog: str | None = None
    """Table ``glue://database.table`` to create or move to the newest version, on S3 only."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the run. A committed run is reported, not repeated."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class RollbackOptions(CatalogConnectionOptions):
    """Folder, and the version that becomes the newest again."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    to_version: Annotated[int, Field(ge=1)] | None = None
    """Version whose files become live again. Default: the one before the newest."""
    catalog: str | None = None
    """Table ``glue://database.table`` to create or move to the newest version, on S3 only."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LayoutOptions(ConnectionOptions):
    """Dataset whose layout is reported, and the output files."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    input_format: InputFormat | None = None
    """Format of all files. Default: detected by name, else by content."""
    small_than: Annotated[ByteSize, Field(ge=1)] = ByteSize(SMALL_FILE_BYTES)
    """Size below which a file counts as small."""
    columns: Names | None = None
    """Columns of a query whose cost is also reported."""
    partition: Names | None = None
    """Partition of a query whose cost is also reported: ``day=2026-11-01``, ``year=2026,month=11``."""
    prices: str | None = None
    """Price book file of ddbio. Default: the newest local book of the region."""
    html: str | None = None
    """HTML file for the report and its charts."""
    png: str | None = None
    """PNG file for the charts."""

    @model_validator(mode="after")
    def _check_partition(self) -> LayoutOptions:
        if any("=" not in partition for partition in self.partition or ()):
            raise ValueError("partition is column=value")
        return self
