"""Parse a table's key as people write it, and make the CreateTable request for a table like another."""

from __future__ import annotations

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
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
_LONGEST_KEY_BYTES = (2048, 1024)


def parse_key(text: str) -> tuple[tuple[str, str], ...]:
    """Return names and types of ``pk[:S][,sk[:S]]``; the default type is S.

    Raises
    ------
    OptionError
        The text has another form.
    """
    parts = [each.strip().rpartition(":") if ":" in each else (each.strip(), ":", "S") for each in text.split(",")]
    key = tuple((name, tag) for name, _, tag in parts)
    if (
        len(key) > _MAX_KEY_ATTRIBUTES
        or len(dict(key)) < len(key)
        or not all(name and tag in _KEY_TYPES for name, tag in key)
    ):
        raise OptionError(f"{text!r} is no key: write the partition key and perhaps a sort key, like pk:S,sk:N")
    return key


def format_key(key: tuple[tuple[str, str], ...]) -> str:
    """Return the text that ``parse_key`` reads."""
    return ",".join(f"{name}:{tag}" for name, tag in key)


def create_table_request(described: Mapping[str, Any], options: CreateLikeOptions) -> dict[str, Any]:
    """Return the CreateTable request for a table with the keys, indexes, billing and settings of another.

    Time to live needs a call of its own. Tags, resource policies, replicas, auto scaling, alarms and point-in-time
    recovery are not copied.

    Parameters
    ----------
    described
        ``Table`` of the DescribeTable response.

    Raises
    ------
    OptionError
        The source is encrypted with a KMS key, the target is in another region or account, and no key is given.

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
        request["LocalSecondaryIndexes"] = [_index(each) for each in local]
    if shared := described.get("GlobalSecondaryIndexes"):
        request["GlobalSecondaryIndexes"] = [
            {**_index(each), **_throughput(each, options, on_demand=on_demand)} for each in shared
        ]
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


def _throughput(described: Mapping[str, Any], options: CreateLikeOptions, *, on_demand: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if not on_demand:
        units = described["ProvisionedThroughput"]
        settings["ProvisionedThroughput"] = {name: units[name] for name in ("ReadCapacityUnits", "WriteCapacityUnits")}
    elif maxima := described.get("OnDemandThroughput"):
        settings["OnDemandThroughput"] = maxima
    warm = {"ReadUnitsPerSecond": options.warm_read_units, "WriteUnitsPerSecond": options.warm_write_units}
    if known := {name: units for name, units in warm.items() if units is not None}:
        settings["WarmThroughput"] = known
    return settings


def _encryption(described: Mapping[str, Any], options: CreateLikeOptions) -> dict[str, Any] | None:
    key = options.kms_key
    if key is None:
        key = described.get("SSEDescription", {}).get("KMSMasterKeyArn", _OWNED_KEY)
        if key != _OWNED_KEY and options.crosses:
            raise OptionError(
                f"table {described['TableName']!r} is encrypted by {key}, which another region or account may not "
                f"know: give kms_key, an ARN there, {_AWS_KEY!r} or {_OWNED_KEY!r}"
            )
    if key == _OWNED_KEY:
        return None
    named = {} if key == _AWS_KEY else {"KMSMasterKeyId": key}
    return {"Enabled": True, "SSEType": "KMS", **named}


class NewTable(NamedTuple):
    """A table to create: name, key, global indexes, and its rates if it is provisioned, all as people write them."""

    table: str
    key: str
    indexes: tuple[str, ...] = ()
    rcu: int | None = None
    wcu: int | None = None


def new_table_request(plan: NewTable) -> dict[str, Any]:
    """Return the CreateTable request for a table of a key and indexes.

    Raises
    ------
    OptionError
        If an index is not written as ``name=key``, or an attribute has two types.
    """
    indexes = [_parse_index(text) for text in plan.indexes]
    types: dict[str, str] = {}
    for key in (parse_key(plan.key), *(key for _, key, _ in indexes)):
        for name, tag in key:
            if types.setdefault(name, tag) != tag:
                raise OptionError(f"attribute {name} is {types[name]} in one key and {tag} in another")
    units = {"ReadCapacityUnits": plan.rcu, "WriteCapacityUnits": plan.wcu}
    throughput = {} if plan.rcu is None else {"ProvisionedThroughput": units}
    definition: dict[str, Any] = {
        "TableName": plan.table,
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": tag} for name, tag in types.items()],
        "KeySchema": _key_schema(parse_key(plan.key)),
        "BillingMode": "PROVISIONED" if throughput else "PAY_PER_REQUEST",
        **throughput,
    }
    if indexes:
        definition["GlobalSecondaryIndexes"] = [
            {
                "IndexName": name,
                "KeySchema": _key_schema(key),
                "Projection": {"ProjectionType": projection},
                **throughput,
            }
            for name, key, projection in indexes
        ]
    return definition


def index_keys(indexes: Iterable[str]) -> tuple[IndexKey, ...]:
    """Return name, type and size limit of each key attribute of the indexes.

    Raises
    ------
    OptionError
        If an index is not written as ``name=key``.
    """
    parsed = [(name, key) for name, key, _ in map(_parse_index, indexes)]
    return tuple(
        IndexKey(attribute, tag, longest, name)
        for name, key in parsed
        for (attribute, tag), longest in zip(key, _LONGEST_KEY_BYTES, strict=False)
    )


def _parse_index(text: str) -> tuple[str, tuple[tuple[str, str], ...], str]:
    name, mark, rest = text.partition("=")
    key, slash, projection = rest.partition("/")
    if not mark or not name or (slash and projection not in {"ALL", "KEYS_ONLY"}):
        raise OptionError(f"{text!r} is no index: write name=pk:S,sk:N, and /KEYS_ONLY behind it if wanted")
    return name, parse_key(key), projection or "ALL"


def _key_schema(key: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for (name, _), kind in zip(key, ("HASH", "RANGE"), strict=False)]
