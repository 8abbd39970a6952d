"""Describe tables; change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.aws.control import call
from ddbio.core.table_description import IndexDescription, IndexKey, TableDescription

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.aws.client import ClientSpec

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys
_LONGEST_KEY_BYTES = {"HASH": 2048, "RANGE": 1024}


def describe_table(spec: ClientSpec, table: str) -> TableDescription:
    """Return what DescribeTable says of a table.

    Raises
    ------
    NotFoundError
        If the table does not exist in that region.
    AccessDeniedError
        If credentials are missing or lack ``dynamodb:DescribeTable``.
    EndpointError
        If nobody answers.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_DescribeTable.html
    """
    return _facts(call(spec, "DescribeTable", f"table {table!r}", {"TableName": table})["Table"])


def facts_of_description(stated: Mapping[str, Any]) -> TableDescription:
    """Return what a description says, be it DescribeTable's whole reply or the table in it.

    Raises
    ------
    KeyError, TypeError
        If it is no such description.
    """
    return _facts(stated.get("Table", stated))


def _facts(table: Mapping[str, Any]) -> TableDescription:
    types = {each["AttributeName"]: each["AttributeType"] for each in table.get("AttributeDefinitions", [])}
    keys = tuple((name, types[name]) for name in _key_names(table))
    on_demand = table.get("BillingModeSummary", {}).get("BillingMode") == "PAY_PER_REQUEST"
    indexes = [_index(each, types, is_global=True) for each in table.get("GlobalSecondaryIndexes", [])]
    indexes += [_index(each, types, is_global=False) for each in table.get("LocalSecondaryIndexes", [])]
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
        wcu=_units(table, "WriteCapacityUnits", "MaxWriteRequestUnits"),
        indexes=tuple(indexes),
        warm_wcu=table.get("WarmThroughput", {}).get("WriteUnitsPerSecond"),
    )


def _index(index: Mapping[str, Any], types: Mapping[str, str], *, is_global: bool) -> IndexDescription:
    keys = [(key["AttributeName"], _LONGEST_KEY_BYTES[key["KeyType"]]) for key in index.get("KeySchema", [])]
    return IndexDescription(
        name=index["IndexName"],
        is_global=is_global,
        key_names=tuple(_key_names(index)),
        item_count=int(index.get("ItemCount", 0)),
        size_bytes=int(index.get("IndexSizeBytes", 0)),
        rcu=_rcu(index) if is_global else None,
        keys=tuple(IndexKey(name, types[name], longest, index["IndexName"]) for name, longest in keys),
    )


def _key_names(described: Mapping[str, Any]) -> list[str]:
    ordered = sorted(described.get("KeySchema", []), key=lambda key: key["KeyType"] == "RANGE")
    return [key["AttributeName"] for key in ordered]


def _rcu(described: Mapping[str, Any]) -> float | None:
    return _units(described, "ReadCapacityUnits", "MaxReadRequestUnits")


def _units(described: Mapping[str, Any], provisioned: str, maximum: str) -> float | None:
    rate = float(described.get("ProvisionedThroughput", {}).get(provisioned, 0))
    rate = rate or float(described.get("OnDemandThroughput", {}).get(maximum, 0))
    return rate if rate > 0 else None
