"""Say what of a table is read, and how fast."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.columns import ColumnOptions
from ddbio.options.files import FilesOptions
from ddbio.options.parsing import CONFIG, Names

AcceptEncoding = Literal["identity", "gzip"]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ScanOptions(ColumnOptions):
    """Say what of a table is read, how fast, and into which columns."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    index: str | None = None
    """Secondary index to scan instead of the table."""
    columns: Names | None = None
    """Attributes to read (ProjectionExpression); default is all."""
    consistent: bool = False
    """Read strongly consistent, at twice the read units."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments; default follows the table's size, the budget and the lanes."""
    lanes: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Segments read at the same time, over all tasks."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that the whole job may use."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the table's provisioned (or maximum on-demand) read units."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Stop after this many items; which ones is not defined."""
    accept_encoding: AcceptEncoding = "identity"
    """Ask for pages as they are, or compressed: several times fewer bytes for more CPU, where the network is slow."""

    @model_validator(mode="after")
    def _check_scan(self) -> ScanOptions:
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        if self.columns is not None and len(set(self.columns)) != len(self.columns):
            raise ValueError("columns names an attribute twice")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ScanToFilesOptions(FilesOptions, ScanOptions):
    """Say where the rows of a scan go, and in which files."""

    format: Literal["parquet", "dynamodb-export"] = "parquet"
    """Parquet files, or the layout of a native full export: gzipped DynamoDB JSON, as it came, and manifests."""
    digest: bool = False
    """Compute the order-independent digest of the items as they came over the wire."""

    @model_validator(mode="after")
    def _check_format(self) -> ScanToFilesOptions:
        if self.format == "dynamodb-export" and self.mode == "append":
            raise ValueError("an export is made by one job: give mode error or overwrite")
        return self
