"""Budget in a worker process: the driver grants requests. Without the driver the worker spends its portion."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import time
from dataclasses import astuple, dataclass, field
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ddbio.budget.local import (
    HOLD_SECONDS,
    MAX_WAIT_SECONDS,
    AttemptReplacedError,
    BudgetClosedError,
    Grant,
    LocalBudget,
    RequestCounts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.budget.local import Reservation
    from ddbio.budget.pacing import ThrottleScope

FIRST_PAUSE_SECONDS = 5.0
"""Pause between two attempts to reach the driver."""

_MAX_PAUSE_SECONDS, _GROWTH = 120.0, 2.0

_MAX_MESSAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class BudgetAddress:
    """Address of a job's budget, and its key, which is omitted from ``repr``."""

    host: str
    port: int
    key: bytes = field(repr=False)


class MessageChannel:
    """Channel of JSON messages, one per line, over a connected socket.

    The timeout applies to an entire message, even if it arrives byte by byte. Every failure is an ``OSError`` (no peer,
    or a wrong one) or a ``ValueError`` (not JSON). Close the channel after a failure.
    """

    def __init__(self, connection: socket.socket, timeout_seconds: float) -> None:
        self._socket = connection
        self._timeout_seconds: float | None = timeout_seconds
        # Otherwise the second of two consecutive short messages would wait for a delayed acknowledgement.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._received = b""

    def send(self, message: object) -> None:
        """Send one message."""
        if self._timeout_seconds is not None:
            # The rest of the timeout does not apply to the next message.
            self._socket.settimeout(self._timeout_seconds)
        self._socket.sendall(json.dumps(message, allow_nan=False).encode() + b"\n")

    def receive(self) -> Any:
        """Return the next message."""
        limit = self._timeout_seconds
        until = None if limit is None else time.monotonic() + limit
        while b"\n" not in self._received:
            if until is not None:
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the peer took too long for a message")
                self._socket.settimeout(left)
            piece = self._socket.recv(_MAX_MESSAGE_BYTES)
            self._received += piece
            is_overlong = len(self._received) >= _MAX_MESSAGE_BYTES and b"\n" not in self._received[:_MAX_MESSAGE_BYTES]
            if not piece or is_overlong:
                raise ConnectionError("the peer hung up or sent an overlong message")
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line, parse_constant=_refuse_constant)

    def authenticate_worker(self, key: bytes) -> None:
        """Verify that the worker knows the key, then prove the same to it.

        Raises
        ------
        ConnectionError
            If the peer does not know the key.
        """
        challenge = secrets.token_hex()
        self.send(challenge)
        answer, counter_challenge = self.receive()
        if not hmac.compare_digest(str(answer).encode(), _proof(key, "worker", challenge).encode()):
            raise ConnectionError("the peer does not know the key")
        self.send(_proof(key, "driver", str(counter_challenge)))

    def authenticate_to_driver(self, key: bytes) -> None:
        """Prove to the driver that this worker knows the key, then verify the driver.

        Raises
        ------
        ConnectionError
            If the peer does not know the key.
        """
        challenge = secrets.token_hex()
        self.send([_proof(key, "worker", str(self.receive())), challenge])
        if not hmac.compare_digest(str(self.receive()).encode(), _proof(key, "driver", challenge).encode()):
            raise ConnectionError("the peer does not know the key")

    def disable_timeout(self) -> None:
        """Remove the timeout."""
        self._timeout_seconds = None
        self._socket.settimeout(None)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def connect_to_driver(address: BudgetAddress, connect_seconds: float, timeout_seconds: float) -> MessageChannel | None:
    """Return a channel to the driver, or None if it is unreachable or does not know the key.

    Parameters
    ----------
    connect_seconds
        Timeout of the connection.
    timeout_seconds
        Timeout of each message.
    """
    channel = None
    try:
        connection = socket.create_connection((address.host, address.port), connect_seconds)
        channel = MessageChannel(connection, timeout_seconds)
        channel.authenticate_to_driver(address.key)
    except (OSError, ValueError):
        if channel is not None:
            channel.close()
        return None
    return channel


def next_pause(pause_seconds: float) -> float:
    """Return the pause after a failed attempt."""
    return min(_MAX_PAUSE_SECONDS, pause_seconds * _GROWTH)


def _proof(key: bytes, role: str, challenge: str) -> str:
    return hmac.new(key, f"{role} {challenge}".encode(), "sha256").hexdigest()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_SHORT_TIMEOUT_SECONDS = 1.0
_MAX_REMEMBERED_ADDRESSES = 64
_log = logging.getLogger("ddbio.budget")


class _QueueState(NamedTuple):
    """Driver's response about a reservation."""

    position: float
    wait_seconds: float
    at_seconds: float
    portion_per_second: float | None


class _UnreachableDriver(NamedTuple):
    """Time of the next attempt to reach a driver that was never reached, and the following pause."""

    again_at: float
    pause_seconds: float


# Each task has a separate client, and only one of them should wait for a port that drops packets.
_unreachable_drivers: dict[BudgetAddress, _UnreachableDriver] = {}


class TaskAttempt(NamedTuple):
    """Attempt of a task. Only the latest attempt may write.

    Attributes
    ----------
    task
        Name of the task, unique in the driver.
    number
        Number of the attempt, greater for later ones.
    alone_seconds
        Maximum time without the driver after it was reached. An attempt that never reached it continues without limit.
    """

    task: str
    number: int
    alone_seconds: float


class BudgetClient:
    """Client of the driver's budget, one per worker process, shared by its threads.

    While the driver is unreachable, requests are granted from this worker's portion: the lower of its static portion
    and the one that the driver last reported. Consumption in that time is reported and counted when the driver is
    reachable again, but is not part of its 10 s windows.

    Parameters
    ----------
    address
        Address of the driver's budget.
    fallback_units_per_second
        The static portion. None sets no bound until the driver has reported one.
    timeout_seconds
        Timeout of the driver's response.
    attempt
        Attempt and task of this client, if only the latest attempt may continue.
    """

    def __init__(
        self,
        address: BudgetAddress,
        *,
        fallback_units_per_second: float | None,
        timeout_seconds: float = 5.0,
        attempt: TaskAttempt | None = None,
    ) -> None:
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._attempt = attempt
        self._answered_at: float | None = None
        self._held_until = 0.0
        self._static_portion = fallback_units_per_second
        self._driver_portion: float | None = None
        self._alone = LocalBudget(fallback_units_per_second)
        self._unreported = RequestCounts()
        self._channel: MessageChannel | None = None
        self._connecting = Lock()
        state = _unreachable_drivers.get(address)
        self._has_tried = state is not None
        self._reconnect_at = 0.0 if state is None else state.again_at
        self._pause_seconds = FIRST_PAUSE_SECONDS
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
        """Reserve units without waiting; see `Budget.reserve`."""
        return _ClientReservation(self, units)

    def settle(self, grant: Grant, consumed: float, *, items: int = 0, wire_bytes: int = 0) -> None:
        """Correct a grant and count its results; see `Budget.settle`."""
        message = ("settle", grant.units, grant.at_seconds, consumed, items, wire_bytes)
        with self._lock:
            if grant.central and self._try(lambda channel: channel.send(message)):
                return
            self._unreported.count_request(consumed, items, wire_bytes)
            alone = self._alone
        if not grant.central:
            alone.settle(grant, consumed)

    def throttled(self, scope: ThrottleScope, detail: str) -> None:
        """Count a throttle and slow the job down; see `Budget.throttled`."""
        # A longer text would exceed the size of a message.
        message = ("throttled", scope.value, detail[:300])
        with self._lock:
            if self._try(lambda channel: channel.send(message)):
                return
            self._unreported.count_throttle(scope.value)
            alone = self._alone
        alone.throttled(scope, detail)

    def require_latest(self) -> None:
        """Raise unless this attempt may be the latest of its task.

        Raises
        ------
        AttemptReplacedError
            If another attempt has started, or may have.
        """
        if self._attempt is not None and self._answered_at is not None:
            self._request("attempt", *self._attempt[:2])

    def hold(self) -> None:
        """Allow this attempt to send requests for a short time, while later ones wait. Sometimes ask the driver.

        Raises
        ------
        AttemptReplacedError
            If another attempt has started, or may have.
        """
        now = time.monotonic()
        if now < self._held_until:
            return
        self._request("hold")
        if self._channel is not None:
            self._held_until = now + HOLD_SECONDS

    def has_reached_driver(self, *, tries_again: bool = False) -> bool:
        """Return whether the driver has ever responded to this client, after trying to reach it.

        Parameters
        ----------
        tries_again
            Whether to wait for the driver again immediately after a failed wait of this process.
        """
        with self._connecting:
            state = _unreachable_drivers.get(self._address)
            is_due = tries_again or state is None or time.monotonic() >= state.again_at
            if self._answered_at is None and self._channel is None and is_due:
                self._connect(self._first_timeout_seconds)
        return self._answered_at is not None

    def close(self) -> RequestCounts:
        """End the waits of this process, and return when the driver has counted all reports.

        The job and its other workers continue.

        Returns
        -------
        RequestCounts
            Counts that could not be reported to the driver.
        """
        self._closed.set()
        with self._lock:
            is_lost = self._channel is None and self._unreported != RequestCounts()
        is_worth_it = self._address not in _unreachable_drivers and self._pause_seconds <= next_pause(
            FIRST_PAUSE_SECONDS
        )
        if is_lost and is_worth_it:
            # It failed at most once: not every task should wait for a driver that never responds.
            self._connect(self._timeout_seconds)
        with self._lock:
            self._has_left = True
            self._try(_flush)
            if self._channel is not None:
                self._channel.close()
                self._channel = None
            unreported, self._unreported = self._unreported, RequestCounts()
        return unreported

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise BudgetClosedError

    def _request(self, verb: str, *values: float | str) -> _QueueState | None:
        """Return the driver's response, or None without a response."""
        responses: list[Any] = []

        def exchange(channel: MessageChannel) -> None:
            channel.send((verb, *values))
            responses.append(channel.receive())

        self._require_open()
        self._ensure_connection()
        with self._lock:
            if not self._try(exchange):
                self._require_contact()
                return None
            response = responses[0]
            if response is None:
                self._closed.set()
                raise BudgetClosedError
            if response is False:
                raise AttemptReplacedError("another attempt of this task has started")
            self._answered_at = time.monotonic()
            if response is True:
                return None
            state = _QueueState(*response)
            self._driver_portion = state.portion_per_second
            return state

    def _require_contact(self) -> None:
        """Raise if the driver, which has responded before, may have started another attempt of this task."""
        if self._attempt is None or self._answered_at is None:
            return
        alone_seconds = time.monotonic() - self._answered_at
        if alone_seconds > self._attempt.alone_seconds:
            raise AttemptReplacedError(
                f"the driver was unreachable for {alone_seconds:.0f} s: another attempt of this task may have started"
            )

    def _ensure_connection(self) -> None:
        """Connect if an attempt is due. Requests wait for the first attempt only."""
        if self._channel is not None:
            return
        if not self._has_tried:
            with self._connecting:
                if not self._has_tried:
                    self._connect(self._first_timeout_seconds)
            return
        with self._lock:
            is_due = self._channel is None and time.monotonic() >= self._reconnect_at
        if is_due and self._connecting.acquire(blocking=False):
            Thread(target=self._connect_in_background, name="ddbio-budget", daemon=True).start()

    @property
    def _first_timeout_seconds(self) -> float:
        # Without a rate there is nothing to ask, and a closed port should delay no request.
        return self._timeout_seconds if self._static_portion else _SHORT_TIMEOUT_SECONDS

    def _connect_in_background(self) -> None:
        try:
            self._connect(self._timeout_seconds)
        finally:
            self._connecting.release()

    def _connect(self, timeout_seconds: float) -> None:
        """Try to reach the driver, without a lock that requests need."""
        address = self._address
        channel = connect_to_driver(address, timeout_seconds, self._timeout_seconds)
        with self._lock:
            self._has_tried = True
            if channel is None:
                _remember_unreachable(address)
                self._disconnect()
                return
            _unreachable_drivers.pop(address, None)
            if self._has_left or self._channel is not None:
                # Another attempt was faster, or the budget was closed.
                channel.close()
                return
            self._channel, self._pause_seconds = channel, FIRST_PAUSE_SECONDS
            if self._attempt is not None and not self._try(self._begin_attempt):
                return
            unreported = astuple(self._unreported)
            if self._unreported != RequestCounts() and self._try(lambda channel: channel.send(("add", *unreported))):
                self._unreported = RequestCounts()

    def _begin_attempt(self, channel: MessageChannel) -> None:
        channel.send(("attempt", *(self._attempt or ())[:2]))
        # Each request asks whether it is the latest.
        channel.receive()
        self._answered_at = time.monotonic()

    def _try(self, action: Callable[[MessageChannel], None]) -> bool:
        """Use the connection. Return False if there is no connection or it failed."""
        if self._channel is None:
            return False
        try:
            action(self._channel)
        except (OSError, ValueError):
            self._channel.close()
            self._channel = None
            self._disconnect()
            return False
        return True

    def _disconnect(self) -> None:
        self._reconnect_at = time.monotonic() + self._pause_seconds
        self._pause_seconds = next_pause(self._pause_seconds)
        portion = min((s for s in (self._static_portion, self._driver_portion) if s is not None), default=None)
        if portion != self._alone.units_per_second:
            self._alone = LocalBudget(portion)
        if not self._warned:
            self._warned = True
            limit = "no limit" if portion is None else f"{portion:g} units/s"
            where = f"{self._address.host}:{self._address.port}"
            _log.warning("the budget at %s is unreachable: this worker continues alone with %s", where, limit)


class _ClientReservation:
    """Position in the driver's queue, or in this worker's queue while the driver is unreachable."""

    def __init__(self, client: BudgetClient, units: float) -> None:
        self._client, self._units = client, units
        self._alone: Reservation | None = None
        self._state = client._request("reserve", units)  # noqa: SLF001 - its own module
        self._is_fresh = True
        self._at_seconds = 0.0

    def wait_seconds(self) -> float:
        if self._state is not None and not self._is_fresh:
            self._state = self._client._request("check", self._state.position)  # noqa: SLF001 - its own module
        self._is_fresh = False
        if self._state is not None:
            self._at_seconds = self._state.at_seconds
            return min(self._state.wait_seconds, MAX_WAIT_SECONDS)
        self._client._require_open()  # noqa: SLF001 - its own module
        if self._alone is None:
            self._alone = self._client._alone.reserve(self._units)  # noqa: SLF001 - its own module
        return self._alone.wait_seconds()

    def grant(self) -> Grant:
        if self._alone is not None:
            return self._alone.grant()._replace(central=False)
        return Grant(self._units, self._at_seconds)


def _remember_unreachable(address: BudgetAddress) -> None:
    """Prevent other clients of this process from waiting for this driver, for a growing time."""
    state = _unreachable_drivers.pop(address, None)
    pause_seconds = FIRST_PAUSE_SECONDS if state is None else state.pause_seconds
    while len(_unreachable_drivers) >= _MAX_REMEMBERED_ADDRESSES:
        # Remove the address of an ended job: that of a running job is added again.
        del _unreachable_drivers[next(iter(_unreachable_drivers))]
    _unreachable_drivers[address] = _UnreachableDriver(time.monotonic() + pause_seconds, next_pause(pause_seconds))


def _flush(channel: MessageChannel) -> None:
    channel.send(("flush",))
    channel.receive()
