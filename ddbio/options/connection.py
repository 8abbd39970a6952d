"""Options that choose the endpoint, region and identity with which a verb calls AWS."""

from __future__ import annotations

from dataclasses import dataclass as plain_dataclass
from dataclasses import field, fields
from typing import Annotated, Any, NoReturn

from pydantic import BeforeValidator, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.errors import OptionError
from ddbio.options.parsing import CONFIG


@plain_dataclass(frozen=True)
class Credentials:
    """Keys of an AWS identity, as they are: nothing refreshes them. They travel to Spark workers."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


class LocalSession:
    """A ``boto3.Session`` that is used in this process and never leaves it."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def __reduce__(self) -> NoReturn:
        """Refuse to travel: a session may hold credentials that nobody meant to send."""
        raise OptionError(
            "session stays in this process, and Spark workers cannot use it: give profile or role_arn, or credentials, "
            "which travel to the workers"
        )


def _as_session(value: Any) -> Any:
    if value is None or isinstance(value, LocalSession):
        return value
    if not (hasattr(value, "get_credentials") and hasattr(value, "client")):
        raise ValueError("give a boto3.Session")
    return LocalSession(value)


def _as_credentials(value: Any) -> Any:
    # Those of botocore: of a session, or frozen ones.
    if hasattr(value, "get_frozen_credentials"):
        value = value.get_frozen_credentials()
    if all(hasattr(value, name) for name in ("access_key", "secret_key", "token")):
        return Credentials(value.access_key, value.secret_key, value.token)
    return value


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ConnectionOptions:
    """Choose the endpoint, region and identity; what is left out comes from boto3's default chain."""

    endpoint_url: str | None = None
    """Endpoint of DynamoDB, for example that of a local fake."""
    region: str | None = None
    """AWS region of the table."""
    profile: str | None = None
    """Named profile of the shared AWS configuration."""
    session: Annotated[LocalSession | None, BeforeValidator(_as_session), Field(repr=False)] = None
    """A ``boto3.Session`` to use instead of the default chain; Python only, and not for Spark workers."""
    credentials: Annotated[Credentials | None, BeforeValidator(_as_credentials), Field(repr=False)] = None
    """``Credentials``, or those of botocore, to use as they are; Python only. They travel to Spark workers."""
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

    @model_validator(mode="after")
    def _check_identity(self) -> ConnectionOptions:
        given = [name for name in ("profile", "session", "credentials") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give {given[0]} or {given[1]}, not both")
        return self


def connection_of(options: ConnectionOptions) -> dict[str, Any]:
    """Return only the connection options, by name, for use with another verb."""
    return {field.name: getattr(options, field.name) for field in fields(ConnectionOptions)}


def target_connection_of(options: ConnectionOptions) -> ConnectionOptions:
    """Return the connection to the target of a verb: that of the source but for the options ``target_…``."""
    own = connection_of(options)
    given = {name: getattr(options, f"target_{name}", None) for name in own}
    if given["role_arn"] is not None:
        # Another role has an external id of its own, or none.
        own["external_id"] = None
    if given["profile"] is not None:
        own |= {"session": None, "credentials": None}
    return ConnectionOptions(**own | {name: value for name, value in given.items() if value is not None})
