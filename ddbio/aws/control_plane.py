"""Calls of control planes: describe, create and configure tables, and query the AWS Price List.

A call is retried if the endpoint fails or throttles, unless a repetition could do harm.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import botocore
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from ddbio.aws.error_codes import error_code, may_pass, to_ddbio_error
from ddbio.aws.table_description import (
    IndexDescription,
    IndexKey,
    RecoveryDescription,
    TableDescription,
    VectorIndexDescription,
)
from ddbio.errors import NotFoundError, ServiceError
from ddbio.retrying import retrying

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddbio.aws.client import ClientSpec
    from ddbio.jobs.price_list import PriceQuery

_ATTEMPTS = 4
_BASE_SECONDS = 1.0
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys
_MAX_KEY_BYTES = {"HASH": 2048, "RANGE": 1024}
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateContinuousBackups.html
_RECOVERY_NOT_READY = "ContinuousBackupsUnavailableException"
_RECOVERY_POLL_SECONDS = 2.0
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_GetResourcePolicy.html
_NO_POLICY = "PolicyNotFoundException"

# Permissions whose names differ from the operation.
_PERMISSIONS = {
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "s3:GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
    "s3:GetObjectLockConfiguration": "s3:GetBucketObjectLockConfiguration",
    "s3:GetPublicAccessBlock": "s3:GetBucketPublicAccessBlock",
    "s3:HeadBucket": "s3:ListBucket",
}


def call(
    spec: ClientSpec,
    operation: str,
    resource: str,
    members: dict[str, Any],
    *,
    idempotent: bool = True,
    service: str = "dynamodb",
) -> Any:
    """Call an operation and return its response. Retry it if the endpoint fails or throttles.

    Parameters
    ----------
    operation
        Name of the operation, such as ``DescribeTable``.
    resource
        Target of the operation, for error messages.
    members
        The members of the request.
    idempotent
        Whether the operation is safe to repeat.
    service
        Service name in boto3.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        With the action, the resource and advice.
    """
    client: Any = spec.client(service)
    where = f"{resource} ({client.meta.region_name}, {client.meta.endpoint_url})"
    method = getattr(client, xform_name(operation), None)
    if method is None:
        raise ServiceError(
            f"botocore {botocore.__version__} does not know {service}:{operation}: install a newer boto3"
        )
    attempts = _ATTEMPTS if idempotent else 1
    try:
        return retrying(partial(method, **members), on=may_pass, attempts=attempts, base_seconds=_BASE_SECONDS)
    except (BotoCoreError, ClientError) as error:
        action = f"{service}:{operation}"
        raise to_ddbio_error(error, action=_PERMISSIONS.get(action, action), resource=where) from error


def list_pages(
    spec: ClientSpec,
    operation: str,
    resource: str,
    members: dict[str, Any],
    tokens: Sequence[str] = ("NextToken",),
    service: str = "dynamodb",
) -> Iterator[Any]:
    """Yield the responses of all pages of a listing.

    Parameters
    ----------
    tokens
        The response member with the token of the next page, and the request member if its name differs.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`call`.
    """
    while True:
        reply = call(spec, operation, resource, members, service=service)
        yield reply
        if not reply.get(tokens[0]):
            return
        members = {**members, tokens[-1]: reply[tokens[0]]}


def time_text(at: datetime | None) -> str | None:
    """Return a time of a response as ISO 8601."""
    return None if at is None else at.isoformat()


def describe_table(spec: ClientSpec, table: str) -> TableDescription:
    """Return the description of a table by DescribeTable.

    Raises
    ------
    NotFoundError
        If the table does not exist in that region.
    AccessDeniedError
        If credentials are missing or lack ``dynamodb:DescribeTable``.
    EndpointError
        If the endpoint does not respond.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_DescribeTable.html
    """
    return parse_table_description(call(spec, "DescribeTable", f"table {table!r}", {"TableName": table}))


def parse_table_description(described: Mapping[str, Any]) -> TableDescription:
    """Parse a table description: the response of DescribeTable, or its ``Table`` member.

    Raises
    ------
    KeyError, TypeError
        If it is not a table description.
    """
    table = described.get("Table", described)
    types = {
        definition["AttributeName"]: definition["AttributeType"] for definition in table.get("AttributeDefinitions", [])
    }
    keys = tuple((name, types[name]) for name in _key_names(table))
    on_demand = table.get("BillingModeSummary", {}).get("BillingMode") == "PAY_PER_REQUEST"
    indexes = [_index(index, types, is_global=True) for index in table.get("GlobalSecondaryIndexes", [])]
    indexes += [_index(index, types, is_global=False) for index in table.get("LocalSecondaryIndexes", [])]
    return TableDescription(
        name=table["TableName"],
        arn=table.get("TableArn", table["TableName"]),
        table_id=table.get("TableId", ""),
        status=table.get("TableStatus", "ACTIVE"),
        key_types=keys,
        item_count=int(table.get("ItemCount", 0)),
        size_bytes=int(table.get("TableSizeBytes", 0)),
        on_demand=on_demand,
        rcu=_rcu(table),
        wcu=_wcu(table),
        indexes=tuple(indexes),
        warm_wcu=table.get("WarmThroughput", {}).get("WriteUnitsPerSecond"),
        warm_rcu=table.get("WarmThroughput", {}).get("ReadUnitsPerSecond"),
        idle_seconds=_age_seconds(table.get("CreationDateTime")),
        infrequent_access=table.get("TableClassSummary", {}).get("TableClass") == "STANDARD_INFREQUENT_ACCESS",
        vector_indexes=tuple(_vector_index(index, types) for index in table.get("VectorIndexes", [])),
    )


def shows_vector_indexes(spec: ClientSpec) -> bool:
    """Return whether the installed botocore shows vector indexes in the responses of DescribeTable."""
    client: Any = spec.client("dynamodb")
    return "VectorIndexes" in client.meta.service_model.shape_for("TableDescription").members


def read_table_definition(spec: ClientSpec, table: str) -> tuple[dict[str, Any], str | None]:
    """Return the unchanged ``Table`` of DescribeTable, and the time-to-live attribute if there is one.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`call`.
    """
    members = {"TableName": table}
    described = call(spec, "DescribeTable", f"table {table!r}", members)["Table"]
    expiry = call(spec, "DescribeTimeToLive", f"table {table!r}", members)["TimeToLiveDescription"]
    enabled = expiry.get("TimeToLiveStatus") in {"ENABLED", "ENABLING"}
    return described, expiry.get("AttributeName") if enabled else None


def create_table(spec: ClientSpec, request: dict[str, Any]) -> None:
    """Create a table with a CreateTable request. Return before it is ACTIVE.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`call`.
    """
    call(spec, "CreateTable", f"table {request['TableName']!r}", request, idempotent=False)


def read_tags(spec: ClientSpec, arn: str) -> list[dict[str, str]]:
    """Return the tags of a table, as members of a CreateTable request. Tags of AWS (``aws:…``) cannot be set.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`call`.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ListTagsOfResource.html
    """
    pages = list_pages(spec, "ListTagsOfResource", f"tags of {arn}", {"ResourceArn": arn})
    return [tag for page in pages for tag in page["Tags"] if not tag["Key"].startswith("aws:")]


def read_policy(spec: ClientSpec, arn: str) -> str | None:
    """Return the resource policy of a table, or None.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`call`.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_GetResourcePolicy.html
    """
    try:
        return str(call(spec, "GetResourcePolicy", f"policy of {arn}", {"ResourceArn": arn})["Policy"])
    except ServiceError as error:
        if error.code != _NO_POLICY:
            raise
        return None


def put_policy(spec: ClientSpec, arn: str, policy: str) -> None:
    """Set the resource policy of a table.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`call`.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_PutResourcePolicy.html
    """
    call(spec, "PutResourcePolicy", f"policy of {arn}", {"ResourceArn": arn, "Policy": policy})


def enable_time_to_live(spec: ClientSpec, table: str, attribute: str) -> None:
    """Enable time to live on an attribute.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`call`.
    """
    wanted = {"Enabled": True, "AttributeName": attribute}
    members = {"TableName": table, "TimeToLiveSpecification": wanted}
    call(spec, "UpdateTimeToLive", f"table {table!r}", members, idempotent=False)


def describe_recovery(spec: ClientSpec, table: str) -> RecoveryDescription:
    """Return whether a table has point-in-time recovery, and its recovery window.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError
        As :func:`call`.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_DescribeContinuousBackups.html
    """
    reply = call(spec, "DescribeContinuousBackups", f"table {table!r}", {"TableName": table})
    described = reply["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    return RecoveryDescription(
        is_on=described.get("PointInTimeRecoveryStatus") == "ENABLED",
        earliest=described.get("EarliestRestorableDateTime"),
        latest=described.get("LatestRestorableDateTime"),
    )


def enable_recovery(spec: ClientSpec, table: str, deadline_seconds: float) -> RecoveryDescription:
    """Enable point-in-time recovery, and return when the service reports it as enabled.

    Raises
    ------
    ServiceError
        If it takes longer than the deadline.
    NotFoundError, AccessDeniedError, EndpointError
        As :func:`call`.
    """
    members = {"TableName": table, "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
    ends_at = time.monotonic() + deadline_seconds
    is_requested = False
    while True:
        try:
            if not is_requested:
                call(spec, "UpdateContinuousBackups", f"table {table!r}", members)
                is_requested = True
            recovery = describe_recovery(spec, table)
            if recovery.is_on:
                return recovery
        except ServiceError as error:
            # A new table does not accept it in its first seconds.
            if error.code != _RECOVERY_NOT_READY or time.monotonic() > ends_at:
                raise
        if time.monotonic() > ends_at:
            raise ServiceError(
                f"table {table!r} has no point-in-time recovery {deadline_seconds:.0f} s after the request"
            )
        time.sleep(_RECOVERY_POLL_SECONDS)


def check_bucket(spec: ClientSpec, bucket: str) -> None:
    """Raise if a bucket does not exist.

    A denied request passes, because DynamoDB itself may have access.

    Raises
    ------
    NotFoundError
        If S3 reports that the bucket does not exist.

    References
    ----------
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadBucket.html
    """
    client: Any = spec.client("s3")
    try:
        client.head_bucket(Bucket=bucket)
    except ClientError as error:
        if error_code(error) in {"404", "NoSuchBucket"}:
            raise NotFoundError(
                f"bucket {bucket} does not exist ({client.meta.endpoint_url}); check its name"
            ) from None
    except BotoCoreError:
        return


def read_offers(spec: ClientSpec, query: PriceQuery) -> Iterator[str]:
    """Yield the products of the AWS Price List that match a query, as JSON. Requests are free.

    Raises
    ------
    AccessDeniedError
        If credentials lack ``pricing:GetProducts``.
    EndpointError, ServiceError
        If the Price List does not answer.

    References
    ----------
    https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html
    """
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in query.attributes]
    members = {"ServiceCode": query.service, "Filters": filters, "FormatVersion": "aws_v1"}
    for reply in list_pages(spec, "GetProducts", f"prices of {query.service}", members, service="pricing"):
        yield from reply["PriceList"]


def _index(index: Mapping[str, Any], types: Mapping[str, str], *, is_global: bool) -> IndexDescription:
    keys = [(key["AttributeName"], _MAX_KEY_BYTES[key["KeyType"]]) for key in index.get("KeySchema", [])]
    return IndexDescription(
        name=index["IndexName"],
        is_global=is_global,
        key_names=tuple(_key_names(index)),
        partition_key_count=sum(key["KeyType"] == "HASH" for key in index.get("KeySchema", [])),
        item_count=int(index.get("ItemCount", 0)),
        size_bytes=int(index.get("IndexSizeBytes", 0)),
        rcu=_rcu(index) if is_global else None,
        keys=tuple(IndexKey(name, types[name], max_bytes, index["IndexName"]) for name, max_bytes in keys),
        wcu=_wcu(index) if is_global else None,
        projected=_projected(index.get("Projection", {})),
        warm_rcu=index.get("WarmThroughput", {}).get("ReadUnitsPerSecond"),
        warm_wcu=index.get("WarmThroughput", {}).get("WriteUnitsPerSecond"),
    )


def _vector_index(index: Mapping[str, Any], types: Mapping[str, str]) -> VectorIndexDescription:
    schema = [(part["AttributeName"], part["SearchSchemaElementType"]) for part in index.get("SearchSchema", [])]
    hashes = [name for name, kind in schema if kind == "HASH"]
    return VectorIndexDescription(
        name=index["IndexName"],
        attribute=index["VectorAttribute"]["AttributeName"],
        dimensions=int(index["Dimensions"]),
        distance_function=index["DistanceFunction"],
        item_count=int(index.get("ItemCount", 0)),
        size_bytes=int(index.get("IndexSizeBytes", 0)),
        partition_name=hashes[0] if hashes else None,
        filter_names=tuple(name for name, kind in schema if kind != "HASH"),
        keys=tuple(IndexKey(name, types[name], _MAX_KEY_BYTES["HASH"], index["IndexName"]) for name in hashes),
        projected=_projected(index.get("Projection", {})),
    )


def _age_seconds(created: object) -> float:
    """Return the age of a table. The time is a datetime of botocore, or text in a file that describes a table."""
    if isinstance(created, str):
        with suppress(ValueError):
            created = datetime.fromisoformat(created)
    if not isinstance(created, datetime) or created.tzinfo is None:
        return 0.0
    return max(0.0, (datetime.now(UTC) - created).total_seconds())


def _key_names(described: Mapping[str, Any]) -> list[str]:
    ordered = sorted(described.get("KeySchema", []), key=lambda key: key["KeyType"] == "RANGE")
    return [key["AttributeName"] for key in ordered]


def _rcu(described: Mapping[str, Any]) -> float | None:
    return _units(described, "ReadCapacityUnits", "MaxReadRequestUnits")


def _wcu(described: Mapping[str, Any]) -> float | None:
    return _units(described, "WriteCapacityUnits", "MaxWriteRequestUnits")


def _projected(projection: Mapping[str, Any]) -> tuple[str, ...] | None:
    if projection.get("ProjectionType", "ALL") == "ALL":
        return None
    return tuple(projection.get("NonKeyAttributes", ()))


def _units(described: Mapping[str, Any], provisioned: str, maximum: str) -> float | None:
    rate = float(described.get("ProvisionedThroughput", {}).get(provisioned, 0))
    rate = rate or float(described.get("OnDemandThroughput", {}).get(maximum, 0))
    return rate if rate > 0 else None
