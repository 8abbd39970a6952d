"""Descriptions of the clients of AWS services for the options of a verb. Imports nothing that reads data."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ddbio.aws.client import ClientSpec
from ddbio.storage.meta import META

if TYPE_CHECKING:
    from ddbio.advice.options import MetricsConnectionOptions, PricesRefreshOptions
    from ddbio.options import CatalogConnectionOptions, ConnectionOptions

# Patterns of data keys (without the metadata of lake tables) and of permanent objects (without claims and intents).
_LAKE = r"_delta_log/|\.hoodie/|metadata/(?:[^/]+\.(?:metadata\.json|avro)$|version-hint\.text$)"
_DATA = rf"(?!(?:.*/)?(?:{META}|{_LAKE}))"
_KEPT = rf"(?!(?:.*/)?{META}(?!snapshots/|[^./]+\.json$))"


def dynamodb_spec(options: ConnectionOptions) -> ClientSpec:
    """Return the description of the DynamoDB client for these options."""
    return _spec(options, options.endpoint_url)


def s3_spec(options: ConnectionOptions) -> ClientSpec:
    """Return the description of the S3 client for these options."""
    spec = _spec(options, options.s3_endpoint_url)
    return dataclasses.replace(spec, members=_s3(options), members_of_keys=_s3_kept(options))


def identity_spec(options: ConnectionOptions) -> ClientSpec:
    """Return the description of the STS client for these options."""
    return _spec(options, None)


def catalog_spec(options: CatalogConnectionOptions) -> ClientSpec:
    """Return the description of the Glue client for these options."""
    return _spec(options, options.glue_endpoint_url)


def metrics_spec(options: MetricsConnectionOptions) -> ClientSpec:
    """Return the description of the CloudWatch client for these options."""
    return _spec(options, options.cloudwatch_endpoint_url)


def price_list_spec(options: PricesRefreshOptions) -> ClientSpec:
    """Return the description of the Price List client. The Price List is available in few regions."""
    return dataclasses.replace(_spec(options, options.pricing_endpoint_url), region="us-east-1")


def _spec(options: ConnectionOptions, endpoint_url: str | None) -> ClientSpec:
    return ClientSpec(
        endpoint_url=endpoint_url,
        region=options.region,
        profile=options.profile,
        role_arn=options.role_arn,
        role=_role(options),
        credentials=options.credentials,
        allow_http=options.allow_http,
        session=options.session,
    )


def _role(options: ConnectionOptions) -> tuple[tuple[str, Any], ...]:
    """Return the parameters of AssumeRole other than the role, by the service's names."""
    parameters = {
        "ExternalId": options.external_id,
        "RoleSessionName": options.role_session_name,
        "DurationSeconds": options.role_duration_seconds,
        "SourceIdentity": options.source_identity,
    }
    return tuple((name, value) for name, value in parameters.items() if value is not None)


def _s3(options: ConnectionOptions) -> tuple[tuple[str, Any], ...]:
    """Return the members of S3 requests for these options, by the service's names."""
    key = options.s3_sse_kms_key_id
    members = {
        "ExpectedBucketOwner": options.s3_expected_bucket_owner,
        "ServerSideEncryption": options.s3_sse or (None if key is None else "aws:kms"),
        # https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html: without a key, the AWS managed
        # key.
        "SSEKMSKeyId": None if key == "aws/s3" else key,
        "BucketKeyEnabled": options.s3_bucket_key,
        "Tagging": options.s3_tags,
        "ACL": options.s3_acl,
        "ChecksumAlgorithm": options.s3_checksum,
        "RequestPayer": "requester" if options.s3_requester_pays else None,
    }
    return tuple((name, value) for name, value in members.items() if value is not None)


def _s3_kept(options: ConnectionOptions) -> tuple[tuple[str, str, Any], ...]:
    """Return the members of requests that write permanent objects, each with the pattern of its keys."""
    members = [
        (_DATA, "StorageClass", options.s3_storage_class),
        (_KEPT, "ObjectLockMode", options.s3_object_lock_mode),
        (_KEPT, "ObjectLockRetainUntilDate", options.s3_object_lock_until),
        (_KEPT, "ObjectLockLegalHoldStatus", "ON" if options.s3_object_lock_legal_hold else None),
    ]
    return tuple(member for member in members if member[2] is not None)
