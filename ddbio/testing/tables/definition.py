"""Tables and indexes from the parameters of CreateTable. Bad definitions raise DynamoDB's errors."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ddbio.testing.refusal import constraint, invalid, invalid_values, malformed
from ddbio.testing.request import Request, checked_name
from ddbio.testing.tables.capacity import (
    PARTITION_READ_PER_SECOND,
    PARTITION_WRITE_PER_SECOND,
    Throughput,
    partition_count,
)
from ddbio.testing.tables.table import (
    MAX_PARTITION_KEY_BYTES,
    MAX_SORT_KEY_BYTES,
    Index,
    KeyAttribute,
    KeySchema,
    Table,
)
from ddbio.testing.tables.vectors import add_vector_index

if TYPE_CHECKING:
    from collections.abc import Mapping

_ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/"
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/warm-throughput.html
ON_DEMAND_PARTITIONS = 4
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.DesignPattern.MultiAttributeKeys.html
MAX_INDEX_KEY_ATTRIBUTES = 4
_VIEWS = ("KEYS_ONLY", "NEW_AND_OLD_IMAGES", "NEW_IMAGE", "OLD_IMAGE")
_PROJECTIONS = ("ALL", "KEYS_ONLY", "INCLUDE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Throughput and partitions of tables that do not set their own."""

    read_per_second: float | None = None
    write_per_second: float | None = None
    partitions: int = ON_DEMAND_PARTITIONS

    def throughput(self, *, unlimited: bool = False) -> Throughput:
        """Return the throughput of a table that does not set its own."""
        read, write = self.read_per_second, self.write_per_second
        return Throughput(
            read_per_second=read,
            write_per_second=write,
            partitions=partition_count(read, write, self.partitions),
            unlimited=unlimited and read is None and write is None,
        )


def define_table(request: Request, defaults: Defaults) -> Table:
    """Return the table of a CreateTable request, still empty."""
    name = request.table_name()
    types = attribute_types(request.required("AttributeDefinitions"))
    keys = _key_schema(request.required("KeySchema"), types)
    on_demand = request.text("BillingMode") == "PAY_PER_REQUEST"
    billing = Billing(on_demand=on_demand, defaults=defaults)
    table = Table(
        name=name,
        arn=_ARN + name,
        keys=keys,
        description={
            "AttributeDefinitions": request.members["AttributeDefinitions"],
            "KeySchema": request.members["KeySchema"],
            "TableId": str(uuid.uuid4()),
            **billing.description(request.members),
        },
        throughput=billing.throughput(request.members),
    )
    table.tags |= request.tags()
    table.policy = request.text("ResourcePolicy")
    stream = request.mapping("StreamSpecification")
    if stream is not None and stream.get("StreamEnabled"):
        table.description |= with_stream(stream)
    if on_demand:
        table.description["BillingModeSummary"] = {"BillingMode": "PAY_PER_REQUEST"}
    kinds: tuple[tuple[Literal["Global", "Local"], str], ...] = (
        ("Global", "GlobalSecondaryIndexes"),
        ("Local", "LocalSecondaryIndexes"),
    )
    for kind, member in kinds:
        for definition in request.listing(member) or ():
            add_index(table, kind, definition, types, billing)
    for definition in request.listing("VectorIndexes") or ():
        add_vector_index(table, definition, types, on_demand=on_demand)
    if types.keys() != used_attributes(table):
        raise invalid_values(
            "Number of attributes in KeySchema does not exactly match number of attributes defined in "
            "AttributeDefinitions"
        )
    return table


def loaded_table(name: str, keys: KeySchema, defaults: Defaults) -> Table:
    """Return an empty table that no request created. It is unlimited unless there are default numbers."""
    read, write = defaults.read_per_second, defaults.write_per_second
    description: dict[str, Any] = {
        "AttributeDefinitions": [{"AttributeName": part.name, "AttributeType": part.tag} for part in keys.attributes],
        "KeySchema": [
            {"AttributeName": part.name, "KeyType": kind}
            for part, kind in zip(keys.attributes, ("HASH", "RANGE"), strict=False)
        ],
        "TableId": str(uuid.uuid4()),
        "ProvisionedThroughput": _described(read or 0, write or 0),
    }
    if read is None and write is None:
        description["BillingModeSummary"] = {"BillingMode": "PAY_PER_REQUEST"}
    return Table(
        name=name,
        arn=_ARN + name,
        keys=keys,
        description=description,
        throughput=defaults.throughput(unlimited=True),
    )


def with_stream(specification: Mapping[str, Any]) -> dict[str, Any]:
    """Return the member that describes an enabled stream. Its label and ARN are set when it is opened."""
    view = specification.get("StreamViewType")
    if view not in _VIEWS:
        raise constraint(view, "streamSpecification.streamViewType", f"satisfy enum value set: [{', '.join(_VIEWS)}]")
    return {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": view}}


@dataclass(frozen=True, slots=True)
class Billing:
    """Billing mode of a table, and the defaults if it sets no numbers."""

    on_demand: bool
    defaults: Defaults

    def throughput(self, definition: Mapping[str, Any]) -> Throughput:
        """Return the throughput of a table or index with this definition."""
        if not self.on_demand:
            read, write = _provisioned(definition)
            return Throughput(
                read_per_second=read,
                write_per_second=write,
                partitions=partition_count(read, write, self.defaults.partitions),
            )
        limits = definition.get("OnDemandThroughput") or {}
        most_read, most_write = (
            _maximum(limits.get("MaxReadRequestUnits")),
            _maximum(limits.get("MaxWriteRequestUnits")),
        )
        if most_read is None and most_write is None:
            return self.defaults.throughput()
        return Throughput(
            read_per_second=most_read,
            write_per_second=most_write,
            partitions=self.defaults.partitions,
            limit="MaxOnDemandThroughputExceeded",
        )

    def description(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        """Return the throughput in the format of DescribeTable."""
        if not self.on_demand:
            return {"ProvisionedThroughput": _described(*_provisioned(definition))}
        if "ProvisionedThroughput" in definition:
            raise invalid_values(
                "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST"
            )
        described: dict[str, Any] = {
            "ProvisionedThroughput": _described(0, 0),
            "WarmThroughput": {
                "ReadUnitsPerSecond": PARTITION_READ_PER_SECOND * self.defaults.partitions,
                "WriteUnitsPerSecond": PARTITION_WRITE_PER_SECOND * self.defaults.partitions,
                "Status": "ACTIVE",
            },
        }
        if definition.get("OnDemandThroughput"):
            described["OnDemandThroughput"] = definition["OnDemandThroughput"]
        return described


def _maximum(value: Any) -> float | None:
    return None if value is None or value == -1 else float(value)


def _described(read: float, write: float) -> dict[str, Any]:
    return {"ReadCapacityUnits": int(read), "WriteCapacityUnits": int(write), "NumberOfDecreasesToday": 0}


def _provisioned(definition: Mapping[str, Any]) -> tuple[int, int]:
    throughput = definition.get("ProvisionedThroughput")
    if type(throughput) is not dict:
        raise invalid_values(
            "ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is PROVISIONED"
        )
    return _units(throughput, "ReadCapacityUnits"), _units(throughput, "WriteCapacityUnits")


def _units(throughput: Mapping[str, Any], member: str) -> int:
    value = throughput.get(member)
    if type(value) is not int:
        raise malformed()
    return value


def attribute_types(definitions: Any) -> dict[str, str]:
    """Return the types of AttributeDefinitions by name."""
    types: dict[str, str] = {}
    try:
        for definition in definitions:
            types[definition["AttributeName"]] = definition["AttributeType"]
    except (KeyError, TypeError):
        raise malformed() from None
    return types


def _key_schema(schema: Any, types: dict[str, str], *, max_attributes: int = 1) -> KeySchema:
    """Return a checked KeySchema with up to ``max_attributes`` attributes of each kind."""
    try:
        parts = [(part["AttributeName"], part["KeyType"]) for part in schema]
    except (KeyError, TypeError):
        raise malformed() from None
    kinds = [kind for _, kind in parts]
    _check_key_types(kinds, max_attributes)
    names = [name for name, _ in parts]
    if len(set(names)) != len(names):
        raise invalid("Invalid KeySchema: Some index key attribute have no definition")
    missing = [name for name in names if name not in types]
    if missing:
        raise invalid_values(
            f"Some index key attributes are not defined in AttributeDefinitions. Keys: [{', '.join(missing)}], "
            f"AttributeDefinitions: [{', '.join(types)}]"
        )
    return key_schema([(name, types[name]) for name in names], kinds.count("HASH"))


def _check_key_types(kinds: list[str], max_attributes: int) -> None:
    numbered = (("first", "HASH"), ("second", "RANGE"))
    for kind, (number, required) in zip(kinds, numbered[: 2 if max_attributes == 1 else 1], strict=False):
        if kind != required:
            raise invalid(f"Invalid KeySchema: The {number} KeySchemaElement is not a {required} key type")
    if kinds != sorted(kinds):
        raise invalid("Invalid KeySchema: HASH key types must precede RANGE key types")
    for kind in ("HASH", "RANGE"):
        if kinds.count(kind) > max_attributes:
            raise invalid(f"Invalid KeySchema: at most {max_attributes} attributes can have the key type {kind}")


def key_schema(parts: list[tuple[str, str]], partition_count: int = 1) -> KeySchema:
    """Return the schema of pairs of name and type. The first ``partition_count`` are the partition key."""
    return KeySchema(
        tuple(KeyAttribute(name, tag, MAX_PARTITION_KEY_BYTES) for name, tag in parts[:partition_count]),
        tuple(KeyAttribute(name, tag, MAX_SORT_KEY_BYTES) for name, tag in parts[partition_count:]),
    )


def add_index(
    table: Table, kind: Literal["Global", "Local"], definition: Any, types: dict[str, str], billing: Billing
) -> None:
    """Add an empty index to a table, from its definition in CreateTable."""
    try:
        name, schema, projection = definition["IndexName"], definition["KeySchema"], definition["Projection"]
        projection_type = projection.get("ProjectionType")
    except (KeyError, TypeError, AttributeError):
        raise malformed() from None
    if type(name) is not str:
        raise malformed()
    checked_name(name, "IndexName")
    if name in table.indexes or name in table.vector_indexes:
        raise invalid_values(f"Duplicate index name: {name}")
    if projection_type not in _PROJECTIONS:
        raise invalid_values(f"Unknown ProjectionType: {projection_type}")
    keys = _key_schema(schema, types, max_attributes=MAX_INDEX_KEY_ATTRIBUTES if kind == "Global" else 1)
    if kind == "Local" and table.keys.sort is None:
        raise invalid_values(
            "Table KeySchema does not have a range key, which is required when specifying a LocalSecondaryIndex"
        )
    if kind == "Local" and (keys.partition != table.keys.partition or keys.sort is None):
        raise invalid_values(f"Index {name}: a local index has the table's partition key and a sort key of its own")
    taken = {index.attribute for index in table.vector_indexes.values()}.intersection(keys.names)
    if taken:
        raise invalid_values(f"Index {name}: the key attribute {min(taken)} is the attribute of a vector index")
    included = frozenset(projection.get("NonKeyAttributes") or ()) if projection_type == "INCLUDE" else frozenset()
    arn = f"{table.arn}/index/{name}"
    described = {"IndexName": name, "KeySchema": schema, "Projection": projection, "IndexArn": arn}
    if kind == "Global":
        described |= {"IndexStatus": "ACTIVE", **billing.description(definition)}
    table.indexes[name] = Index(
        name=name,
        arn=arn,
        kind=kind,
        keys=keys,
        base_keys=table.keys,
        projected=None if projection_type == "ALL" else included.union(keys.names, table.keys.names),
        description=described,
        throughput=billing.throughput(definition) if kind == "Global" else table.throughput,
    )


def used_attributes(table: Table) -> set[str]:
    """Return the attributes of a table that need a definition: those of all keys and search schemas."""
    keys = (index.keys.names for index in table.indexes.values())
    return set(table.keys.names).union(*keys, *(index.search_names for index in table.vector_indexes.values()))
