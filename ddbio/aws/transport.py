"""Transport of reads and writes to DynamoDB: ddbio's signed connections, or botocore where only botocore works.

Endpoints, credentials and error shapes are botocore's in both cases. Callers retry. This module repeats a request only
if an idle connection was closed, this machine's clock is wrong, or the endpoint reports an expired token.

``DDBIO_TRANSPORT`` set to ``light`` or ``botocore`` forces one of the two. Otherwise the light one is used unless a
proxy, a handler on the botocore client or an endpoint with a path is configured.
"""

from __future__ import annotations

import base64
import dataclasses
import http.client
import json
import logging
import math
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from botocore.exceptions import ClientError
from botocore.parsers import create_parser

from ddbio.aws.connection_pool import (
    MIN_COMPRESSED_BYTES,
    ConnectionPool,
    TruncatedBodyError,
    compress_body,
    decompress_body,
    verify_body,
)
from ddbio.aws.endpoint_route import DYNAMODB, READS, RouteTable, call_minimal, event_name, find_obstacle
from ddbio.aws.error_codes import error_code
from ddbio.aws.event_stream import EventStream
from ddbio.errors import OptionError
from ddbio.items.page import Page, split_page

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from ddbio.aws.client import ClientSpec
    from ddbio.aws.connection_pool import Endpoint, HttpExchange, HttpResponse, PendingResponse
    from ddbio.aws.endpoint_route import Api, Route
    from ddbio.scan.options import AcceptEncoding

_RAW = "RawBody"
_OK, _INTERNAL_ERROR = 200, 500


class _Request(NamedTuple):
    """Differences of this thread's request from botocore's."""

    accept_encoding: AcceptEncoding = "identity"
    body: bytes | None = None
    encoding: str = ""


# The client has other users, whose requests must not change.
_current: ContextVar[_Request | None] = ContextVar("current", default=None)


class BotocoreTransport:
    """Transport with botocore's credentials, signing and connection pool. Thread-safe."""

    def __init__(
        self, spec: ClientSpec, lanes: int, accept_encoding: AcceptEncoding = "identity", api: Api = DYNAMODB
    ) -> None:
        self._accept_encoding = accept_encoding
        self._client: Any = spec.client(api.service, max_pool_connections=max(10, lanes))
        self._threads = ThreadPoolExecutor(lanes, "ddbio-lane")
        events = self._client.meta.events
        service = event_name(self._client)
        for name in READS:
            events.register(f"request-created.{service}.{name}", _set_accept_encoding, unique_id=f"ddbio-accept-{name}")
        for name in api.operations:
            events.register(f"before-call.{service}.{name}", _replace_body, unique_id=f"ddbio-replace-{name}")
            events.register(f"before-parse.{service}.{name}", _take_body, unique_id=f"ddbio-take-{name}")

    @property
    def endpoint_url(self) -> str:
        """Return the endpoint of requests."""
        return str(self._client.meta.endpoint_url)

    def read(self, operation: str, parameters: Mapping[str, Any]) -> Page:
        """Return one page; see ``PageSource``."""
        token = _current.set(_Request(self._accept_encoding))
        try:
            response = getattr(self._client, operation.lower())(**_for_botocore(parameters))
        finally:
            _current.reset(token)
        return split_page(response[_RAW])

    def begin(self, operation: str, table: str, body: bytes, encoding: str = "") -> PendingResponse:
        """Send a body in another thread; see ``BodySender``."""
        return _PendingFuture(self._threads.submit(self._write, operation, table, body, encoding))

    def close(self) -> None:
        """End the threads. The client stays open, because the process shares it."""
        self._threads.shutdown()

    def _write(self, operation: str, table: str, body: bytes, encoding: str) -> bytes:
        token = _current.set(_Request(body=body, encoding=encoding))
        try:
            response: bytes = call_minimal(self._client, operation, table)[_RAW]
        finally:
            _current.reset(token)
        return response


class _PendingFuture:
    """Future as a ``PendingResponse``. Its socket becomes readable when the future is done."""

    expires_at = math.inf

    def __init__(self, future: Future[bytes]) -> None:
        self._future = future
        self._done, self._notify = socket.socketpair()
        future.add_done_callback(lambda _: self._notify.close())

    @property
    def link(self) -> object:
        return self

    def fileno(self) -> int:
        return self._done.fileno()

    def result(self) -> bytes:
        try:
            return self._future.result()
        finally:
            self._done.close()


def _for_botocore(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    # botocore encodes binary values itself: it would encode base64 text twice.
    with_values = ("ExclusiveStartKey", "ExpressionAttributeValues")
    return {
        name: {key: _for_botocore_value(value) for key, value in member.items()} if name in with_values else member
        for name, member in parameters.items()
    }


def _for_botocore_value(value: Mapping[str, Any]) -> Mapping[str, Any]:
    text = value.get("B")
    return {"B": base64.b64decode(text, validate=True)} if isinstance(text, str) else value


def _set_accept_encoding(request: Any, **_: Any) -> None:
    current = _current.get()
    if current is not None and current.accept_encoding == "gzip":
        request.headers["Accept-Encoding"] = "gzip"


def _replace_body(params: dict[str, Any], **_: Any) -> None:
    current = _current.get()
    if current is not None and current.body is not None:
        params["body"] = current.body
        if current.encoding:
            params["headers"]["Content-Encoding"] = current.encoding


def _take_body(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    if _current.get() is None:
        return
    body, headers = response_dict["body"], response_dict["headers"]
    if response_dict["status_code"] != _OK:
        # botocore itself parses errors, and decompresses nothing.
        response_dict["body"] = decompress_body(body, headers)
        return
    if not body:
        # A response that is cut within its head arrives here without a length.
        raise TruncatedBodyError(found=0, stated=headers.get("content-length"), error="empty")
    verify_body(body, headers)
    customized_response_dict[_RAW] = decompress_body(body, headers)
    response_dict["body"] = b"{}"


_log = logging.getLogger("ddbio.transport")
# Compression ends after this number of consecutive compressed requests with a response of 500.
_MAX_FAILURES = 3

# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html: 5 minutes; less is no skew.
_SKEW_SECONDS = 60.0
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/CommonErrors.html
_EXPIRED = {"ExpiredToken", "ExpiredTokenException"}
_SKEW_WORDS = ("Signature expired", "Signature not yet current")


class BodySender(Protocol):
    """Sender of prepared request bodies, any number at the same time."""

    @property
    def endpoint_url(self) -> str:
        """Return the endpoint of requests."""

    def begin(self, operation: str, table: str, body: bytes, encoding: str = "") -> PendingResponse:
        """Send a body to an operation on a table. Its response is read later.

        Parameters
        ----------
        encoding
            Content encoding of the body; empty if it is not compressed.

        Raises
        ------
        botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError
            As botocore raises them.
        """

    def close(self) -> None:
        """Close the resources that only this sender uses."""


class PageSource(BodySender, Protocol):
    """Source of pages of Scan and Query, for any number of threads. It also sends BatchGetItem bodies."""

    def read(self, operation: str, parameters: Mapping[str, Any]) -> Page:
        """Return one page. Its items are the received bytes.

        Parameters
        ----------
        operation
            ``Scan`` or ``Query``.
        parameters
            Parameters of the API. ``ExclusiveStartKey`` is a page's ``last_evaluated_key``.

        Raises
        ------
        botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError
            As botocore raises them: the caller's retry policy distinguishes them.
        DecodeError
            If a verified body is not a page.
        """


def open_page_source(spec: ClientSpec, lanes: int, *, accept_encoding: AcceptEncoding = "identity") -> PageSource:
    """Return the fastest source of pages that supports the configuration.

    Parameters
    ----------
    lanes
        Number of concurrent threads.
    accept_encoding
        ``gzip`` asks the service for compressed responses: fewer bytes for more CPU.

    Raises
    ------
    OptionError
        If ``DDBIO_TRANSPORT`` is neither ``light`` nor ``botocore``, or is ``light`` where only botocore can be used.
    """
    return _open_light(spec, lanes, accept_encoding) or BotocoreTransport(spec, lanes, accept_encoding)


def open_body_sender(spec: ClientSpec, lanes: int, *, compresses: bool = False, api: Api = DYNAMODB) -> BodySender:
    """Return the fastest sender of writes, or of requests to another service, that supports the configuration.

    Parameters
    ----------
    lanes
        Number of requests in flight.
    compresses
        Whether large bodies are compressed, as long as the endpoint accepts that.
    api
        The service and its operations.

    Raises
    ------
    OptionError
        As ``open_page_source``.
    """
    sender = _open_light(spec, lanes, api=api) or BotocoreTransport(spec, lanes, api=api)
    return CompressingSender(sender) if compresses else sender


def _open_light(
    spec: ClientSpec, lanes: int, accept_encoding: AcceptEncoding = "identity", api: Api = DYNAMODB
) -> LightTransport | None:
    forced = os.environ.get("DDBIO_TRANSPORT", "")
    if forced not in {"", "light", "botocore"}:
        raise OptionError(f"DDBIO_TRANSPORT is {forced!r}: set it to light or botocore, or leave it out")
    if forced != "botocore":
        client = spec.client(api.service, max_pool_connections=max(10, lanes))
        reason = find_obstacle(client, api)
        if reason is None:
            return LightTransport(client, spec, accept_encoding, api)
        if forced:
            raise OptionError(f"DDBIO_TRANSPORT is 'light', but {reason}: leave it out, or set it to botocore")
    return None


class LightTransport:
    """Transport over keep-alive connections, one per request in flight. Thread-safe.

    Attributes
    ----------
    clock_offset_seconds
        Known seconds by which the service's clock is ahead of this machine's.
    date_offset_seconds
        Seconds by which the date of the first response was ahead of this machine's clock; None before it. Dates are
        whole seconds: the service's clock may have been up to one second later.
    """

    def __init__(
        self, client: Any, spec: ClientSpec, accept_encoding: AcceptEncoding = "identity", api: Api = DYNAMODB
    ) -> None:
        self._client = client
        self._accept_encoding = accept_encoding
        self.routes = RouteTable(client, spec, api)
        self._pools: dict[str, ConnectionPool] = {}
        self._opening = threading.Lock()
        self.clock_offset_seconds = 0.0
        self.date_offset_seconds: float | None = None

    @property
    def endpoint_url(self) -> str:
        """Return the endpoint of requests."""
        return str(self._client.meta.endpoint_url)

    def read(self, operation: str, parameters: Mapping[str, Any]) -> Page:
        """Return one page; see ``PageSource``."""
        return split_page(self.begin(operation, parameters["TableName"], read_body(parameters)).result())

    def begin(self, operation: str, table: str, body: bytes, encoding: str = "") -> PendingResponse:
        """Send a body; see ``BodySender``."""
        return _LightResponse(self, operation, table, body, encoding)

    def open_events(self, operation: str, resource: str, body: bytes) -> EventStream:
        """Send a request whose response is an event stream, over a separate connection.

        Parameters
        ----------
        resource
            The ARN that may determine the endpoint.
        """
        route = self.routes.find(operation, resource)
        head = route.head(body, time.time() + self.clock_offset_seconds, "")
        return EventStream(route.endpoint, head + body)

    def close(self) -> None:
        """Close the connections."""
        with self._opening:
            for pool in self._pools.values():
                pool.close()
            self._pools.clear()

    def send(self, route: Route, body: bytes, encoding: str) -> HttpExchange:
        """Sign a request and send it."""
        at = time.time() + self.clock_offset_seconds
        unsigned = f"content-encoding: {encoding}\r\n" if encoding else ""
        head = route.head(body, at, f"{unsigned}accept-encoding: {self._accept_encoding}\r\n")
        return self._pool_of(route.endpoint).begin(head + body)

    def error_of(self, operation: str, response: HttpResponse) -> ClientError:
        """Return the error that botocore would raise for a response."""
        parser: Any = create_parser("json")
        raw = {"status_code": response.status, "headers": response.headers, "body": response.body, "context": {}}
        try:
            parsed = parser.parse(raw, None)
            code = parsed["Error"]["Code"]
            shape = self._client.meta.service_model.shape_for_error_code(code)
            if shape is not None:
                parsed.update(parser.parse(raw, shape))
        except (AttributeError, KeyError, TypeError, ValueError):
            # Not an error of the service: an intermediary has responded.
            code = str(response.status)
            parsed = {
                "Error": {"Code": code, "Message": http.client.responses.get(response.status, "unknown status")},
                "ResponseMetadata": {"HTTPStatusCode": response.status, "HTTPHeaders": dict(response.headers)},
            }
        error: ClientError = self._client.exceptions.from_code(code)(parsed, operation)
        return error

    def _pool_of(self, endpoint: Endpoint) -> ConnectionPool:
        pool = self._pools.get(endpoint.url)
        if pool is None:
            with self._opening:
                pool = self._pools.setdefault(endpoint.url, ConnectionPool(endpoint))
        return pool

    def correct_clock(self, error: ClientError, response: HttpResponse, signed_offset_seconds: float) -> bool:
        """Adopt the service's clock if it rejected the date of a signature. Return whether a retry may succeed.

        Parameters
        ----------
        signed_offset_seconds
            Clock offset of the rejected signature: another lane may have corrected it since.
        """
        details = error.response.get("Error", {})
        if details.get("Code") != "InvalidSignatureException" or not str(details.get("Message")).startswith(
            _SKEW_WORDS
        ):
            return False
        offset = _date_offset(response)
        if offset is None or abs(offset - signed_offset_seconds) < _SKEW_SECONDS:
            return False
        self.clock_offset_seconds = offset
        return True


class _LightResponse:
    """Request of a light transport. It is sent a second time if its date or token was rejected."""

    def __init__(self, transport: LightTransport, operation: str, table: str, body: bytes, encoding: str) -> None:
        self._transport, self._operation, self._content = transport, operation, (body, encoding)
        self._route = transport.routes.find(operation, table)
        self._offset_seconds = transport.clock_offset_seconds
        self._exchange = transport.send(self._route, body, encoding)
        self._used = self._route.used
        self.expires_at, self.fileno, self.link = self._exchange.expires_at, self._exchange.fileno, self._exchange.link

    def result(self) -> bytes:
        response = _verified(self._exchange.result())
        if response.status != _OK:
            error = self._transport.error_of(self._operation, response)
            is_skewed = self._transport.correct_clock(error, response, self._offset_seconds)
            if not is_skewed and not (error_code(error) in _EXPIRED and self._route.renew(self._used)):
                raise error
            response = _verified(self._transport.send(self._route, *self._content).result())
            if response.status != _OK:
                raise self._transport.error_of(self._operation, response)
        if not response.body:
            # Responses of the service are at least an object.
            raise TruncatedBodyError(found=0, stated=response.headers.get("content-length"), error="empty")
        # Only of the first response: all responses are processed here.
        if self._transport.date_offset_seconds is None:
            self._transport.date_offset_seconds = _date_offset(response) or 0.0
        return response.body


def _date_offset(response: HttpResponse) -> float | None:
    try:
        return parsedate_to_datetime(response.headers.get("date", "")).timestamp() - time.time()
    except ValueError:
        return None


def _verified(response: HttpResponse) -> HttpResponse:
    # The checksum covers the compressed body.
    verify_body(response.body, response.headers)
    if "content-encoding" not in response.headers:
        return response
    return dataclasses.replace(response, body=decompress_body(response.body, response.headers))


def read_body(parameters: Mapping[str, Any]) -> bytes:
    """Return the request body of these parameters."""
    return json.dumps(parameters, separators=(",", ":"), default=_base64).encode()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


class CompressingSender:
    """Sender that compresses large bodies until compression fails.

    An endpoint that cannot parse a compressed body rejects it, and receives it again uncompressed. The service responds
    with 500 to bodies that it cannot decompress, but also in other cases: only several consecutive ones end the
    compression. After any 500 the caller decides when to send the request again.

    Attributes
    ----------
    compresses
        Whether bodies are still compressed.
    """

    def __init__(self, sender: BodySender) -> None:
        self.sender = sender
        self.compresses = True
        self._failures = 0

    @property
    def endpoint_url(self) -> str:
        """Return the endpoint of requests."""
        return self.sender.endpoint_url

    def begin(self, operation: str, table: str, body: bytes, encoding: str = "") -> PendingResponse:
        """Send a body, compressed if it is large enough; see ``BodySender``."""
        if self.compresses and not encoding and len(body) >= MIN_COMPRESSED_BYTES:
            return _CompressedResponse(self, operation, table, body)
        return self.sender.begin(operation, table, body, encoding)

    def succeeded(self) -> None:
        """Record that a compressed request succeeded."""
        self._failures = 0

    def failed(self, error: ClientError) -> bool:
        """Return whether a failed compressed request should be sent again uncompressed."""
        is_unparsed = error_code(error) == "SerializationException"
        self._failures += error.response["ResponseMetadata"]["HTTPStatusCode"] == _INTERNAL_ERROR
        if self.compresses and (is_unparsed or self._failures >= _MAX_FAILURES):
            self.compresses = False
            _log.warning("the endpoint refused a compressed request (%s): sending them uncompressed", error)
        return is_unparsed

    def close(self) -> None:
        """Close the sender."""
        self.sender.close()


class _CompressedResponse:
    """Compressed request. It is sent again uncompressed if the endpoint does not accept compression."""

    def __init__(self, compressing: CompressingSender, operation: str, table: str, body: bytes) -> None:
        self._compressing, self._plain = compressing, (operation, table, body)
        self._pending = compressing.sender.begin(operation, table, compress_body(body), "gzip")
        self.expires_at, self.fileno, self.link = self._pending.expires_at, self._pending.fileno, self._pending.link

    def result(self) -> bytes:
        try:
            body = self._pending.result()
        except ClientError as error:
            if not self._compressing.failed(error):
                raise
            return self._compressing.sender.begin(*self._plain).result()
        self._compressing.succeeded()
        return body
