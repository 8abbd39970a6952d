"""Options of simulations, which call no service."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ByteSize, Field
from pydantic.dataclasses import dataclass

from ddbio.options.parsing import CONFIG

# https://github.com/awslabs/emr-dynamodb-connector/issues/135
SCENARIOS: dict[str, dict[str, Any]] = {
    "long-tail": {
        "table_bytes": 80 * 10**12,
        "tasks": 1_000,
        "rcu_per_second": 311_000.0,
        "skew": 0.3,
        "seed": 2,
    }
}
"""Named simulations. ``long-tail``: 80 TB, of which fixed shares read 70 TB in 9 h and the rest in more than 5 days."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SimulateScanOptions:
    """Describe a table that need not exist, and the cluster that would scan it."""

    table_bytes: Annotated[ByteSize, Field(ge=1)]
    """Size of the table, as DescribeTable would say it; ``80TB`` works as well."""
    item_bytes: Annotated[float, Field(ge=1, le=400 * 1024)] = 400.0
    """Mean size of an item."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] = 2
    """Tasks that run at the same time."""
    lanes: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Segments read at the same time, over all tasks; default is the planner's choice."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments; default is the planner's choice, or one a task with static shares."""
    rcu_per_second: Annotated[float, Field(gt=0)] = 40_000.0
    """Read units per second that the whole job may use; default is the quota of an on-demand table."""
    consistent: bool = False
    """Use strongly consistent reads, at twice the read units."""
    skew: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """How unequal segments are: 0 makes all equal, at 0.5 the largest of 1,000 has 16 times the mean."""
    page_seconds: Annotated[float, Field(gt=0, le=10)] = 0.07
    """Median time of a full page."""
    partitions: Annotated[int, Field(ge=1)] | None = None
    """Physical partitions of the table; default is one for each 10 GB and for each 3,000 units a second."""
    static_shares: bool = False
    """Give each task a fixed share of the budget and one segment, as other connectors do, instead of leases."""
    seed: int = 0
    """Seed of everything that is random: sizes of segments, times of pages, pauses after throttling."""
