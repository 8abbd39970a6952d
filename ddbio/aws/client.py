"""Make AWS clients from a picklable recipe, one per process; hold no credential."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError

from ddbio.aws.failure import to_ddbio_error
from ddbio.version import __version__

if TYPE_CHECKING:
    from botocore.client import BaseClient

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 30.0

# A stand-in on this machine has no region of its own; every SDK needs one to sign.
DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True)
class ClientSpec:
    """Describe an AWS client so that a worker can make its own; equal specs share one client per process."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None

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
        session = boto3.Session(botocore_session=_session(spec))
        # boto3 itself passes over AWS_REGION, which every other SDK, Lambda and EMR go by.
        region = session.region_name or os.environ.get("AWS_REGION") or (DEFAULT_REGION if spec.endpoint_url else None)
        make: Any = functools.partial(session.client, service, endpoint_url=spec.endpoint_url, region_name=region)
        client = make(config=config)
        if service == "s3" and "amazonaws.com" not in client.meta.endpoint_url:
            # Stand-ins rarely resolve bucket names as hosts.
            client = make(config=config.merge(Config(s3={"addressing_style": "path"})))
    except (BotoCoreError, ValueError) as error:
        resource = spec.endpoint_url or service
        raise to_ddbio_error(error, action=f"make a client for {service}", resource=resource) from error
    return client  # type: ignore[no-any-return]


def _session(spec: ClientSpec) -> botocore.session.Session:
    session: Any = botocore.session.Session(profile=spec.profile)
    if spec.region:
        session.set_config_variable("region", spec.region)
    if spec.role_arn:
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=session.create_client,
            source_credentials=session.get_credentials(),
            role_arn=spec.role_arn,
            extra_args={"RoleSessionName": "ddbio"},
        )
        # botocore offers no public way to give a session refreshable credentials.
        session._credentials = DeferredRefreshableCredentials(  # noqa: SLF001
            refresh_using=fetcher.fetch_credentials, method="assume-role"
        )
    return session  # type: ignore[no-any-return]
