"""Non-blocking reader of the event stream of a request over HTTP/1.1."""

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
# https://smithy.io/2.0/aws/amazon-eventstream.html
_SIZE_BYTES, _PRELUDE_BYTES = 4, 12


class StreamEndedError(Exception):
    """Raised after the last event."""


class RefusedError(Exception):
    """Raised if the response is an error.

    Attributes
    ----------
    response
        The complete response.
    """

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(response)
        self.response = response


class EventStream:
    """Event stream of a request on a separate connection.

    Parameters
    ----------
    request
        Head and body of the request.
    """

    def __init__(self, endpoint: Endpoint, request: bytes) -> None:
        self._url = endpoint.url
        self._socket = connect(endpoint)
        self._received = bytearray()
        self._response: HttpResponse | None = None
        self._chunk_left = 0
        self._ended = False
        self._messages = EventStreamBuffer()
        self._unparsed = bytearray()
        self._missing_bytes = 0
        """Bytes of the current message that its parser does not have yet, after its prelude."""
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
        """Return the headers and the payload of the next event, or None if it has not arrived.

        Raises
        ------
        StreamEndedError
            After the last event.
        RefusedError
            If the response is an error.
        botocore.exceptions.HTTPClientError
            If the connection breaks, or the response is not a valid event stream. Checksums are verified.
        """
        while True:
            try:
                message = self._next_message()
            except ParserError as error:
                raise HTTPClientError(error=error) from error
            if message is not None:
                return message.headers, message.payload
            if self._ended:
                raise StreamEndedError
            if not self._receive():
                return None

    def _next_message(self) -> Any:
        """Return the next message, or None if it is incomplete.

        The parser copies all its bytes with each addition. So it gets a message in two parts: the prelude, whose
        checksum it verifies, and the remaining bytes when all have arrived.
        """
        if not self._missing_bytes:
            if len(self._unparsed) < _PRELUDE_BYTES:
                return None
            size_bytes = int.from_bytes(self._unparsed[:_SIZE_BYTES])
            self._parse(_PRELUDE_BYTES)
            next(self._messages, None)
            self._missing_bytes = max(0, size_bytes - _PRELUDE_BYTES)
        if len(self._unparsed) < self._missing_bytes:
            return None
        self._parse(self._missing_bytes)
        self._missing_bytes = 0
        return next(self._messages, None)

    def _parse(self, size_bytes: int) -> None:
        self._messages.add_data(bytes(self._unparsed[:size_bytes]))
        del self._unparsed[:size_bytes]

    def _receive(self) -> bool:
        """Read the received bytes. Return whether there were any."""
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
        head, end, received_body = self._received.partition(HEAD_END)
        if not end:
            if len(self._received) > _MAX_HEAD_BYTES:
                raise HTTPClientError(error="the head of the response has no end")
            return
        lines = head.decode("latin-1").split("\r\n")
        self._response, self._received = (
            HttpResponse(parse_status(lines[0])[1], parse_headers(lines), b""),
            received_body,
        )

    def _take_body(self, response: HttpResponse, *, is_closed: bool) -> None:
        if response.headers.get("transfer-encoding", "").lower() == "chunked":
            body = self._chunks()
        else:
            body, self._received = bytes(self._received), bytearray()
        if response.status == _OK:
            self._unparsed += body
        else:
            response.body += body
            stated = response.headers.get("content-length", "")
            if is_closed or self._ended or (stated.isdecimal() and len(response.body) >= int(stated)):
                raise RefusedError(response)
        if is_closed and not self._ended:
            raise ConnectionClosedError(endpoint_url=self._url, error="closed inside the response")

    def _chunks(self) -> bytes:
        """Return the received part of the body, without the sizes of its chunks."""
        body = bytearray()
        while self._received and not self._ended:
            if not self._chunk_left:
                line, end, remaining = self._received.partition(b"\r\n")
                if not end:
                    break
                self._received = remaining
                # An empty line ends the previous chunk.
                if line:
                    self._chunk_left = parse_size(line.decode("latin-1").partition(";")[0], 16)
                    self._ended = not self._chunk_left
                continue
            part = self._received[: self._chunk_left]
            del self._received[: self._chunk_left]
            self._chunk_left -= len(part)
            body += part
        return bytes(body)
