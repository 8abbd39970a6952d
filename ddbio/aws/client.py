"""Make AWS clients from a picklable recipe, one per process; hold no credential."""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError, NoCredentialsError

from ddbio.aws.error_codes import may_pass, to_ddbio_error
from ddbio.version import __version__

if TYPE_CHECKING:
    from botocore.client import BaseClient

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 30.0

# A stand-in on this machine has no region of its own; every SDK needs one to sign.
DEFAULT_REGION = "us-east-1"

# A session is made once, also where threads ask for their clients at the same time.
_MAKING = threading.Lock()


@dataclass(frozen=True)
class ClientSpec:
    """Describe an AWS client so that a worker can make its own; equal specs share one client per process."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    role: tuple[tuple[str, Any], ...] = ()
    """More members of the AssumeRole request, like ``("ExternalId", "…")``."""

    def client(self, service: str, max_pool_connections: int = 10) -> BaseClient:
        """Return this process's client for a service, made at the first call.

        Parameters
        ----------
        service
            Service name as boto3 spells it.
        max_pool_connections
            Connections kept open: at least the number of threads that share the client.

        Raises
        ------
        AccessDeniedError
            If the profile or its credentials cannot be used.
        OptionError
            If no region is known, or an endpoint is malformed.
        """
        return _client(self, service, max_pool_connections)


@functools.lru_cache(maxsize=32)
def _client(spec: ClientSpec, service: str, max_pool_connections: int) -> BaseClient:
    # DynamoDB's retries are ours, page by page; S3's are botocore's standard mode, stated because its defaults change.
    attempts = 1 if service == "dynamodb" else 5
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=READ_TIMEOUT_SECONDS,
        max_pool_connections=max_pool_connections,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        tcp_keepalive=True,
        user_agent_extra=f"ddbio/{__version__}",
    )
    try:
        with _MAKING:
            environment = frozenset(pair for pair in os.environ.items() if pair[0].startswith("AWS_"))
            session = _session(dataclasses.replace(spec, endpoint_url=None), environment)
        region = _region(session) or (DEFAULT_REGION if spec.endpoint_url else None)
        make: Any = functools.partial(session.client, service, endpoint_url=spec.endpoint_url, region_name=region)
        client = make(config=config)
        if service == "s3" and "amazonaws.com" not in client.meta.endpoint_url:
            # Stand-ins rarely resolve bucket names as hosts.
            client = make(config=config.merge(Config(s3={"addressing_style": "path"})))
    except (BotoCoreError, ValueError) as error:
        resource = spec.endpoint_url or service
        raise to_ddbio_error(error, action=f"make a client for {service}", resource=resource) from error
    return client  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=32)
def _session(spec: ClientSpec, environment: frozenset[tuple[str, str]]) -> boto3.Session:
    """Return this process's session of an identity: one set of credentials serves all its clients."""
    # It is part of the key: what a session takes from the variables it takes once.
    del environment
    session: Any = botocore.session.Session(profile=spec.profile)
    if spec.region:
        session.set_config_variable("region", spec.region)
    if spec.role_arn:
        # The global endpoint is no place for other partitions, nor for networks that reach their own region only.
        # https://docs.aws.amazon.com/sdkref/latest/guide/feature-sts-regionalized-endpoints.html
        session.set_config_variable("sts_regional_endpoints", "regional")
        region = session.get_config_variable("region") or os.environ.get("AWS_REGION") or DEFAULT_REGION
        # botocore offers no public way to give a session refreshable credentials.
        session._credentials = DeferredRefreshableCredentials(  # noqa: SLF001
            refresh_using=_AssumeRole(session, region, spec.role_arn, dict(spec.role)), method="assume-role"
        )
    return boto3.Session(botocore_session=session)


def _region(session: boto3.Session) -> str | None:
    # boto3 itself passes over AWS_REGION, which every other SDK, Lambda and EMR go by.
    return session.region_name or os.environ.get("AWS_REGION")


class _AssumeRole:
    """Fetch a role's credentials; whether another try may help is for whoever asks."""

    def __init__(self, session: Any, region: str, role_arn: str, more: dict[str, Any]) -> None:
        self._role_arn = role_arn
        source = session.get_credentials()
        if source is None:
            raise NoCredentialsError
        self._fetch: Any = AssumeRoleCredentialFetcher(
            client_creator=functools.partial(session.create_client, region_name=region),
            source_credentials=source,
            role_arn=role_arn,
            extra_args={"RoleSessionName": f"ddbio-{__version__}", **more},
        ).fetch_credentials

    def __call__(self) -> Any:
        try:
            return self._fetch()
        except ClientError as error:
            if may_pass(error):
                # Its code would be taken for one of the request that was to be signed.
                raise CredentialRetrievalError(
                    provider=f"sts:AssumeRole of {self._role_arn}", error_msg=str(error)
                ) from error
            raise
