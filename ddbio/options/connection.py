"""Endpoint, region and identity of calls to AWS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, fields
from typing import Annotated, Any, ClassVar, Literal, NoReturn
from urllib.parse import parse_qsl, urlencode

from pydantic import AwareDatetime, BeforeValidator, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.errors import OptionError
from ddbio.options.parsing import ALL, CONFIG


@plain_dataclass(frozen=True)
class Credentials:
    """Keys of an AWS identity. They are not refreshed, and are sent to Spark workers."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


class LocalSession:
    """A ``boto3.Session`` that stays in this process."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def __reduce__(self) -> NoReturn:
        """Raise: a session may have credentials that must not be sent to workers."""
        raise OptionError(
            "session stays in this process, and Spark workers cannot use it: give profile or role_arn, or credentials, "
            "which are sent to the workers"
        )


# https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html
_STORAGE_CLASSES = (
    "^(STANDARD|STANDARD_IA|ONEZONE_IA|INTELLIGENT_TIERING|GLACIER_IR|GLACIER|DEEP_ARCHIVE|REDUCED_REDUNDANCY|OUTPOSTS|"
    "SNOW|EXPRESS_ONEZONE)$"
)


_CANNED_ACLS = (
    "^(private|public-read|public-read-write|authenticated-read|aws-exec-read|bucket-owner-read|"
    "bucket-owner-full-control)$"
)


# https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-tagging.html
_MAX_TAGS = 10


def _as_tags(value: Any) -> Any:
    """Return tags as S3 expects them, from text or a mapping."""
    if not isinstance(value, str | Mapping):
        return value
    try:
        pairs = (
            [*value.items()]
            if isinstance(value, Mapping)
            else parse_qsl(value, keep_blank_values=True, strict_parsing=True)
        )
    except ValueError:
        pairs = []
    if not 0 < len(pairs) <= _MAX_TAGS:
        raise ValueError("tags are written NAME=VALUE&NAME=VALUE, at most ten")
    return urlencode(pairs)


def _as_session(value: Any) -> Any:
    if value is None or isinstance(value, LocalSession):
        return value
    if not (hasattr(value, "get_credentials") and hasattr(value, "client")):
        raise ValueError("give a boto3.Session")
    return LocalSession(value)


def _as_credentials(value: Any) -> Any:
    # Credentials of botocore: of a session, or frozen.
    if hasattr(value, "get_frozen_credentials"):
        value = value.get_frozen_credentials()
    if all(hasattr(value, name) for name in ("access_key", "secret_key", "token")):
        return Credentials(value.access_key, value.secret_key, value.token)
    return value


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ConnectionOptions:
    """Endpoint, region and identity. Unset options come from boto3's default chain."""

    CHANGEABLE: ClassVar = ALL

    endpoint_url: str | None = None
    """DynamoDB endpoint, for example of a local fake."""
    region: str | None = None
    """AWS region of the table."""
    profile: str | None = None
    """Named profile of the shared AWS configuration."""
    session: Annotated[LocalSession | None, BeforeValidator(_as_session), Field(repr=False)] = None
    """``boto3.Session`` (Python only, not for Spark workers)."""
    credentials: Annotated[Credentials | None, BeforeValidator(_as_credentials), Field(repr=False)] = None
    """``Credentials`` or botocore credentials (Python only), sent to Spark workers and not refreshed."""
    role_arn: str | None = None
    """Role to assume. Its credentials are refreshed."""
    external_id: str | None = None
    """External ID that the role's trust policy requires."""
    role_session_name: Annotated[str, Field(pattern=r"^[\w+=,.@-]{2,64}$")] | None = None
    """Session name of the role in CloudTrail. Default: ddbio and its version."""
    role_duration_seconds: Annotated[int, Field(ge=900, le=43_200)] | None = None
    """Lifetime of the role's credentials. Default: one hour."""
    source_identity: Annotated[str, Field(pattern=r"^[\w+=,.@-]{2,64}$")] | None = None
    """Source identity of the role session, kept through role chaining."""
    s3_endpoint_url: str | None = None
    """S3 endpoint. The environment variable AWS_ENDPOINT_URL_S3 also sets it."""
    s3_sse_kms_key_id: str | None = None
    """KMS key for objects written to S3 (ARN or ``aws/s3``). Default: the bucket's encryption setting."""
    s3_sse: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = None
    """Encryption of written objects. Default: ``aws:kms`` with a key, else the bucket's setting."""
    s3_bucket_key: bool | None = None
    """Use an S3 Bucket Key, which needs fewer KMS requests."""
    s3_storage_class: Annotated[str, Field(pattern=_STORAGE_CLASSES)] | None = None
    """Storage class of data files and rejected rows. Job objects stay in STANDARD."""
    s3_tags: Annotated[str, BeforeValidator(_as_tags)] | None = None
    """Tags of written objects, at most ten: ``team=data&stage=raw``."""
    s3_acl: Annotated[str, Field(pattern=_CANNED_ACLS)] | None = None
    """Canned ACL of written objects."""
    s3_checksum: Literal["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"] | None = None
    """Checksum sent with each object and kept by S3. Default: CRC32."""
    s3_object_lock_mode: Literal["GOVERNANCE", "COMPLIANCE"] | None = None
    """Object Lock mode of data files, manifests, snapshots and rejected rows. Needs ``s3_object_lock_until``."""
    s3_object_lock_until: AwareDatetime | None = None
    """End of the retention (with time zone)."""
    s3_object_lock_legal_hold: bool = False
    """Put a legal hold on the same objects."""
    s3_requester_pays: bool = False
    """Pay for requests to Requester Pays buckets."""
    s3_expected_bucket_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account that must own every bucket. S3 refuses other buckets."""
    allow_http: bool = False
    """Allow unencrypted ``http://`` endpoints on other machines."""
    deadline_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Fail if no request succeeds for this time."""

    @model_validator(mode="after")
    def _check_identity(self) -> ConnectionOptions:
        names = [name for name in ("profile", "session", "credentials") if getattr(self, name) is not None]
        if len(names) > 1:
            raise ValueError(f"give {names[0]} or {names[1]}, not both")
        return self

    @model_validator(mode="after")
    def _check_objects(self) -> ConnectionOptions:
        if self.s3_sse == "AES256" and (self.s3_sse_kms_key_id or self.s3_bucket_key):
            raise ValueError("s3_sse=AES256 uses no KMS key: leave s3_sse_kms_key_id and s3_bucket_key out")
        if self.s3_sse == "aws:kms:dsse" and self.s3_bucket_key:
            raise ValueError("s3_sse=aws:kms:dsse works without bucket keys: leave s3_bucket_key out")
        if (self.s3_object_lock_mode is None) != (self.s3_object_lock_until is None):
            raise ValueError("s3_object_lock_mode and s3_object_lock_until belong together: give both or neither")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class WaitPolicyOptions(ConnectionOptions):
    """Waiting time for a job of the service."""

    wait_seconds: Annotated[float, Field(gt=0)] = 24 * 3600.0
    """Maximum waiting time. The service's job continues."""
    poll_seconds: Annotated[float, Field(gt=0)] = 20.0
    """Longest pause between status requests."""


def connection_of(options: ConnectionOptions) -> dict[str, Any]:
    """Return the connection options by name, for use with another verb."""
    return {field.name: getattr(options, field.name) for field in fields(ConnectionOptions)}


OBJECT_OPTIONS = ("s3_tags", "s3_acl", "s3_storage_class", "s3_object_lock_mode", "s3_object_lock_legal_hold")
"""Options of objects that DynamoDB's own exports do not support."""


def export_connection_of(options: ConnectionOptions) -> dict[str, Any]:
    """Return the connection options for an export that a verb requests. DynamoDB cannot tag or lock its files."""
    left_out = {*OBJECT_OPTIONS, "s3_object_lock_until"}
    return {name: value for name, value in connection_of(options).items() if name not in left_out}


def target_connection_of(options: ConnectionOptions) -> ConnectionOptions:
    """Return the connection to the target of a verb: the source's connection, with the options ``target_…``."""
    own = connection_of(options)
    target = {name: getattr(options, f"target_{name}", None) for name in own}
    if target["role_arn"] is not None:
        # The external ID of the source's role does not apply to another role.
        own["external_id"] = None
    if target["profile"] is not None:
        own |= {"session": None, "credentials": None}
    return ConnectionOptions(**own | {name: value for name, value in target.items() if value is not None})


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CatalogConnectionOptions(ConnectionOptions):
    """Endpoint of the catalog."""

    CHANGEABLE: ClassVar = ALL

    glue_endpoint_url: str | None = None
    """Glue endpoint. The environment variable AWS_ENDPOINT_URL_GLUE also sets it."""
