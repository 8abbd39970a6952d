"""Price requests by what passes through: items sent and items returned; refuses to know what a table holds.

The tables here are empty: they lend their keys, indexes and partitions. What a write replaces, and what a read
passed over because of a filter or a projection, is not seen and therefore not billed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ddbio.core.capacity import EVENTUAL_RATIO, item_size_bytes
from ddbio.testing.calls.paging import read_units
from ddbio.testing.calls.writes import planned_delete, planned_put
from ddbio.testing.request import Request, canonical_map
from ddbio.testing.tables.capacity import Draw
from ddbio.testing.tables.definition import Defaults, define_table
from ddbio.testing.tables.schema import hash_of, part_of_hash
from ddbio.testing.tables.table import write_units

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.core.attribute import Item
    from ddbio.testing.tables.table import Table

_INDEX_MEMBERS = ("IndexName", "KeySchema", "Projection")


def described_table(described: Mapping[str, Any], defaults: Defaults) -> Table:
    """Return an empty table with the keys, indexes and numbers of a DescribeTable reply."""
    on_demand = (described.get("BillingModeSummary") or {}).get("BillingMode") == "PAY_PER_REQUEST"
    numbers = ("OnDemandThroughput",) if on_demand else ("ProvisionedThroughput",)
    billing = {"BillingMode": "PAY_PER_REQUEST"} if on_demand else {}
    members = ("TableName", "AttributeDefinitions", "KeySchema", *numbers)
    definition = {**billing, **{member: described[member] for member in members if described.get(member)}}
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        if described.get(kind):
            definition[kind] = [
                {member: index[member] for member in (*_INDEX_MEMBERS, *numbers) if index.get(member)}
                for index in described[kind]
            ]
    return define_table(Request(definition), defaults)


def write_draws(table: Table, operation: str, members: Mapping[str, Any]) -> list[Draw]:
    """Return what one write draws: a put by its item, a delete one unit, an update by its key and values."""
    if operation == "PutItem":
        put = planned_put(table, members.get("Item"))
        return table.plan_write(put.key, put.new, put.size_bytes).draws
    delete = planned_delete(table, members.get("Key"))
    values = canonical_map(members.get("ExpressionAttributeValues") or {}) if operation == "UpdateItem" else {}
    size_bytes = item_size_bytes({**canonical_map(members["Key"]), **values})
    units = write_units(size_bytes) if operation == "UpdateItem" else 1.0
    return [Draw(table.arn, "Write", table.partition_of(delete.key), units)]


def first_draw(table: Table, members: Mapping[str, Any]) -> Draw:
    """Return an empty draw where a read begins: at its key or start key, else in the first partition."""
    key = members.get("Key") or members.get("ExclusiveStartKey") or {}
    resource, partition = _place(table, members.get("IndexName"), key)
    return Draw(resource, "Read", partition, 0.0)


def read_draws(table: Table, members: Mapping[str, Any], items: Iterable[Item], *, rounds_each: bool) -> list[Draw]:
    """Return what the returned items draw, rounded each by itself or once in each partition; nothing costs a unit."""
    ratio = 1.0 if members.get("ConsistentRead") else EVENTUAL_RATIO
    name = members.get("IndexName")
    placed = [(_place(table, name, item), item_size_bytes(item)) for item in items]
    if not rounds_each:
        sizes: Counter[tuple[str, int]] = Counter()
        for place, size_bytes in placed:
            sizes[place] += size_bytes
        placed = list(sizes.items())
    if not placed:
        placed = [(_place(table, name, members.get("Key") or {}), 0)]
    return [
        Draw(resource, "Read", partition, read_units(size_bytes, ratio)) for (resource, partition), size_bytes in placed
    ]


def _place(table: Table, index_name: str | None, item: Item) -> tuple[str, int]:
    index = table.indexes.get(index_name or "")
    source = index if index is not None and index.kind == "Global" else table
    value = item.get(source.keys.partition.name)
    if value is None or source.keys.partition.tag not in value:
        return source.arn, 0
    return source.arn, part_of_hash(hash_of(source.keys.partition.bytes_of(value)), source.throughput.partitions)
