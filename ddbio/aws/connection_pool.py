"""Pool of connections to one endpoint, and a poller for the first of many responses.

A request is sent immediately; its response is read later, possibly by another thread. A request is sent a second time
only if the endpoint had closed its idle connection.
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

# https://docs.aws.amazon.com/sdkref/latest/guide/feature-compression.html: the minimum size that SDKs compress.
MIN_COMPRESSED_BYTES: Final = 10_240
_LEVEL = 1
_GZIP_BITS = 31
# isal's type stubs confuse the class with an instance.
_BROKEN: Any = isal_zlib.error


class ChecksumMismatchError(HTTPClientError):
    """The body does not match its checksum: the same page must be requested again."""

    fmt = "the body does not match its x-amz-crc32 header ({found} is not {stated})"


class TruncatedBodyError(HTTPClientError):
    """The body is shorter or longer than declared: the same page must be requested again."""

    fmt = "the body has {found} bytes, not the {stated} of its content-length header"


class BrokenCompressionError(HTTPClientError):
    """The body cannot be decompressed: the same page must be requested again."""

    fmt = "the compressed body is broken: {reason}"


def verify_body(body: bytes, headers: Mapping[str, str]) -> None:
    """Check a body against the length and the checksum in its headers.

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
    if declared is not None and declared.strip() != (actual := str(isal_zlib.crc32(body))):
        raise ChecksumMismatchError(found=actual, stated=declared, error="crc32")


def decompress_body(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a body, decompressed if its headers declare a compression.

    Raises
    ------
    botocore.exceptions.HTTPClientError
        As :func:`gunzip`.
    """
    return gunzip(body) if headers.get("content-encoding", "").lower() == "gzip" else body


def gunzip(body: bytes) -> bytes:
    """Return the content of a single gzip member.

    Raises
    ------
    botocore.exceptions.HTTPClientError
        If it is corrupt, truncated, or larger than any response of the service.
    """
    stream = isal_zlib.decompressobj(wbits=_GZIP_BITS)
    try:
        content = stream.decompress(body, MAX_BODY_BYTES)
    except _BROKEN as error:
        raise BrokenCompressionError(reason=error, error=error) from error
    if not stream.eof or stream.unused_data:
        reason = "it is truncated, has trailing bytes, or is larger than any response"
        raise BrokenCompressionError(reason=reason, error=reason)
    return content


def compress_body(body: bytes) -> bytes:
    """Return a request body compressed as one gzip member."""
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
# Timeout for a response that may have arrived before its deadline, but was not read until after it.
_EXPIRED_READ_SECONDS = 0.001
# Immediately after a response, checking the connection is useless: a close may arrive just after the check. With 64
# requests in flight a connection is reused after some milliseconds; endpoints close connections that are idle for
# seconds.
_JUST_NOW_SECONDS = 0.02
# The timeout of a read does not limit a response that arrives slowly. This factor limits the entire response.
_READ_TIMEOUTS_PER_RESPONSE = 2


@dataclass(frozen=True)
class Endpoint:
    """Address, TLS settings and timeouts of an endpoint."""

    url: str
    host: str
    port: int
    tls: ssl.SSLContext | None
    connect_timeout_seconds: float
    read_timeout_seconds: float


@dataclass(slots=True)
class HttpResponse:
    """HTTP response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class StaleConnectionError(ConnectionClosedError):
    """An idle connection was closed: no byte of the response was received."""


class _Receiver(io.RawIOBase):
    """Reader of a socket with a deadline. Without a deadline, it reads only received bytes."""

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
        # Skip the system call: most timeouts equal the last one.
        if seconds != self._socket.gettimeout():
            self._socket.settimeout(seconds)

    def read_first(self, timeout_seconds: float) -> bytes:
        """Return the first bytes of a response."""
        try:
            received = self._socket.recv(_BUFFER_BYTES)
        except BlockingIOError:
            # A non-blocking socket had no bytes.
            self.set_timeout(timeout_seconds)
            received = self._socket.recv(_BUFFER_BYTES)
        self.received += len(received)
        self.ended = not received
        return received

    def put_back(self, received: bytes) -> None:
        """Push back the first bytes, to be read again."""
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
                raise TimeoutError("the response took too long")
            self.set_timeout(min(left, self._timeout_seconds))
        try:
            count = self._socket.recv_into(into)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        self.received += count
        self.ended = not count
        return count


class Connection:
    """Connection that carries one request at a time.

    Attributes
    ----------
    reusable
        Whether another request may be sent after the last response.
    opened_at
        Monotonic time at which the connection was opened.
    expires_at
        Monotonic time by which the response should have started.
    fileno
        Returns the file descriptor that becomes readable when a response starts.
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
        """Negotiated version of TLS, such as ``TLSv1.3``; None without TLS."""
        return self._socket.version() if isinstance(self._socket, ssl.SSLSocket) else None

    def close(self) -> None:
        """Close the socket; later sends and receives fail."""
        self._socket.close()

    def is_idle(self) -> bool:
        """Return whether nothing was received since the last response: neither end of stream nor stray bytes."""
        is_fresh = time.monotonic() < self._drained_at + _JUST_NOW_SECONDS
        if self._is_drained and not self._pending() and (is_fresh or not self._readiness.poll(0)):
            return True
        self._receiver.deadline = None
        with contextlib.suppress(OSError):
            return not self._reader.peek(1) and not self._receiver.ended
        return False

    def send(self, request: bytes) -> Connection:
        """Send a request. Close the connection if that fails."""
        self._served, self.reusable, self._is_drained = self.reusable, False, False
        self._received_before = self._receiver.received
        timeout_seconds = self._endpoint.read_timeout_seconds
        try:
            left = request if self._is_secure else self._send_without_waiting(request)
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

    def _send_without_waiting(self, request: bytes) -> memoryview:
        """Send as much as the socket accepts without waiting, which saves a poll, and return the remaining bytes."""
        self._receiver.set_timeout(0)
        try:
            sent = self._socket.send(request)
        except BlockingIOError:
            sent = 0
        return memoryview(request)[sent:]

    def receive(self) -> HttpResponse:
        """Return the response to the last request. Close the connection if that fails."""
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
            # Most responses are received in one read, without trailing bytes.
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
        """Return the lines of the head, and the received part of the body; None if the head was received in parts."""
        received = self._receiver.read_first(timeout_seconds)
        head, end, received_body = received.partition(HEAD_END)
        lines = head.decode("latin-1").split("\r\n")
        if end and head.count(b"\n") == len(lines) - 1:
            return lines, received_body
        self._receiver.put_back(received)
        first = self._line()
        # Check the status line before waiting for more.
        parse_status(first)
        return [first, *self._lines()], None

    def _lines(self) -> list[str]:
        lines: list[str] = []
        while line := self._line():
            lines.append(line)
            if len(lines) > _MAX_HEADERS:
                raise HTTPClientError(error=f"the response has more than {_MAX_HEADERS} headers")
        return lines

    def _line(self) -> str:
        line = self._reader.readline(_MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            if len(line) == _MAX_LINE_BYTES:
                raise HTTPClientError(error="the response has an endless header line")
            raise EOFError("the connection ended inside the head of the response")
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
        """Return at most ``size`` bytes. Memory is allocated for received bytes, not for the declared size."""
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
        raise HTTPClientError(error=f"the response is not HTTP/1.1: it starts with {line[:40].encode('latin-1')!r}")
    return words[0], int(words[1])


def parse_headers(lines: list[str]) -> dict[str, str]:
    """Return the headers of a head, whose first line is the status."""
    parted = [line.partition(":") for line in lines[1:]]
    return {name.lower(): value.strip() for name, _, value in parted}


def parse_size(text: str, radix: int) -> int:
    """Return the declared length of a body or of a chunk."""
    try:
        size = int(text, radix)
    except ValueError:
        size = -1
    if size < 0:
        raise HTTPClientError(error=f"the response declares its length as {text[:40]!r}")
    _check_body_size(size)
    return size


def _check_body_size(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise HTTPClientError(error=f"the response declares {size} bytes, more than any response of the service has")


# A NAT gateway forgets a connection that is idle for 350 s.
# https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-troubleshooting.html
_KEEPALIVE_SECONDS = 60
# Timeout of the first attempt if a host has several addresses. A failed address is tried last for a while.
_FIRST_TRY_SECONDS = 1.0
_SHUN_SECONDS = 60.0
_shunned_until: dict[Any, float] = {}


def connect(endpoint: Endpoint) -> socket.socket:
    """Return a connection. A failure is raised as the error of botocore."""
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
            # Other TLS failures may be caused by a restarting load balancer: they are transient.
            raise SSLError(endpoint_url=endpoint.url, error=error) from error
        if isinstance(error, OSError):
            raise ConnectionClosedError(endpoint_url=endpoint.url, error=error) from error
        raise


def _connect_to_any(endpoint: Endpoint) -> socket.socket:
    """Return a connection to the first address of a host that responds. A dead address rarely costs over a second."""
    infos = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    addresses = sorted({info[4]: info for info in infos}.values(), key=lambda info: _is_shunned(info[4]))
    full_timeout_seconds = endpoint.connect_timeout_seconds
    failure: OSError | None = None
    for timeout_seconds in (
        (full_timeout_seconds,)
        if len(addresses) == 1
        else (min(_FIRST_TRY_SECONDS, full_timeout_seconds), full_timeout_seconds)
    ):
        for family, _, _, _, address in addresses:
            try:
                connection = _connect_to(family, address, timeout_seconds)
            except OSError as error:
                failure = error
                if len(addresses) > 1:
                    _shunned_until[address] = time.monotonic() + _SHUN_SECONDS
            else:
                connection.settimeout(full_timeout_seconds)
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


# The addresses of an endpoint change and its hosts retire during a long job: connections are replaced after this time.
_MAX_AGE_SECONDS = 900.0


class ConnectionPool:
    """Idle connections to one endpoint, as many as concurrent requests. Thread-safe."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._idle: deque[Connection] = deque()
        self._closed = False
        weakref.finalize(self, _close_all, self._idle)

    def begin(self, request: bytes) -> HttpExchange:
        """Send an idempotent request. Its response is read later.

        Raises
        ------
        botocore.exceptions.HTTPClientError
            If the request could not be sent completely, or not in time.
        botocore.exceptions.ConnectionError
            If no connection could be opened.
        """
        return HttpExchange(self, request)

    def close(self) -> None:
        """Close idle connections immediately, and the others after their response."""
        self._closed = True
        _close_all(self._idle)

    def send(self, request: bytes) -> Connection:
        """Send a request over an idle connection, or over a new one if none is usable."""
        connection = self._take_idle()
        if connection is None:
            return self.send_on_new_connection(request)
        try:
            return connection.send(request)
        except StaleConnectionError:
            return self.send_on_new_connection(request)

    def send_on_new_connection(self, request: bytes) -> Connection:
        """Send a request over a new connection."""
        return Connection(self._endpoint).send(request)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose response was read if it is reusable; otherwise close it."""
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
            if time.monotonic() < connection.opened_at + _MAX_AGE_SECONDS and connection.is_idle():
                return connection
            connection.close()


class HttpExchange:
    """Request that was sent, with a pending response.

    Attributes
    ----------
    expires_at
        Monotonic time by which the response should have started. Later, ``result`` raises.
    link
        The connection of the request.
    fileno
        Returns the file descriptor that becomes readable when the response starts.
    """

    __slots__ = ("_connection", "_pool", "_request", "expires_at", "fileno", "link")

    def __init__(self, pool: ConnectionPool, request: bytes) -> None:
        self._pool, self._request = pool, request
        self.link: object
        self._connection = self.link = connection = pool.send(request)
        self.expires_at, self.fileno = connection.expires_at, connection.fileno

    def result(self) -> HttpResponse:
        """Wait for the response and return it. Call it once.

        If the endpoint had closed the idle connection, the request is sent again over a new one.

        Raises
        ------
        botocore.exceptions.HTTPClientError
            If the response is missing, late or incomplete.
        botocore.exceptions.ConnectionError
            If no connection could be opened.
        """
        try:
            response = self._connection.receive()
        except StaleConnectionError:
            self._connection = self._pool.send_on_new_connection(self._request)
            response = self._connection.receive()
        self._pool.give_back(self._connection)
        return response


class PendingResponse(Protocol):
    """Request that was sent, with a pending response."""

    @property
    def expires_at(self) -> float:
        """Return the monotonic time after which ``result`` no longer waits."""

    @property
    def link(self) -> object:
        """Return the owner of the file descriptor, which distinguishes connections that reuse its number."""

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when ``result`` does not block."""

    def result(self) -> bytes:
        """Wait for the verified body of the response. Call it once.

        Raises
        ------
        botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError
            As botocore raises them: the caller's retry policy distinguishes them.
        """


class ResponsePoller:
    """Poller for the first of many responses that starts or is overdue.

    Parameters
    ----------
    can_wake
        Whether another thread may end a wait with ``wake``.
    """

    def __init__(self, *, can_wake: bool = False) -> None:
        self._readable = _ReadableOnLinux() if sys.platform == "linux" else _Readable()
        self._watch = self._readable.watch
        self._pending: dict[int, PendingResponse] = {}
        self._wake_pair = socket.socketpair() if can_wake else None
        if self._wake_pair is not None:
            self._readable.watch(self._wake_pair[0].fileno(), self._wake_pair)

    def add(self, pending: PendingResponse) -> None:
        """Add a pending response."""
        descriptor = pending.fileno()
        self._pending[descriptor] = pending
        self._watch(descriptor, pending.link)

    def wait(self, seconds: float | None) -> list[PendingResponse]:
        """Remove and return the readable or overdue responses, as soon as there are any.

        Parameters
        ----------
        seconds
            Maximum wait; None waits for the first response.
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
        # Ignore a response that was overdue and arrived later.
        return [self._pending.pop(descriptor) for descriptor in ready if descriptor in self._pending]

    def wake(self) -> None:
        """End the current or the next wait immediately. Called by another thread."""
        if self._wake_pair is not None:
            self._wake_pair[1].send(b"!")

    def close(self) -> None:
        """Close the sockets that wake a wait."""
        for end in self._wake_pair or ():
            end.close()
        self._readable.close()


class _Readable:
    """Poller of descriptors. Each is reported once, and must be watched again."""

    def __init__(self) -> None:
        self._poll = select.poll()

    def watch(self, descriptor: int, _: object) -> None:
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float | None) -> list[int]:
        descriptors = [descriptor for descriptor, _ in self._poll.poll(None if seconds is None else 1000 * seconds)]
        for descriptor in descriptors:
            self._poll.unregister(descriptor)
        return descriptors

    def close(self) -> None:
        """Do nothing: only the Linux implementation owns a descriptor."""


class _ReadableOnLinux:
    """Poller whose cost does not grow with the number of descriptors.

    Edge-triggered events are reported once, so a descriptor is registered once for all its responses.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        # A registered number may belong to a new connection: the kernel removes closed descriptors.
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
