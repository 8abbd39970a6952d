"""HTTP/1.1 server on the loopback interface, with compressed replies and requests, one thread per connection.

It uses threads because checksums and sends of large pages release the interpreter lock, and latency is a plain sleep.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
import zlib
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

from ddbio.testing.refusal import broken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


Chunks: TypeAlias = "list[bytes | memoryview]"
"""The body of a reply in pieces, so that a page moves from the store to the socket without a copy."""


# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-api
MAX_BODY_BYTES = 16 << 20
_MIN_COMPRESSED_BYTES: Final = 4096
_FASTEST = 1
_GZIP_FRAME, _ZLIB_FRAME = 31, 15
LOOPBACK = "127.0.0.1"
_MAX_HEAD_BYTES = 16 << 10
_RECEIVE_BYTES = 256 << 10
_MAX_RECEIVED_BYTES = 2 << 30
_BACKLOG = 512


def reply_coding(accepted: str | None) -> str | None:
    """Return the coding that an Accept-Encoding header requests: gzip, deflate or None.

    The highest weight wins, then the first in the list. ``*`` stands for gzip; a name wins over it at the same weight.
    """
    if not accepted:
        return None
    weights: dict[str, float] = {}
    for entry in accepted.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name in {"gzip", "deflate", "*"}:
            weights.setdefault(name, _weight(parameters))
    if "*" in weights:
        any_weight = weights.pop("*")
        default = "deflate" if "gzip" in weights else "gzip"
        weights.setdefault(default, any_weight)
    best = max(weights, key=weights.__getitem__, default=None)
    return best if best is not None and weights[best] > 0 else None


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, text = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, float(text))
            except ValueError:
                return 1.0
    return 1.0


def compressed(chunks: Chunks, coding: str) -> Chunks:
    """Return a body compressed with a coding."""
    frame = _GZIP_FRAME if coding == "gzip" else _ZLIB_FRAME
    stream = zlib.compressobj(_FASTEST, wbits=frame)
    return [*(stream.compress(chunk) for chunk in chunks), stream.flush()]


def is_worth_compressing(chunks: Chunks) -> bool:
    """Return whether the service would compress a body of this size."""
    return sum(map(len, chunks)) >= _MIN_COMPRESSED_BYTES


def inflated(body: bytes, coding: str | None) -> bytes:
    """Return a request's body without its Content-Encoding. A broken or too large stream is an HTTP 500."""
    if coding is None:
        return body
    inflate = _INFLATES.get(coding.strip().lower())
    if inflate is None:
        raise broken()
    try:
        plain = inflate(body)
    except (zlib.error, EOFError, OSError):
        raise broken() from None
    if len(plain) > MAX_BODY_BYTES:
        raise broken()
    return plain


def _gunzip(body: bytes) -> bytes:
    plain = b""
    remaining = body
    while remaining[:2] == b"\x1f\x8b" or remaining is body:
        stream = zlib.decompressobj(_GZIP_FRAME)
        plain += stream.decompress(remaining, MAX_BODY_BYTES + 1 - len(plain))
        if not stream.eof:
            raise EOFError
        remaining = stream.unused_data
    return plain


def _inflate(body: bytes) -> bytes:
    stream = zlib.decompressobj(_ZLIB_FRAME)
    plain = stream.decompress(body, MAX_BODY_BYTES + 1)
    if not stream.eof:
        raise EOFError
    return plain


_INFLATES: dict[str, Callable[[bytes], bytes]] = {"gzip": _gunzip, "deflate": _inflate}


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. Header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpReply:
    """One reply. The server adds its length, checksum and date when it sends it.

    Attributes
    ----------
    events
        Replaces the body, piece by piece. For an empty piece the server checks whether the client is still connected.
    """

    status: int
    body: Chunks
    headers: dict[str, str] = field(default_factory=dict)
    events: Iterator[bytes] | None = None


class CutError(Exception):
    """Raised to reset a connection instead of answering."""


class _BadRequestError(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status)
        self.status = status


class Server:
    """Server that answers requests on a port of the loopback interface until it is stopped."""

    def __init__(self, answer: Callable[[HttpRequest], HttpReply], port: int = 0) -> None:
        self._answer = answer
        self._listener = socket.create_server((LOOPBACK, port), backlog=_BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._stopping = False
        self._acceptor = threading.Thread(target=self._accept, name="ddbio-fake", daemon=True)
        self._acceptor.start()

    def stop(self) -> None:
        """Close every connection and wait for their threads."""
        with self._lock:
            self._stopping = True
            open_connections = dict(self._connections)
        # Closing a listener does not wake the thread that accepts from it. One last connection does.
        socket.create_connection((LOOPBACK, self.port)).close()
        self._acceptor.join()
        self._listener.close()
        for connection in open_connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in open_connections.values():
            thread.join()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=self._serve, args=(connection,), name="ddbio-fake", daemon=True)
            with self._lock:
                if self._stopping:
                    connection.close()
                    return
                self._connections[connection] = thread
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError):
                _Conversation(connection, self._answer).run()
        finally:
            connection.close()
            with self._lock:
                self._connections.pop(connection, None)


_request_numbers = count(1)


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}\r\n{lines}\r\n".encode("latin-1")


class _Conversation:
    """Reader of the requests of one connection, which sends their replies in order."""

    def __init__(self, connection: socket.socket, answer: Callable[[HttpRequest], HttpReply]) -> None:
        self._connection = connection
        self._answer = answer
        self._received = bytearray()

    def run(self) -> None:
        keeps_alive = True
        while keeps_alive:
            try:
                request = self._read_request()
            except _BadRequestError as bad:
                self._send(HttpReply(bad.status, []), keeps_alive=False)
                return
            if request is None:
                return
            keeps_alive = request.headers.get("connection", "").lower() != "close"
            try:
                reply = self._answer(request)
            except CutError:
                # Closing without lingering sends a reset.
                self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            except Exception:  # noqa: BLE001 - a fault of the fake must never hang its client
                _log.exception("The fake failed to answer %s %s", request.method, request.headers.get("x-amz-target"))
                reply = HttpReply(HTTPStatus.INTERNAL_SERVER_ERROR, [b"{}"])
            self._send(reply, keeps_alive=keeps_alive)

    def _read_request(self) -> HttpRequest | None:
        head = self._read_head()
        if head is None:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):  # noqa: PLR2004 - method, target, version
            raise _BadRequestError(HTTPStatus.BAD_REQUEST)
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise _BadRequestError(HTTPStatus.BAD_REQUEST)
            key = name.strip().lower()
            headers[key] = f"{headers[key]},{value.strip()}" if key in headers else value.strip()
        if words[2] == "HTTP/1.0":
            headers.setdefault("connection", "close")
        return HttpRequest(words[0], words[1], headers, self._read_body(headers))

    def _read_head(self) -> bytes | None:
        while (end := self._received.find(b"\r\n\r\n")) < 0:
            if len(self._received) > _MAX_HEAD_BYTES:
                raise _BadRequestError(HTTPStatus.BAD_REQUEST)
            if not self._receive():
                return None
        if end > _MAX_HEAD_BYTES:
            raise _BadRequestError(HTTPStatus.BAD_REQUEST)
        return self._consume(end + 4)[:-4]

    def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("expect", "").lower() == "100-continue":
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._read_chunks()
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            raise _BadRequestError(HTTPStatus.BAD_REQUEST)
        if int(length) > _MAX_RECEIVED_BYTES:
            raise _BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return self._read_exactly(int(length))

    def _read_chunks(self) -> bytes:
        body = bytearray()
        while True:
            while (end := self._received.find(b"\r\n")) < 0:
                if not self._receive():
                    raise ConnectionError
            try:
                size = int(self._consume(end + 2).split(b";")[0], 16)
            except ValueError:
                raise _BadRequestError(HTTPStatus.BAD_REQUEST) from None
            if len(body) + size > _MAX_RECEIVED_BYTES:
                raise _BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            body += self._read_exactly(size + 2)[:-2]
            if not size:
                return bytes(body)

    def _read_exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            if not self._receive():
                raise ConnectionError
        return self._consume(size)

    def _consume(self, size: int) -> bytes:
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _receive(self) -> bool:
        received = self._connection.recv(_RECEIVE_BYTES)
        self._received += received
        return bool(received)

    def _send(self, reply: HttpReply, *, keeps_alive: bool) -> None:
        if reply.events is not None:
            self._send_events(reply, reply.events)
            return
        checksum = length = 0
        for chunk in reply.body:
            checksum = zlib.crc32(chunk, checksum)
            length += len(chunk)
        headers = {
            "Server": "Server",
            "Date": formatdate(usegmt=True),
            "Content-Length": str(length),
            "Connection": "keep-alive" if keeps_alive else "close",
            "x-amzn-RequestId": f"{next(_request_numbers):052d}",
            "x-amz-crc32": str(checksum),
            **reply.headers,
        }
        self._send_all([memoryview(chunk) for chunk in (_head(reply.status, headers), *reply.body)])

    def _send_events(self, reply: HttpReply, events: Iterator[bytes]) -> None:
        headers = {
            "Server": "Server",
            "Date": formatdate(usegmt=True),
            "Transfer-Encoding": "chunked",
            "x-amzn-RequestId": f"{next(_request_numbers):052d}",
            **reply.headers,
        }
        self._connection.sendall(_head(reply.status, headers))
        for piece in events:
            if piece:
                self._connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
            elif self._is_closed():
                raise ConnectionError
        self._connection.sendall(b"0\r\n\r\n")

    def _is_closed(self) -> bool:
        """Return whether the client has disconnected or the server stops."""
        try:
            return not self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False

    def _send_all(self, views: list[memoryview]) -> None:
        while views:
            sent = self._connection.sendmsg(views)
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if views:
                views[0] = views[0][sent:]
