"""Options that choose the endpoint, region and identity with which a verb calls AWS."""

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
_MOST_TAGS = 10


def _as_tags(value: Any) -> Any:
    """Return tags as S3 takes them, from their text or a mapping."""
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
    if not 0 < len(pairs) <= _MOST_TAGS:
        raise ValueError("tags are written NAME=VALUE&NAME=VALUE, at most ten")
    return urlencode(pairs)


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

    CHANGEABLE: ClassVar = ALL

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
    s3_sse: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = None
    """How S3 encrypts what is written; ``aws:kms`` if a key is given, else the bucket's way."""
    s3_bucket_key: bool | None = None
    """Encrypt by a key of the bucket that the KMS key encrypts, which costs fewer requests to KMS."""
    s3_storage_class: Annotated[str, Field(pattern=_STORAGE_CLASSES)] | None = None
    """Storage class of data files and rejected rows; the small objects of jobs stay in the standard class."""
    s3_tags: Annotated[str, BeforeValidator(_as_tags)] | None = None
    """Tags of every object that is written, at most ten: ``team=data&stage=raw``."""
    s3_acl: Annotated[str, Field(pattern=_CANNED_ACLS)] | None = None
    """Canned ACL of every object that is written."""
    s3_checksum: Literal["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"] | None = None
    """Checksum that is sent with all bytes and kept by S3; default is CRC32."""
    s3_object_lock_mode: Literal["GOVERNANCE", "COMPLIANCE"] | None = None
    """How data files, manifests, snapshots and rejected rows are locked; needs ``s3_object_lock_until``."""
    s3_object_lock_until: AwareDatetime | None = None
    """Time, with its zone, until which they are locked."""
    s3_object_lock_legal_hold: bool = False
    """Lock them until the hold is taken off."""
    s3_requester_pays: bool = False
    """Agree to pay for the requests to buckets whose owners have the requester pay."""
    s3_expected_bucket_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account that must own every bucket that is read or written; S3 refuses requests to buckets of others."""
    allow_http: bool = False
    """Send credentials and data unencrypted to ``http://`` endpoints other than this machine's own."""
    deadline_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Give up if throttling or an unreachable endpoint has let no request through for this long."""

    @model_validator(mode="after")
    def _check_identity(self) -> ConnectionOptions:
        given = [name for name in ("profile", "session", "credentials") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give {given[0]} or {given[1]}, not both")
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
    """Choose how long a job of the service is awaited."""

    wait_seconds: Annotated[float, Field(gt=0)] = 24 * 3600.0
    """Stop waiting after this long; the job itself continues."""
    poll_seconds: Annotated[float, Field(gt=0)] = 20.0
    """Longest pause between two status requests; the first pauses are shorter."""


def connection_of(options: ConnectionOptions) -> dict[str, Any]:
    """Return only the connection options, by name, for use with another verb."""
    return {field.name: getattr(options, field.name) for field in fields(ConnectionOptions)}


OBJECT_OPTIONS = ("s3_tags", "s3_acl", "s3_storage_class", "s3_object_lock_mode", "s3_object_lock_legal_hold")
"""Options of objects that DynamoDB has no parameters for where it writes objects itself."""


def export_connection_of(options: ConnectionOptions) -> dict[str, Any]:
    """Return the connection options for an export that a verb asks for: DynamoDB cannot tag or lock its files."""
    left_out = {*OBJECT_OPTIONS, "s3_object_lock_until"}
    return {name: value for name, value in connection_of(options).items() if name not in left_out}


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


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CatalogConnectionOptions(ConnectionOptions):
    """Choose the endpoint of the catalog."""

    CHANGEABLE: ClassVar = ALL

    glue_endpoint_url: str | None = None
    """Endpoint of Glue; the environment variable AWS_ENDPOINT_URL_GLUE works as well."""
