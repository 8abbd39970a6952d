"""Send reads and writes through botocore: for configurations that only botocore supports, like proxies.

A request body that was made elsewhere replaces botocore's own before it is signed, and a response body is taken before
botocore parses it. So no object is made for each attribute.
"""

from __future__ import annotations

import base64
import math
import socket
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.aws.endpoint_route import DYNAMODB, READS, call_minimal, event_name
from ddbio.aws.http_bodies import TruncatedBodyError, decompress_body, verify_body
from ddbio.items.page import Page, split_page

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from ddbio.aws.client import ClientSpec
    from ddbio.aws.connection_pool import PendingResponse
    from ddbio.aws.endpoint_route import Api
    from ddbio.options import AcceptEncoding

_OK = 200
_RAW = "RawBody"


class _Request(NamedTuple):
    """What of this thread's request is not botocore's own."""

    accept_encoding: AcceptEncoding = "identity"
    body: bytes | None = None
    encoding: str = ""


# The client has other users, whose requests must stay untouched.
_current: ContextVar[_Request | None] = ContextVar("current", default=None)


class BotocoreTransport:
    """Use botocore's credentials, signing and connection pool. Safe for threads."""

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
        """Return where the requests go."""
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
        """End the threads; the client belongs to the process."""
        self._threads.shutdown()

    def _write(self, operation: str, table: str, body: bytes, encoding: str) -> bytes:
        token = _current.set(_Request(body=body, encoding=encoding))
        try:
            response: bytes = call_minimal(self._client, operation, table)[_RAW]
        finally:
            _current.reset(token)
        return response


class _PendingFuture:
    """A future as a ``PendingResponse``: its socket becomes readable when the future is done."""

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
    # botocore encodes binary values itself: given base64 text it would encode it twice.
    with_values = ("ExclusiveStartKey", "ExpressionAttributeValues")
    return {
        name: {each: _for_botocore_value(value) for each, value in given.items()} if name in with_values else given
        for name, given in parameters.items()
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
        # botocore itself reads errors, and decompresses nothing.
        response_dict["body"] = decompress_body(body, headers)
        return
    if not body:
        # A response cut inside its head reaches us as one without a length.
        raise TruncatedBodyError(found=0, stated=headers.get("content-length"), error="empty")
    verify_body(body, headers)
    customized_response_dict[_RAW] = decompress_body(body, headers)
    response_dict["body"] = b"{}"
