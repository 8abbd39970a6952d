"""Fetch pages and send writes over light signed connections of our own, or over botocore where only it can.

botocore stays the authority on endpoints, credentials and error shapes. Refuses to retry: that is the caller's policy,
but for a kept connection that was closed unused, a clock that is wrong and a token that is called expired.

The environment variable ``DDBIO_WIRE`` forces one way: ``light`` or ``botocore``. Without it the light one is taken
unless a proxy, a handler on the botocore client or an endpoint with a path is configured.
"""

from __future__ import annotations

import base64
import dataclasses
import http.client
import json
import os
import threading
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from botocore.parsers import create_parser

from ddbio.aws.bodies import BodyClient
from ddbio.aws.compressed_bodies import CompressedBodies
from ddbio.aws.compression import content_of
from ddbio.aws.connections import Connections
from ddbio.aws.pages import PageClient, TruncatedBodyError, verify_body
from ddbio.aws.route import Routes, obstacle
from ddbio.core.text.page import Page, split_page
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.exceptions import ClientError

    from ddbio.aws.bodies import BodySource, Pending
    from ddbio.aws.client import ClientSpec
    from ddbio.aws.connection import Reply, Target
    from ddbio.aws.connections import Exchange
    from ddbio.aws.pages import PageSource
    from ddbio.aws.route import Route
    from ddbio.options import AcceptEncoding

_OK = 200

# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html: 5 minutes; less is no skew.
_SKEW_SECONDS = 60.0
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/CommonErrors.html
_EXPIRED = {"ExpiredToken", "ExpiredTokenException"}
_SKEW_WORDS = ("Signature expired", "Signature not yet current")


def open_pages(spec: ClientSpec, lanes: int, *, accept_encoding: AcceptEncoding = "identity") -> PageSource:
    """Return the fastest source of pages that honours everything that is configured.

    Parameters
    ----------
    lanes
        How many threads will ask at once.
    accept_encoding
        ``gzip`` asks the service for compressed answers: fewer bytes for more CPU.

    Raises
    ------
    OptionError
        If ``DDBIO_WIRE`` is neither ``light`` nor ``botocore``, or asks for ``light`` where that cannot be.
    """
    return _open_light(spec, lanes, accept_encoding) or PageClient(spec, lanes, accept_encoding)


def open_bodies(spec: ClientSpec, lanes: int, *, compresses: bool = False) -> BodySource:
    """Return the fastest way for request bodies made elsewhere; see ``open_pages``.

    Parameters
    ----------
    compresses
        Whether large bodies go out compressed, where the endpoint takes that.

    Raises
    ------
    OptionError
        As ``open_pages``.
    """
    source = _open_light(spec, lanes) or BodyClient(spec, lanes)
    return CompressedBodies(source) if compresses else source


def _open_light(spec: ClientSpec, lanes: int, accept_encoding: AcceptEncoding = "identity") -> Wire | None:
    forced = os.environ.get("DDBIO_WIRE", "")
    if forced not in {"", "light", "botocore"}:
        raise OptionError(f"DDBIO_WIRE is {forced!r}: set it to light or botocore, or leave it out")
    if forced != "botocore":
        client = spec.client("dynamodb", max_pool_connections=max(10, lanes))
        reason = obstacle(client)
        if reason is None:
            return Wire(client, spec, accept_encoding)
        if forced:
            raise OptionError(f"DDBIO_WIRE is 'light', but {reason}: leave it out, or set it to botocore")
    return None


class Wire:
    """Fetch pages over kept connections, one for each thread that asks at the same time. Safe for threads."""

    def __init__(self, client: Any, spec: ClientSpec, accept_encoding: AcceptEncoding = "identity") -> None:
        self._client = client
        self._accept_encoding = accept_encoding
        self._routes = Routes(client, spec)
        self._connections: dict[str, Connections] = {}
        self._opening = threading.Lock()
        self._clock_offset_seconds = 0.0

    @property
    def endpoint_url(self) -> str:
        """Return where the requests go."""
        return str(self._client.meta.endpoint_url)

    def scan(self, parameters: Mapping[str, Any]) -> Page:
        """Return one Scan page; its items are still the bytes of the wire."""
        return split_page(self._call("Scan", parameters))

    def query(self, parameters: Mapping[str, Any]) -> Page:
        """Return one Query page; see ``scan``."""
        return split_page(self._call("Query", parameters))

    def begin(self, operation: str, table: str, body: bytes, encoding: str = "") -> Pending:
        """Send a request made elsewhere; see ``BodySource``."""
        return _Call(self, operation, table, body, encoding)

    def close(self) -> None:
        """Close the connections."""
        with self._opening:
            for connections in self._connections.values():
                connections.close()
            self._connections.clear()

    def _call(self, operation: str, parameters: Mapping[str, Any]) -> bytes:
        body = json.dumps(parameters, separators=(",", ":"), default=_base64).encode()
        return self.begin(operation, parameters["TableName"], body).result()

    def send(self, route: Route, body: bytes, encoding: str) -> Exchange:
        """Sign a request and send it."""
        at = time.time() + self._clock_offset_seconds
        unsigned = f"content-encoding: {encoding}\r\n" if encoding else ""
        head = route.head(body, at, f"{unsigned}accept-encoding: {self._accept_encoding}\r\n")
        return self._connections_to(route.target).begin(head + body)

    def route_of(self, operation: str, table: str) -> Route:
        """Return how an operation on a table is asked for."""
        return self._routes.find(operation, table)

    def error_of(self, operation: str, reply: Reply) -> ClientError:
        """Return the error that botocore would raise for this answer."""
        return _to_client_error(self._client, operation, reply)

    def _connections_to(self, target: Target) -> Connections:
        found = self._connections.get(target.url)
        if found is None:
            with self._opening:
                found = self._connections.setdefault(target.url, Connections(target))
        return found

    @property
    def clock_offset_seconds(self) -> float:
        """How far the service's clock is ahead of this machine's, as far as that is known."""
        return self._clock_offset_seconds

    def set_clock(self, error: ClientError, reply: Reply, signed_offset_seconds: float) -> bool:
        """Follow the service's clock where it refused a signature for its date; tell whether another try may help.

        Parameters
        ----------
        signed_offset_seconds
            The offset by which the refused request was signed: another lane may have corrected it since.
        """
        told = error.response.get("Error", {})
        if told.get("Code") != "InvalidSignatureException" or not str(told.get("Message")).startswith(_SKEW_WORDS):
            return False
        try:
            offset = parsedate_to_datetime(reply.headers.get("date", "")).timestamp() - time.time()
        except ValueError:
            return False
        if abs(offset - signed_offset_seconds) < _SKEW_SECONDS:
            return False
        self._clock_offset_seconds = offset
        return True


class _Call:
    """Hold one request of a wire; it is sent once more where a clock or a token was refused."""

    def __init__(self, wire: Wire, operation: str, table: str, body: bytes, encoding: str) -> None:
        self._wire, self._operation, self._content = wire, operation, (body, encoding)
        self._route = wire.route_of(operation, table)
        self._offset_seconds = wire.clock_offset_seconds
        self._exchange = wire.send(self._route, body, encoding)
        self._used = self._route.used
        self.expires_at, self.fileno = self._exchange.expires_at, self._exchange.fileno

    def result(self) -> bytes:
        reply = _verified(self._exchange.result())
        if reply.status != _OK:
            error = self._wire.error_of(self._operation, reply)
            is_skewed = self._wire.set_clock(error, reply, self._offset_seconds)
            if not is_skewed and not (_is_expired(error) and self._route.renew(self._used)):
                raise error
            reply = _verified(self._wire.send(self._route, *self._content).result())
            if reply.status != _OK:
                raise self._wire.error_of(self._operation, reply)
        if not reply.body:
            # The service answers with an object at least.
            raise TruncatedBodyError(found=0, stated=reply.headers.get("content-length"), error="empty")
        return reply.body


def _verified(reply: Reply) -> Reply:
    # The checksum covers what is sent.
    verify_body(reply.body, reply.headers)
    if "content-encoding" not in reply.headers:
        return reply
    return dataclasses.replace(reply, body=content_of(reply.body, reply.headers))


def _is_expired(error: ClientError) -> bool:
    return error.response.get("Error", {}).get("Code") in _EXPIRED


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _to_client_error(client: Any, operation: str, reply: Reply) -> ClientError:
    """Return the error that botocore would raise for this answer."""
    parser: Any = create_parser("json")
    answer = {"status_code": reply.status, "headers": reply.headers, "body": reply.body, "context": {}}
    try:
        parsed = parser.parse(answer, None)
        code = parsed["Error"]["Code"]
        shape = client.meta.service_model.shape_for_error_code(code)
        if shape is not None:
            parsed.update(parser.parse(answer, shape))
    except (AttributeError, KeyError, TypeError, ValueError):
        # Not an error of the service: something between has answered.
        code = str(reply.status)
        parsed = {
            "Error": {"Code": code, "Message": http.client.responses.get(reply.status, "unknown status")},
            "ResponseMetadata": {"HTTPStatusCode": reply.status, "HTTPHeaders": dict(reply.headers)},
        }
    error: ClientError = client.exceptions.from_code(code)(parsed, operation)
    return error
