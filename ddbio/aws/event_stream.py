"""Read the events of one request as they come, over HTTP/1.1, without waiting for them."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from botocore.eventstream import EventStreamBuffer, ParserError
from botocore.exceptions import ConnectionClosedError, HTTPClientError, ReadTimeoutError

from ddbio.aws.connection_pool import HEAD_END, HttpResponse, connect, parse_headers, parse_size, parse_status

if TYPE_CHECKING:
    from ddbio.aws.connection_pool import Endpoint

_OK = 200
_MAX_HEAD_BYTES = 64 << 10
_RECEIVE_BYTES = 256 << 10


class StreamEndedError(Exception):
    """Raised behind the last event."""


class RefusedError(Exception):
    """Raised if the response is an error.

    Attributes
    ----------
    response
        The response, whole.
    """

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(response)
        self.response = response


class EventStream:
    """The events of a request that was sent over a connection of its own.

    Parameters
    ----------
    request
        The request's head and body.
    """

    def __init__(self, endpoint: Endpoint, request: bytes) -> None:
        self._url = endpoint.url
        self._socket = connect(endpoint)
        self._received = bytearray()
        self._response: HttpResponse | None = None
        self._chunk_left = 0
        self._ended = False
        self._messages = EventStreamBuffer()
        try:
            self._socket.sendall(request)
            self._socket.settimeout(0)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise ReadTimeoutError(endpoint_url=self._url, error=error) from error
            if isinstance(error, OSError):
                raise ConnectionClosedError(endpoint_url=self._url, error=error) from error
            raise

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def take(self) -> tuple[dict[str, Any], bytes] | None:
        """Return the headers and the payload of the next event, or None if it has not come yet.

        Raises
        ------
        StreamEndedError
            Behind the last event.
        RefusedError
            If the response is an error.
        botocore.exceptions.HTTPClientError
            If the connection breaks, or what comes is no stream of events: checksums are verified.
        """
        while True:
            try:
                message: Any = next(self._messages, None)
            except ParserError as error:
                raise HTTPClientError(error=error) from error
            if message is not None:
                return message.headers, message.payload
            if self._ended:
                raise StreamEndedError
            if not self._receive():
                return None

    def _receive(self) -> bool:
        """Take what was received; return whether that was anything."""
        try:
            received = self._socket.recv(_RECEIVE_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError as error:
            raise ConnectionClosedError(endpoint_url=self._url, error=error) from error
        self._received += received
        if self._response is None:
            self._take_head()
        if self._response is not None:
            self._take_body(self._response, is_closed=not received)
        elif not received:
            raise ConnectionClosedError(endpoint_url=self._url, error="closed before the response")
        return True

    def _take_head(self) -> None:
        head, end, rest = self._received.partition(HEAD_END)
        if not end:
            if len(self._received) > _MAX_HEAD_BYTES:
                raise HTTPClientError(error="the head of the answer has no end")
            return
        lines = head.decode("latin-1").split("\r\n")
        self._response, self._received = HttpResponse(parse_status(lines[0])[1], parse_headers(lines), b""), rest

    def _take_body(self, response: HttpResponse, *, is_closed: bool) -> None:
        if response.headers.get("transfer-encoding", "").lower() == "chunked":
            found = self._chunks()
        else:
            found, self._received = bytes(self._received), bytearray()
        if response.status == _OK:
            self._messages.add_data(found)
        else:
            response.body += found
            stated = response.headers.get("content-length", "")
            if is_closed or self._ended or (stated.isdecimal() and len(response.body) >= int(stated)):
                raise RefusedError(response)
        if is_closed and not self._ended:
            raise ConnectionClosedError(endpoint_url=self._url, error="closed inside the response")

    def _chunks(self) -> bytes:
        """Return what was received of the body, without the lengths of its chunks."""
        found = bytearray()
        while self._received and not self._ended:
            if not self._chunk_left:
                line, end, rest = self._received.partition(b"\r\n")
                if not end:
                    break
                self._received = rest
                # An empty line ends the chunk before.
                if line:
                    self._chunk_left = parse_size(line.decode("latin-1").partition(";")[0], 16)
                    self._ended = not self._chunk_left
                continue
            part = self._received[: self._chunk_left]
            del self._received[: self._chunk_left]
            self._chunk_left -= len(part)
            found += part
        return bytes(found)
