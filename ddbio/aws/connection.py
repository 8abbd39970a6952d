"""Carry HTTP/1.1 requests over keep-alive connections to one host, with a deadline for every answer.

Failures are botocore's classes, so that one policy judges every transport. Refuses redirects and proxies; bodies stay
as they came.
"""

from __future__ import annotations

import contextlib
import io
import select
import socket
import ssl
import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import WriteableBuffer

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html: 16 MB, in JSON up to six times.
LARGEST_BODY_BYTES = 128 << 20
_LARGEST_LINE_BYTES = 64 << 10
_MOST_HEADERS = 100
_HEAD_END = b"\r\n\r\n"
_OK_LINE, _OK = "HTTP/1.1 200 OK", ("HTTP/1.1", 200)
_BUFFER_BYTES = 64 << 10
# An answer that trickles never runs into the timeout of one read.
_READ_TIMEOUTS_PER_ANSWER = 2


@dataclass(frozen=True)
class Target:
    """Say where connections lead and how long they may take."""

    url: str
    host: str
    port: int
    tls: ssl.SSLContext | None
    connect_timeout_seconds: float
    read_timeout_seconds: float


@dataclass(slots=True)
class Reply:
    """Hold one answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connections:
    """Keep the idle connections to one host: as many as there were requests at once. Safe for threads."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._idle: deque[_Connection] = deque()
        self._closed = False
        weakref.finalize(self, _close_all, self._idle)

    def exchange(self, request: bytes) -> Reply:
        """Return the answer to a request that may safely be received twice.

        It is sent a second time only where a kept connection turns out to have been closed meanwhile.

        Raises
        ------
        botocore.exceptions.HTTPClientError
            If the answer did not come, not in time, or not whole.
        botocore.exceptions.ConnectionError
            If no connection could be made.
        """
        connection = self._take()
        if connection is not None:
            try:
                return self._over(connection, request)
            except _StaleConnectionError:
                pass
        return self._over(_Connection(self._target), request)

    def close(self) -> None:
        """Close the idle connections, and those in use when they have their answer."""
        self._closed = True
        _close_all(self._idle)

    def _take(self) -> _Connection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_idle():
                return connection
            connection.close()

    def _over(self, connection: _Connection, request: bytes) -> Reply:
        try:
            reply = connection.exchange(request)
        except BaseException:
            connection.close()
            raise
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()
        if self._closed:
            _close_all(self._idle)
        return reply


def _close_all(connections: deque[_Connection]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            connections.pop().close()


class _StaleConnectionError(ConnectionClosedError):
    """Report a kept connection that was closed before a byte of the answer came."""


class _Receiver(io.RawIOBase):
    """Receive until a deadline, or without one only what is already there."""

    def __init__(self, link: socket.socket, timeout_seconds: float) -> None:
        self._link = link
        self._timeout_seconds = timeout_seconds
        self._ahead = b""
        self.deadline: float | None = None
        self.received = 0
        self.ended = False

    def readable(self) -> bool:
        return True

    def wait_at_most(self, seconds: float) -> None:
        # A call of the system: most waits are as long as the one before.
        if seconds != self._link.gettimeout():
            self._link.settimeout(seconds)

    def first(self) -> bytes:
        """Return what comes first of an answer."""
        came = self._link.recv(_BUFFER_BYTES)
        self.received += len(came)
        self.ended = not came
        return came

    def put_back(self, came: bytes) -> None:
        """Take back what came first, to be read next."""
        self._ahead = came

    def readinto(self, into: WriteableBuffer) -> int | None:
        if self._ahead:
            view = memoryview(into)
            count = min(len(view), len(self._ahead))
            view[:count], self._ahead = self._ahead[:count], self._ahead[count:]
            return count
        if self.deadline is None:
            self.wait_at_most(0)
        else:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the whole answer took too long")
            self.wait_at_most(min(left, self._timeout_seconds))
        try:
            count = self._link.recv_into(into)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        self.received += count
        self.ended = not count
        return count


class _Connection:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._link = _connect(target)
        self._receiver = _Receiver(self._link, target.read_timeout_seconds)
        self._reader = io.BufferedReader(self._receiver, _BUFFER_BYTES)
        self.reusable = False
        self._is_drained = False
        self._pending = self._link.pending if isinstance(self._link, ssl.SSLSocket) else _nothing
        self._arrivals = select.poll()
        self._arrivals.register(self._link, select.POLLIN)

    def close(self) -> None:
        self._link.close()

    def is_idle(self) -> bool:
        """Tell whether nothing came since the last answer: neither its end nor bytes nobody asked for."""
        if self._is_drained and not self._pending() and not self._arrivals.poll(0):
            return True
        self._receiver.deadline = None
        with contextlib.suppress(OSError):
            return not self._reader.peek(1) and not self._receiver.ended
        return False

    def exchange(self, request: bytes) -> Reply:
        served, self.reusable, self._is_drained = self.reusable, False, False
        before = self._receiver.received
        url = self._target.url
        try:
            self._receiver.wait_at_most(self._target.read_timeout_seconds)
            self._link.sendall(request)
            self._receiver.deadline = time.monotonic() + _READ_TIMEOUTS_PER_ANSWER * self._target.read_timeout_seconds
            return self._receive()
        except TimeoutError as error:
            raise ReadTimeoutError(endpoint_url=url, error=error) from error
        except (OSError, EOFError) as error:
            stale = served and self._receiver.received == before
            raise (_StaleConnectionError if stale else ConnectionClosedError)(endpoint_url=url, error=error) from error

    def _receive(self) -> Reply:
        lines, came = self._head()
        headers = _headers(lines)
        version, status = _OK if lines[0] == _OK_LINE else _status(lines[0])
        if came is None:
            body, delimited = self._body(headers)
        elif headers.get("content-length") == str(len(came)) and "transfer-encoding" not in headers:
            # Most answers come at once, and nothing after them.
            body, delimited, self._is_drained = came, True, True
        else:
            before = self._receiver.received - len(came)
            self._receiver.put_back(came)
            body, delimited = self._body(headers)
            self._is_drained = self._receiver.received - before == len(body)
        self.reusable = delimited and version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        return Reply(status, headers, body)

    def _head(self) -> tuple[list[str], bytes | None]:
        """Return the lines before the body, and what of it came with them; None where they did not come at once."""
        came = self._receiver.first()
        head, end, rest = came.partition(_HEAD_END)
        lines = head.decode("latin-1").split("\r\n")
        if end and head.count(b"\n") == len(lines) - 1:
            return lines, rest
        self._receiver.put_back(came)
        first = self._line()
        # What is no status is told before more is waited for.
        _status(first)
        return [first, *self._lines()], None

    def _lines(self) -> list[str]:
        lines: list[str] = []
        while line := self._line():
            lines.append(line)
            if len(lines) > _MOST_HEADERS:
                raise HTTPClientError(error=f"the answer has more than {_MOST_HEADERS} headers")
        return lines

    def _line(self) -> str:
        line = self._reader.readline(_LARGEST_LINE_BYTES)
        if not line.endswith(b"\n"):
            if len(line) == _LARGEST_LINE_BYTES:
                raise HTTPClientError(error="the answer has an endless header line")
            raise EOFError("the connection ended inside the head of the answer")
        return line.rstrip(b"\r\n").decode("latin-1")

    def _body(self, headers: Mapping[str, str]) -> tuple[bytes, bool]:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks(), True
        length = headers.get("content-length")
        if length is not None:
            return self._exactly(_size(length, 10)), True
        body = self._reader.read(LARGEST_BODY_BYTES)
        return body, False

    def _chunks(self) -> bytes:
        chunks: list[bytes] = []
        total = 0
        while size := _size(self._line().partition(";")[0], 16):
            total += size
            _refuse_beyond_limit(total)
            chunks.append(self._exactly(size))
            self._line()
        self._lines()
        return b"".join(chunks)

    def _exactly(self, size: int) -> bytes:
        body = self._reader.read(size)
        if len(body) != size:
            raise EOFError(f"the body ended after {len(body)} of {size} bytes")
        return body


def _nothing() -> int:
    return 0


def _status(line: str) -> tuple[str, int]:
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():  # noqa: PLR2004 - version, status
        raise HTTPClientError(error=f"the answer is not HTTP/1.1: it begins with {line[:40].encode('latin-1')!r}")
    return words[0], int(words[1])


def _headers(lines: list[str]) -> dict[str, str]:
    """Return the headers below a status line."""
    parted = [line.partition(":") for line in lines[1:]]
    return {name.lower(): value.strip() for name, _, value in parted}


def _size(text: str, radix: int) -> int:
    try:
        size = int(text, radix)
    except ValueError:
        size = -1
    if size < 0:
        raise HTTPClientError(error=f"the answer states its length as {text[:40]!r}")
    _refuse_beyond_limit(size)
    return size


def _refuse_beyond_limit(size: int) -> None:
    if size > LARGEST_BODY_BYTES:
        raise HTTPClientError(error=f"the answer claims {size} bytes, more than any of the service's")


def _connect(target: Target) -> socket.socket:
    try:
        link = socket.create_connection((target.host, target.port), target.connect_timeout_seconds)
    except TimeoutError as error:
        raise ConnectTimeoutError(endpoint_url=target.url, error=error) from error
    except (OSError, UnicodeError) as error:
        raise EndpointConnectionError(endpoint_url=target.url, error=error) from error
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return link if target.tls is None else target.tls.wrap_socket(link, server_hostname=target.host)
    except BaseException as error:
        link.close()
        if isinstance(error, TimeoutError):
            raise ConnectTimeoutError(endpoint_url=target.url, error=error) from error
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            raise SSLError(endpoint_url=target.url, error=error) from error
        if isinstance(error, OSError):
            raise ConnectionClosedError(endpoint_url=target.url, error=error) from error
        raise
