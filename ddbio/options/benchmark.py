"""Options of ``ddbio bench``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG, Engine


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BenchOptions(ConnectionOptions):
    """Say what ``bench`` measures: functions in memory, and a table's scan and writes if tables are named."""

    table: str | None = None
    """The table to scan; it is only read."""
    write_to: str | None = None
    """A table that takes generated orders, with the key order_id:S,placed_at:S: it is written, nothing is removed."""
    items: Annotated[int, Field(ge=100, le=10_000_000)] = 50_000
    """Items to measure with; at most so many are read of a table, and a tenth of them is written."""
    compare_with: Annotated[str, Field(min_length=1)] | None = None
    """File with what an earlier ``ddbio bench --json`` printed; default is the figures that come with the package."""
    rounds: Annotated[int, Field(ge=1, le=100)] = 5
    """Rounds of each function; the median is shown."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that the scan may use; by default half of a provisioned table's."""
    wcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Write units per second that the writes may use; by default half of a provisioned table's."""
    engine: Engine = "auto"
    """Measure in this process (``local``) or in tasks of Spark; ``auto`` is Spark if a session is running."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of Spark tasks that measure at the same time; default is the cluster's parallelism."""
    shared_paths: bool = False
    """All workers of the cluster see local paths as this machine does, for example through NFS."""
    scratch: Annotated[str, Field(min_length=1)] | None = None
    """Folder for the files of the scan, which are removed again; on a cluster ``s3://bucket/prefix``."""
