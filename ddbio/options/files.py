"""Say where a verb's files go and what they are like."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ByteSize, Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG

Engine = Literal["auto", "local", "spark"]
Mode = Literal["error", "append", "overwrite"]
Compression = Literal["zstd", "snappy", "gzip", "lz4", "none"]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class FilesOptions(ConnectionOptions):
    """Say where rows go, in which files, and what runs the job."""

    dest: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    mode: Mode = "error"
    """What to do where the target holds files already."""
    shared_paths: bool = False
    """All workers of the cluster reach local paths as this machine does: a mounted volume, NFS."""
    overwrite_foreign: bool = False
    """Let mode overwrite delete what no earlier job of ddbio wrote there, too."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of this run: a job that has this name and is committed is reported, not run again. Default is a new one."""
    engine: Engine = "auto"
    """Run on threads of this process, on Spark, or choose by size."""
    target_file_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024**3)] = ByteSize(256 * 1024 * 1024)
    """Size at which a file is closed and the next one begun."""
    compression: Compression = "zstd"
    """Codec of the files."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Tasks that share the work; default is the engine's parallelism, fewer where there is little to do."""
