"""Model what a table admits: its own capacity with burst, its partitions with hot keys, and the account's quota."""

from __future__ import annotations

from dataclasses import dataclass, field

from ddbio.core.pacing import ThrottleScope
from ddbio.core.table_limits import BURST_SECONDS, TableLimits

# A partition never serves more than its own limit; it evens out one second of it.
_PARTITION_SECONDS = 1.0


@dataclass(slots=True)
class _Bucket:
    """Admit requests of any size while the level is not below zero."""

    rate: float
    ceiling: float
    level: float
    at: float = 0.0

    def fill(self, now: float) -> float:
        self.level = min(self.ceiling, self.level + (now - self.at) * self.rate)
        self.at = now
        return self.level


@dataclass
class SimulatedTable:
    """Admit or throttle requests at a virtual time.

    Attributes
    ----------
    limits
        What the table allows.
    scale
        Times run by so much faster than the clock of the limits.
    """

    limits: TableLimits
    scale: int = 1
    _table: _Bucket | None = field(init=False, default=None)
    _account: _Bucket | None = field(init=False, default=None)
    _partitions: list[_Bucket] = field(init=False, default_factory=list)

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
        self._partitions = [_Bucket(own, own * seconds, own * min(seconds, 1.0)) for _ in range(limits.partitions)]

    def admits(self, partition: int, units: float, now: float) -> ThrottleScope | None:
        """Take units of a partition and return None, or return which limit throttles them."""
        if self._account is not None and self._account.fill(now) < 0:
            return ThrottleScope.ACCOUNT
        if self._table is not None and self._table.fill(now) < 0:
            return ThrottleScope.TABLE
        bucket = self._partitions[partition]
        if bucket.fill(now) < 0:
            return ThrottleScope.KEY_RANGE
        bucket.level -= units
        if self._table is not None:
            self._table.level -= units
        if self._account is not None:
            self._account.level -= units
        return None
