"""Token buckets per table, index and partition that admit or throttle requests, and a log of the consumption.

The module handles no items, only the number of units that a request takes from each partition.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ddbio.testing.refusal import Refusal, throttled

if TYPE_CHECKING:
    from collections.abc import Iterable


Kind: TypeAlias = Literal["Read", "Write", "Vector"]
"""Read units, write units, or the bytes of writes to a vector index, which no bucket limits."""

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html
PARTITION_READ_PER_SECOND, PARTITION_WRITE_PER_SECOND = 3000, 1000
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/burst-adaptive-capacity.html
BURST_SECONDS = 300.0
# A table saves unused capacity. A single partition never serves more than its own rate.
_PARTITION_BURST_SECONDS = 1.0
_ROUNDING_UNITS = 1e-9
INTERVAL_SECONDS = 0.1
_INTERVALS_PER_SECOND = 10
_TABLE_PART = 1


class Draw(NamedTuple):
    """Consumption of a request: units of one kind from one partition of one table or index, named by its ARN."""

    resource: str
    kind: Kind
    partition: int
    units: float
    local_index: str | None = None
    """The local secondary index whose capacity the table pays, for the breakdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Limits of a table or index. None is no limit.

    A table with neither number is limited only by its partitions, unless it is ``unlimited``.
    """

    read_per_second: float | None = None
    write_per_second: float | None = None
    partitions: int = 1
    limit: str = "ProvisionedThroughputExceeded"
    unlimited: bool = False


def partition_count(read_per_second: float | None, write_per_second: float | None, on_demand: int) -> int:
    """Return the number of physical partitions of a table with this throughput, or ``on_demand`` without one."""
    if read_per_second is None and write_per_second is None:
        return on_demand
    reads = (read_per_second or 0) / PARTITION_READ_PER_SECOND
    return max(1, math.ceil(reads + (write_per_second or 0) / PARTITION_WRITE_PER_SECOND))


class Bucket:
    """Token bucket that refills up to a ceiling and admits a request of any size unless it is below zero."""

    __slots__ = ("_at", "_ceiling", "_rate", "_units")

    def __init__(self, rate: float, ceiling: float, units: float, now: float) -> None:
        self._rate = rate
        self._ceiling = ceiling
        self._units = min(units, ceiling)
        self._at = now

    def level(self, now: float) -> float:
        """Return the units at an instant, in seconds of any monotonic clock."""
        self._units = min(self._ceiling, self._units + (now - self._at) * self._rate)
        self._at = now
        return self._units

    def admits(self, now: float) -> bool:
        """Return whether a request of any size may pass."""
        return self.level(now) >= -_ROUNDING_UNITS

    def take(self, units: float, now: float) -> None:
        """Take units. The level may become negative."""
        self._units = self.level(now) - units


@dataclass(slots=True)
class _Resource:
    throughput: Throughput
    prefix: str
    total: dict[Kind, Bucket] = field(default_factory=dict)
    parts: dict[Kind, list[Bucket]] = field(default_factory=dict)


class Capacity:
    """Buckets of every table and index. ``now`` is always an argument."""

    def __init__(self, burst_seconds: float = BURST_SECONDS, burst_at_creation: float | None = None) -> None:
        self._burst_seconds = burst_seconds
        self._burst_at_creation = burst_at_creation
        self._resources: dict[str, _Resource] = {}

    def declare(self, resource: str, throughput: Throughput, now: float) -> None:
        """Create the buckets of a new table or index."""
        made = _Resource(throughput, "Index" if "/index/" in resource else "Table")
        self._resources[resource] = made
        if throughput.unlimited:
            return
        rates: tuple[tuple[Kind, float | None, int], ...] = (
            ("Read", throughput.read_per_second, PARTITION_READ_PER_SECOND),
            ("Write", throughput.write_per_second, PARTITION_WRITE_PER_SECOND),
        )
        at_creation = self._burst_at_creation
        # DynamoDB saves unused capacity, so a new table has none. In a workshop of AWS a new table of 5 units throttles
        # the first 500 writes; 300 seconds of capacity would be 1,500 units:
        # https://github.com/aws-samples/amazon-dynamodb-labs/tree/master/content/design-patterns/ex1capacity
        if at_creation is None:
            is_on_demand = all(rate is None for _, rate, _ in rates)
            at_creation = _PARTITION_BURST_SECONDS if is_on_demand else 0.0
        for kind, rate, partition_rate in rates:
            if rate is not None:
                made.total[kind] = Bucket(rate, rate * self._burst_seconds, rate * at_creation, now)
            most = partition_rate * min(self._burst_seconds, _PARTITION_BURST_SECONDS)
            made.parts[kind] = [
                Bucket(partition_rate, most, partition_rate * at_creation, now) for _ in range(throughput.partitions)
            ]

    def forget(self, resource: str) -> None:
        """Drop the buckets of a deleted table or index."""
        self._resources.pop(resource, None)

    def partitions(self, resource: str) -> int:
        """Return the number of physical partitions."""
        return self._resources[resource].throughput.partitions

    def refusal(self, draws: Iterable[Draw], now: float) -> Refusal | None:
        """Return the throttling error of a request with these draws, or None if it may pass."""
        for draw in draws:
            if draw.kind == "Vector":
                continue
            made = self._resources[draw.resource]
            bucket = made.total.get(draw.kind)
            if bucket is not None and not bucket.admits(now):
                return throttled(f"{made.prefix}{draw.kind}{made.throughput.limit}", draw.resource)
            parts = made.parts.get(draw.kind)
            if parts is not None and not parts[draw.partition].admits(now):
                return throttled(f"{made.prefix}{draw.kind}KeyRangeThroughputExceeded", draw.resource)
        return None

    def charge(self, draws: Iterable[Draw], now: float) -> None:
        """Take the consumption of an admitted request."""
        for draw in draws:
            if draw.kind == "Vector":
                continue
            made = self._resources[draw.resource]
            if draw.kind in made.total:
                made.total[draw.kind].take(draw.units, now)
            if draw.kind in made.parts:
                made.parts[draw.kind][draw.partition].take(draw.units, now)


class ConsumptionLog:
    """Log of the consumption per table and 100 ms, by the admission time of requests, and counts of requests."""

    def __init__(self, now: float) -> None:
        self._started_at = now
        self._read: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._write: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self.requests: Counter[str] = Counter()

    def add(self, draws: Iterable[Draw], now: float) -> None:
        """Add the consumption of one request. Units of an index count for its table."""
        interval = int((now - self._started_at) * _INTERVALS_PER_SECOND)
        for draw in draws:
            if draw.kind == "Vector":
                continue
            side = self._read if draw.kind == "Read" else self._write
            side[_table_of(draw.resource)][interval] += draw.units  # type: ignore[assignment]

    def consumed(self, table: str | None = None) -> list[tuple[float, float, float]]:
        """Return ``(t_seconds, read_units, write_units)`` of every 100 ms in which units were consumed.

        ``t_seconds`` is the start of the interval, counted from the start of the server; rows are sorted by it.
        """
        read, write = self._total(self._read, table), self._total(self._write, table)
        return [(at / _INTERVALS_PER_SECOND, read.get(at, 0.0), write.get(at, 0.0)) for at in sorted({*read, *write})]

    @staticmethod
    def _total(side: defaultdict[str, Counter[int]], table: str | None) -> dict[int, float]:
        total: dict[int, float] = defaultdict(float)
        for name, intervals in side.items():
            if table is None or name == table:
                for at, units in intervals.items():
                    total[at] += units
        return total


def _table_of(arn: str) -> str:
    return arn.split("/")[_TABLE_PART]
