"""Bring the job's one budget to a worker process; refuses to spend without limit when the driver is out of reach."""

from __future__ import annotations

import logging
import socket
import time
from dataclasses import astuple, replace
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.budget.local import LocalBudget
from ddbio.budget.protocol import LONGEST_NAP_SECONDS, BudgetClosedError, Grant
from ddbio.budget.usage import RequestCounts
from ddbio.budget.wire import BudgetAddress, Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.budget.protocol import Reservation
    from ddbio.core.pacing import ThrottleScope

__all__ = ["BudgetClient"]

# Between attempts to reach the driver.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _GROWTH = 5.0, 120.0, 2.0
_SHORT_TIMEOUT_SECONDS = 1.0
_log = logging.getLogger("ddbio.budget")


class _Standing(NamedTuple):
    place: float
    wait_seconds: float
    at_seconds: float
    share_per_second: float | None


class BudgetClient:
    """Acquire from the driver's budget; one for each worker process, shared by its threads.

    While the driver is out of reach, requests are granted from this worker's share alone: the lower of its static
    share and what the driver last said each worker may have. What was done meanwhile is reported when it is back, and
    counted there, but is outside the driver's 10 s windows.

    Parameters
    ----------
    address
        Where the driver serves the budget.
    fallback_units_per_second
        The static share. None bounds nothing as long as the driver has not said otherwise.
    timeout_seconds
        How long to wait for the driver's answer.
    """

    def __init__(
        self, address: BudgetAddress, *, fallback_units_per_second: float | None, timeout_seconds: float = 5.0
    ) -> None:
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._static_share = fallback_units_per_second
        self._told_share: float | None = None
        self._alone = LocalBudget(fallback_units_per_second)
        self._missed = RequestCounts()
        self._wire: Wire | None = None
        self._connecting = Lock()
        self._was_tried = False
        self._reconnect_at = 0.0
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._warned = False
        self._closed = Event()
        self._has_left = False
        self._lock = Lock()

    def acquire(self, units: float) -> Grant:
        """Wait until a request of estimated ``units`` may be sent; see `Budget.acquire`."""
        reservation = self.reserve(units)
        while wait_seconds := reservation.wait_seconds():
            self._closed.wait(wait_seconds)
        return reservation.grant()

    def reserve(self, units: float) -> Reservation:
        """Take a place in line; see `Budget.reserve`."""
        return _ClientReservation(self, units)

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Correct a grant and count what it brought; see `Budget.settle`."""
        message = ("settle", grant.units, grant.at_seconds, consumed, items, wire_bytes)
        with self._lock:
            if grant.central and self._try(lambda wire: wire.send(message)):
                return
            self._missed.count_request(consumed, items, wire_bytes)
            alone = self._alone
        if not grant.central:
            alone.settle(grant, consumed)

    def throttled(self, scope: ThrottleScope, detail: str) -> None:
        """Count a throttle and slow the job down; see `Budget.throttled`."""
        # A longer text would not fit into a message.
        message = ("throttled", scope.value, detail[:300])
        with self._lock:
            if self._try(lambda wire: wire.send(message)):
                return
            self._missed.count_throttle(scope.value)
            alone = self._alone
        alone.throttled(scope, detail)

    def close(self) -> RequestCounts:
        """Leave the budget: wake this process's waiters and return when the driver has counted all it was told.

        The job and its other workers go on.

        Returns
        -------
        RequestCounts
            What could not be told to the driver.
        """
        self._closed.set()
        with self._lock:
            is_unknown = self._wire is None and self._missed != RequestCounts()
        if is_unknown and self._pause_seconds <= _FIRST_PAUSE_SECONDS * _GROWTH:
            # It failed once at the most: a driver that does not answer at all is not waited for by each task.
            self._connect(self._timeout_seconds)
        with self._lock:
            self._has_left = True
            self._try(_flush)
            if self._wire is not None:
                self._wire.close()
                self._wire = None
            missed, self._missed = self._missed, RequestCounts()
        return missed

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise BudgetClosedError

    def _ask(self, verb: str, value: float) -> _Standing | None:
        """Return the driver's answer, None if there is none."""
        answers: list[Any] = []

        def exchange(wire: Wire) -> None:
            wire.send((verb, value))
            answers.append(wire.receive())

        self._require_open()
        self._see_to_connection()
        with self._lock:
            if not self._try(exchange):
                return None
            if answers == [None]:
                self._closed.set()
                raise BudgetClosedError
            standing = _Standing(*answers[0])
            self._told_share = standing.share_per_second
            return standing

    def _see_to_connection(self) -> None:
        """Connect where it is time for that; requests wait for the first attempt only."""
        if self._wire is not None:
            return
        if not self._was_tried:
            with self._connecting:
                if not self._was_tried:
                    # Without a rate nothing has to be asked for, and a closed port should hold up nobody.
                    self._connect(self._timeout_seconds if self._static_share else _SHORT_TIMEOUT_SECONDS)
            return
        with self._lock:
            is_due = self._wire is None and time.monotonic() >= self._reconnect_at
        if is_due and self._connecting.acquire(blocking=False):
            Thread(target=self._connect_meanwhile, name="ddbio-budget", daemon=True).start()

    def _connect_meanwhile(self) -> None:
        try:
            self._connect(self._timeout_seconds)
        finally:
            self._connecting.release()

    def _connect(self, timeout_seconds: float) -> None:
        """Try to reach the driver; no lock that a request needs is held meanwhile."""
        wire, address = None, self._address
        try:
            connection = socket.create_connection((address.host, address.port), timeout_seconds)
            wire = Wire(connection, self._timeout_seconds)
            wire.introduce(address.key)
        except (OSError, ValueError):
            if wire is not None:
                wire.close()
            wire = None
        with self._lock:
            self._was_tried = True
            if wire is None:
                self._lose()
                return
            if self._has_left or self._wire is not None:
                # Another attempt was faster, or nobody is there any more.
                wire.close()
                return
            self._wire, self._pause_seconds = wire, _FIRST_PAUSE_SECONDS
            missed = astuple(self._missed)
            if self._missed != RequestCounts() and self._try(lambda wire: wire.send(("add", *missed))):
                self._missed = RequestCounts()

    def _try(self, action: Callable[[Wire], None]) -> bool:
        """Do something with the connection; return False if there is none or it broke."""
        if self._wire is None:
            return False
        try:
            action(self._wire)
        except (OSError, ValueError):
            self._wire.close()
            self._wire = None
            self._lose()
            return False
        return True

    def _lose(self) -> None:
        self._reconnect_at = time.monotonic() + self._pause_seconds
        self._pause_seconds = min(_LONGEST_PAUSE_SECONDS, self._pause_seconds * _GROWTH)
        share = min((s for s in (self._static_share, self._told_share) if s is not None), default=None)
        if share != self._alone.units_per_second:
            self._alone = LocalBudget(share)
        if not self._warned:
            self._warned = True
            limit = "no limit" if share is None else f"{share:g} units/s"
            where = f"{self._address.host}:{self._address.port}"
            _log.warning("the budget at %s is out of reach: this worker goes on alone with %s", where, limit)


class _ClientReservation:
    """Hold a place in the driver's line, and in this worker's own from when the driver is out of reach."""

    def __init__(self, client: BudgetClient, units: float) -> None:
        self._client, self._units = client, units
        self._alone: Reservation | None = None
        self._standing = client._ask("reserve", units)  # noqa: SLF001 - its own
        self._is_news = True
        self._at_seconds = 0.0

    def wait_seconds(self) -> float:
        if self._standing is not None and not self._is_news:
            self._standing = self._client._ask("check", self._standing.place)  # noqa: SLF001
        self._is_news = False
        if self._standing is not None:
            self._at_seconds = self._standing.at_seconds
            return min(self._standing.wait_seconds, LONGEST_NAP_SECONDS)
        self._client._require_open()  # noqa: SLF001
        if self._alone is None:
            self._alone = self._client._alone.reserve(self._units)  # noqa: SLF001
        return self._alone.wait_seconds()

    def grant(self) -> Grant:
        if self._alone is not None:
            return replace(self._alone.grant(), central=False)
        return Grant(self._units, self._at_seconds)


def _flush(wire: Wire) -> None:
    wire.send(("flush",))
    wire.receive()
