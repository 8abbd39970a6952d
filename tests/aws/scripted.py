"""HTTP server on the loopback interface that answers each request with the next step of a script."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from types import TracebackType
from typing import Any, Self

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ReadTimeoutError

from ddbio.aws import client
from ddbio.aws.client import ClientSpec
from ddbio.aws.transport import PageSource, open_page_source
from ddbio.items.page import Page
from ddbio.scan.options import AcceptEncoding

PAGE = b'{"Count":1,"Items":[{"id":{"S":"a"}}],"ScannedCount":1,"ConsumedCapacity":{"CapacityUnits":0.5}}'


@dataclass(frozen=True)
class Request:
    """Received request, and the number of its connection."""

    connection: int
    headers: dict[str, str]
    body: bytes

    def is_signed_by(self, secret: str) -> bool:
        """Return whether botocore's signer computes the same signature."""
        match = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
            r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})",
            self.headers["authorization"],
        )
        assert match is not None
        access_key, _, region, service, names, signature = match.groups()
        signed = {name: self.headers[name] for name in names.split(";")}
        request = AWSRequest("POST", f"http://{self.headers['host']}/", signed, self.body)
        request.context["timestamp"] = self.headers["x-amz-date"]
        auth = SigV4Auth(Credentials(access_key, secret), service, region)
        return auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request) == signature


Step = Callable[[socket.socket], bool]
"""Answer on a connection. Return whether it stays open."""


def answer(
    body: bytes = PAGE,
    *,
    status: int = 200,
    headers: dict[str, str | None] | None = None,
    stays_open: bool = True,
    after: bytes = b"",
) -> Step:
    """Answer like the service, with replaced or (None) omitted headers."""
    stated: dict[str, str | None] = {
        "Date": formatdate(usegmt=True),
        "Content-Type": "application/x-amz-json-1.0",
        "Content-Length": str(len(body)),
        "x-amzn-RequestId": "REQUEST",
        "x-amz-crc32": str(zlib.crc32(body)),
        **(headers or {}),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in stated.items() if value is not None)
    return speak(f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode() + body + after, stays_open=stays_open)


def refuse(
    code: str, message: str, *, status: int = 400, headers: dict[str, str | None] | None = None, **more: Any
) -> Step:
    """Answer with an error of the service."""
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message, **more}
    return answer(json.dumps(body).encode(), status=status, headers=headers)


def speak(words: bytes, *, stays_open: bool = False) -> Step:
    """Answer with exactly these bytes."""

    def step(connection: socket.socket) -> bool:
        connection.sendall(words)
        return stays_open

    return step


def trickle(words: bytes) -> Step:
    """Answer with these bytes, then with single bytes, until the client disconnects."""

    def step(connection: socket.socket) -> bool:
        connection.sendall(words)
        while True:
            time.sleep(0.02)
            connection.sendall(b"x")

    return step


def hang_up(_: socket.socket) -> bool:
    """Close the connection without an answer."""
    return False


def stall(connection: socket.socket) -> bool:
    """Do not answer until the client disconnects."""
    connection.recv(1)
    return False


class ScriptedServer:
    """Server that runs in the block. After the last step, every request is answered with ``PAGE``."""

    def __init__(self, *steps: Step, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self._steps = list(steps)
        self._tls = tls
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def url(self) -> str:
        """Return the server's address."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def wait_until_idle(self) -> None:
        """Return when the clients have closed all connections so far."""
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection, len(self._threads)), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
                self._connections.append(connection)
                stack.callback(connection.close)
            reader = stack.enter_context(connection.makefile("rb"))
            while reader.readline():
                headers = {}
                while line := reader.readline().decode().strip():
                    name, _, value = line.partition(":")
                    headers[name.lower()] = value.strip()
                body = reader.read(int(headers.get("content-length", 0)))
                with self._lock:
                    self.requests.append(Request(number, headers, body))
                    step = self._steps.pop(0) if self._steps else answer()
                if not step(connection):
                    return


def read_at_last(source: PageSource, operation: str, members: dict[str, Any]) -> Page:
    """Read a page with short timeouts, repeated because a busy machine may answer later."""
    while True:
        with contextlib.suppress(ReadTimeoutError):
            return source.read(operation, members)


@contextlib.contextmanager
def opened(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    url: str,
    read_timeout_seconds: float = 100.0,
    accept_encoding: AcceptEncoding = "identity",
) -> Iterator[PageSource]:
    """Open a source of pages of one kind, with a separate client."""
    client._client.cache_clear()
    monkeypatch.setattr(client, "READ_TIMEOUT_SECONDS", read_timeout_seconds)
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_SECONDS", read_timeout_seconds)
    monkeypatch.setenv("DDBIO_TRANSPORT", kind)
    source = open_page_source(ClientSpec(endpoint_url=url), 1, accept_encoding=accept_encoding)
    try:
        yield source
    finally:
        source.close()
        client._client.cache_clear()
