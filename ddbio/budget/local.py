"""Budget within one process: reservations, grants at a rate, and counts of consumption."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from threading import Event, Lock
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ddbio.budget.job_limits import JobLimits
from ddbio.budget.pacing import Pacer, ThrottleScope
from ddbio.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddbio.budget.pacing import Ramp

# Settlements move the queue while requests wait in it, and a stopped job should end soon: poll at this interval.
MAX_WAIT_SECONDS = 0.25
# Time for which the latest attempt of a task may send requests before it asks again. A later attempt waits meanwhile.
HOLD_SECONDS = 1.0


class BudgetClosedError(Exception):
    """The job is stopping: no further request may be sent."""

    def __init__(self, message: str = "the job is being stopped: its budget grants no further requests") -> None:
        super().__init__(message)


class AttemptReplacedError(BudgetClosedError):
    """A later attempt of the same task runs, or may run: this one may send no further request."""


class Grant(NamedTuple):
    """Permission to send a request. It is settled after the response.

    Attributes
    ----------
    units
        Units charged for the request.
    at_seconds
        Time of the grant, in seconds since the budget's first request.
    central
        Whether the job's budget granted it. False if a worker granted it from its portion while the driver was
        unreachable.
    """

    units: float
    at_seconds: float
    central: bool = True


class Reservation(Protocol):
    """Position of a request in the budget's queue. An abandoned one costs its units once and delays no others."""

    def wait_seconds(self) -> float:
        """Return the seconds to wait before the next call, or 0 if the request may be sent.

        Raises
        ------
        BudgetClosedError
            If the job is stopping.
        """

    def grant(self) -> Grant:
        """Return the grant, after ``wait_seconds`` was 0."""


class Granted(Grant):
    """Immediate reservation without a rate, which is its own grant; see `Reservation`."""

    __slots__ = ()

    def wait_seconds(self) -> float:
        """Return 0, because there is no wait."""
        return 0.0

    def grant(self) -> Grant:
        """Return the grant."""
        return self


class Budget(Protocol):
    """Limit of a job's consumption per second. All methods are thread-safe.

    A request is acquired, sent, and settled as soon as its response reports the consumption, before the response is
    decoded. A request that consumed nothing (throttled, rejected, connection lost) is settled with 0 and acquired
    again.
    """

    def acquire(self, units: float) -> Grant:
        """Wait until a request of estimated ``units`` may be sent.

        Raises
        ------
        BudgetClosedError
            If the job is stopping.
        """

    def reserve(self, units: float) -> Reservation:
        """Reserve ``units`` without waiting; raises as ``acquire`` does."""

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Correct a grant by the consumed units of the request, and count its results. Never waits."""

    def throttled(self, scope: ThrottleScope, detail: str) -> None:
        """Count a throttle and reduce the rate according to its scope. A hot key range slows only its own lane."""

    def close(self) -> object:
        """Stop granting and end all waits. Later settlements are still counted."""


_log = logging.getLogger("ddbio.budget")
_progress_log = logging.getLogger("ddbio.progress")
_PROGRESS_SECONDS = 60.0
_ADVICE = {
    ThrottleScope.ACCOUNT: "the account's throughput quota is reached; lower the budget or ask AWS to raise the quota",
    ThrottleScope.ON_DEMAND_MAX: "the table's on-demand maximum is reached; the budget is clamped below it",
}
SLOT_SECONDS = 0.1
WINDOW_SLOTS = 100
RETAINED_SLOTS = 700


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a job's budget so far.

    Attributes
    ----------
    items, wire_bytes, consumed_units, requests
        Sums over all settled requests.
    throttles
        The number of throttles, by scope.
    elapsed_seconds
        From the first request until now, or until the budget was closed.
    peak_10s_ratio
        Maximum units consumed within any 10 s, by the grant time of their requests, divided by 10 s of the rate. None
        without a rate and in the first 10 s.
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
    """Sums over settled requests. Not thread-safe."""

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
        """Add other sums."""
        self.items += other.items
        self.wire_bytes += other.wire_bytes
        self.consumed_units += other.consumed_units
        self.requests += other.requests
        for scope, times in other.throttles.items():
            self.count_throttle(scope, times)


class PeakWindow:
    """Maximum of the sliding 10 s sum, in bounded memory. Not thread-safe.

    Sums are retained in slots of 100 ms for the last 70 s; units of an earlier time are ignored.
    """

    def __init__(self) -> None:
        self._slots: deque[float] = deque()
        self._first_slot = 0
        self._highest_past = 0.0

    def record(self, at_seconds: float, units: float) -> None:
        """Add units to the slot of a time."""
        offset = int(at_seconds / SLOT_SECONDS) - self._first_slot
        if offset >= len(self._slots) + RETAINED_SLOTS:
            # After a pause longer than the retained time, no earlier slot can be part of a later window.
            self._highest_past = self.highest()
            self._slots = deque([0.0] * RETAINED_SLOTS)
            self._first_slot += offset - RETAINED_SLOTS + 1
            offset = RETAINED_SLOTS - 1
        while offset >= len(self._slots):
            self._slots.append(0.0)
        while len(self._slots) > RETAINED_SLOTS:
            self._highest_past = max(self._highest_past, sum(islice(self._slots, WINDOW_SLOTS)))
            self._slots.popleft()
            self._first_slot += 1
            offset -= 1
        if offset >= 0:
            self._slots[offset] += units

    def highest(self) -> float:
        """Return the highest sum over any 10 s so far."""
        slots = list(self._slots)
        total = sum(slots[:WINDOW_SLOTS])
        highest = max(self._highest_past, total)
        for leaving, entering in zip(slots, islice(slots, WINDOW_SLOTS, None), strict=False):
            total += entering - leaving
            highest = max(highest, total)
        return highest


class _ProgressLine(NamedTuple):
    """Last progress line: the time of the next one, and the figures of the last one."""

    next_at: float
    at: float = 0.0
    items: int = 0
    units: float = 0.0


class LocalBudget:
    """Budget that grants requests at a rate and counts them. A job's units are counted only here.

    Parameters
    ----------
    units_per_second
        The rate. None grants immediately, even after throttles, and still counts everything.
    job
        Name of the job in the log, which gets a progress line each minute. None logs nothing.
    ramp
        Additional limit of the rate, starting with the first request.
    clock
        Returns monotonic seconds.
    """

    def __init__(
        self,
        units_per_second: float | None,
        *,
        job: str | None = None,
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
        self._granted = Granted(0.0, 0.0)
        self._peak = PeakWindow()
        self._limits, self._is_bound = JobLimits(), False
        self.exceeded: str | None = None
        """Exceeded limits of the job, or None."""
        self.is_followed = False
        """Whether the counts of worker processes are used while the job runs."""
        self.job = job
        self._logged = _ProgressLine(_PROGRESS_SECONDS if job is not None else math.inf)

    @property
    def is_bounded(self) -> bool:
        """Return whether requests may wait or be refused: there is a rate, or a limit of the job."""
        return self.units_per_second is not None or self._is_bound

    @property
    def wants_counts(self) -> bool:
        """Return whether the counts are used while the job runs, at least by the log."""
        return self.is_followed or (self.job is not None and _progress_log.isEnabledFor(logging.INFO))

    @property
    def is_closed(self) -> bool:
        """Return whether the budget grants no more requests."""
        return self._closed.is_set()

    def bound(self, limits: JobLimits) -> None:
        """Stop the job when it exceeds its limits, starting with the next settlement."""
        self._limits, self._is_bound = limits, limits != JobLimits()

    @contextmanager
    def within_limits(self) -> Iterator[None]:
        """Close the budget at the end. Raise a LimitError instead of any other error if the job exceeded its limits."""
        try:
            yield
        except BaseException as error:
            if self.exceeded is None:
                raise
            raise LimitError(f"the job was stopped: {self.exceeded}") from error
        finally:
            self.close()

    def acquire(self, units: float) -> Grant:
        """Wait until a request of estimated ``units`` may be sent; see `Budget.acquire`."""
        reservation = self.reserve(units)
        while wait_seconds := reservation.wait_seconds():
            self._closed.wait(wait_seconds)
        return reservation.grant()

    def reserve(self, units: float) -> LocalReservation | Granted:
        """Reserve units without waiting; see `Budget.reserve`."""
        if self._pacer is None:
            # Fast path without the lock, for each request. The state is checked again under the lock.
            if self._started_at is None or self._stopped_at is not None:
                with self._lock:
                    self._check(self._enqueue(units))
            # Only a pacer needs the time of a grant. Most requests have the same units as the previous one.
            granted = self._granted
            if granted.units != units:
                granted = self._granted = Granted(units, 0.0)
            return granted
        with self._lock:
            position = self._enqueue(units)
            wait_seconds, run_seconds = self._check(position)
        return LocalReservation(self, units, position, wait_seconds, run_seconds)

    def enqueue(self, units: float) -> float:
        """Add a request to the queue and return its position."""
        with self._lock:
            return self._enqueue(units)

    def check(self, position: float) -> tuple[float, float]:
        """Return the wait of the request at a position (0 grants it), and the seconds of the run.

        Raises
        ------
        BudgetClosedError
            If the job is stopping.
        """
        with self._lock:
            return self._check(position)

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Correct a grant and count its results; see `Budget.settle`."""
        with self._lock:
            run_seconds = 0.0 if self._started_at is None else self._clock() - self._started_at
            self._counts.count_request(consumed, items, wire_bytes)
            if self._pacer is not None:
                self._peak.record(grant.at_seconds, consumed)
                self._pacer.settle(grant.units, consumed, run_seconds)
            # Fast path: almost no request has a progress line.
            if not self._is_bound and run_seconds < self._logged.next_at:
                return
            progress = self._check_limits(run_seconds)
        self._log_progress(progress)

    def throttled(self, scope: ThrottleScope, detail: str) -> None:
        """Count a throttle and reduce the rate according to its scope; see `Budget.throttled`."""
        with self._lock:
            first = scope not in self._counts.throttles
            self._counts.count_throttle(scope.value)
            if self._pacer is not None:
                self._pacer.throttled(scope, self._run_seconds())
        if first and scope in _ADVICE:
            _log.warning("throttled (%s): %s", detail, _ADVICE[scope])

    def add(self, counts: RequestCounts, run_seconds: float = 0.0) -> None:
        """Count the requests of a worker that did not ask this budget before.

        Parameters
        ----------
        run_seconds
            Seconds since its first request.
        """
        new = [scope for scope in _ADVICE if counts.throttles.get(scope.value)]
        with self._lock:
            if counts.requests and self._stopped_at is None:
                began_at = self._clock() - run_seconds
                self._started_at = began_at if self._started_at is None else min(self._started_at, began_at)
            new = [scope for scope in new if scope.value not in self._counts.throttles]
            self._counts.add(counts)
            progress = self._check_limits(self._run_seconds())
        for scope in new:
            _log.warning("throttled (%s): %s", scope.value, _ADVICE[scope])
        self._log_progress(progress)

    def usage(self) -> Usage:
        """Return the counts so far. Cheap enough for a progress bar."""
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
        """Stop granting and end all waits; see `Budget.close`."""
        with self._lock:
            if self._stopped_at is None:
                self._stopped_at = self._run_seconds()
        self._closed.set()

    def _check_limits(self, run_seconds: float) -> str | None:
        """Check the limits after a change of the counts. Return the progress line if one is due."""
        if self._is_bound and self.exceeded is None:
            self.exceeded = self._limits.exceeded(self._counts.consumed_units, run_seconds)
        return self._progress(run_seconds) if run_seconds >= self._logged.next_at else None

    def _log_progress(self, progress: str | None) -> None:
        if self.exceeded is not None:
            self.close()
        if progress is not None:
            _progress_log.info(progress)

    def _progress(self, run_seconds: float) -> str:
        """Return the progress line: the totals, and the rates since the last line."""
        items, units, last = self._counts.items, self._counts.consumed_units, self._logged
        seconds = run_seconds - last.at
        rates = [f"{(items - last.items) / seconds:,.0f} items/s"]
        if units:
            limit = "" if self.units_per_second is None else f" of {self.units_per_second:,g}"
            rates.append(f"{(units - last.units) / seconds:,.1f}{limit} units/s")
        self._logged = _ProgressLine(run_seconds + _PROGRESS_SECONDS, run_seconds, items, units)
        return f"{self.job}: {items:,} items in {run_seconds:,.0f} s; {' and '.join(rates)} lately"

    def _enqueue(self, units: float) -> float:
        if self._started_at is None:
            self._started_at = self._clock()
        return 0.0 if self._pacer is None else self._pacer.reserve(units, self._run_seconds())

    def _check(self, position: float) -> tuple[float, float]:
        if self._stopped_at is not None:
            raise BudgetClosedError
        run_seconds = self._run_seconds()
        return 0.0 if self._pacer is None else self._pacer.wait_seconds(position, run_seconds), run_seconds

    def _run_seconds(self) -> float:
        return 0.0 if self._started_at is None else self._clock() - self._started_at


class LocalReservation:
    """Position in a local budget's queue; see `Reservation`."""

    __slots__ = ("_at_seconds", "_budget", "_is_fresh", "_position", "_units", "_wait_seconds")

    def __init__(
        self, budget: LocalBudget, units: float, position: float, wait_seconds: float, at_seconds: float
    ) -> None:
        self._budget, self._units, self._position = budget, units, position
        self._wait_seconds, self._at_seconds, self._is_fresh = wait_seconds, at_seconds, True

    def wait_seconds(self) -> float:
        """Return the seconds to wait before the next call, or 0 if the request may be sent."""
        if not self._is_fresh:
            self._wait_seconds, self._at_seconds = self._budget.check(self._position)
        self._is_fresh = False
        return min(self._wait_seconds, MAX_WAIT_SECONDS)

    def grant(self) -> Grant:
        """Return the grant."""
        return Grant(self._units, self._at_seconds)
