"""A pool of connections to one endpoint, and a wait for whichever of many responses comes first.

A request is sent when it is begun; its response is read later, possibly by another thread. A request is sent a second
time only if its connection turns out to have been closed before.
"""

from __future__ import annotations

import contextlib
import io
import math
import select
import socket
import ssl
import sys
import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)
from isal import igzip, isal_zlib

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import WriteableBuffer

# https://docs.aws.amazon.com/sdkref/latest/guide/feature-compression.html: the least size that SDKs compress.
MIN_COMPRESSED_BYTES: Final = 10_240
_LEVEL = 1
_GZIP_BITS = 31
# isal's stubs take the class for an instance.
_BROKEN: Any = isal_zlib.error


class ChecksumMismatchError(HTTPClientError):
    """Report a body that is not what the service sent: the same page must be requested again."""

    fmt = "the body does not match its x-amz-crc32 header ({found} is not {stated})"


class TruncatedBodyError(HTTPClientError):
    """Report a body that ended early, or did not end where it should: the same page must be requested again."""

    fmt = "the body has {found} bytes, not the {stated} of its content-length header"


class BrokenCompressionError(HTTPClientError):
    """Report a body that cannot be decompressed: the same page must be requested again."""

    fmt = "the compressed body is broken: {reason}"


def verify_body(body: bytes, headers: Mapping[str, str]) -> None:
    """Check a body against the length and the checksum that its headers declare.

    Raises
    ------
    botocore.exceptions.HTTPClientError
        If they differ.
    """
    length = headers.get("content-length")
    if length is not None and length.strip() != str(len(body)):
        raise TruncatedBodyError(found=len(body), stated=length, error="content-length")
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html
    declared = headers.get("x-amz-crc32")
    if declared is not None and declared.strip() != (found := str(isal_zlib.crc32(body))):
        raise ChecksumMismatchError(found=found, stated=declared, error="crc32")


def decompress_body(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a body decompressed, if its headers say that it is compressed.

    Raises
    ------
    botocore.exceptions.HTTPClientError
        As :func:`gunzip`.
    """
    return gunzip(body) if headers.get("content-encoding", "").lower() == "gzip" else body


def gunzip(body: bytes) -> bytes:
    """Return the content of one gzip member.

    Raises
    ------
    botocore.exceptions.HTTPClientError
        If it is broken, cut, or larger than any response of the service.
    """
    stream = isal_zlib.decompressobj(wbits=_GZIP_BITS)
    try:
        content = stream.decompress(body, MAX_BODY_BYTES)
    except _BROKEN as error:
        raise BrokenCompressionError(reason=error, error=error) from error
    if not stream.eof or stream.unused_data:
        reason = "it ends early, goes on behind its end, or is larger than any answer"
        raise BrokenCompressionError(reason=reason, error=reason)
    return content


def compress_body(body: bytes) -> bytes:
    """Return a request body as one gzip member."""
    compressed: bytes = igzip.compress(body, _LEVEL)
    return compressed


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html: 16 MB, in JSON up to six times.
MAX_BODY_BYTES = 128 << 20
_PIECE_BYTES = 4 << 20
_MAX_LINE_BYTES = 64 << 10
_MAX_HEADERS = 100
HEAD_END = b"\r\n\r\n"
_OK_LINE, _OK = "HTTP/1.1 200 OK", ("HTTP/1.1", 200)
_BUFFER_BYTES = 64 << 10
# For a response whose deadline passed before anybody read it: it may have been received in time.
_EXPIRED_READ_SECONDS = 0.001
# What comes so soon after a response may as well come after a look at the connection: none is taken. With 64 requests
# in flight a connection is used again after some milliseconds; endpoints close those that were idle for seconds.
_JUST_NOW_SECONDS = 0.02
# A response that trickles never runs into the timeout of one read: this bounds the whole of it.
_READ_TIMEOUTS_PER_RESPONSE = 2


@dataclass(frozen=True)
class Endpoint:
    """Where to connect, by which TLS settings, and with which timeouts."""

    url: str
    host: str
    port: int
    tls: ssl.SSLContext | None
    connect_timeout_seconds: float
    read_timeout_seconds: float


@dataclass(slots=True)
class HttpResponse:
    """One response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class StaleConnectionError(ConnectionClosedError):
    """Report an idle connection that turned out to be closed: no byte of the response was received."""


class _Receiver(io.RawIOBase):
    """Read from a socket until a deadline; without a deadline, read only what was received already."""

    def __init__(self, connection: socket.socket, timeout_seconds: float) -> None:
        self._socket = connection
        self._timeout_seconds = timeout_seconds
        self._ahead = b""
        self.deadline: float | None = None
        self.received = 0
        self.ended = False

    def readable(self) -> bool:
        return True

    def set_timeout(self, seconds: float) -> None:
        # Saves a system call: most waits are as long as the one before.
        if seconds != self._socket.gettimeout():
            self._socket.settimeout(seconds)

    def read_first(self, timeout_seconds: float) -> bytes:
        """Return the first bytes of a response."""
        try:
            received = self._socket.recv(_BUFFER_BYTES)
        except BlockingIOError:
            # None was there when the socket was not to wait.
            self.set_timeout(timeout_seconds)
            received = self._socket.recv(_BUFFER_BYTES)
        self.received += len(received)
        self.ended = not received
        return received

    def put_back(self, received: bytes) -> None:
        """Take first bytes back, to be read again."""
        self._ahead = received

    def readinto(self, into: WriteableBuffer) -> int | None:
        if self._ahead:
            view = memoryview(into)
            count = min(len(view), len(self._ahead))
            view[:count], self._ahead = self._ahead[:count], self._ahead[count:]
            return count
        if self.deadline is None:
            self.set_timeout(0)
        else:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the whole answer took too long")
            self.set_timeout(min(left, self._timeout_seconds))
        try:
            count = self._socket.recv_into(into)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        self.received += count
        self.ended = not count
        return count


class Connection:
    """A connection that carries one request at a time.

    Attributes
    ----------
    reusable
        Whether another request may be sent after the last response.
    opened_at
        The monotonic time at which it was made.
    expires_at
        The monotonic time by which the response should have begun.
    fileno
        Returns the file descriptor that becomes readable when a response begins.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._socket = connect(endpoint)
        self.fileno = self._socket.fileno
        self.opened_at = time.monotonic()
        self._receiver = _Receiver(self._socket, endpoint.read_timeout_seconds)
        self._reader = io.BufferedReader(self._receiver, _BUFFER_BYTES)
        self.reusable = False
        self.expires_at = 0.0
        self._served = self._is_drained = False
        self._received_before = 0
        self._drained_at = 0.0
        self._is_secure = isinstance(self._socket, ssl.SSLSocket)
        self._pending = self._socket.pending if isinstance(self._socket, ssl.SSLSocket) else _no_pending_bytes
        self._readiness = select.poll()
        self._readiness.register(self._socket, select.POLLIN)

    @property
    def tls_version(self) -> str | None:
        """The version of TLS that was agreed on, like ``TLSv1.3``; None without TLS."""
        return self._socket.version() if isinstance(self._socket, ssl.SSLSocket) else None

    def close(self) -> None:
        """Close the socket; later sends and receives fail."""
        self._socket.close()

    def is_idle(self) -> bool:
        """Return whether nothing was received since the last response: no end of stream and no stray bytes."""
        is_fresh = time.monotonic() < self._drained_at + _JUST_NOW_SECONDS
        if self._is_drained and not self._pending() and (is_fresh or not self._readiness.poll(0)):
            return True
        self._receiver.deadline = None
        with contextlib.suppress(OSError):
            return not self._reader.peek(1) and not self._receiver.ended
        return False

    def send(self, request: bytes) -> Connection:
        """Send a request; close the connection if that fails."""
        self._served, self.reusable, self._is_drained = self.reusable, False, False
        self._received_before = self._receiver.received
        timeout_seconds = self._endpoint.read_timeout_seconds
        try:
            left = request if self._is_secure else self._send_at_once(request)
            if left:
                self._receiver.set_timeout(timeout_seconds)
                self._socket.sendall(left)
        except (OSError, EOFError) as error:
            raise self._failure(error) from error
        except BaseException:
            self.close()
            raise
        sent_at = time.monotonic()
        self.expires_at = sent_at + timeout_seconds
        self._receiver.deadline = sent_at + _READ_TIMEOUTS_PER_RESPONSE * timeout_seconds
        return self

    def _send_at_once(self, request: bytes) -> memoryview:
        """Send what the socket takes without a wait, which saves asking whether it would wait; return the rest."""
        self._receiver.set_timeout(0)
        try:
            sent = self._socket.send(request)
        except BlockingIOError:
            sent = 0
        return memoryview(request)[sent:]

    def receive(self) -> HttpResponse:
        """Return the response to the last request; close the connection if that fails."""
        try:
            is_late = time.monotonic() >= self.expires_at
            timeout_seconds = _EXPIRED_READ_SECONDS if is_late else self._endpoint.read_timeout_seconds
            if is_late or self._is_secure:
                self._receiver.set_timeout(timeout_seconds)
            return self._receive(timeout_seconds)
        except (OSError, EOFError) as error:
            raise self._failure(error) from error
        except BaseException:
            self.close()
            raise

    def _failure(self, error: OSError | EOFError) -> HTTPClientError:
        """Close the connection and return the error that botocore would raise."""
        self.close()
        url = self._endpoint.url
        if isinstance(error, TimeoutError):
            return ReadTimeoutError(endpoint_url=url, error=error)
        stale = self._served and self._receiver.received == self._received_before
        return (StaleConnectionError if stale else ConnectionClosedError)(endpoint_url=url, error=error)

    def _receive(self, timeout_seconds: float) -> HttpResponse:
        lines, received = self._head(timeout_seconds)
        headers = parse_headers(lines)
        version, status = _OK if lines[0] == _OK_LINE else parse_status(lines[0])
        if received is None:
            body, delimited = self._body(headers)
        elif headers.get("content-length") == str(len(received)) and "transfer-encoding" not in headers:
            # Most responses are received at once, and nothing after them.
            body, delimited, self._is_drained = received, True, True
            self._drained_at = time.monotonic()
        else:
            before = self._receiver.received - len(received)
            self._receiver.put_back(received)
            body, delimited = self._body(headers)
            self._is_drained = self._receiver.received - before == len(body)
        self.reusable = delimited and version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        return HttpResponse(status, headers, body)

    def _head(self, timeout_seconds: float) -> tuple[list[str], bytes | None]:
        """Return the lines of the head, and what came with it of the body; None if the head came in pieces."""
        received = self._receiver.read_first(timeout_seconds)
        head, end, rest = received.partition(HEAD_END)
        lines = head.decode("latin-1").split("\r\n")
        if end and head.count(b"\n") == len(lines) - 1:
            return lines, rest
        self._receiver.put_back(received)
        first = self._line()
        # An invalid status line is an error before more is waited for.
        parse_status(first)
        return [first, *self._lines()], None

    def _lines(self) -> list[str]:
        lines: list[str] = []
        while line := self._line():
            lines.append(line)
            if len(lines) > _MAX_HEADERS:
                raise HTTPClientError(error=f"the answer has more than {_MAX_HEADERS} headers")
        return lines

    def _line(self) -> str:
        line = self._reader.readline(_MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            if len(line) == _MAX_LINE_BYTES:
                raise HTTPClientError(error="the answer has an endless header line")
            raise EOFError("the connection ended inside the head of the answer")
        return line.rstrip(b"\r\n").decode("latin-1")

    def _body(self, headers: Mapping[str, str]) -> tuple[bytes, bool]:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks(), True
        length = headers.get("content-length")
        if length is not None:
            return self._exactly(parse_size(length, 10)), True
        return self._up_to(MAX_BODY_BYTES), False

    def _chunks(self) -> bytes:
        chunks: list[bytes] = []
        total = 0
        while size := parse_size(self._line().partition(";")[0], 16):
            total += size
            _check_body_size(total)
            chunks.append(self._exactly(size))
            self._line()
        self._lines()
        return b"".join(chunks)

    def _exactly(self, size: int) -> bytes:
        body = self._up_to(size)
        if len(body) != size:
            raise EOFError(f"the body ended after {len(body)} of {size} bytes")
        return body

    def _up_to(self, size: int) -> bytes:
        """Return so many bytes, or all up to the end; memory is taken for what comes, not for what is claimed."""
        pieces = list[bytes]()
        while size and (piece := self._reader.read(min(size, _PIECE_BYTES))):
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _no_pending_bytes() -> int:
    return 0


def parse_status(line: str) -> tuple[str, int]:
    """Return the version and the status of the first line of a response."""
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():  # noqa: PLR2004 - version, status
        raise HTTPClientError(error=f"the answer is not HTTP/1.1: it begins with {line[:40].encode('latin-1')!r}")
    return words[0], int(words[1])


def parse_headers(lines: list[str]) -> dict[str, str]:
    """Return the headers of a head, of which the first line is the status."""
    parted = [line.partition(":") for line in lines[1:]]
    return {name.lower(): value.strip() for name, _, value in parted}


def parse_size(text: str, radix: int) -> int:
    """Return the stated length of a body or of a chunk."""
    try:
        size = int(text, radix)
    except ValueError:
        size = -1
    if size < 0:
        raise HTTPClientError(error=f"the answer states its length as {text[:40]!r}")
    _check_body_size(size)
    return size


def _check_body_size(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise HTTPClientError(error=f"the answer claims {size} bytes, more than any of the service's")


# A NAT gateway forgets a connection that is idle for 350 s.
# https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-troubleshooting.html
_KEEPALIVE_SECONDS = 60
# Of several addresses of a host each is given so long first, and one that has not answered is asked last for a while.
_FIRST_TRY_SECONDS = 1.0
_SHUN_SECONDS = 60.0
_shunned_until: dict[Any, float] = {}


def connect(endpoint: Endpoint) -> socket.socket:
    """Return a connection; a failure is raised as botocore would raise it."""
    try:
        connection = _connect_to_any(endpoint)
    except TimeoutError as error:
        raise ConnectTimeoutError(endpoint_url=endpoint.url, error=error) from error
    except (OSError, UnicodeError) as error:
        raise EndpointConnectionError(endpoint_url=endpoint.url, error=error) from error
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_SECONDS)
        if endpoint.tls is None:
            return connection
        return endpoint.tls.wrap_socket(connection, server_hostname=endpoint.host)
    except BaseException as error:
        connection.close()
        if isinstance(error, TimeoutError):
            raise ConnectTimeoutError(endpoint_url=endpoint.url, error=error) from error
        if isinstance(error, ssl.SSLCertVerificationError):
            # Any other TLS failure may be a load balancer that restarts: it is transient.
            raise SSLError(endpoint_url=endpoint.url, error=error) from error
        if isinstance(error, OSError):
            raise ConnectionClosedError(endpoint_url=endpoint.url, error=error) from error
        raise


def _connect_to_any(endpoint: Endpoint) -> socket.socket:
    """Return a connection to the first address of a host that answers; a dead one costs a second, and that seldom."""
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    addresses = sorted({each[4]: each for each in found}.values(), key=lambda each: _is_shunned(each[4]))
    whole = endpoint.connect_timeout_seconds
    failure: OSError | None = None
    for timeout_seconds in (whole,) if len(addresses) == 1 else (min(_FIRST_TRY_SECONDS, whole), whole):
        for family, _, _, _, address in addresses:
            try:
                connection = _connect_to(family, address, timeout_seconds)
            except OSError as error:
                failure = error
                if len(addresses) > 1:
                    _shunned_until[address] = time.monotonic() + _SHUN_SECONDS
            else:
                connection.settimeout(whole)
                return connection
        if not isinstance(failure, TimeoutError):
            break
    raise failure or OSError(f"{endpoint.host} has no address")


def _is_shunned(address: Any) -> bool:
    return _shunned_until.get(address, 0.0) > time.monotonic()


def _connect_to(family: int, address: Any, timeout_seconds: float) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_seconds)
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


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
