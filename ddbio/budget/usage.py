"""Count what a job's requests brought and consumed; refuses to decide anything by it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

__all__ = ["PeakWindow", "RequestCounts", "Usage"]

SLOT_SECONDS = 0.1
WINDOW_SLOTS = 100
KEPT_SLOTS = 700


@dataclass(frozen=True, slots=True)
class Usage:
    """Hold what a job has done with its budget so far.

    Attributes
    ----------
    items, wire_bytes, consumed_units, requests
        Sums over all settled requests.
    throttles
        How many throttles were met, by scope.
    elapsed_seconds
        From the first request until now, or until the budget was closed.
    peak_10s_ratio
        The highest sliding 10 s window of consumed units, stamped when their request was granted, over 10 s of the
        asked rate. None without a budget and in the first 10 s.
    """

    items: int
    wire_bytes: int
    consumed_units: float
    requests: int
    throttles: dict[str, int]
    elapsed_seconds: float
    peak_10s_ratio: float | None


@dataclass(slots=True)
class RequestCounts:
    """Sum up requests; not safe to share between threads."""

    items: int = 0
    wire_bytes: int = 0
    consumed_units: float = 0.0
    requests: int = 0
    throttles: dict[str, int] = field(default_factory=dict)

    def count_request(self, consumed: float, items: int, wire_bytes: int) -> None:
        """Add one settled request."""
        self.items += items
        self.wire_bytes += wire_bytes
        self.consumed_units += consumed
        self.requests += 1

    def count_throttle(self, scope: str, times: int = 1) -> None:
        """Add throttles of one scope."""
        self.throttles[scope] = self.throttles.get(scope, 0) + times

    def add(self, other: RequestCounts) -> None:
        """Add all that another counts counted."""
        self.items += other.items
        self.wire_bytes += other.wire_bytes
        self.consumed_units += other.consumed_units
        self.requests += other.requests
        for scope, times in other.throttles.items():
            self.count_throttle(scope, times)


class PeakWindow:
    """Find the highest sliding 10 s sum in bounded memory; not safe to share between threads.

    Sums are kept in slots of 100 ms for the last 70 s; units recorded for an earlier time are too late to be seen.
    """

    def __init__(self) -> None:
        self._slots: deque[float] = deque()
        self._first_slot = 0
        self._folded = 0.0

    def record(self, at_seconds: float, units: float) -> None:
        """Add units to the slot of an instant."""
        offset = int(at_seconds / SLOT_SECONDS) - self._first_slot
        while offset >= len(self._slots):
            self._slots.append(0.0)
        while len(self._slots) > KEPT_SLOTS:
            self._folded = max(self._folded, sum(islice(self._slots, WINDOW_SLOTS)))
            self._slots.popleft()
            self._first_slot += 1
            offset -= 1
        if offset >= 0:
            self._slots[offset] += units

    def highest(self) -> float:
        """Return the highest sum over any 10 s so far."""
        slots = list(self._slots)
        total = sum(slots[:WINDOW_SLOTS])
        highest = max(self._folded, total)
        for leaving, entering in zip(slots, islice(slots, WINDOW_SLOTS, None), strict=False):
            total += entering - leaving
            highest = max(highest, total)
        return highest
