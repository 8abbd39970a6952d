"""The budget in a worker process: the driver grants requests; without it the worker spends its own portion."""

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
    LONGEST_WAIT_SECONDS,
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
"""From a failed attempt to reach the driver to the next one."""

_LONGEST_PAUSE_SECONDS, _GROWTH = 120.0, 2.0

_MAX_MESSAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class BudgetAddress:
    """Where a job's budget is served, and the key to it; the key is left out of ``repr``."""

    host: str
    port: int
    key: bytes = field(repr=False)


class MessageChannel:
    """Sends and receives JSON messages, one a line, over a connected socket.

    The timeout is of a whole message: a peer that sends it byte by byte has no longer for it. Every failure is an
    ``OSError`` (no peer, or a wrong one) or a ``ValueError`` (not JSON); close the channel then.
    """

    def __init__(self, connection: socket.socket, timeout_seconds: float) -> None:
        self._socket = connection
        self._timeout_seconds: float | None = timeout_seconds
        # Two short messages in a row would otherwise wait for a delayed acknowledgement.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._received = b""

    def send(self, message: object) -> None:
        """Send one message."""
        if self._timeout_seconds is not None:
            # What is left of it after a message is that of the next one no more.
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
        """Make the worker prove that it knows the key, then prove the same to it.

        Raises
        ------
        ConnectionError
            The peer does not know the key.
        """
        challenge = secrets.token_hex()
        self.send(challenge)
        answer, counter_challenge = self.receive()
        if not hmac.compare_digest(str(answer).encode(), _proof(key, "worker", challenge).encode()):
            raise ConnectionError("the peer does not know the key")
        self.send(_proof(key, "driver", str(counter_challenge)))

    def authenticate_to_driver(self, key: bytes) -> None:
        """Prove to the driver that this worker knows the key, and make it prove the same.

        Raises
        ------
        ConnectionError
            The peer does not know the key.
        """
        challenge = secrets.token_hex()
        self.send([_proof(key, "worker", str(self.receive())), challenge])
        if not hmac.compare_digest(str(self.receive()).encode(), _proof(key, "driver", challenge).encode()):
            raise ConnectionError("the peer does not know the key")

    def disable_timeout(self) -> None:
        """Wait without a timeout from now on."""
        self._timeout_seconds = None
        self._socket.settimeout(None)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def connect_to_driver(address: BudgetAddress, connect_seconds: float, timeout_seconds: float) -> MessageChannel | None:
    """Return a channel to the driver, or None if it is not reached, or does not know the key.

    Parameters
    ----------
    connect_seconds
        How long to wait for the connection.
    timeout_seconds
        How long to wait for each message then.
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
    """Return the pause after one that was in vain."""
    return min(_LONGEST_PAUSE_SECONDS, pause_seconds * _GROWTH)


def _proof(key: bytes, role: str, challenge: str) -> str:
    return hmac.new(key, f"{role} {challenge}".encode(), "sha256").hexdigest()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_SHORT_TIMEOUT_SECONDS = 1.0
_MOST_REMEMBERED = 64
_log = logging.getLogger("ddbio.budget")


class _QueueState(NamedTuple):
    """What the driver says of a reservation."""

    position: float
    wait_seconds: float
    at_seconds: float
    portion_per_second: float | None


class _OutOfReach(NamedTuple):
    """When a driver that this process has never reached is worth another wait, and how long a pause follows that."""

    again_at: float
    pause_seconds: float


# Each task has a client of its own, and only one of them should wait for a port that swallows everything.
_out_of_reach: dict[BudgetAddress, _OutOfReach] = {}


class TaskAttempt(NamedTuple):
    """One attempt of a task, of which only the latest may write.

    Attributes
    ----------
    task
        The task, by a name that no other task of the driver has.
    number
        Later attempts have greater numbers.
    alone_seconds
        How long it may go on without the driver, which it has reached before. One that never reached it goes on alone.
    """

    task: str
    number: int
    alone_seconds: float


class BudgetClient:
    """Acquires from the driver's budget; each worker process has one, shared by its threads.

    While the driver is unreachable, requests are granted from this worker's portion: the lower of its static portion
    and the one that the driver last reported. What was consumed meanwhile is reported and counted when the driver is
    reachable again, but is not part of its 10 s windows.

    Parameters
    ----------
    address
        Where the driver serves the budget.
    fallback_units_per_second
        The static portion. None sets no bound until the driver has reported one.
    timeout_seconds
        How long to wait for the driver's response.
    attempt
        Which attempt of which task this is, if only the latest one may go on.
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
        known = _out_of_reach.get(address)
        self._has_tried = known is not None
        self._reconnect_at = 0.0 if known is None else known.again_at
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
        """Correct a grant and count what it brought; see `Budget.settle`."""
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
        # A longer text would not fit into a message.
        message = ("throttled", scope.value, detail[:300])
        with self._lock:
            if self._try(lambda channel: channel.send(message)):
                return
            self._unreported.count_throttle(scope.value)
            alone = self._alone
        alone.throttled(scope, detail)

    def require_latest(self) -> None:
        """Raise unless this attempt may still be the latest of its task.

        Raises
        ------
        AttemptReplacedError
            If another attempt has begun since, or may have.
        """
        if self._attempt is not None and self._answered_at is not None:
            self._ask("attempt", *self._attempt[:2])

    def hold(self) -> None:
        """Let this attempt send requests for the next moment, while any later one waits; ask the driver at times.

        Raises
        ------
        AttemptReplacedError
            If another attempt has begun since, or may have.
        """
        now = time.monotonic()
        if now < self._held_until:
            return
        self._ask("hold")
        if self._channel is not None:
            self._held_until = now + HOLD_SECONDS

    def has_met_driver(self, *, tries_again: bool = False) -> bool:
        """Return whether the driver has ever answered this client, which tries to reach it first.

        Parameters
        ----------
        tries_again
            Whether to wait for it even if this process has just waited in vain.
        """
        with self._connecting:
            known = _out_of_reach.get(self._address)
            is_due = tries_again or known is None or time.monotonic() >= known.again_at
            if self._answered_at is None and self._channel is None and is_due:
                self._connect(self._first_timeout_seconds)
        return self._answered_at is not None

    def close(self) -> RequestCounts:
        """Leave the budget: end the waits of this process, and return when the driver has counted all reports.

        The job and its other workers go on.

        Returns
        -------
        RequestCounts
            What could not be reported to the driver.
        """
        self._closed.set()
        with self._lock:
            is_lost = self._channel is None and self._unreported != RequestCounts()
        is_worth_it = self._address not in _out_of_reach and self._pause_seconds <= next_pause(FIRST_PAUSE_SECONDS)
        if is_lost and is_worth_it:
            # It failed at most once: not every task should wait for a driver that does not respond at all.
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

    def _ask(self, verb: str, *values: float | str) -> _QueueState | None:
        """Return the driver's response, or None if there is none."""
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
                raise AttemptReplacedError("another attempt of this task has begun")
            self._answered_at = time.monotonic()
            if response is True:
                return None
            state = _QueueState(*response)
            self._driver_portion = state.portion_per_second
            return state

    def _require_contact(self) -> None:
        """Raise if the driver, which has answered before, may have begun another attempt of this task since."""
        if self._attempt is None or self._answered_at is None:
            return
        alone_seconds = time.monotonic() - self._answered_at
        if alone_seconds > self._attempt.alone_seconds:
            raise AttemptReplacedError(
                f"the driver was out of reach for {alone_seconds:.0f} s: another attempt of this task may have begun"
            )

    def _ensure_connection(self) -> None:
        """Connect if an attempt is due; requests wait for the first attempt only."""
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
        # Without a rate nothing has to be asked, and a closed port should delay nobody.
        return self._timeout_seconds if self._static_portion else _SHORT_TIMEOUT_SECONDS

    def _connect_in_background(self) -> None:
        try:
            self._connect(self._timeout_seconds)
        finally:
            self._connecting.release()

    def _connect(self, timeout_seconds: float) -> None:
        """Try to reach the driver, without holding a lock that requests need."""
        address = self._address
        channel = connect_to_driver(address, timeout_seconds, self._timeout_seconds)
        with self._lock:
            self._has_tried = True
            if channel is None:
                _remember_out_of_reach(address)
                self._lose()
                return
            _out_of_reach.pop(address, None)
            if self._has_left or self._channel is not None:
                # Another attempt was faster, or the budget was left.
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
        # Whether it is the latest is asked before each request.
        channel.receive()
        self._answered_at = time.monotonic()

    def _try(self, action: Callable[[MessageChannel], None]) -> bool:
        """Use the connection; return False if there is none or it broke."""
        if self._channel is None:
            return False
        try:
            action(self._channel)
        except (OSError, ValueError):
            self._channel.close()
            self._channel = None
            self._lose()
            return False
        return True

    def _lose(self) -> None:
        self._reconnect_at = time.monotonic() + self._pause_seconds
        self._pause_seconds = next_pause(self._pause_seconds)
        portion = min((s for s in (self._static_portion, self._driver_portion) if s is not None), default=None)
        if portion != self._alone.units_per_second:
            self._alone = LocalBudget(portion)
        if not self._warned:
            self._warned = True
            limit = "no limit" if portion is None else f"{portion:g} units/s"
            where = f"{self._address.host}:{self._address.port}"
            _log.warning("the budget at %s is out of reach: this worker goes on alone with %s", where, limit)


class _ClientReservation:
    """A position in the driver's queue, or in this worker's own while the driver is unreachable."""

    def __init__(self, client: BudgetClient, units: float) -> None:
        self._client, self._units = client, units
        self._alone: Reservation | None = None
        self._state = client._ask("reserve", units)  # noqa: SLF001 - its own
        self._is_fresh = True
        self._at_seconds = 0.0

    def wait_seconds(self) -> float:
        if self._state is not None and not self._is_fresh:
            self._state = self._client._ask("check", self._state.position)  # noqa: SLF001 - its own
        self._is_fresh = False
        if self._state is not None:
            self._at_seconds = self._state.at_seconds
            return min(self._state.wait_seconds, LONGEST_WAIT_SECONDS)
        self._client._require_open()  # noqa: SLF001 - its own
        if self._alone is None:
            self._alone = self._client._alone.reserve(self._units)  # noqa: SLF001 - its own
        return self._alone.wait_seconds()

    def grant(self) -> Grant:
        if self._alone is not None:
            return self._alone.grant()._replace(central=False)
        return Grant(self._units, self._at_seconds)


def _remember_out_of_reach(address: BudgetAddress) -> None:
    """Let no other client of this process wait for this driver for a while, which grows."""
    known = _out_of_reach.pop(address, None)
    pause_seconds = FIRST_PAUSE_SECONDS if known is None else known.pause_seconds
    while len(_out_of_reach) >= _MOST_REMEMBERED:
        # The address of a job that has ended: that of a running one is remembered anew.
        del _out_of_reach[next(iter(_out_of_reach))]
    _out_of_reach[address] = _OutOfReach(time.monotonic() + pause_seconds, next_pause(pause_seconds))


def _flush(channel: MessageChannel) -> None:
    channel.send(("flush",))
    channel.receive()
