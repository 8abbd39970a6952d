"""Endpoint and signature of operations on a table, derived from botocore.

botocore prepares a call that is never sent. Endpoint, headers, signing name and credentials are taken from it.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import ssl
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import botocore.session
from botocore import xform_name
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import NoCredentialsError
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

from ddbio.aws.connection_pool import Endpoint
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from botocore.credentials import ReadOnlyCredentials

    from ddbio.aws.client import ClientSpec

# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class SecondSignature:
    """Signer of the requests of one second, with precomputed common parts.

    Attributes
    ----------
    headers
        Headers to add to the signed headers: the date, and the session token if there is one.
    """

    headers: dict[str, str]
    _canonical: Any
    _mac: hmac.HMAC
    _authorization: str

    def authorization(self, body: bytes) -> str:
        """Return the Authorization header of a body."""
        canonical = self._canonical.copy()
        canonical.update(hashlib.sha256(body).hexdigest().encode())
        mac = self._mac.copy()
        mac.update(canonical.hexdigest().encode())
        return self._authorization + mac.hexdigest()


class Signer:
    """Signer for one region and service. Thread-safe."""

    def __init__(self, region: str, service: str) -> None:
        self._region = region
        self._service = service
        self._derived: tuple[tuple[str, str], bytes] = (("", ""), b"")

    def sign_second(self, headers: Mapping[str, str], credentials: ReadOnlyCredentials, at: float) -> SecondSignature:
        """Return the signer of requests with these headers and credentials in one second.

        Parameters
        ----------
        headers
            The headers to sign, including ``host``: names in lower case, values without superfluous spaces.
        at
            Time of the requests in seconds since the epoch, by the service's clock.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
        added = {"x-amz-date": stamp}
        if credentials.token:
            added["x-amz-security-token"] = _one_line(credentials.token)
        signed = sorted({**headers, **added}.items())
        names = ";".join(name for name, _ in signed)
        lines = "".join(f"{name}:{value}\n" for name, value in signed)
        scope = f"{stamp[:8]}/{self._region}/{self._service}/aws4_request"
        credential = f"{_one_line(credentials.access_key or '')}/{scope}"
        key = self._key(credentials.secret_key or "", stamp[:8])
        return SecondSignature(
            headers=added,
            _canonical=hashlib.sha256(f"POST\n/\n\n{lines}\n{names}\n".encode()),
            _mac=hmac.new(key, f"{_ALGORITHM}\n{stamp}\n{scope}\n".encode(), "sha256"),
            _authorization=f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature=",
        )

    def _key(self, secret: str, day: str) -> bytes:
        derived_for, key = self._derived
        if derived_for != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = _hmac(key, part)
            self._derived = ((secret, day), key)
        return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _one_line(value: str) -> str:
    # Signatures require it, and it prevents keys from injecting headers.
    return " ".join(value.split())


READS = ("Scan", "Query")
WRITES = ("BatchWriteItem", "PutItem", "UpdateItem", "DeleteItem")


@dataclass(frozen=True)
class Api:
    """A service by its name in boto3, and its operations that ddbio calls."""

    service: str
    operations: tuple[str, ...]


DYNAMODB = Api("dynamodb", (*READS, "BatchGetItem", *WRITES))
STREAMS = Api("dynamodbstreams", ("DescribeStream", "GetShardIterator", "GetRecords"))

KINESIS = Api("kinesis", ("DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords", "SubscribeToShard"))

_LONG_ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/any/stream/any"
_SHARD = {"StreamArn": _LONG_ARN, "ShardId": "shardId-00000000000000000000-00000000", "ShardIteratorType": "LATEST"}
_DATA_STREAM = {"StreamName": "any"}
_MINIMAL: dict[str, dict[str, dict[str, Any]]] = {
    "dynamodbstreams": {
        "DescribeStream": {"StreamArn": _LONG_ARN},
        "GetShardIterator": _SHARD,
        "GetRecords": {"ShardIterator": "any"},
    },
    "kinesis": {
        "DescribeStreamSummary": _DATA_STREAM,
        "ListShards": _DATA_STREAM,
        "GetShardIterator": {**_DATA_STREAM, "ShardId": "any", "ShardIteratorType": "LATEST"},
        "GetRecords": {"ShardIterator": "any"},
    },
}

# https://botocore.amazonaws.com/v1/documentation/api/latest/topics/events.html
_EVENTS = (
    "provide-client-params",
    "before-parameter-build",
    "before-endpoint-resolution",
    "before-call",
    "request-created",
    "choose-signer",
    "before-sign",
    "before-send",
    "response-received",
    "before-parse",
    "needs-retry",
    "after-call",
    "after-call-error",
)
_KNOWN_MODULES = ("botocore.", "boto3.", "ddbio.")
# botocore refreshes credentials by the clock only, and has no public method to refresh them immediately.
_REFRESHING = ("_refresh_lock", "_frozen_credentials", "_protected_refresh")
_DEFAULT_PORTS = {"http": 80, "https": 443}

_prepared: ContextVar[list[Any] | None] = ContextVar("prepared", default=None)


@dataclass
class Route:
    """Endpoint and signer of one operation on one table."""

    endpoint: Endpoint
    host: str
    headers: dict[str, str]
    user_agent: str
    signer: Signer
    auth: Callable[[], Any]
    source: Any
    """botocore's credentials object, or None if it is inaccessible."""
    _signing: tuple[tuple[int, ReadOnlyCredentials], bytes, SecondSignature] | None = field(default=None, init=False)

    def head(self, body: bytes, at: float, unsigned: str) -> bytes:
        """Return the head of the request of a body, signed with the current credentials.

        Parameters
        ----------
        at
            Time in seconds since the epoch, by the service's clock.
        unsigned
            Additional unsigned headers, as lines.
        """
        signing, signed_by = self._signing, (int(at), self.credentials())
        if signing is None or signing[0] != signed_by:
            signature = self.signer.sign_second(self.headers, signed_by[1], at)
            headers = {**self.headers, **signature.headers, "user-agent": self.user_agent}
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            signing = self._signing = (signed_by, f"POST / HTTP/1.1\r\n{lines}".encode(), signature)
        own = f"{unsigned}content-length: {len(body)}\r\nauthorization: {signing[2].authorization(body)}\r\n\r\n"
        return signing[1] + own.encode()

    def renew(self, used: ReadOnlyCredentials | None) -> bool:
        """Force botocore to refresh the credentials, and return whether it can.

        Parameters
        ----------
        used
            Credentials of the rejected request. If another lane has refreshed them since, nothing is fetched.
        """
        if not isinstance(self.source, RefreshableCredentials):
            return False
        renewing: Any = self.source
        if not all(hasattr(renewing, name) for name in _REFRESHING):
            return False
        with renewing._refresh_lock:  # noqa: SLF001
            if used is None or renewing._frozen_credentials == used:  # noqa: SLF001
                renewing._protected_refresh(is_mandatory=True)  # noqa: SLF001
        return True

    @property
    def used(self) -> ReadOnlyCredentials | None:
        """Latest credentials with which a request was signed."""
        return None if self._signing is None else self._signing[0][1]

    def credentials(self) -> ReadOnlyCredentials:
        """Return the current credentials. botocore refreshes them if they are about to expire.

        Raises
        ------
        botocore.exceptions.NoCredentialsError
            If there are no credentials.
        """
        # botocore's auth object is recreated each time, as a fallback for an inaccessible credentials object.
        credentials: ReadOnlyCredentials | None = (
            self.auth().credentials if self.source is None else self.source.get_frozen_credentials()
        )
        if credentials is None:
            raise NoCredentialsError
        return credentials


class RouteTable:
    """Routes of a client's operations. botocore is called once per operation."""

    def __init__(self, client: Any, spec: ClientSpec, api: Api = DYNAMODB) -> None:
        self._client = client
        self._spec = spec
        self._known: dict[tuple[str, str], Route] = {}
        for operation in api.operations:
            client.meta.events.register_last(
                f"before-call.{event_name(client)}.{operation}", _take_prepared, unique_id=f"ddbio-prepared-{operation}"
            )

    def find(self, operation: str, table: str) -> Route:
        """Return the route of an operation on a table. The endpoint may depend on the account that owns the table."""
        route = self._known.get((operation, table))
        if route is None:
            route = self._known[operation, table] = self._prepare(operation, table)
        return route

    def _prepare(self, operation: str, table: str) -> Route:
        prepared: list[Any] = []
        token = _prepared.set(prepared)
        try:
            call_minimal(self._client, operation, table)
        finally:
            _prepared.reset(token)
        request, request_signer = prepared
        signing = request["context"].get("signing", {})
        region = signing.get("region", request_signer.region_name)
        service = signing.get("signing_name", request_signer.signing_name)
        headers = {name.lower(): str(value) for name, value in request["headers"].items()}
        host, endpoint = endpoint_of(request["url"], self._client, self._spec)
        return Route(
            endpoint=endpoint,
            host=host,
            headers={"content-type": headers["content-type"], "host": host, "x-amz-target": headers["x-amz-target"]},
            user_agent=headers["user-agent"],
            signer=Signer(region, service),
            auth=functools.partial(request_signer.get_auth_instance, service, region, "v4"),
            source=getattr(request_signer, "_credentials", None),
        )


def endpoint_of(url: str, client: Any, spec: ClientSpec) -> tuple[str, Endpoint]:
    """Return the ``host`` header of a URL, and its endpoint with the configuration of a client."""
    parts = urlsplit(url)
    name = parts.hostname or ""
    host = f"[{name}]" if ":" in name else name
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    if port != _DEFAULT_PORTS[parts.scheme]:
        host = f"{host}:{port}"
    config = client.meta.config
    tls = _tls(ca_bundle(spec)) if parts.scheme == "https" else None
    return host, Endpoint(url, name, port, tls, float(config.connect_timeout), float(config.read_timeout))


def call_minimal(client: Any, operation: str, table: str) -> Any:
    """Call an operation on a table with the minimum of parameters that botocore accepts, and return the response."""
    own = _MINIMAL.get(client.meta.service_model.service_name, {})
    parameters: dict[str, Any] = own.get(operation) or {"TableName": table}
    match operation:
        case "BatchGetItem":
            parameters = {"RequestItems": {table: {"Keys": [{}]}}}
        case "BatchWriteItem":
            parameters = {"RequestItems": {table: [{"DeleteRequest": {"Key": {}}}]}}
        case "PutItem":
            parameters["Item"] = {}
        case "UpdateItem" | "DeleteItem":
            parameters["Key"] = {}
        case "SubscribeToShard":
            # The endpoint may depend on the consumer's account and region.
            parameters = {"ConsumerARN": table, "ShardId": "any", "StartingPosition": {"Type": "LATEST"}}
    return getattr(client, xform_name(operation))(**parameters)


def event_name(client: Any) -> str:
    """Return the name of a client's service in botocore's events."""
    return str(client.meta.service_model.service_id.hyphenize())


def find_obstacle(client: Any, api: Api = DYNAMODB) -> str | None:
    """Return a description of configuration that only botocore supports; None if there is none."""
    url = client.meta.endpoint_url
    parts = urlsplit(url)
    config = client.meta.config
    if config.proxies or get_environ_proxies(url).get(parts.scheme):
        return "a proxy is configured"
    if parts.path not in {"", "/"} or parts.query or parts.username is not None:
        return "the endpoint URL has more than a host and a port"
    if config.signature_version != "v4" or config.client_cert:
        return "another authentication method is configured"
    if _has_foreign_handlers(client.meta.events, event_name(client), api):
        return "a custom handler is registered on the botocore client"
    return None


def _has_foreign_handlers(events: Any, service: str, api: Api) -> bool:
    # botocore has no public method to list handlers. If this private one is missing, assume that there are some.
    try:
        search = events._emitter._handlers.prefix_search  # noqa: SLF001
    except AttributeError:
        return True
    names = [f"{event}.{service}.{name}" for event in _EVENTS for name in api.operations]
    handlers = [handler for name in names for handler in search(name)]
    modules = [getattr(getattr(handler, "func", handler), "__module__", None) or "" for handler in handlers]
    return not all(module.startswith(_KNOWN_MODULES) for module in modules)


def _take_prepared(params: dict[str, Any], request_signer: Any, **_: Any) -> tuple[AWSResponse, dict[str, Any]] | None:
    prepared = _prepared.get()
    if prepared is None:
        return None
    prepared += [params, request_signer]
    return AWSResponse(params["url"], 200, HTTPHeaders(), None), {}


def ca_bundle(spec: ClientSpec) -> str:
    """Return the path of the CA bundle."""
    # Precedence as in botocore: AWS_CA_BUNDLE or the profile's ca_bundle, then REQUESTS_CA_BUNDLE, then its own bundle.
    configured = botocore.session.Session(profile=spec.profile).get_config_variable("ca_bundle")
    verify: Any = configured or os.environ.get("REQUESTS_CA_BUNDLE") or True
    return str(get_cert_path(verify))


@functools.lru_cache(maxsize=8)
def _tls(ca_bundle: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_bundle)
    except OSError as error:
        raise OptionError(
            f"the CA bundle {ca_bundle!r} cannot be read ({error}): correct AWS_CA_BUNDLE or ca_bundle"
        ) from error
