"""Send request bodies that were made elsewhere and return verified answers: the seam, and its way through botocore.

Retry nothing, and look into no body.
"""

from __future__ import annotations

import math
import socket
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from ddbio.aws.pages import TruncatedBodyError, verify_body
from ddbio.aws.route import call_of

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ddbio.aws.client import ClientSpec

_OK = 200
_RAW = "RawBody"
_WRITES = ("BatchWriteItem", "PutItem", "UpdateItem", "DeleteItem")

_sent: ContextVar[tuple[bytes, str] | None] = ContextVar("sent", default=None)


class Pending(Protocol):
    """Hold a request that was sent, until its answer is taken."""

    @property
    def expires_at(self) -> float:
        """Return the monotonic second from which on ``result`` no longer waits."""

    def fileno(self) -> int:
        """Return the descriptor that can be read when ``result`` should not have to wait."""

    def result(self) -> bytes:
        """Wait for the verified body that answers; to be called once.

        Raises
        ------
        botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError
            As botocore raises them: the caller's retry policy tells them apart.
        """


class BodySource(Protocol):
    """Send writes, any number at the same time."""

    @property
    def endpoint_url(self) -> str:
        """Return where the requests go."""

    def begin(self, operation: str, table: str, body: bytes, encoding: str = "") -> Pending:
        """Send a body to an operation on a table; what answers it is taken later.

        Parameters
        ----------
        encoding
            How the body is compressed; empty where it is not.

        Raises
        ------
        botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError
            As botocore raises them.
        """

    def close(self) -> None:
        """Close what only this source uses."""


class BodyClient:
    """Send bodies over botocore's credentials, signing and connection pool, in the place of its own. Safe for threads.

    The request's body is put in its place in botocore's ``before-call`` event, before it is signed; the answer's is
    taken in ``before-parse``.
    """

    def __init__(self, spec: ClientSpec, lanes: int) -> None:
        self._client: Any = spec.client("dynamodb", max_pool_connections=max(10, lanes))
        self._threads = ThreadPoolExecutor(lanes, "ddbio-lane")
        events = self._client.meta.events
        for name in _WRITES:
            events.register(f"before-call.dynamodb.{name}", _put_body, unique_id=f"ddbio-put-{name}")
            events.register(f"before-parse.dynamodb.{name}", _take_body, unique_id=f"ddbio-take-{name}")

    @property
    def endpoint_url(self) -> str:
        """Return where the requests go."""
        return str(self._client.meta.endpoint_url)

    def begin(self, operation: str, table: str, body: bytes, encoding: str = "") -> Pending:
        """Send a body in another thread; see ``BodySource``."""
        return _Future(self._threads.submit(self._call, operation, table, body, encoding))

    def close(self) -> None:
        """End the threads; the client belongs to the process."""
        self._threads.shutdown()

    def _call(self, operation: str, table: str, body: bytes, encoding: str) -> bytes:
        token = _sent.set((body, encoding))
        try:
            answer: bytes = call_of(self._client, operation, table)[_RAW]
        finally:
            _sent.reset(token)
        return answer


class _Future:
    expires_at = math.inf

    def __init__(self, future: Future[bytes]) -> None:
        self._future = future
        self._done, self._tell = socket.socketpair()
        future.add_done_callback(lambda _: self._tell.close())

    def fileno(self) -> int:
        return self._done.fileno()

    def result(self) -> bytes:
        try:
            return self._future.result()
        finally:
            self._done.close()


def _put_body(params: dict[str, Any], **_: Any) -> None:
    sent = _sent.get()
    if sent is not None:
        params["body"], encoding = sent
        if encoding:
            params["headers"]["Content-Encoding"] = encoding


def _take_body(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    if _sent.get() is None or response_dict["status_code"] != _OK:
        return
    body: bytes = response_dict["body"]
    if not body:
        raise TruncatedBodyError(found=0, stated=response_dict["headers"].get("content-length"), error="empty")
    verify_body(body, response_dict["headers"])
    customized_response_dict[_RAW] = body
    response_dict["body"] = b"{}"
