"""Keep connections to one host and send requests over them whose answers are taken later.

Refuses to send twice what a connection has begun to answer.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from typing import TYPE_CHECKING

from ddbio.aws.connection import Connection, StaleConnectionError

if TYPE_CHECKING:
    from ddbio.aws.connection import Reply, Target


class Connections:
    """Keep the idle connections to one host: as many as there were requests at once. Safe for threads."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._idle: deque[Connection] = deque()
        self._closed = False
        weakref.finalize(self, _close_all, self._idle)

    def begin(self, request: bytes) -> Exchange:
        """Send a request that may safely be received twice; its answer is taken later.

        Raises
        ------
        botocore.exceptions.HTTPClientError
            If it could not be sent whole, or not in time.
        botocore.exceptions.ConnectionError
            If no connection could be made.
        """
        return Exchange(self, request)

    def close(self) -> None:
        """Close the idle connections, and those in use when they have their answer."""
        self._closed = True
        _close_all(self._idle)

    def send(self, request: bytes) -> Connection:
        """Send a request over a kept connection, or a new one where there is none that takes it."""
        connection = self._take()
        if connection is not None:
            with contextlib.suppress(StaleConnectionError):
                return connection.send(request)
        return self.send_anew(request)

    def send_anew(self, request: bytes) -> Connection:
        """Send a request over a new connection."""
        return Connection(self._target).send(request)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose answer was taken, if it can serve again."""
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()
        if self._closed:
            _close_all(self._idle)

    def _take(self) -> Connection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_idle():
                return connection
            connection.close()


class Exchange:
    """Hold a request that was sent, until its answer is taken.

    Attributes
    ----------
    expires_at
        The monotonic second by which the answer should have begun to come; ``result`` then raises.
    """

    __slots__ = ("_connection", "_connections", "_request", "expires_at")

    def __init__(self, connections: Connections, request: bytes) -> None:
        self._connections, self._request = connections, request
        self._connection = connections.send(request)
        self.expires_at = self._connection.expires_at

    def fileno(self) -> int:
        """Return the descriptor that can be read when the answer has begun to come."""
        return self._connection.fileno()

    def result(self) -> Reply:
        """Wait for the answer and return it; to be called once.

        The request is sent a second time only where a kept connection turns out to have been closed meanwhile.

        Raises
        ------
        botocore.exceptions.HTTPClientError
            If the answer did not come, not in time, or not whole.
        botocore.exceptions.ConnectionError
            If no connection could be made.
        """
        try:
            reply = self._connection.receive()
        except StaleConnectionError:
            self._connection = self._connections.send_anew(self._request)
            reply = self._connection.receive()
        self._connections.give_back(self._connection)
        return reply


def _close_all(connections: deque[Connection]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            connections.pop().close()
