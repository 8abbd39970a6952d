"""Budgets of a worker process without a rate: they count, or end with their attempt of a task."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import astuple, dataclass, field
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from ddbio.budget.client import FIRST_PAUSE_SECONDS, connect_to_driver, next_pause
from ddbio.budget.local import BudgetClosedError, Granted, RequestCounts

if TYPE_CHECKING:
    from ddbio.budget.client import BudgetAddress, BudgetClient, MessageChannel
    from ddbio.budget.local import Budget, Grant, Reservation
    from ddbio.budget.pacing import ThrottleScope


@dataclass
class _DelegatingBudget:
    """Base of budgets that delegate to another budget."""

    budget: Budget

    def acquire(self, units: float) -> Grant:
        """Wait until a request may be sent; see `Budget.acquire`."""
        return self.budget.acquire(units)

    def reserve(self, units: float) -> Reservation:
        """Reserve units without waiting; see `Budget.reserve`."""
        return self.budget.reserve(units)

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Correct a grant and count its results; see `Budget.settle`."""
        self.budget.settle(grant, consumed, items=items, wire_bytes=wire_bytes)

    def throttled(self, scope: ThrottleScope, detail: str) -> None:
        """Count a throttle and slow the job down; see `Budget.throttled`."""
        self.budget.throttled(scope, detail)

    def close(self) -> object:
        """Stop granting and end all waits."""
        return self.budget.close()


@dataclass
class CountedBudget(_DelegatingBudget):
    """Budget that also counts the consumption of this process.

    Attributes
    ----------
    units
        Consumed units.
    throttles
        Throttled requests by scope.
    """

    units: float = 0.0
    throttles: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Correct a grant and count its results; see `Budget.settle`."""
        with self._lock:
            self.units += consumed
        super().settle(grant, consumed, items=items, wire_bytes=wire_bytes)

    def throttled(self, scope: ThrottleScope, detail: str) -> None:
        """Count a throttle and slow the job down; see `Budget.throttled`."""
        with self._lock:
            self.throttles[scope.value] += 1
        super().throttled(scope, detail)


@dataclass
class FencedBudget(_DelegatingBudget):
    """Budget that grants requests only to the latest attempt of a task.

    Attributes
    ----------
    fence
        The attempt, registered at the driver.
    """

    fence: BudgetClient

    def acquire(self, units: float) -> Grant:
        """Wait until a request may be sent; see `Budget.acquire`."""
        grant = super().acquire(units)
        self.fence.hold()
        return grant

    def reserve(self, units: float) -> Reservation:
        """Reserve units without waiting; see `Budget.reserve`."""
        return _FencedReservation(super().reserve(units), self.fence)


class _FencedReservation:
    """Position in a budget's queue that is granted only to the latest attempt."""

    def __init__(self, reservation: Reservation, fence: BudgetClient) -> None:
        self._reservation, self._fence = reservation, fence

    def wait_seconds(self) -> float:
        wait_seconds = self._reservation.wait_seconds()
        if not wait_seconds:
            self._fence.hold()
        return wait_seconds

    def grant(self) -> Grant:
        return self._reservation.grant()


REPORT_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0


class UnlimitedBudget:
    """Budget that grants every request immediately, and counts it.

    Parameters
    ----------
    address
        Address of a driver that needs the progress of the job about once a second. A separate thread reports it, and
        learns whether the job is stopping: no request waits for an unreachable driver. None opens no connection.
    """

    def __init__(self, address: BudgetAddress | None = None) -> None:
        self._counts = RequestCounts()
        self._began_seconds: float | None = None
        self._closed, self._left = Event(), Event()
        self._lock = Lock()
        self._channel: MessageChannel | None = None
        # Protects the connection. Requests need only the other lock.
        self._exchanging = Lock()
        if address is not None:
            Thread(target=self._report, args=(address,), name="ddbio-budget", daemon=True).start()

    def acquire(self, units: float) -> Granted:
        """Return the grant of a request; see `Budget.acquire`."""
        if self._closed.is_set():
            raise BudgetClosedError
        if self._began_seconds is None:
            self._began_seconds = time.monotonic()
        return Granted(units, 0.0)

    def reserve(self, units: float) -> Reservation:
        """Reserve units, which are always available; see `Budget.reserve`."""
        return self.acquire(units)

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Count the results of a request; see `Budget.settle`."""
        del grant
        with self._lock:
            self._counts.count_request(consumed, items, wire_bytes)

    def throttled(self, scope: ThrottleScope, detail: str) -> None:
        """Count a throttle; see `Budget.throttled`."""
        del detail
        with self._lock:
            self._counts.count_throttle(scope.value)

    def run_seconds(self) -> float:
        """Return the seconds since the first request."""
        return 0.0 if self._began_seconds is None else time.monotonic() - self._began_seconds

    def close(self) -> RequestCounts:
        """Grant no further requests.

        Returns
        -------
        RequestCounts
            Counts that were not reported to the driver.
        """
        self._closed.set()
        self._left.set()
        self._exchange()
        with self._lock:
            unreported, self._counts = self._counts, RequestCounts()
        return unreported

    def _report(self, address: BudgetAddress) -> None:
        pause_seconds = FIRST_PAUSE_SECONDS
        while not self._left.is_set():
            if self._connect(address):
                pause_seconds = FIRST_PAUSE_SECONDS
                while self._exchange() and not self._left.wait(REPORT_SECONDS):
                    pass
            self._left.wait(pause_seconds)
            pause_seconds = next_pause(pause_seconds)

    def _connect(self, address: BudgetAddress) -> bool:
        """Return whether a driver is needed and reachable."""
        channel = connect_to_driver(address, _TIMEOUT_SECONDS, _TIMEOUT_SECONDS)
        if channel is None:
            return False
        with self._exchanging:
            if self._left.is_set():
                channel.close()
                return False
            self._channel = channel
        return True

    def _exchange(self) -> bool:
        """Report new counts to the driver, and learn whether the job is stopping. Return False if it is lost."""
        with self._exchanging:
            if self._channel is None:
                return False
            with self._lock:
                counts, self._counts = self._counts, RequestCounts()
            try:
                self._channel.send(("report", *astuple(counts), self.run_seconds()))
            except (OSError, ValueError):
                with self._lock:
                    self._counts.add(counts)
                self._hang_up()
                return False
            try:
                is_open = self._channel.receive()
            except (OSError, ValueError):
                self._hang_up()
                return False
            if not is_open:
                self._closed.set()
            if self._left.is_set():
                self._hang_up()
            return True

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
