"""TCP server of a job's budget for its worker processes. Peers that do not know the job's key are disconnected."""

from __future__ import annotations

import errno
import logging
import secrets
import socket
import socketserver
import time
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Self

from ddbio.budget.client import BudgetAddress, MessageChannel
from ddbio.budget.local import HOLD_SECONDS, BudgetClosedError, Grant, RequestCounts
from ddbio.budget.pacing import ThrottleScope
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.budget.local import LocalBudget

_HANDSHAKE_SECONDS = 10.0
_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_SECONDS = 0.02
# A server may serve many jobs: the tasks without messages for the longest time are removed.
_MAX_TASKS = 100_000
_log = logging.getLogger("ddbio.budget")


class BudgetServer:
    """Server of a budget while the context is open, with one daemon thread per worker.

    A peer has 10 seconds to prove that it knows the job's key. At most 128 connections may be unauthenticated: the
    oldest is closed for the next one, but not in its first 0.1 s. While this process has no file descriptors left, it
    accepts no connection.

    To stop a job, close the budget first: workers learn it from this server. A worker that can no longer reach the
    server continues with its static portion. If attempts of a task register, only the latest one is granted requests.

    Parameters
    ----------
    budget
        The job's budget.
    host
        The address at which workers reach the driver.
    bind
        The address to listen at, if different: with NAT, or in a container. The default is ``host``.
    ports
        Ports to try, for a network that opens only some. The default is any free port.

    Raises
    ------
    OptionError
        If it cannot listen at that address.
    """

    address: BudgetAddress

    def __init__(
        self,
        budget: LocalBudget,
        host: str = "127.0.0.1",
        *,
        bind: str | None = None,
        ports: Sequence[int] = (0,),
    ) -> None:
        self._budget = budget
        self._host, self._bind, self._ports = host, bind or host, ports

    def __enter__(self) -> Self:
        key = secrets.token_bytes()
        self._listener = self._listen(key)
        self.address = BudgetAddress(self._host, self._listener.server_address[1], key)
        Thread(target=self._listener.serve_forever, args=(0.1,), name="ddbio-budget", daemon=True).start()
        return self

    def has_registered(self, task: str) -> bool:
        """Return whether any attempt of a task has registered."""
        return self._listener.has_registered(task)

    def _listen(self, key: bytes) -> _Listener:
        for port in self._ports:
            try:
                return _Listener(self._bind, port, self._budget, key)
            except OSError as error:
                failure = error
        ports = f"{self._ports[0]} to {self._ports[-1]}" if len(self._ports) > 1 else str(self._ports[0])
        raise OptionError(
            f"the budget cannot be served at {self._bind}, port {ports} ({failure.strerror or failure}): set "
            "spark.driver.bindAddress to an address of this machine, and spark.ddbio.budget.port to a port or a range "
            "that is free"
        ) from failure

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        self._listener.disconnect_workers()


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256
    server_address: tuple[str, int]
    # Connections that have not proved that they know the key. A worker does within milliseconds.
    max_unauthenticated = 128
    # Many workers may start at the same time: none of them is dropped earlier.
    grace_seconds = 0.1

    def __init__(self, host: str, port: int, budget: LocalBudget, key: bytes) -> None:
        self.budget = budget
        self.key = key
        self._lock = Lock()
        self._connections: set[socket.socket] = set()
        # Time of each connection, in ascending order.
        self._unauthenticated: dict[socket.socket, float] = {}
        self._workers = 0
        self._latest: dict[str, int] = {}
        self._holds: dict[str, tuple[int, float]] = {}
        super().__init__((host, port), _Worker)

    def has_registered(self, task: str) -> bool:
        with self._lock:
            return task in self._latest

    def is_latest(self, task: str, attempt: int) -> bool:
        """Return whether no later attempt of a task has started, and record this one."""
        with self._lock:
            self._latest[task] = max(attempt, self._latest.get(task, attempt))
            return self._latest[task] == attempt

    def hold(self, task: str, attempt: int) -> bool:
        """Return whether this is the latest attempt of a task, after earlier ones may send no more requests."""
        while self.is_latest(task, attempt):
            with self._lock:
                holder, until = self._holds.get(task, (attempt, 0.0))
                wait_seconds = until - time.monotonic()
                if holder == attempt or wait_seconds <= 0:
                    self._holds.pop(task, None)
                    self._holds[task] = attempt, time.monotonic() + HOLD_SECONDS
                    if len(self._holds) > _MAX_TASKS:
                        silent = next(iter(self._holds))
                        del self._holds[silent], self._latest[silent]
                    return True
            time.sleep(wait_seconds)
        return False

    def portion_per_second(self) -> float | None:
        """Return each worker's portion if the driver becomes unreachable now."""
        asked = self.budget.units_per_second
        return None if asked is None else asked / max(1, self._workers)

    def count_worker(self, change: int) -> None:
        with self._lock:
            self._workers += change

    def disconnect_workers(self) -> None:
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:
                # The connection is still waiting, so the selector would return immediately.
                self._drop_unauthenticated()
                time.sleep(_PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        while len(self._unauthenticated) >= self.max_unauthenticated and not self._drop_unauthenticated(
            self.grace_seconds
        ):
            time.sleep(_PAUSE_SECONDS)
        with self._lock:
            self._connections.add(request)
            self._unauthenticated[request] = time.monotonic()
        super().process_request(request, client_address)

    def mark_authenticated(self, request: socket.socket) -> None:
        """Record that the peer of a connection has proved that it knows the key."""
        with self._lock:
            self._unauthenticated.pop(request, None)

    def _drop_unauthenticated(self, grace_seconds: float = 0.0) -> bool:
        """Disconnect the oldest unauthenticated peer after its grace period. Its thread closes the connection."""
        with self._lock:
            oldest, began = next(iter(self._unauthenticated.items()), (None, 0.0))
            if oldest is None or time.monotonic() - began < grace_seconds:
                return False
            del self._unauthenticated[oldest]
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
            return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
            self._unauthenticated.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's signature
        _log.debug("dropped the connection of %s", client_address, exc_info=True)


class _Worker(socketserver.BaseRequestHandler):
    server: _Listener
    # Task and number of the attempt.
    _attempt: tuple[str, int] | None = None

    def handle(self) -> None:
        channel = MessageChannel(self.request, _HANDSHAKE_SECONDS)
        try:
            channel.authenticate_worker(self.server.key)
            channel.disable_timeout()
            self.server.mark_authenticated(self.request)
            self.server.count_worker(1)
            try:
                while True:
                    self._respond(channel, *channel.receive())
            finally:
                self.server.count_worker(-1)
        finally:
            channel.close()

    def _respond(self, channel: MessageChannel, verb: str, *values: Any) -> None:
        budget = self.server.budget
        match verb:
            case "attempt":
                task, attempt = values
                self._attempt = str(task), int(attempt)
                channel.send(self.server.is_latest(*self._attempt))
            case "hold" if self._attempt is not None:
                channel.send(self.server.hold(*self._attempt))
            case "reserve" | "check" if self._attempt is not None and not self.server.is_latest(*self._attempt):
                channel.send(False)  # noqa: FBT003 - a message
            case "reserve":
                channel.send(self._queue_state(budget.enqueue(*values)))
            case "check":
                channel.send(self._queue_state(*values))
            case "flush":
                channel.send(None)
            case "report":
                *counts, run_seconds = values
                budget.add(RequestCounts(*counts), run_seconds)
                channel.send(not budget.is_closed)
            case _:
                self._note(verb, *values)

    def _note(self, verb: str, *values: Any) -> None:
        """Process a message that needs no response."""
        budget = self.server.budget
        match verb:
            case "settle":
                units, at_seconds, consumed, items, wire_bytes = values
                budget.settle(Grant(units, at_seconds), consumed, items=items, wire_bytes=wire_bytes)
            case "throttled":
                scope, detail = values
                budget.throttled(ThrottleScope(scope), detail)
            case "add":
                budget.add(RequestCounts(*values))
            case _:
                raise ValueError(f"no such message: {verb}")

    def _queue_state(self, position: float) -> list[float | None] | None:
        try:
            return [position, *self.server.budget.check(position), self.server.portion_per_second()]
        except BudgetClosedError:
            return None
