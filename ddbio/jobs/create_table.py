"""Parser of table keys, and CreateTable requests for new tables and for tables like others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.aws.table_description import IndexKey
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.load.options import CreateLikeOptions

_ON_DEMAND = "PAY_PER_REQUEST"
_AWS_KEY = "aws/dynamodb"
_OWNED_KEY = "none"
_KEY_TYPES = frozenset({"S", "N", "B"})
_MAX_KEY_ATTRIBUTES = 2
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.DesignPattern.MultiAttributeKeys.html
_MAX_INDEX_ATTRIBUTES = 4
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_VectorIndex.html
_VECTOR_MEMBERS = ("IndexName", "VectorAttribute", "SearchSchema", "Projection", "Dimensions", "DistanceFunction")
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
_MAX_KEY_BYTES = {"HASH": 2048, "RANGE": 1024}


def parse_key(text: str) -> tuple[tuple[str, str], ...]:
    """Return names and types of ``pk[:S][,sk[:S]]``; the default type is S.

    Raises
    ------
    OptionError
        If the text has another syntax.
    """
    key = tuple(_parse_attribute(part) for part in text.split(","))
    if len(key) > _MAX_KEY_ATTRIBUTES or not _are_distinct_keys(key):
        raise OptionError(f"{text!r} is no key: write the partition key and perhaps a sort key, like pk:S,sk:N")
    return key


def _parse_attribute(text: str) -> tuple[str, str]:
    name, _, tag = text.strip().rpartition(":") if ":" in text else (text.strip(), ":", "S")
    return name, tag


def _are_distinct_keys(attributes: tuple[tuple[str, str], ...]) -> bool:
    distinct = len(dict(attributes)) == len(attributes)
    return distinct and all(name and tag in _KEY_TYPES for name, tag in attributes)


def format_key(key: tuple[tuple[str, str], ...]) -> str:
    """Return the text that ``parse_key`` parses."""
    return ",".join(f"{name}:{tag}" for name, tag in key)


def create_table_request(described: Mapping[str, Any], options: CreateLikeOptions) -> dict[str, Any]:
    """Return the CreateTable request for a table with the keys, indexes, billing and settings of another.

    Time to live, tags and the resource policy need other calls. Replicas, auto scaling, alarms and point-in-time
    recovery are not copied.

    Parameters
    ----------
    described
        ``Table`` of the DescribeTable response.

    Raises
    ------
    OptionError
        If the source is encrypted with a KMS key, the target is in another region or account, and no key is given; or
        if the source has vector indexes and the target would be provisioned.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CreateTable.html
    """
    billing = described.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
    on_demand = options.billing == "on_demand" or billing == _ON_DEMAND
    request: dict[str, Any] = {
        "TableName": options.target,
        "AttributeDefinitions": described["AttributeDefinitions"],
        "KeySchema": described["KeySchema"],
        "BillingMode": _ON_DEMAND if on_demand else "PROVISIONED",
        **_throughput(described, options, on_demand=on_demand),
    }
    if local := described.get("LocalSecondaryIndexes"):
        request["LocalSecondaryIndexes"] = [_index(index) for index in local]
    if shared := described.get("GlobalSecondaryIndexes"):
        request["GlobalSecondaryIndexes"] = [
            {**_index(index), **_throughput(index, options, on_demand=on_demand)} for index in shared
        ]
    if vectors := described.get("VectorIndexes"):
        if not on_demand:
            raise OptionError(
                f"table {described['TableName']!r} has vector indexes, which only on-demand tables can have: give "
                "billing on_demand"
            )
        request["VectorIndexes"] = [_vector_index(index) for index in vectors]
    if described.get("StreamSpecification", {}).get("StreamEnabled"):
        request["StreamSpecification"] = described["StreamSpecification"]
    if (table_class := described.get("TableClassSummary", {}).get("TableClass")) is not None:
        request["TableClass"] = table_class
    if described.get("DeletionProtectionEnabled"):
        request["DeletionProtectionEnabled"] = True
    if (encryption := _encryption(described, options)) is not None:
        request["SSESpecification"] = encryption
    return request


def _index(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: described[name] for name in ("IndexName", "KeySchema", "Projection")}


def _vector_index(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: described[name] for name in _VECTOR_MEMBERS if name in described}


def hidden_attributes(described: Mapping[str, Any]) -> list[str]:
    """Return the defined attributes of a table that no visible key or search schema uses.

    An older botocore hides vector indexes, but not the definitions of the attributes in their search schemas.
    """
    indexes = [*described.get("GlobalSecondaryIndexes", ()), *described.get("LocalSecondaryIndexes", ())]
    schemas = [index["KeySchema"] for index in (described, *indexes)]
    schemas += [index.get("SearchSchema", ()) for index in described.get("VectorIndexes", ())]
    used = {part["AttributeName"] for schema in schemas for part in schema}
    defined = (definition["AttributeName"] for definition in described["AttributeDefinitions"])
    return [name for name in defined if name not in used]


def policy_for(policy: str, source_arn: str, target_arn: str) -> str:
    """Return the resource policy of a table for another table: with the ARN of the target instead of the source's."""

    def moved(value: Any) -> Any:
        match value:
            case str() if value == source_arn or value.startswith(f"{source_arn}/"):
                return target_arn + value[len(source_arn) :]
            case list():
                return [moved(element) for element in value]
            case dict():
                return {name: moved(member) for name, member in value.items()}
        return value

    return json.dumps(moved(json.loads(policy)))


def _throughput(described: Mapping[str, Any], options: CreateLikeOptions, *, on_demand: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if not on_demand:
        units = described["ProvisionedThroughput"]
        settings["ProvisionedThroughput"] = {name: units[name] for name in ("ReadCapacityUnits", "WriteCapacityUnits")}
    elif maxima := described.get("OnDemandThroughput"):
        settings["OnDemandThroughput"] = maxima
    warm = {"ReadUnitsPerSecond": options.warm_read_units, "WriteUnitsPerSecond": options.warm_write_units}
    if warm_units := {name: units for name, units in warm.items() if units is not None}:
        settings["WarmThroughput"] = warm_units
    return settings


def _encryption(described: Mapping[str, Any], options: CreateLikeOptions) -> dict[str, Any] | None:
    key = options.kms_key
    if key is None:
        key = described.get("SSEDescription", {}).get("KMSMasterKeyArn", _OWNED_KEY)
        if key != _OWNED_KEY and options.crosses:
            raise OptionError(
                f"table {described['TableName']!r} is encrypted with {key}, which may not exist in another region or "
                f"account: give kms_key, an ARN there, {_AWS_KEY!r} or {_OWNED_KEY!r}"
            )
    if key == _OWNED_KEY:
        return None
    named = {} if key == _AWS_KEY else {"KMSMasterKeyId": key}
    return {"Enabled": True, "SSEType": "KMS", **named}


class NewTable(NamedTuple):
    """Table to create: name, key, global indexes, and its rates if it is provisioned, in the syntax of options."""

    table: str
    key: str
    indexes: tuple[str, ...] = ()
    rcu: int | None = None
    wcu: int | None = None


def new_table_request(plan: NewTable) -> dict[str, Any]:
    """Return the CreateTable request for a table with a key and indexes.

    Raises
    ------
    OptionError
        If an index does not have the syntax ``name=key``, or an attribute has two types.
    """
    indexes = [_parse_index(text) for text in plan.indexes]
    table_key = parse_key(plan.key)
    types: dict[str, str] = {}
    for name, tag in [*table_key, *(attribute for index in indexes for attribute in index.attributes)]:
        if types.setdefault(name, tag) != tag:
            raise OptionError(f"attribute {name} is {types[name]} in one key and {tag} in another")
    units = {"ReadCapacityUnits": plan.rcu, "WriteCapacityUnits": plan.wcu}
    throughput = {} if plan.rcu is None else {"ProvisionedThroughput": units}
    definition: dict[str, Any] = {
        "TableName": plan.table,
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": tag} for name, tag in types.items()],
        "KeySchema": _key_schema(table_key[:1], table_key[1:]),
        "BillingMode": "PROVISIONED" if throughput else "PAY_PER_REQUEST",
        **throughput,
    }
    if indexes:
        definition["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index.name,
                "KeySchema": _key_schema(index.partition_key, index.sort_key),
                "Projection": {"ProjectionType": index.projection},
                **throughput,
            }
            for index in indexes
        ]
    return definition


def index_keys(indexes: Iterable[str]) -> tuple[IndexKey, ...]:
    """Return name, type and size limit of each key attribute of the indexes.

    Raises
    ------
    OptionError
        If an index does not have the syntax ``name=key``.
    """
    return tuple(
        IndexKey(attribute, tag, _MAX_KEY_BYTES[kind], index.name)
        for index in map(_parse_index, indexes)
        for kind, key in (("HASH", index.partition_key), ("RANGE", index.sort_key))
        for attribute, tag in key
    )


class _Index(NamedTuple):
    """Global index to create: name, names and types of its key attributes, and projection."""

    name: str
    partition_key: tuple[tuple[str, str], ...]
    sort_key: tuple[tuple[str, str], ...]
    projection: str

    @property
    def attributes(self) -> tuple[tuple[str, str], ...]:
        """All key attributes."""
        return self.partition_key + self.sort_key


def _parse_index(text: str) -> _Index:
    name, mark, definition = text.partition("=")
    key, slash, projection = definition.partition("/")
    partition_key, *sort_keys = (tuple(map(_parse_attribute, part.split("+"))) for part in key.split(","))
    index = _Index(name, partition_key, sort_keys[0] if sort_keys else (), projection or "ALL")
    if (
        not (mark and name)
        or len(sort_keys) > 1
        or max(len(index.partition_key), len(index.sort_key)) > _MAX_INDEX_ATTRIBUTES
        or not _are_distinct_keys(index.attributes)
        or (slash and projection not in {"ALL", "KEYS_ONLY"})
    ):
        raise OptionError(
            f"{text!r} is no index: write name=pk:S,sk:N, join up to {_MAX_INDEX_ATTRIBUTES} attributes of a key by +, "
            "and append /KEYS_ONLY to project keys only"
        )
    return index


def _key_schema(
    partition_key: tuple[tuple[str, str], ...], sort_key: tuple[tuple[str, str], ...]
) -> list[dict[str, str]]:
    typed = (("HASH", partition_key), ("RANGE", sort_key))
    return [{"AttributeName": name, "KeyType": kind} for kind, key in typed for name, _ in key]
