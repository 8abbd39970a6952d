"""Options that choose the endpoint, region and identity with which a verb calls AWS."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.parsing import CONFIG


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ConnectionOptions:
    """Choose the endpoint, region and identity; what is left out comes from boto3's default chain."""

    endpoint_url: str | None = None
    """Endpoint of DynamoDB, for example that of a local fake."""
    region: str | None = None
    """AWS region of the table."""
    profile: str | None = None
    """Named profile of the shared AWS configuration."""
    role_arn: str | None = None
    """Role to assume before the first call; botocore refreshes its credentials before they expire."""
    external_id: str | None = None
    """External id that the role's trust policy requires."""
    role_session_name: Annotated[str, Field(pattern=r"^[\w+=,.@-]{2,64}$")] | None = None
    """Name of the role's session, by which CloudTrail tells jobs apart; default is ddbio and its version."""
    role_duration_seconds: Annotated[int, Field(ge=900, le=43_200)] | None = None
    """How long the role's credentials are valid before they are refreshed; default is the service's one hour."""
    source_identity: Annotated[str, Field(pattern=r"^[\w+=,.@-]{2,64}$")] | None = None
    """Source identity of the role's session, which CloudTrail keeps through role chaining."""
    s3_endpoint_url: str | None = None
    """Endpoint of S3; the environment variable AWS_ENDPOINT_URL_S3 works as well."""
    s3_sse_kms_key_id: str | None = None
    """KMS key that encrypts what is written to S3: its ARN, or ``aws/s3`` for S3's own; default is the bucket's way."""
    s3_expected_bucket_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account that must own every bucket that is read or written; S3 refuses requests to buckets of others."""
    deadline_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Give up if throttling or an unreachable endpoint has let no request through for this long."""


def connection_of(options: ConnectionOptions) -> dict[str, Any]:
    """Return only the connection options, by name, for use with another verb."""
    return {field.name: getattr(options, field.name) for field in fields(ConnectionOptions)}
