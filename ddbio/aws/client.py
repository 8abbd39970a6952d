"""Make AWS clients from a picklable description, one of each kind in a process; assume roles.

A description holds no credentials, and each process finds its own, unless it was given some to travel with it.
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import os
import re
import threading
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    Credentials,
    DeferredRefreshableCredentials,
    RefreshableCredentials,
)
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)
from botocore.utils import parse_timestamp

from ddbio.aws.error_codes import may_pass, to_ddbio_error
from ddbio.errors import AccessDeniedError, DdbioError, OptionError
from ddbio.secrets import remember_secrets
from ddbio.storage.checksums import CRC_POLYNOMIALS, checksum
from ddbio.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.client import BaseClient

    from ddbio.options import Credentials as GivenCredentials
    from ddbio.options import LocalSession

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 30.0

# A fake on this machine has no region of its own, but signing needs one.
DEFAULT_REGION = "us-east-1"

# Of which clients are made; the last four are those that botocore itself asks for credentials.
_SERVICES = [
    "cloudwatch",
    "dynamodb",
    "dynamodbstreams",
    "glue",
    "kinesis",
    "pricing",
    "s3",
    "signin",
    "sso",
    "sso-oidc",
    "sts",
]

# Under which names botocore keeps what is secret of credentials.
_SECRETS = ("secret_key", "token", "_secret_key", "_token")

# Visible signs of ASCII.
_CREDENTIAL = re.compile(r"[!-~]*")
_PARTS = {"access_key": "access key id", "secret_key": "secret access key", "token": "session token"}
# A session is made once, even if threads ask for their clients at the same time.
_SESSION_LOCK = threading.Lock()


@dataclass(frozen=True)
class ClientSpec:
    """Describes an AWS client, so that a worker can make its own; equal descriptions share one client in a process."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    role: tuple[tuple[str, Any], ...] = ()
    """Further members of the AssumeRole request, like ``("ExternalId", "…")``."""
    members: tuple[tuple[str, Any], ...] = ()
    """Members of every S3 request whose operation has them, like ``("ExpectedBucketOwner", "…")``."""
    members_of_keys: tuple[tuple[str, str, Any], ...] = ()
    """The same for requests whose key begins as a pattern says: pattern, member, value."""
    credentials: GivenCredentials | None = None
    """Credentials to use as they are; they travel with the description."""
    allow_http: bool = False
    """Send requests, with what signs them, unencrypted to hosts other than this one."""
    session: LocalSession | None = None
    """A session of this process; a description that has one cannot be pickled."""
    timeout_seconds: float | None = None
    """Send each request once, and wait so long for a connection and for each answer; None for what jobs do."""

    def client(self, service: str, max_pool_connections: int = 10) -> BaseClient:
        """Return this process's client for a service, made at the first call.

        Parameters
        ----------
        service
            Service name as boto3 spells it.
        max_pool_connections
            Connections that may stay open: at least the number of threads that share the client.

        Raises
        ------
        AccessDeniedError
            If the profile or its credentials cannot be used.
        OptionError
            If no region is known, an endpoint is malformed, or it is ``http://`` on another host, which is not allowed.
        """
        return _client(self, service, max_pool_connections, _environment())

    def credential_source(self) -> CredentialSource:
        """Return where the credentials come from, and how long they are valid.

        Raises
        ------
        AccessDeniedError
            If there are no credentials.
        """
        try:
            with _SESSION_LOCK:
                found = _session(self._identity(), _environment()).get_credentials()
            if found is None:
                raise NoCredentialsError
            found.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise to_ddbio_error(error, action="requests", resource="AWS") from error
        is_refreshed = isinstance(found, RefreshableCredentials) and found.method != "env"
        is_temporary = found.get_frozen_credentials().token is not None
        return CredentialSource(found.method, getattr(found, "_expiry_time", None), is_refreshed, is_temporary)

    def _identity(self) -> ClientSpec:
        """Return what a session depends on."""
        return dataclasses.replace(self, endpoint_url=None, members=(), members_of_keys=(), timeout_seconds=None)


@dataclass(frozen=True)
class CredentialSource:
    """Where credentials come from, as botocore names it, and how long they are valid."""

    method: str
    expires_at: datetime | None
    """None if they do not expire, or nobody said when."""
    is_refreshed: bool
    """Whether botocore fetches others before they expire."""
    is_temporary: bool


def _environment() -> frozenset[tuple[str, str]]:
    """Return AWS's variables: what is cached belongs to them, since sessions and clients read them once."""
    return frozenset(pair for pair in os.environ.items() if pair[0].startswith("AWS_"))


@functools.lru_cache(maxsize=32)
def _client(
    spec: ClientSpec, service: str, max_pool_connections: int, environment: frozenset[tuple[str, str]]
) -> BaseClient:
    # DynamoDB's requests are retried by ddbio, page by page; S3's by botocore, always in standard mode.
    attempts = 1 if spec.timeout_seconds or service in {"dynamodb", "dynamodbstreams"} else 5
    config = Config(
        connect_timeout=spec.timeout_seconds or CONNECT_TIMEOUT_SECONDS,
        read_timeout=spec.timeout_seconds or READ_TIMEOUT_SECONDS,
        max_pool_connections=max_pool_connections,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        tcp_keepalive=True,
        user_agent_extra=f"ddbio/{__version__}",
    )
    try:
        with _SESSION_LOCK:
            session = _session(spec._identity(), environment)  # noqa: SLF001 - of its own module
        check_credentials(session.get_credentials())
        region = spec.region or _region(session) or (DEFAULT_REGION if spec.endpoint_url else None)
        make: Any = functools.partial(session.client, service, endpoint_url=spec.endpoint_url, region_name=region)
        client = make(config=config)
        chosen = (client.meta.config.s3 or {}).get("addressing_style")
        if service == "s3" and "amazonaws.com" not in client.meta.endpoint_url and chosen not in {"path", "virtual"}:
            # S3-compatible stores rarely resolve bucket names as hosts; the profile may say that one does.
            client = make(config=config.merge(Config(s3={"addressing_style": "path"})))
    except DdbioError:
        raise
    except (BotoCoreError, ValueError) as error:
        resource = spec.endpoint_url or service
        raise to_ddbio_error(error, action=f"make a client for {service}", resource=resource) from error
    # A session of the caller's makes clients that are not checked.
    check_endpoint(client.meta.endpoint_url, allow_http=spec.allow_http)
    if service == "s3" and (spec.members or spec.members_of_keys):
        client.meta.events.register("provide-client-params.s3", functools.partial(_add_members, spec))
    return client  # type: ignore[no-any-return]


def check_endpoint(url: str, *, allow_http: bool) -> None:
    """Check that what is sent to an endpoint, session tokens among it, is encrypted or stays on this machine.

    Raises
    ------
    OptionError
        If it is ``http://`` on another host, and that is not allowed.
    """
    asked = urlsplit(url)
    if asked.scheme == "http" and not allow_http and not _is_loopback(asked.hostname or ""):
        raise OptionError(
            f"{url} is plain HTTP, so credentials and data would cross the network unencrypted: give an https:// "
            "endpoint, or set allow_http if that network is trusted"
        )


def _is_loopback(host: str) -> bool:
    # https://www.rfc-editor.org/rfc/rfc6761#section-6.3
    if host.rstrip(".").rpartition(".")[2] == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _add_members(spec: ClientSpec, params: dict[str, Any], model: Any, **_: Any) -> dict[str, Any]:
    known = {} if model.input_shape is None else model.input_shape.members
    key = str(params.get("Key", ""))
    of_key = {name: value for pattern, name, value in spec.members_of_keys if re.match(pattern, key)}
    given = {name: value for name, value in {**dict(spec.members), **of_key}.items() if name in known} | params
    algorithm = given.get("ChecksumAlgorithm")
    if algorithm in CRC_POLYNOMIALS:
        # botocore would ask for awscrt. An upload only says what its parts will have.
        if f"Checksum{algorithm}" in known:
            given[f"Checksum{algorithm}"] = b64encode(checksum(algorithm, given["Body"])).decode()
        elif model.http_checksum:
            del given["ChecksumAlgorithm"]
    return given


def check_credentials(found: Any) -> None:
    """Check that static credentials have no character that none has, such as the line end of a file.

    Raises
    ------
    AccessDeniedError
        One has; the message says which, and not its value.
    """
    # Others are fetched from a service, when they are first used.
    if type(found) is not Credentials:
        return
    for part in ("access_key", "secret_key", "token"):
        if not _CREDENTIAL.fullmatch(getattr(found, part) or ""):
            raise AccessDeniedError(
                f"the {_PARTS[part]} of the AWS credentials (from {found.method!r}) has a blank, a line end or another "
                "character that none has: store it without, as printf writes it and echo does not"
            )


@functools.lru_cache(maxsize=32)
def _session(spec: ClientSpec, environment: frozenset[tuple[str, str]]) -> boto3.Session:
    """Return this process's session of an identity: its clients share one set of credentials."""
    del environment  # It is part of the cache's key only.
    own: boto3.Session
    if spec.session is not None:
        own = spec.session.session
    else:
        given = _botocore_session(spec.profile, spec.region, allow_http=spec.allow_http)
        if spec.credentials is not None:
            keys = spec.credentials
            given.set_credentials(keys.access_key_id, keys.secret_access_key, keys.session_token)
        own = boto3.Session(botocore_session=given)
    if not spec.role_arn:
        return own
    credentials = own.get_credentials()
    if credentials is None:
        raise NoCredentialsError
    check_credentials(credentials)
    region = spec.region or _region(own)
    make = functools.partial(_botocore_session, spec.profile, region, allow_http=spec.allow_http)
    role = _AssumedRole(make(), credentials, spec.role_arn, dict(spec.role))
    session = make()
    session.register_component("credential_provider", CredentialResolver([role]))
    return boto3.Session(botocore_session=session)


@dataclass(frozen=True)
class _Fetch:
    """Fetches credentials; whatever a source says instead of them, the error says that they are missing."""

    fetch: Callable[[], Any]
    provider: str

    def __call__(self) -> Any:
        try:
            found = self.fetch()
            until = found.get("expiry_time") if isinstance(found, dict) else None
            is_over = until is not None and parse_timestamp(until) <= datetime.now(UTC)
        except DdbioError:
            raise
        except Exception as error:
            is_told = isinstance(error, BotoCoreError) and not isinstance(error, (HTTPClientError, BotoConnectionError))
            if is_told or (isinstance(error, ClientError) and not may_pass(error)):
                raise
            # A source that is away or busy, whose code would be taken for that of the request that was to be signed;
            # a process or a member that is missing; HTML instead of JSON; a time that is none.
            raise self._failure(f"{type(error).__name__}: {error}") from error
        if is_over:
            raise self._failure(f"they had expired at {until}")
        # What a refresh returns, and botocore's objects for credentials.
        values = found if isinstance(found, dict) else vars(found) if found is not None else {}
        remember_secrets(*(values.get(name) for name in _SECRETS))
        return found

    def _failure(self, reason: str) -> CredentialRetrievalError:
        return CredentialRetrievalError(provider=self.provider, error_msg=reason)


class _Session(botocore.session.Session):
    """A session of botocore whose sources of credentials fail as ``_Fetch`` says, at first and when they refresh.

    Each client that it makes, for STS and SSO too, has an endpoint that ``check_endpoint`` lets pass.
    """

    allow_http = False

    def create_client(self, *args: Any, **kwargs: Any) -> Any:
        """Return a client whose endpoint is checked."""
        client: Any = super().create_client(*args, **kwargs)
        check_endpoint(client.meta.endpoint_url, allow_http=self.allow_http)
        return client

    def get_credentials(self) -> Any:
        """Return the credentials that are found first, or None."""
        found: Any = _Fetch(super().get_credentials, "what is configured")()
        refresh = getattr(found, "_refresh_using", None)
        # botocore returns the same object the next time.
        if refresh is not None and not isinstance(refresh, _Fetch):
            found._refresh_using = _Fetch(refresh, found.method)  # noqa: SLF001 - there is no public way
        return found


def _botocore_session(profile: str | None, region: str | None, *, allow_http: bool = False) -> Any:
    session: Any = _Session(profile=profile)
    session.allow_http = allow_http
    # To know whether a service exists, botocore lists the models of all, which takes longer than to load one.
    session.get_component("data_loader").list_available_services = lambda _: _SERVICES
    if region:
        session.set_config_variable("region", region)
    return session


def _region(session: boto3.Session) -> str | None:
    # boto3 itself ignores AWS_REGION, which all other SDKs, Lambda and EMR use.
    return session.region_name or os.environ.get("AWS_REGION")


class _AssumedRole(CredentialProvider):
    """Provides the credentials of a role.

    Parameters
    ----------
    session
        The session that makes the client of STS.
    source
        The credentials with which the role is assumed.
    more
        Further members of the AssumeRole request.
    """

    METHOD = "assume-role"
    CANONICAL_NAME = "custom-ddbio-role"

    def __init__(self, session: Any, source: Any, role_arn: str, more: dict[str, Any]) -> None:
        super().__init__(session)
        self._role_arn = role_arn
        # The global endpoint serves neither other partitions nor networks that reach only their own region.
        # https://docs.aws.amazon.com/sdkref/latest/guide/feature-sts-regionalized-endpoints.html
        session.set_config_variable("sts_regional_endpoints", "regional")
        region = session.get_config_variable("region") or DEFAULT_REGION
        self._fetch: Any = AssumeRoleCredentialFetcher(
            client_creator=functools.partial(session.create_client, region_name=region),
            source_credentials=source,
            role_arn=role_arn,
            extra_args={"RoleSessionName": f"ddbio-{__version__}", **more},
        ).fetch_credentials

    def load(self) -> Any:
        """Return credentials that are fetched at their first use, and again before they expire."""
        refresh = _Fetch(self._fetch, f"sts:AssumeRole of {self._role_arn}")
        return DeferredRefreshableCredentials(refresh_using=refresh, method=self.METHOD)
