"""Record what tables consumed and which operations were called; refuses to forget before the server ends."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.testing.tables.capacity import Draw

INTERVAL_SECONDS = 0.1
_INTERVALS_PER_SECOND = 10
_TABLE_PART = 1


class Record:
    """Hold consumption per table and 100 ms, stamped when a request was admitted, and the count of requests."""

    def __init__(self, now: float) -> None:
        self._started_at = now
        self._read: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._write: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self.requests: Counter[str] = Counter()

    def add(self, draws: Iterable[Draw], now: float) -> None:
        """Add what one request consumed; an index counts as its table."""
        interval = int((now - self._started_at) * _INTERVALS_PER_SECOND)
        for draw in draws:
            side = self._read if draw.kind == "Read" else self._write
            side[_table_of(draw.resource)][interval] += draw.units  # type: ignore[assignment]

    def consumed(self, table: str | None = None) -> list[tuple[float, float, float]]:
        """Return ``(t_seconds, read_units, write_units)`` of every 100 ms in which something was consumed.

        ``t_seconds`` is the beginning of the interval, counted from the start of the server; rows ascend by it.
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
