"""What a worker process spends where no rate bounds it: requests are granted at once, and only counted."""

from __future__ import annotations

import time
from dataclasses import astuple
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from ddbio.budget.local import RequestCounts
from ddbio.budget.messages import FIRST_PAUSE_SECONDS, connect_to_driver, next_pause
from ddbio.budget.reservation import BudgetClosedError, Granted
from ddbio.items.kernel.compiling import COMPILATIONS

if TYPE_CHECKING:
    from ddbio.budget.messages import BudgetAddress, MessageChannel
    from ddbio.budget.pacing import ThrottleScope
    from ddbio.budget.reservation import Grant, Reservation

__all__ = ["UnlimitedBudget"]

REPORT_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0


class UnlimitedBudget:
    """Grant every request at once, and count it.

    Parameters
    ----------
    address
        Where the driver wants to know, about once a second, how far the job is. A thread tells it, and learns
        whether the job is being stopped: no request waits for a driver that is out of reach. None opens no connection.
    """

    def __init__(self, address: BudgetAddress | None = None) -> None:
        self._counts = RequestCounts()
        self._began_seconds: float | None = None
        self._closed, self._left = Event(), Event()
        self._lock = Lock()
        self._channel: MessageChannel | None = None
        # Held while the connection is used; requests need only the other lock.
        self._exchanging = Lock()
        if address is not None:
            Thread(target=self._report, args=(address,), name="ddbio-budget", daemon=True).start()

    def acquire(self, units: float) -> Granted:
        """Return the permission to send a request; see `Budget.acquire`."""
        if self._closed.is_set():
            raise BudgetClosedError
        if self._began_seconds is None:
            self._began_seconds = time.monotonic()
        return Granted(units, 0.0)

    def reserve(self, units: float) -> Reservation:
        """Reserve units, which are there; see `Budget.reserve`."""
        return self.acquire(units)

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Count what a request brought; see `Budget.settle`."""
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
            What the driver has not been told.
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
        """Return whether the driver is reached, and wanted to be."""
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
        """Tell the driver what is new, and learn whether the job is being stopped; return False if it is lost."""
        with self._exchanging:
            if self._channel is None:
                return False
            with self._lock:
                counts, self._counts = self._counts, RequestCounts()
            try:
                self._channel.send(("report", *astuple(counts), self.run_seconds(), COMPILATIONS.is_running))
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
