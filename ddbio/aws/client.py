"""AWS clients from a picklable description, one per kind and process, and assumed roles.

A description contains no credentials unless the caller passed some: each process finds its own.
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

# A local fake has no region, but signatures need one.
DEFAULT_REGION = "us-east-1"

# Services that have clients; botocore itself requests credentials from the last four.
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

# Attributes in which botocore keeps the secret parts of credentials.
_SECRETS = ("secret_key", "token", "_secret_key", "_token")

# Visible ASCII characters.
_CREDENTIAL = re.compile(r"[!-~]*")
_PARTS = {"access_key": "access key id", "secret_key": "secret access key", "token": "session token"}
# A session is created once, even if several threads request clients at the same time.
_SESSION_LOCK = threading.Lock()


@dataclass(frozen=True)
class ClientSpec:
    """Picklable description of an AWS client. Equal descriptions share one client in a process."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    role: tuple[tuple[str, Any], ...] = ()
    """Additional members of the AssumeRole request, such as ``("ExternalId", "…")``."""
    members: tuple[tuple[str, Any], ...] = ()
    """Members of every S3 request whose operation accepts them, such as ``("ExpectedBucketOwner", "…")``."""
    members_of_keys: tuple[tuple[str, str, Any], ...] = ()
    """Members of S3 requests whose key starts with a pattern: pattern, member, value."""
    credentials: GivenCredentials | None = None
    """Static credentials, which are pickled with the description."""
    allow_http: bool = False
    """Whether signed requests may be sent unencrypted to hosts other than this machine."""
    session: LocalSession | None = None
    """A session of this process. A description with a session cannot be pickled."""
    timeout_seconds: float | None = None
    """Connect and read timeout of requests without retries; None for the timeouts and retries of jobs."""

    def client(self, service: str, max_pool_connections: int = 10) -> BaseClient:
        """Return this process's client of a service, created at the first call.

        Parameters
        ----------
        service
            Service name in boto3.
        max_pool_connections
            Maximum number of open connections: at least the number of threads that share the client.

        Raises
        ------
        AccessDeniedError
            If the profile or its credentials cannot be used.
        OptionError
            If there is no region, an endpoint is malformed, or it is ``http://`` on another host without
            ``allow_http``.
        """
        return _client(self, service, max_pool_connections, _environment())

    def credential_source(self) -> CredentialSource:
        """Return the source of the credentials and their validity.

        Raises
        ------
        AccessDeniedError
            If there are no credentials.
        """
        try:
            with _SESSION_LOCK:
                credentials = _session(self._identity(), _environment()).get_credentials()
            if credentials is None:
                raise NoCredentialsError
            credentials.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise to_ddbio_error(error, action="requests", resource="AWS") from error
        is_refreshed = isinstance(credentials, RefreshableCredentials) and credentials.method != "env"
        is_temporary = credentials.get_frozen_credentials().token is not None
        return CredentialSource(
            credentials.method, getattr(credentials, "_expiry_time", None), is_refreshed, is_temporary
        )

    def _identity(self) -> ClientSpec:
        """Return the fields that determine a session."""
        return dataclasses.replace(self, endpoint_url=None, members=(), members_of_keys=(), timeout_seconds=None)


@dataclass(frozen=True)
class CredentialSource:
    """Source of credentials, by botocore's name, and their validity."""

    method: str
    expires_at: datetime | None
    """None if the credentials do not expire, or the expiry is unknown."""
    is_refreshed: bool
    """Whether botocore refreshes the credentials before they expire."""
    is_temporary: bool


def _environment() -> frozenset[tuple[str, str]]:
    """Return the variables of AWS. They are part of cache keys, because sessions and clients read them only once."""
    return frozenset(pair for pair in os.environ.items() if pair[0].startswith("AWS_"))


@functools.lru_cache(maxsize=32)
def _client(
    spec: ClientSpec, service: str, max_pool_connections: int, environment: frozenset[tuple[str, str]]
) -> BaseClient:
    # ddbio retries DynamoDB requests page by page. botocore retries S3 requests, always in standard mode.
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
            session = _session(spec._identity(), environment)  # noqa: SLF001 - its own module
        check_credentials(session.get_credentials())
        region = spec.region or _region(session) or (DEFAULT_REGION if spec.endpoint_url else None)
        make: Any = functools.partial(session.client, service, endpoint_url=spec.endpoint_url, region_name=region)
        client = make(config=config)
        chosen = (client.meta.config.s3 or {}).get("addressing_style")
        if service == "s3" and "amazonaws.com" not in client.meta.endpoint_url and chosen not in {"path", "virtual"}:
            # Few S3-compatible stores resolve bucket names as hosts. The profile may allow it.
            client = make(config=config.merge(Config(s3={"addressing_style": "path"})))
    except DdbioError:
        raise
    except (BotoCoreError, ValueError) as error:
        resource = spec.endpoint_url or service
        raise to_ddbio_error(error, action=f"make a client for {service}", resource=resource) from error
    # Clients of a caller's session are not checked yet.
    check_endpoint(client.meta.endpoint_url, allow_http=spec.allow_http)
    if service == "s3" and (spec.members or spec.members_of_keys):
        client.meta.events.register("provide-client-params.s3", functools.partial(_add_members, spec))
    return client  # type: ignore[no-any-return]


def check_endpoint(url: str, *, allow_http: bool) -> None:
    """Check that traffic to an endpoint, including session tokens, is encrypted or stays on this machine.

    Raises
    ------
    OptionError
        If it is ``http://`` on another host and ``allow_http`` is False.
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
    supported = {} if model.input_shape is None else model.input_shape.members
    key = str(params.get("Key", ""))
    of_key = {name: value for pattern, name, value in spec.members_of_keys if re.match(pattern, key)}
    members = {name: value for name, value in {**dict(spec.members), **of_key}.items() if name in supported} | params
    algorithm = members.get("ChecksumAlgorithm")
    if algorithm in CRC_POLYNOMIALS:
        # botocore would require awscrt. For multipart uploads, only the algorithm is declared here.
        if f"Checksum{algorithm}" in supported:
            members[f"Checksum{algorithm}"] = b64encode(checksum(algorithm, members["Body"])).decode()
        elif model.http_checksum:
            del members["ChecksumAlgorithm"]
    return members


def check_credentials(credentials: Any) -> None:
    """Check that static credentials contain no invalid character, such as the line end of a file.

    Raises
    ------
    AccessDeniedError
        If a part has one. The message names the part, but not its value.
    """
    # Other credentials are fetched from a service at their first use.
    if type(credentials) is not Credentials:
        return
    for part in ("access_key", "secret_key", "token"):
        if not _CREDENTIAL.fullmatch(getattr(credentials, part) or ""):
            raise AccessDeniedError(
                f"the {_PARTS[part]} of the AWS credentials (from {credentials.method!r}) contains a blank, a "
                "line end or another invalid character: store it without, as printf writes it and echo does not"
            )


@functools.lru_cache(maxsize=32)
def _session(spec: ClientSpec, environment: frozenset[tuple[str, str]]) -> boto3.Session:
    """Return this process's session of an identity. Its clients share one set of credentials."""
    del environment  # It is only a part of the cache key.
    own: boto3.Session
    if spec.session is not None:
        own = spec.session.session
    else:
        botocore_session = _botocore_session(spec.profile, spec.region, allow_http=spec.allow_http)
        if spec.credentials is not None:
            keys = spec.credentials
            botocore_session.set_credentials(keys.access_key_id, keys.secret_access_key, keys.session_token)
        own = boto3.Session(botocore_session=botocore_session)
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
    """Fetches credentials. Any failure of a source is raised as missing credentials."""

    fetch: Callable[[], Any]
    provider: str

    def __call__(self) -> Any:
        try:
            credentials = self.fetch()
            until = credentials.get("expiry_time") if isinstance(credentials, dict) else None
            is_over = until is not None and parse_timestamp(until) <= datetime.now(UTC)
        except DdbioError:
            raise
        except Exception as error:
            is_told = isinstance(error, BotoCoreError) and not isinstance(error, (HTTPClientError, BotoConnectionError))
            if is_told or (isinstance(error, ClientError) and not may_pass(error)):
                raise
            # The source is unreachable or busy (its error code must not be mistaken for that of the signed request), a
            # process or a member is missing, the response is HTML instead of JSON, or the time is invalid.
            raise self._failure(f"{type(error).__name__}: {error}") from error
        if is_over:
            raise self._failure(f"they had expired at {until}")
        # The result is a dictionary of a refresh, or botocore's credentials object.
        values = credentials if isinstance(credentials, dict) else vars(credentials) if credentials is not None else {}
        remember_secrets(*(values.get(name) for name in _SECRETS))
        return credentials

    def _failure(self, reason: str) -> CredentialRetrievalError:
        return CredentialRetrievalError(provider=self.provider, error_msg=reason)


class _Session(botocore.session.Session):
    """Session of botocore whose credential failures are those of ``_Fetch``, at first use and at a refresh.

    The endpoints of all its clients, including STS and SSO, are checked by ``check_endpoint``.
    """

    allow_http = False

    def create_client(self, *args: Any, **kwargs: Any) -> Any:
        """Return a client with a checked endpoint."""
        client: Any = super().create_client(*args, **kwargs)
        check_endpoint(client.meta.endpoint_url, allow_http=self.allow_http)
        return client

    def get_credentials(self) -> Any:
        """Return the first credentials of the configured sources, or None."""
        credentials: Any = _Fetch(super().get_credentials, "what is configured")()
        refresh = getattr(credentials, "_refresh_using", None)
        # botocore returns the same object at the next call.
        if refresh is not None and not isinstance(refresh, _Fetch):
            credentials._refresh_using = _Fetch(refresh, credentials.method)  # noqa: SLF001 - there is no public way
        return credentials


def _botocore_session(profile: str | None, region: str | None, *, allow_http: bool = False) -> Any:
    session: Any = _Session(profile=profile)
    session.allow_http = allow_http
    # botocore lists the models of all services to check that one exists, which takes longer than loading one model.
    session.get_component("data_loader").list_available_services = lambda _: _SERVICES
    if region:
        session.set_config_variable("region", region)
    return session


def _region(session: boto3.Session) -> str | None:
    # boto3 ignores AWS_REGION, which all other SDKs, Lambda and EMR read.
    return session.region_name or os.environ.get("AWS_REGION")


class _AssumedRole(CredentialProvider):
    """Credential provider of an assumed role.

    Parameters
    ----------
    session
        The session that creates the client of STS.
    source
        The credentials that assume the role.
    more
        Additional members of the AssumeRole request.
    """

    METHOD = "assume-role"
    CANONICAL_NAME = "custom-ddbio-role"

    def __init__(self, session: Any, source: Any, role_arn: str, more: dict[str, Any]) -> None:
        super().__init__(session)
        self._role_arn = role_arn
        # The global endpoint serves neither other partitions nor networks that reach only their region.
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
        """Return credentials that are fetched at their first use and refreshed before they expire."""
        refresh = _Fetch(self._fetch, f"sts:AssumeRole of {self._role_arn}")
        return DeferredRefreshableCredentials(refresh_using=refresh, method=self.METHOD)
