"""Options of simulations, which call no service."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ByteSize, Field, model_validator
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


def _as_changes(value: object) -> object:
    """Return ``2@600,1@900`` as pairs of a number and of seconds."""
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    found = [re.fullmatch(r"(\d+)@(\d+(?:\.\d+)?)", part) for part in parts]
    if not all(found):
        raise ValueError("write NUMBER@SECONDS, separated by commas")
    return tuple((int(each[1]), float(each[2])) for each in found if each is not None)


Changes = Annotated[tuple[tuple[int, float], ...], BeforeValidator(_as_changes)]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SimulateOptions:
    """Describe the cluster of a simulated job, and what limits its table."""

    tasks: Annotated[int, Field(ge=1, le=100_000)] = 2
    """Tasks that run at the same time."""
    lanes: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Requests in flight: over all tasks of a scan, of each task of a load; default is the planner's choice."""
    skew: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """How unequal segments or tasks are: 0 makes all equal, at 0.5 the largest of 1,000 has 16 times the mean."""
    hot_key: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of all data that belongs to one partition key: to one segment, one lane and one partition."""
    partitions: Annotated[int, Field(ge=1)] | None = None
    """Physical partitions of the table; default is one for each 10 GB and for what one serves of the budget."""
    table_rate: Annotated[float, Field(gt=0)] | None = None
    """Units per second that the table serves, provisioned or as its maximum; default is what its partitions serve."""
    account_rate: Annotated[float, Field(gt=0)] | None = None
    """Units per second of all tables of the account in the region; default is no limit."""
    other_rate: Annotated[float, Field(ge=0)] = 0.0
    """Units per second that others consume of the table."""
    burst_seconds: Annotated[float, Field(ge=0, le=300)] = 0.0
    """Seconds of unused capacity that the table has saved up when the job begins."""
    fixed_partitions: bool = False
    """Each partition has an equal share of ``table_rate``, as without adaptive capacity."""
    split_seconds: Annotated[float, Field(gt=0)] | None = None
    """Seconds at its limit after which a partition splits in two, as on-demand tables do; default is never."""
    lose: Changes = ()
    """Executors that are lost: ``2@600`` for two after 600 s; several separated by commas."""
    join: Changes = ()
    """Executors that join, likewise."""
    executor_tasks: Annotated[int, Field(ge=1, le=1_000)] = 4
    """Tasks that one executor runs at the same time."""
    static_shares: bool = False
    """Give each task a fixed share of the budget, as other connectors do, instead of leases."""
    spread: Annotated[float, Field(ge=0, le=2)] = 0.3
    """How much times of requests vary: the deviation of their logarithm; at 0.3 one of 100 takes twice as long."""
    seed: int = 0
    """Seed of everything that is random: sizes, times of requests, pauses after throttling, who is lost."""
    chart: str | None = None
    """File to write the course of the job to, as a page (``.html``) or a picture (``.png``)."""

    @model_validator(mode="after")
    def _check_simulation(self) -> SimulateOptions:
        if self.chart is not None and not self.chart.endswith((".html", ".png")):
            raise ValueError("chart is written as .html or .png")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SimulateScanOptions(SimulateOptions):
    """Describe a table that need not exist, and the cluster that would scan it."""

    scenario: Literal["long-tail"] | None = None
    """A named simulation, whose values the other options change."""
    table_bytes: Annotated[ByteSize, Field(ge=1)]
    """Size of the table, as DescribeTable would say it; ``80TB`` works as well."""
    item_bytes: Annotated[float, Field(ge=1, le=400 * 1024)] = 400.0
    """Mean size of an item."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments; default is that of the policy."""
    policy: Literal["planner", "task", "gib", "128mb"] | None = None
    """How many segments: the planner's choice, one a task (default of static_shares), one a GiB, or one for 128 MB."""
    rcu_per_second: Annotated[float, Field(gt=0)] = 40_000.0
    """Read units per second that the whole job may use; default is the quota of an on-demand table."""
    consistent: bool = False
    """Use strongly consistent reads, at twice the read units."""
    page_seconds: Annotated[float, Field(gt=0, le=10)] = 0.07
    """Median time of a full page."""

    @model_validator(mode="before")
    @classmethod
    def _take_scenario(cls, values: Any) -> Any:
        given = values if isinstance(values, dict) else dict(values.kwargs or {})
        return {**SCENARIOS.get(str(given.get("scenario")), {}), **given}


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SimulateLoadOptions(SimulateOptions):
    """Describe rows that would be loaded into a table that need not exist, and the cluster that would do it."""

    source_bytes: Annotated[ByteSize, Field(ge=1)]
    """Size of all items, as DynamoDB counts it; ``10TB`` works as well."""
    item_bytes: Annotated[float, Field(ge=1, le=400 * 1024)] = 400.0
    """Mean size of an item."""
    mode: Literal["upsert", "create", "delete", "update"] = "upsert"
    """As for a load: ``create`` and ``update`` send each row by itself."""
    indexes: Annotated[int, Field(ge=0, le=20)] = 0
    """Global indexes that hold all of each item; each costs as much as the table."""
    wcu_per_second: Annotated[float, Field(gt=0)] = 40_000.0
    """Write units per second that the whole job may use; default is the quota of an on-demand table."""
    warm_up: bool = False
    """Begin at what a new on-demand table serves, and double it every half hour."""
    request_seconds: Annotated[float, Field(gt=0, le=10)] = 0.015
    """Median time of a request."""
