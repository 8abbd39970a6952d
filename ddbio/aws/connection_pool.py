"""A pool of connections to one endpoint, and a wait for whichever of many responses comes first.

A request is sent when it is begun; its response is read later, possibly by another thread. A request is sent a second
time only if its connection turns out to have been closed before.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import sys
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Protocol

from ddbio.aws.http_connection import Connection, StaleConnectionError

if TYPE_CHECKING:
    from ddbio.aws.http_connection import Endpoint, HttpResponse


# The addresses of an endpoint change while a long job runs, and its hosts retire: connections are made anew at times.
_MOST_AGE_SECONDS = 900.0


class ConnectionPool:
    """Idle connections to one endpoint, as many as there were requests at once. Safe for threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._idle: deque[Connection] = deque()
        self._closed = False
        weakref.finalize(self, _close_all, self._idle)

    def begin(self, request: bytes) -> HttpExchange:
        """Send a request that may safely be received twice; its response is read later.

        Raises
        ------
        botocore.exceptions.HTTPClientError
            If it could not be sent whole, or not in time.
        botocore.exceptions.ConnectionError
            If no connection could be made.
        """
        return HttpExchange(self, request)

    def close(self) -> None:
        """Close the idle connections now, and each of the others when its response was read."""
        self._closed = True
        _close_all(self._idle)

    def send(self, request: bytes) -> Connection:
        """Send a request over an idle connection, or over a new one if none can take it."""
        connection = self._take_idle()
        if connection is None:
            return self.send_anew(request)
        try:
            return connection.send(request)
        except StaleConnectionError:
            return self.send_anew(request)

    def send_anew(self, request: bytes) -> Connection:
        """Send a request over a new connection."""
        return Connection(self._endpoint).send(request)

    def give_back(self, connection: Connection) -> None:
        """Retain a connection whose response was read if it can be used again; close it otherwise."""
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()
        if self._closed:
            _close_all(self._idle)

    def _take_idle(self) -> Connection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if time.monotonic() < connection.opened_at + _MOST_AGE_SECONDS and connection.is_idle():
                return connection
            connection.close()


class HttpExchange:
    """A request that was sent and whose response was not read yet.

    Attributes
    ----------
    expires_at
        The monotonic time by which the response should have begun; after it ``result`` raises.
    link
        The connection that carries the request.
    fileno
        Returns the file descriptor that becomes readable when the response begins.
    """

    __slots__ = ("_connection", "_pool", "_request", "expires_at", "fileno", "link")

    def __init__(self, pool: ConnectionPool, request: bytes) -> None:
        self._pool, self._request = pool, request
        self.link: object
        self._connection = self.link = connection = pool.send(request)
        self.expires_at, self.fileno = connection.expires_at, connection.fileno

    def result(self) -> HttpResponse:
        """Wait for the response and return it; to be called once.

        If the connection was closed by the endpoint while it was idle, the request is sent again over a new one.

        Raises
        ------
        botocore.exceptions.HTTPClientError
            If the response is missing, late or not whole.
        botocore.exceptions.ConnectionError
            If no connection could be made.
        """
        try:
            response = self._connection.receive()
        except StaleConnectionError:
            self._connection = self._pool.send_anew(self._request)
            response = self._connection.receive()
        self._pool.give_back(self._connection)
        return response


class PendingResponse(Protocol):
    """A request that was sent and whose response was not read yet."""

    @property
    def expires_at(self) -> float:
        """Return the monotonic time from which on ``result`` no longer waits."""

    @property
    def link(self) -> object:
        """Return what the file descriptor belongs to: for another connection with its number, it is another one."""

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when ``result`` need not wait."""

    def result(self) -> bytes:
        """Wait for the verified body of the response; to be called once.

        Raises
        ------
        botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError
            As botocore raises them: the caller's retry policy tells them apart.
        """


class ResponsePoller:
    """Wait for the first of many responses to begin, or to be overdue.

    Parameters
    ----------
    can_wake
        Whether another thread may end a wait by ``wake``.
    """

    def __init__(self, *, can_wake: bool = False) -> None:
        self._readable = _ReadableOnLinux() if sys.platform == "linux" else _Readable()
        self._watch = self._readable.watch
        self._pending: dict[int, PendingResponse] = {}
        self._wake_pair = socket.socketpair() if can_wake else None
        if self._wake_pair is not None:
            self._readable.watch(self._wake_pair[0].fileno(), self._wake_pair)

    def add(self, pending: PendingResponse) -> None:
        """Wait for one more response."""
        descriptor = pending.fileno()
        self._pending[descriptor] = pending
        self._watch(descriptor, pending.link)

    def wait(self, seconds: float | None) -> list[PendingResponse]:
        """Remove and return the responses that can be read, or are overdue, as soon as there are any.

        Parameters
        ----------
        seconds
            How long to wait at most; None waits for the first response.
        """
        if seconds is None and len(self._pending) == 1 and self._wake_pair is None:
            # Reading its result waits for it.
            return [self._pending.popitem()[1]]
        # All responses have the same timeout: the oldest one expires first.
        oldest = next(iter(self._pending.items()), None)
        left = math.inf if oldest is None else oldest[1].expires_at - time.monotonic()
        longest = left if seconds is None else min(seconds, left)
        ready = self._readable.wait(None if longest == math.inf else max(0.0, longest))
        if not ready and oldest is not None and left <= longest:
            ready = [oldest[0]]
        if self._wake_pair is not None and self._wake_pair[0].fileno() in ready:
            self._wake_pair[0].recv(4096)
            self._readable.watch(self._wake_pair[0].fileno(), self._wake_pair)
        # What was overdue, and then came after all, is nobody's any more.
        return [self._pending.pop(descriptor) for descriptor in ready if descriptor in self._pending]

    def wake(self) -> None:
        """End the current wait, or the next one, at once; called by another thread."""
        if self._wake_pair is not None:
            self._wake_pair[1].send(b"!")

    def close(self) -> None:
        """Close the sockets by which a wait is ended."""
        for end in self._wake_pair or ():
            end.close()
        self._readable.close()


class _Readable:
    """Wait for descriptors to become readable; each is told once, and then to be watched again."""

    def __init__(self) -> None:
        self._poll = select.poll()

    def watch(self, descriptor: int, _: object) -> None:
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float | None) -> list[int]:
        found = [descriptor for descriptor, _ in self._poll.poll(None if seconds is None else 1000 * seconds)]
        for descriptor in found:
            self._poll.unregister(descriptor)
        return found

    def close(self) -> None:
        """Do nothing: only Linux's holds a descriptor of its own."""


class _ReadableOnLinux:
    """Do the same at a cost that does not grow with the number of descriptors.

    What comes is told once by itself, so that a descriptor is registered once for all its responses.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        # A number that is registered may be another connection's by now: the kernel forgets those that are closed.
        self._links: dict[int, object] = {}

    def watch(self, descriptor: int, link: object) -> None:
        if self._links.get(descriptor) is not link:
            try:
                self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLET)
            except FileExistsError:
                self._epoll.modify(descriptor, select.EPOLLIN | select.EPOLLET)
            self._links[descriptor] = link

    def wait(self, seconds: float | None) -> list[int]:
        return [descriptor for descriptor, _ in self._epoll.poll(seconds)]

    def close(self) -> None:
        self._epoll.close()
        self._links.clear()


def _close_all(connections: deque[Connection]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            connections.pop().close()
