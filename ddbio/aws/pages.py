"""Fetch one Scan or Query page as raw, verified bytes: the seam, and its way through botocore. Retry nothing."""

from __future__ import annotations

import base64
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import HTTPClientError
from isal import isal_zlib

from ddbio.aws.compression import content_of
from ddbio.core.text.page import Page, split_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ddbio.aws.client import ClientSpec
    from ddbio.options import AcceptEncoding

_OK = 200
_RAW = "RawBody"

_accepted: ContextVar[AcceptEncoding] = ContextVar("accepted", default="identity")


class PageSource(Protocol):
    """Fetch pages for any number of threads.

    The parameters are those of the API; ``ExclusiveStartKey`` is given as a page's ``last_evaluated_key``.
    """

    @property
    def endpoint_url(self) -> str:
        """Return where the requests go."""

    def scan(self, parameters: Mapping[str, Any]) -> Page:
        """Return one Scan page; its items are still the bytes of the wire.

        Raises
        ------
        botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError
            As botocore raises them: the caller's retry policy tells them apart.
        DecodeError
            If a verified body is no page.
        """

    def query(self, parameters: Mapping[str, Any]) -> Page:
        """Return one Query page; see ``scan``."""

    def close(self) -> None:
        """Close what only this source uses."""


class ChecksumMismatchError(HTTPClientError):
    """Report a body that is not what the service sent: the same page must be asked again."""

    fmt = "the body does not match its x-amz-crc32 header ({found} is not {stated})"


class TruncatedBodyError(HTTPClientError):
    """Report a body that ended early, or did not end where it should: the same page must be asked again."""

    fmt = "the body has {found} bytes, not the {stated} of its content-length header"


def verify_body(body: bytes, headers: Mapping[str, str]) -> None:
    """Check a body against the length and the checksum that its headers state.

    Raises
    ------
    botocore.exceptions.HTTPClientError
        If they differ: a broken answer, not the service's word.
    """
    length = headers.get("content-length")
    if length is not None and length.strip() != str(len(body)):
        raise TruncatedBodyError(found=len(body), stated=length, error="content-length")
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html
    stated = headers.get("x-amz-crc32")
    if stated is not None and stated.strip() != (found := str(isal_zlib.crc32(body))):
        raise ChecksumMismatchError(found=found, stated=stated, error="crc32")


class PageClient:
    """Fetch pages over botocore's credentials, signing and connection pool, without an object per attribute.

    The body is taken in botocore's ``before-parse`` event; botocore itself sees an empty object. Safe for threads.
    """

    def __init__(self, spec: ClientSpec, lanes: int, accept_encoding: AcceptEncoding = "identity") -> None:
        self._accept_encoding = accept_encoding
        self._client: Any = spec.client("dynamodb", max_pool_connections=max(10, lanes))
        events = self._client.meta.events
        for name in ("Scan", "Query"):
            events.register(f"request-created.dynamodb.{name}", _ask_encoding, unique_id=f"ddbio-accept-{name}")
            events.register(f"before-parse.dynamodb.{name}", _take_body, unique_id=f"ddbio-{name}")

    @property
    def endpoint_url(self) -> str:
        """Return where the requests go."""
        return str(self._client.meta.endpoint_url)

    def scan(self, parameters: Mapping[str, Any]) -> Page:
        """Return one Scan page; its items are still the bytes of the wire."""
        return self._page(self._client.scan, parameters)

    def query(self, parameters: Mapping[str, Any]) -> Page:
        """Return one Query page; see ``scan``."""
        return self._page(self._client.query, parameters)

    def close(self) -> None:
        """Close nothing: the client belongs to the process."""

    def _page(self, call: Callable[..., Any], parameters: Mapping[str, Any]) -> Page:
        # The client has other users, who may ask otherwise.
        token = _accepted.set(self._accept_encoding)
        try:
            answer = call(**_for_botocore(parameters))
        finally:
            _accepted.reset(token)
        return split_page(answer[_RAW])


def _for_botocore(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    # botocore encodes binary values itself: given a page's own base64 text it would encode it twice.
    start = parameters.get("ExclusiveStartKey")
    if start is None or not any("B" in value for value in start.values()):
        return parameters
    key = {
        name: {"B": base64.b64decode(value["B"], validate=True)} if "B" in value else value
        for name, value in start.items()
    }
    return {**parameters, "ExclusiveStartKey": key}


def _ask_encoding(request: Any, **_: Any) -> None:
    if _accepted.get() == "gzip":
        request.headers["Accept-Encoding"] = "gzip"


def _take_body(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    body, headers = response_dict["body"], response_dict["headers"]
    if response_dict["status_code"] != _OK:
        # botocore itself reads refusals, and decompresses nothing.
        response_dict["body"] = content_of(body, headers)
        return
    if not body:
        # An answer cut inside its head reaches us as one without a length.
        raise TruncatedBodyError(found=0, stated=headers.get("content-length"), error="empty")
    verify_body(body, headers)
    customized_response_dict[_RAW] = content_of(body, headers)
    response_dict["body"] = b"{}"
