"""Hold a budget within one process, for all its threads; refuses to go on after it was closed."""

from __future__ import annotations

import logging
import time
from threading import Event, Lock
from typing import TYPE_CHECKING

from ddbio.budget.protocol import LONGEST_NAP_SECONDS, BudgetClosedError, Grant
from ddbio.budget.usage import SLOT_SECONDS, WINDOW_SLOTS, PeakWindow, RequestCounts, Usage
from ddbio.core.pacing import Pacer, ThrottleScope

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.core.pacing import Ramp

__all__ = ["LocalBudget"]

_log = logging.getLogger("ddbio.budget")
_ADVICE = {
    ThrottleScope.ACCOUNT: "the account's throughput quota is met; lower the budget or ask AWS to raise the quota",
    ThrottleScope.ON_DEMAND_MAX: "the table's on-demand maximum is met; the budget is clamped below it",
}


class LocalBudget:
    """Grant requests at the asked rate and count them; the one place where a job's units are kept.

    Parameters
    ----------
    units_per_second
        The asked rate. None grants at once, whatever is throttled, and still counts everything.
    ramp
        Bounds the rate besides, from the first request on.
    clock
        Returns monotonic seconds.
    """

    def __init__(
        self,
        units_per_second: float | None,
        *,
        ramp: Ramp | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.units_per_second = units_per_second
        self._pacer = None if units_per_second is None else Pacer(units_per_second, ramp)
        self._clock = clock
        self._started_at: float | None = None
        self._stopped_at: float | None = None
        self._closed = Event()
        self._lock = Lock()
        self._counts = RequestCounts()
        self._peak = PeakWindow()

    def acquire(self, units: float) -> Grant:
        """Wait until a request of estimated ``units`` may be sent; see `Budget.acquire`."""
        reservation = self.reserve(units)
        while wait_seconds := reservation.wait_seconds():
            self._closed.wait(wait_seconds)
        return reservation.grant()

    def reserve(self, units: float) -> LocalReservation:
        """Take a place in line; see `Budget.reserve`."""
        with self._lock:
            place = self._enqueue(units)
            return LocalReservation(self, units, place, *self._check(place))

    def enqueue(self, units: float) -> float:
        """Return a place in line for a request, at once."""
        with self._lock:
            return self._enqueue(units)

    def check(self, place: float) -> tuple[float, float]:
        """Return how long the request at a place has still to wait, and the seconds of the run; 0 grants it.

        Raises
        ------
        BudgetClosedError
            The job is being stopped.
        """
        with self._lock:
            return self._check(place)

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Correct a grant and count what it brought; see `Budget.settle`."""
        with self._lock:
            self._counts.count_request(consumed, items, wire_bytes)
            if self._pacer is not None:
                self._peak.record(grant.at_seconds, consumed)
                self._pacer.settle(grant.units, consumed, self._run_seconds())

    def throttled(self, scope: ThrottleScope, detail: str) -> None:
        """Count a throttle and slow down as its scope demands; see `Budget.throttled`."""
        with self._lock:
            first = scope not in self._counts.throttles
            self._counts.count_throttle(scope.value)
            if self._pacer is not None:
                self._pacer.throttled(scope, self._run_seconds())
        if first and scope in _ADVICE:
            _log.warning("throttled (%s): %s", detail, _ADVICE[scope])

    def add(self, counts: RequestCounts) -> None:
        """Count what a worker did on its own share while this budget was out of its reach."""
        with self._lock:
            self._counts.add(counts)

    def usage(self) -> Usage:
        """Return the counts so far; cheap enough for a progress bar."""
        with self._lock:
            elapsed_seconds = self._run_seconds() if self._stopped_at is None else self._stopped_at
            peak = None
            if self.units_per_second is not None and elapsed_seconds >= SLOT_SECONDS * WINDOW_SLOTS:
                peak = self._peak.highest() / (SLOT_SECONDS * WINDOW_SLOTS * self.units_per_second)
            counts = self._counts
            return Usage(
                items=counts.items,
                wire_bytes=counts.wire_bytes,
                consumed_units=counts.consumed_units,
                requests=counts.requests,
                throttles=dict(counts.throttles),
                elapsed_seconds=elapsed_seconds,
                peak_10s_ratio=peak,
            )

    def close(self) -> None:
        """Stop granting and wake everybody who waits; see `Budget.close`."""
        with self._lock:
            if self._stopped_at is None:
                self._stopped_at = self._run_seconds()
        self._closed.set()

    def _enqueue(self, units: float) -> float:
        if self._started_at is None:
            self._started_at = self._clock()
        return 0.0 if self._pacer is None else self._pacer.reserve(units, self._run_seconds())

    def _check(self, place: float) -> tuple[float, float]:
        if self._stopped_at is not None:
            raise BudgetClosedError
        run_seconds = self._run_seconds()
        return 0.0 if self._pacer is None else self._pacer.wait_seconds(place, run_seconds), run_seconds

    def _run_seconds(self) -> float:
        return 0.0 if self._started_at is None else self._clock() - self._started_at


class LocalReservation:
    """Hold a place in a local budget's line; see `Reservation`."""

    __slots__ = ("_at_seconds", "_budget", "_is_news", "_place", "_units", "_wait_seconds")

    def __init__(self, budget: LocalBudget, units: float, place: float, wait_seconds: float, at_seconds: float) -> None:
        self._budget, self._units, self._place = budget, units, place
        self._wait_seconds, self._at_seconds, self._is_news = wait_seconds, at_seconds, True

    def wait_seconds(self) -> float:
        """Return how long to wait before asking again, 0 if the request may be sent."""
        if not self._is_news:
            self._wait_seconds, self._at_seconds = self._budget.check(self._place)
        self._is_news = False
        return min(self._wait_seconds, LONGEST_NAP_SECONDS)

    def grant(self) -> Grant:
        """Return the permission."""
        return Grant(self._units, self._at_seconds)
