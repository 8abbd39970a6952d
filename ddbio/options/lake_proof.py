"""Options of the verbs that prove what a lake table holds, and show its past."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions, WaitPolicyOptions
from ddbio.options.limits import LimitOptions
from ddbio.options.parsing import CONFIG

AnyTableFormat = Literal["auto", "delta", "iceberg", "hudi"]


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
