"""Pass requests on to another endpoint over connections that are kept; refuses to send a request twice."""

from __future__ import annotations

import threading
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from ddbio.errors import OptionError
from ddbio.testing.server import CutError, HttpReply, HttpRequest

_TIMEOUT_SECONDS = 60.0
# What belongs to one connection, or is said anew by whoever sends the next one; bodies travel without a coding.
_OWN_REQUEST_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "expect", "host", "transfer-encoding"}
)
_OWN_REPLY_HEADERS = frozenset(
    {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding", "x-amz-crc32"}
)


class Upstream:
    """Hold the idle connections to one endpoint; safe for concurrent use."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise OptionError(f"Not an endpoint: {url}; say one like http://127.0.0.1:5000")
        self._scheme, self._netloc = parts.scheme, parts.netloc
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []

    def send(self, request: HttpRequest) -> HttpReply:
        """Return the endpoint's reply; a connection that breaks resets the client's as well."""
        with self._lock:
            connection = self._idle.pop() if self._idle else self._connection()
        headers = {name: value for name, value in request.headers.items() if name not in _OWN_REQUEST_HEADERS}
        try:
            connection.request(request.method, request.target, request.body, headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, HTTPException) as error:
            connection.close()
            raise CutError from error
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append(connection)
        kept = {name: value for name, value in response.getheaders() if name.lower() not in _OWN_REPLY_HEADERS}
        return HttpReply(response.status, [body], kept)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def _connection(self) -> HTTPConnection:
        kind = HTTPSConnection if self._scheme == "https" else HTTPConnection
        return kind(self._netloc, timeout=_TIMEOUT_SECONDS)
