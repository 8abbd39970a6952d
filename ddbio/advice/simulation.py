"""Parts of a simulation: unequal sizes, the admission control of a table, and the report.

A simulated table has capacity with burst, partitions with hot keys, and the account's quota.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddbio.budget.pacing import ThrottleScope
from ddbio.jobs.table_limits import BURST_SECONDS, TableLimits
from ddbio.result import Result

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

RATES = 100
"""Number of equal parts of the run in a report."""

# A partition never exceeds its own limit, averaged over one second.
_PARTITION_SECONDS = 1.0
# A partition is no longer hot if it is not throttled for this share of the time after which it splits.
_STILL_HOT = 5.0
_MAX_PARTS = 1024


@dataclass(frozen=True)
class SimulationReport(Result):
    """Report of a simulated scan or load.

    Attributes
    ----------
    seconds
        From the first request to the last answer.
    ideal_seconds
        The units divided by the budget.
    ratio
        ``seconds / ideal_seconds``.
    units, requests
        Consumption and requests of the job, without repeated work.
    throttles
        Throttled requests. ``throttled_by`` counts them by limit: ``key_range`` is a partition, ``table``, ``account``.
    peak_ratio
        Maximum consumption within any ``10 × scale`` s, divided by the budget for that time. None for a shorter run and
        for fixed shares.
    idle_ratio
        Share of the budget that was unused before the end.
    segments, lanes, tasks, partitions
        As planned, and the physical partitions of the table. A load has no segments.
    largest_task_ratio
        Requests of the largest task over those of the mean task.
    progress
        Seconds after which 10 %, 20 %, … 100 % of the units were consumed.
    scale
        Number of requests of the real table that each simulated request represents.
    splits
        Number of partition splits under load.
    lost_tasks, repeated_units
        Tasks lost with their executors, and the units that were consumed again because of it.
    rates, running
        Units per second, and running tasks, in each hundredth of the run.
    """

    seconds: float
    ideal_seconds: float
    ratio: float
    units: float
    requests: int
    throttles: int
    peak_ratio: float | None
    idle_ratio: float
    segments: int
    lanes: int
    tasks: int
    partitions: int
    largest_task_ratio: float
    progress: tuple[float, ...]
    scale: int
    throttled_by: dict[str, int] = field(default_factory=dict)
    splits: int = 0
    lost_tasks: int = 0
    repeated_units: float = 0.0
    rates: tuple[float, ...] = ()
    running: tuple[int, ...] = ()


def unequal_sizes(total: float, count: int, skew: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return ``count`` random sizes with a given total.

    They follow a Pareto distribution of index ``1 / skew``: most are similar, a few are far larger. The draws are
    independent of ``count``.
    """
    sizes: npt.NDArray[np.float64] = (1.0 - rng.random(count)) ** -skew
    sizes *= total / sizes.sum()
    return sizes


@dataclass(slots=True)
class _Bucket:
    """Token bucket that admits requests of any size while its level is not below zero."""

    rate: float
    ceiling: float
    level: float
    at: float = 0.0

    def fill(self, now: float) -> float:
        self.level = min(self.ceiling, self.level + (now - self.at) * self.rate)
        self.at = now
        return self.level


@dataclass(slots=True)
class _Partition:
    """A partition and the equal parts it was split into under load. The first part contains a hot key.

    A partition that throttles for ``split_seconds`` without a pause is split in two, as are its parts.
    """

    parts: list[_Bucket]
    hot_since: float = -1.0
    throttled_at: float = -1.0

    def part(self, fraction: float) -> _Bucket:
        return self.parts[min(int(fraction * len(self.parts)), len(self.parts) - 1)]

    def throttled(self, now: float, split_seconds: float) -> bool:
        """Record a throttled request. Split the partition and return True if it was throttled long enough."""
        if self.throttled_at < 0 or now - self.throttled_at > split_seconds / _STILL_HOT:
            self.hot_since = now
        self.throttled_at = now
        if now - self.hot_since < split_seconds or len(self.parts) >= _MAX_PARTS:
            return False
        one = self.parts[0]
        self.parts = [_Bucket(one.rate, one.ceiling, 0.0, now) for _ in range(2 * len(self.parts))]
        self.hot_since = now
        return True


@dataclass
class SimulatedTable:
    """Admission control of a table in virtual time.

    Attributes
    ----------
    limits
        Limits of the table.
    scale
        Factor by which simulated time is faster than the clock of the limits.
    splits
        Number of partition splits.
    """

    limits: TableLimits
    scale: int = 1
    _table: _Bucket | None = field(init=False, default=None)
    _account: _Bucket | None = field(init=False, default=None)
    splits: int = field(init=False, default=0)
    _partitions: list[_Partition] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        limits = self.limits
        burst = limits.burst_seconds / self.scale
        if limits.table_rate is not None:
            rate = max(0.0, limits.table_rate - limits.other_rate)
            self._table = _Bucket(rate, max(_PARTITION_SECONDS, BURST_SECONDS / self.scale) * rate, burst * rate)
        if limits.account_rate is not None:
            rate = max(0.0, limits.account_rate - limits.other_rate)
            self._account = _Bucket(rate, rate, rate)
        own, seconds = limits.partition_rate, _PARTITION_SECONDS
        if not limits.adaptive and limits.table_rate is not None:
            own, seconds = min(own, limits.table_rate / limits.partitions), max(_PARTITION_SECONDS, burst)
        own = max(0.0, own - limits.other_rate / limits.partitions)
        self._partitions = [
            _Partition([_Bucket(own, own * seconds, own * min(seconds, 1.0))]) for _ in range(limits.partitions)
        ]

    def admits(self, position: float, units: float, row_units: float, now: float) -> tuple[float, ThrottleScope | None]:
        """Consume units of a partition. Return the admitted units, and the limit that throttled the others.

        Parameters
        ----------
        position
            The number of the partition, plus the position within its keys as a fraction.
        row_units
            Units that are admitted or throttled atomically: a row of a batch, or a page.
        """
        number = int(position)
        partition = self._partitions[number]
        own = partition.part(position - number)
        admitted, scope = units, None
        for bucket, limit in (
            (self._account, ThrottleScope.ACCOUNT),
            (self._table, ThrottleScope.TABLE),
            (own, ThrottleScope.KEY_RANGE),
        ):
            if bucket is None:
                continue
            # Rows are admitted while the level is not below zero.
            level = bucket.fill(now)
            most = 0.0 if level < 0 else (level // row_units + 1) * row_units
            if most < admitted:
                admitted, scope = most, limit
                if not most:
                    break
        if scope is ThrottleScope.KEY_RANGE:
            seconds = self.limits.split_seconds
            if seconds is not None and partition.throttled(now, seconds / self.scale):
                self.splits += 1
        own.level -= admitted
        if self._table is not None:
            self._table.level -= admitted
        if self._account is not None:
            self._account.level -= admitted
        return admitted, scope
