"""Options of the verbs that make a lake table follow a table, and compare its log with exports."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.capture_audit import CaptureHealOptions
from ddbio.options.catalog import CatalogConnectionOptions
from ddbio.options.connection import WaitPolicyOptions
from ddbio.options.files import check_hudi_engine
from ddbio.options.lake import TableFormat  # noqa: TC001 - pydantic reads the types at run time
from ddbio.options.lake_proof import AnyTableFormat  # noqa: TC001 - as above
from ddbio.options.limits import LimitOptions
from ddbio.options.parsing import CONFIG


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ReconcileOptions(CaptureHealOptions):
    """Choose a log of changes, the windows in which it is reconciled with exports, and the lake table that follows."""

    target: str | None = None
    """Folder of the lake table that the log is applied to afterwards; default is none."""
    format: AnyTableFormat = "auto"
    """Format of the lake table; by default its files tell."""
    engine: Literal["local", "spark"] = "local"
    """What applies the log, as of ``apply``; a Hudi table takes ``spark``."""
    since: AwareDatetime | None = None
    """Begin of the first window, with its zone; default is the end of the last one, or when the capture began."""
    until: AwareDatetime | None = None
    """End of the last window, with its zone; default is up to when all changes are captured, ten minutes ago."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BootstrapOptions(WaitPolicyOptions, LimitOptions, CatalogConnectionOptions):
    """Choose a table, the log of its changes, and the lake table that is to follow it."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table, which has a stream."""
    target: Annotated[str, Field(min_length=1)]
    """Folder of the lake table: ``s3://bucket/prefix`` or a local folder."""
    log: Annotated[str, Field(min_length=1)]
    """Folder of the log of changes, which is captured meanwhile."""
    format: TableFormat = "delta"
    """Format of the lake table; ``hudi`` takes engine ``spark``, on Spark 3.5 with the jar of Hudi."""
    engine: Literal["local", "spark"] = "local"
    """What loads the base and applies the log: this process, without a JVM, or the tasks of Spark."""
    catalog: str | None = None
    """Table of a catalog that is to name the lake table, as of ``apply``."""
    base: Literal["scan", "export"] = "scan"
    """What the base is read from: the table, by a scan, or a full export that the service is asked for."""
    export_to: str | None = None
    """``s3://bucket/prefix`` for exports: the base, and those that heal gaps; without it a gap means a new base."""
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    """Partitions ``_b`` of a table that is made; those of a table never change."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that the base may be scanned with."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the table's provisioned (or maximum on-demand) read units; provisioned: 0.5."""

    @model_validator(mode="after")
    def _check_bootstrap(self) -> BootstrapOptions:
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        if self.base == "export" and self.export_to is None:
            raise ValueError("base=export needs export_to, an s3:// prefix for the export")
        if self.format == "hudi":
            check_hudi_engine(self.engine)
        return self
