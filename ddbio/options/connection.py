"""Say which endpoint, region and identity a verb uses."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.parsing import CONFIG


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ConnectionOptions:
    """Say which AWS endpoint, region and identity a verb uses; everything left out is boto3's own default chain."""

    endpoint_url: str | None = None
    """Endpoint of DynamoDB, for example of a local stand-in."""
    region: str | None = None
    """AWS region of the table."""
    profile: str | None = None
    """Named profile of the shared AWS configuration."""
    role_arn: str | None = None
    """Role to assume before any call; refreshed by botocore before it expires."""
    external_id: str | None = None
    """External id that the role's trust policy asks for."""
    role_session_name: Annotated[str, Field(pattern=r"^[\w+=,.@-]{2,64}$")] | None = None
    """Name of the role's session, by which CloudTrail tells jobs apart; default is ddbio and its version."""
    role_duration_seconds: Annotated[int, Field(ge=900, le=43_200)] | None = None
    """How long the role's credentials are valid before they are refreshed; default is the service's hour."""
    source_identity: Annotated[str, Field(pattern=r"^[\w+=,.@-]{2,64}$")] | None = None
    """Source identity of the role's session, which CloudTrail keeps through further roles."""
    s3_endpoint_url: str | None = None
    """Endpoint of S3; the AWS_ENDPOINT_URL_S3 variable serves as well."""
    deadline_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Give up when throttling or an unreachable endpoint let nothing through for this long."""


def connection_of(options: ConnectionOptions) -> dict[str, Any]:
    """Return the options of the connection alone, by name, to give them to another verb."""
    return {field.name: getattr(options, field.name) for field in fields(ConnectionOptions)}
