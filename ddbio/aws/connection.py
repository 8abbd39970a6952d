"""Carry HTTP/1.1 requests over a keep-alive connection to one host, with a deadline for every answer.

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
# For an answer that nobody looked for in time, but which may lie there.
_LAST_LOOK_SECONDS = 0.001
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


class StaleConnectionError(ConnectionClosedError):
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


class Connection:
    """Hold one connection and carry one request at a time over it.

    Attributes
    ----------
    reusable
        Whether another request may follow the answer that was taken.
    expires_at
        The monotonic second by which the answer should have begun to come.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._link = _connect(target)
        self._receiver = _Receiver(self._link, target.read_timeout_seconds)
        self._reader = io.BufferedReader(self._receiver, _BUFFER_BYTES)
        self.reusable = False
        self.expires_at = 0.0
        self._served = self._is_drained = False
        self._before = 0
        self._pending = self._link.pending if isinstance(self._link, ssl.SSLSocket) else _nothing
        self._arrivals = select.poll()
        self._arrivals.register(self._link, select.POLLIN)

    def close(self) -> None:
        """Close it; whatever is sent or taken then fails."""
        self._link.close()

    def is_idle(self) -> bool:
        """Tell whether nothing came since the last answer: neither its end nor bytes nobody asked for."""
        if self._is_drained and not self._pending() and not self._arrivals.poll(0):
            return True
        self._receiver.deadline = None
        with contextlib.suppress(OSError):
            return not self._reader.peek(1) and not self._receiver.ended
        return False

    def fileno(self) -> int:
        """Return the descriptor that can be read when an answer has begun to come."""
        return self._link.fileno()

    def send(self, request: bytes) -> Connection:
        """Send a request; this connection is closed where that fails."""
        self._served, self.reusable, self._is_drained = self.reusable, False, False
        self._before = self._receiver.received
        timeout_seconds = self._target.read_timeout_seconds
        try:
            self._receiver.wait_at_most(timeout_seconds)
            self._link.sendall(request)
        except (OSError, EOFError) as error:
            raise self._failure(error) from error
        except BaseException:
            self.close()
            raise
        sent_at = time.monotonic()
        self.expires_at = sent_at + timeout_seconds
        self._receiver.deadline = sent_at + _READ_TIMEOUTS_PER_ANSWER * timeout_seconds
        return self

    def receive(self) -> Reply:
        """Return the answer to what was sent; this connection is closed where that fails."""
        try:
            if time.monotonic() >= self.expires_at:
                self._receiver.wait_at_most(_LAST_LOOK_SECONDS)
            return self._receive()
        except (OSError, EOFError) as error:
            raise self._failure(error) from error
        except BaseException:
            self.close()
            raise

    def _failure(self, error: OSError | EOFError) -> HTTPClientError:
        """Close this connection and return the error that botocore would raise."""
        self.close()
        url = self._target.url
        if isinstance(error, TimeoutError):
            return ReadTimeoutError(endpoint_url=url, error=error)
        stale = self._served and self._receiver.received == self._before
        return (StaleConnectionError if stale else ConnectionClosedError)(endpoint_url=url, error=error)

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


# A NAT gateway forgets a connection that is idle for 350 s.
# https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-troubleshooting.html
_KEEPALIVE_SECONDS = 60


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
        if hasattr(socket, "TCP_KEEPIDLE"):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_SECONDS)
        return link if target.tls is None else target.tls.wrap_socket(link, server_hostname=target.host)
    except BaseException as error:
        link.close()
        if isinstance(error, TimeoutError):
            raise ConnectTimeoutError(endpoint_url=target.url, error=error) from error
        if isinstance(error, ssl.SSLCertVerificationError):
            # Everything else of TLS may be a load balancer that restarts.
            raise SSLError(endpoint_url=target.url, error=error) from error
        if isinstance(error, OSError):
            raise ConnectionClosedError(endpoint_url=target.url, error=error) from error
        raise
