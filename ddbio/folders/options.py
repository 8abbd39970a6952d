"""Options of the verbs about folders of files."""

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
    """Choose a folder of files, and which version of it."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    at_version: Annotated[int, Field(ge=1)] | None = None
    """Version of the folder; default is the newest."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CompactOptions(CatalogConnectionOptions, PriceOptions):
    """Choose the files of a folder that are rewritten as fewer, and how."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    target_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024**3)] = ByteSize(256 * 1024 * 1024)
    """Size at which a file is closed and the next one begun."""
    small_than: Annotated[ByteSize, Field(ge=1)] | None = None
    """Rewrite only files smaller than this; default is three quarters of ``target_bytes``."""
    partition: Names | None = None
    """Rewrite only the partitions with these values, each as ``column=value``."""
    closed_hours: Age | None = None
    """Rewrite only folders ``year=…/month=…/day=…/hour=…`` whose hour ended so long ago: ``1h``, ``1d``."""
    format: CompactFormat | None = None
    """Format of the new files, to which files of others are converted; default is that of the old ones."""
    compression: Compression | None = None
    """Codec of the new files, to which files of others are converted; default is that of the old ones."""
    sort_by: Names | None = None
    """Sort the rows that are rewritten together by these columns, nulls last; default is the order of the files."""
    verify: Literal["digest", "rewritten", "rows"] = "digest"
    """``digest``: read the new files again before the commit, compare the digests, and report that of the whole folder;
    ``rewritten``: do not read files that stay for it; ``rows``: only count rows."""
    catalog: str | None = None
    """Table of a catalog, ``glue://database.table``, to make or update when the files are there; on S3 only."""
    keep_old: bool = False
    """Leave the old files until a vacuum, for readers of older versions; whoever lists the folder then sees both."""
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    """Begin to rewrite no more files after this time, and publish what is done."""
    shared_paths: bool = False
    """All workers of the cluster see local paths as this machine does, for example through NFS."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of this run: if a job of this name is committed, it is reported and not run again. Default is a new one."""
    engine: Engine = "auto"
    """Run on threads of this process (``local``) or on Spark; ``auto`` is Spark if a session is running."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of tasks; default is the engine's parallelism."""

    @model_validator(mode="after")
    def _check_partition(self) -> CompactOptions:
        if any("=" not in each for each in self.partition or ()):
            raise ValueError("partition is column=value")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class VacuumOptions(ConnectionOptions):
    """Choose what of a folder's past is deleted."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    older_than: Age = "7d"
    """Keep versions that were the newest within this time, and files younger than it: ``12h``, ``7d``, ``4w``."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PublishOptions(CatalogConnectionOptions, TimeLimitOptions):
    """Choose the folder that is published, where, and what it must hold."""

    source: Annotated[str, Field(min_length=1)]
    """The folder whose live files are published."""
    dest: Annotated[str, Field(min_length=1)]
    """The folder that readers know: ``s3://bucket/prefix`` or a local one."""
    expect_rows: Annotated[int, Field(ge=0)] | None = None
    """Publish only if the files hold so many rows."""
    expect_digest: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = None
    """Publish only if the rows have this digest, as ``ddbio digest`` prints it."""
    rules: str | None = None
    """Publish only if the rows keep the quality rules of this YAML file, as ``ddbio validate`` evaluates them."""
    catalog: str | None = None
    """Table of a catalog, ``glue://database.table``, to make or move to the newest version; on S3 only."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of this run: if a job of this name is committed, it is reported and not run again. Default is a new one."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class RollbackOptions(CatalogConnectionOptions):
    """Choose the folder and the version that becomes its newest again."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    to_version: Annotated[int, Field(ge=1)] | None = None
    """Version whose files are live again; default is the one before the newest."""
    catalog: str | None = None
    """Table of a catalog, ``glue://database.table``, to make or move to the newest version; on S3 only."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LayoutOptions(ConnectionOptions):
    """Choose a dataset whose layout is wanted, and where it is shown."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    input_format: InputFormat | None = None
    """Format of all files, whatever their names say; default is what the name, or else the bytes of each file tell."""
    small_than: Annotated[ByteSize, Field(ge=1)] = ByteSize(SMALL_FILE_BYTES)
    """Size below which a file is small."""
    html: str | None = None
    """File to write the report to as a page of HTML with charts, besides."""
    png: str | None = None
    """File to write the charts to as a PNG, besides."""
