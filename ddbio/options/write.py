"""Say how rows become items of a live table."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.files import Engine  # noqa: TC001 - pydantic reads it
from ddbio.options.parsing import CONFIG
from ddbio.options.source import SourceOptions


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class WriteOptions(ConnectionOptions):
    """Say how rows become items of a live table, how fast, and what becomes of rows that cannot."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    mode: Literal["upsert", "create", "delete", "update"] = "upsert"
    """Put every row's item; put it only where there is none; delete it; or set the row's attributes of it."""
    newer_by: str | None = None
    """Attribute by which an older row never replaces or deletes a newer item."""
    operation_by: str | None = None
    """Column that says put, delete or update for each row; it is no attribute."""
    wcu_per_second: Annotated[float, Field(ge=1)] | None = None
    """Write units per second that the whole job may use."""
    write_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the table's provisioned (or maximum on-demand) write units."""
    warm_up: bool = False
    """Begin with the 4,000 WCU/s that a new on-demand table bears and double every half hour."""
    reject_to: str | None = None
    """Folder or s3:// prefix for rows that cannot be written; without it, one such row fails the job."""
    max_rejects: Annotated[int, Field(ge=0)] | None = None
    """Fail the job when more rows than these are rejected; those are kept, and any number is fine without."""
    reject_format: Literal["json", "parquet"] = "json"
    """Keep rejected rows as lines of JSON or as Parquet."""
    lanes: Annotated[int, Field(ge=1, le=256)] | None = None
    """Requests in flight at the same time; default is 8, and where each takes one row what the budget asks for."""
    compress_requests: bool = False
    """Send large requests gzip-compressed: fewer bytes for more CPU."""

    @model_validator(mode="after")
    def _check_write(self) -> WriteOptions:
        if self.wcu_per_second is not None and self.write_ratio is not None:
            raise ValueError("give wcu_per_second or write_ratio, not both")
        if self.max_rejects is not None and self.reject_to is None:
            raise ValueError("max_rejects asks for reject_to: without it the first rejected row fails the job")
        if self.newer_by is not None and self.mode not in {"upsert", "delete"}:
            raise ValueError(f"newer_by has no meaning in mode {self.mode}")
        if self.operation_by is not None and self.mode != "upsert":
            raise ValueError("operation_by decides row by row: leave mode out")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LoadOptions(SourceOptions, WriteOptions):
    """Say which files are loaded into a live table."""

    engine: Engine = "auto"
    """Run on threads of this process, on Spark, or choose by size."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Spark tasks that share the rows; default is one for each 32 MiB of the source."""
    unique_keys: bool = False
    """Each key occurs once in the source: its parts are read in any order, on Spark where they are written."""
    job_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,64}$")] | None = None
    """Name of this load: run again under the same one, it goes on after what is finished."""
    state: str | None = None
    """Folder or s3:// prefix that notes what is finished; default is this user's state folder."""
    shared_paths: bool = False
    """All workers of the cluster reach local paths as this machine does: a mounted volume, NFS."""
    retry_rejects: bool = False
    """Take the source for a folder of rejected rows, and try those again."""

    @model_validator(mode="after")
    def _check_load(self) -> LoadOptions:
        if self.retry_rejects and (self.job_id is not None or self.state is not None):
            raise ValueError("retry_rejects moves aside what was tried: it has no use for job_id and state")
        return self
