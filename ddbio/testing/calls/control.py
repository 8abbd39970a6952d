"""Calls that create, describe, change and delete tables, and those for time to live and recovery."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddbio.testing.calls.streams import close_stream, open_stream
from ddbio.testing.refusal import (
    Refusal,
    invalid,
    invalid_values,
    limit_exceeded,
    malformed,
    not_found,
    table_not_found,
)
from ddbio.testing.tables.definition import (
    Billing,
    add_index,
    attribute_types,
    define_table,
    used_attributes,
    with_stream,
)
from ddbio.testing.tables.table import Journal
from ddbio.testing.tables.vectors import add_vector_index

if TYPE_CHECKING:
    from ddbio.testing.request import Request
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.table import Index, Table
    from ddbio.testing.tables.vectors import VectorIndex


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ListTables.html
_MAX_LISTED = 100
_BILLING_MEMBERS = ("BillingMode", "ProvisionedThroughput", "OnDemandThroughput")
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_PointInTimeRecoverySpecification.html
MAX_RECOVERY_DAYS = 35


def create_table(database: Database, request: Request) -> dict[str, Any]:
    """Create a table, which is usable immediately."""
    table = define_table(request, database.defaults)
    database.add(table)
    if "StreamSpecification" in table.description:
        open_stream(database, table)
    return {"TableDescription": describe(table, "CREATING")}


def describe_table(database: Database, request: Request) -> dict[str, Any]:
    """Describe a table with its exact count and size."""
    table = existing_table(database, request)
    is_ready = database.wall_clock.now() >= table.ready_at
    described = describe(table, "ACTIVE" if is_ready else "CREATING")
    if "RestoreSummary" in described:
        described["RestoreSummary"] = {**described["RestoreSummary"], "RestoreInProgress": not is_ready}
    return {"Table": described}


def delete_table(database: Database, request: Request) -> dict[str, Any]:
    """Delete a table immediately."""
    table = existing_table(database, request)
    close_stream(table)
    for stream in database.data_streams.values():
        stream.destinations.pop(table.name, None)
    database.remove(table)
    return {"TableDescription": describe(table, "DELETING")}


def list_tables(database: Database, request: Request) -> dict[str, Any]:
    """List the names of tables in order."""
    limit = request.integer("Limit") or _MAX_LISTED
    after = request.text("ExclusiveStartTableName") or ""
    names = sorted(name for name in database.tables if name > after)
    reply: dict[str, Any] = {"TableNames": names[:limit]}
    if len(names) > limit:
        reply["LastEvaluatedTableName"] = names[limit - 1]
    return reply


def describe(table: Table, status: str) -> dict[str, Any]:
    """Return a table's description."""
    described = {
        **table.description,
        "TableName": table.name,
        "TableArn": table.arn,
        "TableStatus": status,
        "ItemCount": table.store.count,
        "TableSizeBytes": table.store.size_bytes,
        "DeletionProtectionEnabled": False,
    }
    kinds: dict[str, list[Index | VectorIndex]] = {
        f"{kind}SecondaryIndexes": [index for index in table.indexes.values() if index.kind == kind]
        for kind in ("Global", "Local")
    }
    kinds["VectorIndexes"] = list(table.vector_indexes.values())
    for member, indexes in kinds.items():
        if indexes:
            described[member] = [
                {**index.description, "ItemCount": index.store.count, "IndexSizeBytes": index.store.size_bytes}
                for index in indexes
            ]
    return described


def existing_table(database: Database, request: Request) -> Table:
    """Return the table that a request names. If it is missing, the error has the text of the control plane."""
    name = request.table_name()
    if name not in database.tables:
        raise not_found(f"Requested resource not found: Table: {name} not found")
    return database.tables[name]


def update_table(database: Database, request: Request) -> dict[str, Any]:
    """Change a table. Changes that take the service minutes finish immediately."""
    table = existing_table(database, request)
    bills = any(member in request.members for member in _BILLING_MEMBERS)
    streams = request.mapping("StreamSpecification")
    index_updates = request.listing("GlobalSecondaryIndexUpdates") or []
    vector_updates = request.listing("VectorIndexUpdates") or []
    if not bills and streams is None and not index_updates and not vector_updates:
        raise invalid(
            "At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled, "
            "GlobalSecondaryIndexUpdates or VectorIndexUpdates is required"
        )
    changed_indexes = sum("Update" not in update for update in [*index_updates, *vector_updates])
    if bills + (streams is not None) > 1 or changed_indexes > 1:
        raise limit_exceeded(
            "Subscriber limit exceeded: only one kind of change, and one index, is allowed per UpdateTable"
        )
    if bills or index_updates:
        _Change(database, table, request).run(index_updates, bills=bills)
    for update in vector_updates:
        _change_vector_index(table, request, update)
    if streams is not None:
        _change_stream(database, table, streams)
    return {"TableDescription": describe(table, "UPDATING")}


def _change_vector_index(table: Table, request: Request, update: dict[str, Any]) -> None:
    definitions = request.listing("AttributeDefinitions") or []
    types = attribute_types([*table.description["AttributeDefinitions"], *definitions])
    match update:
        case {"Create": dict(definition)}:
            index = add_vector_index(table, definition, types, on_demand="BillingModeSummary" in table.description)
            # A new index omits items whose vectors it cannot hold.
            for key, stored in table.store.snapshot().entries():
                entry = index.entry(json.loads(stored.json))
                if entry is not None:
                    index.store.replace(key, entry)
        case {"Delete": {"IndexName": str(name)}}:
            if table.vector_indexes.pop(name, None) is None:
                raise not_found(f"Requested resource not found: Index: {name} not found")
        case dict():
            raise invalid("VectorIndexUpdate requires exactly one of Create and Delete")
        case _:
            raise malformed()
    _describe_attributes(table, types)


def _describe_attributes(table: Table, types: dict[str, str]) -> None:
    used = used_attributes(table)
    if not used <= set(types):
        raise invalid_values("Some index key attributes are not defined in AttributeDefinitions")
    table.description["AttributeDefinitions"] = [
        {"AttributeName": name, "AttributeType": tag} for name, tag in types.items() if name in used
    ]


def _change_stream(database: Database, table: Table, specification: dict[str, Any]) -> None:
    is_on = "StreamSpecification" in table.description
    if bool(specification.get("StreamEnabled")) == is_on:
        raise invalid(f"Table already has {'an enabled' if is_on else 'no'} stream: {table.name}")
    if is_on:
        # The stream's ARN and its records stay.
        del table.description["StreamSpecification"]
        close_stream(table)
    else:
        table.description |= with_stream(specification)
        open_stream(database, table)


class _Change:
    def __init__(self, database: Database, table: Table, request: Request) -> None:
        self._database = database
        self._table = table
        self._request = request
        mode = request.text("BillingMode")
        was_on_demand = "BillingModeSummary" in table.description
        on_demand = was_on_demand if mode is None else mode == "PAY_PER_REQUEST"
        self._billing = Billing(on_demand=on_demand, defaults=database.defaults)

    def run(self, index_updates: list[dict[str, Any]], *, bills: bool) -> None:
        table = self._table
        if bills:
            if not self._billing.on_demand and table.vector_indexes:
                raise invalid_values("A vector index requires a table with BillingMode PAY_PER_REQUEST")
            described = self._billing.description(self._request.members)
            self._check_changes(described)
            table.throughput = self._billing.throughput(self._request.members)
            _redescribe(table.description, described)
            table.description.pop("BillingModeSummary", None)
            if self._billing.on_demand:
                table.description["BillingModeSummary"] = {"BillingMode": "PAY_PER_REQUEST"}
            self._declare(table)
            self._rebill_local_and_on_demand_indexes()
        for update in index_updates:
            match update:
                case {"Update": {"IndexName": name}}:
                    self._rebill(self._index(name), update["Update"])
                case {"Create": dict(definition)}:
                    self._create(definition)
                case {"Delete": {"IndexName": name}}:
                    self._delete(self._index(name))
                case _:
                    raise malformed()

    def _check_changes(self, described: dict[str, Any]) -> None:
        """Raise if the throughput of a provisioned table does not change."""
        if self._billing.on_demand or "BillingModeSummary" in self._table.description:
            return
        current, asked = self._table.description["ProvisionedThroughput"], described["ProvisionedThroughput"]
        if current == asked:
            numbers = ". ".join(
                f"Current {member} provisioned for the table: {current[member]}. Requested {member}: {asked[member]}"
                for member in ("ReadCapacityUnits", "WriteCapacityUnits")
            )
            raise invalid(
                "The provisioned throughput for the table will not change. The requested value equals the current "
                f"value. {numbers}. Refer to the Amazon DynamoDB Developer Guide for current limits and how to request "
                "higher limits."
            )

    def _index(self, name: str) -> Index:
        index = self._table.indexes.get(name)
        if index is None or index.kind == "Local":
            raise not_found(f"Requested resource not found: Index: {name} not found")
        return index

    def _rebill_local_and_on_demand_indexes(self) -> None:
        for index in list(self._table.indexes.values()):
            if index.kind == "Local":
                self._table.indexes[index.name] = replace(index, throughput=self._table.throughput)
            elif self._billing.on_demand:
                self._rebill(index, {})

    def _rebill(self, index: Index, definition: dict[str, Any]) -> None:
        described = dict(index.description)
        _redescribe(described, self._billing.description(definition))
        changed = replace(index, description=described, throughput=self._billing.throughput(definition))
        self._table.indexes[index.name] = changed
        self._declare(changed)

    def _create(self, definition: dict[str, Any]) -> None:
        table = self._table
        definitions = self._request.listing("AttributeDefinitions") or []
        types = attribute_types([*table.description["AttributeDefinitions"], *definitions])
        add_index(table, "Global", definition, types, self._billing)
        index = table.indexes[definition["IndexName"]]
        for _, stored in table.store.snapshot().entries():
            item = json.loads(stored.json)
            try:
                index.keys.check_indexed(item, index.name)
            except Refusal:
                # A new index omits items whose values it cannot hold.
                continue
            entry = index.entry(item)
            if entry is not None:
                index.store.replace(*entry)
        _describe_attributes(table, types)
        self._declare(index)

    def _delete(self, index: Index) -> None:
        del self._table.indexes[index.name]
        self._database.capacity.forget(index.arn)
        _describe_attributes(self._table, attribute_types(self._table.description["AttributeDefinitions"]))

    def _declare(self, of: Table | Index) -> None:
        self._database.capacity.declare(of.arn, of.throughput, self._database.clock())


def _redescribe(description: dict[str, Any], billing: dict[str, Any]) -> None:
    for member in ("ProvisionedThroughput", "OnDemandThroughput"):
        description.pop(member, None)
    description |= billing


def update_time_to_live(database: Database, request: Request) -> dict[str, Any]:
    """Set or remove the attribute with the expiry time. Items are deleted when a test calls ``expire``."""
    table = existing_table(database, request)
    specification = request.required("TimeToLiveSpecification")
    match specification:
        case {"Enabled": bool(enabled), "AttributeName": str(name)} if name:
            pass
        case _:
            raise malformed()
    if enabled == (table.expiry is not None):
        raise invalid(f"TimeToLive is already {'enabled' if enabled else 'disabled'}")
    if not enabled and name != table.expiry:
        raise invalid(f"TimeToLive is active on a different AttributeName: current AttributeName is {table.expiry}")
    table.expiry = name if enabled else None
    return {"TimeToLiveSpecification": {"Enabled": enabled, "AttributeName": name}}


def describe_time_to_live(database: Database, request: Request) -> dict[str, Any]:
    """Describe the attribute with the expiry time."""
    expiry = existing_table(database, request).expiry
    if expiry is None:
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
    return {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": expiry}}


def update_continuous_backups(database: Database, request: Request) -> dict[str, Any]:
    """Turn point-in-time recovery on or off."""
    table = _backed_up(database, request)
    specification = request.required("PointInTimeRecoverySpecification")
    if type(specification) is not dict or type(specification.get("PointInTimeRecoveryEnabled")) is not bool:
        raise malformed()
    days = specification.get("RecoveryPeriodInDays", MAX_RECOVERY_DAYS)
    if type(days) is not int or not 1 <= days <= MAX_RECOVERY_DAYS:
        raise invalid(f"RecoveryPeriodInDays must be between 1 and {MAX_RECOVERY_DAYS}")
    if not specification["PointInTimeRecoveryEnabled"]:
        table.recovery = table.journal = None
        table.store.listeners.pop("journal", None)
    elif table.recovery is None:
        table.recovery = (database.wall_clock.now(), days)
        table.journal = Journal(database.wall_clock.now)
        table.store.listeners["journal"] = table.journal.add
    else:
        table.recovery = (table.recovery[0], days)
    return _backups(table, database.wall_clock.now())


def describe_continuous_backups(database: Database, request: Request) -> dict[str, Any]:
    """Describe whether point-in-time recovery is on, and since when."""
    return _backups(_backed_up(database, request), database.wall_clock.now())


def _backed_up(database: Database, request: Request) -> Table:
    name = request.table_name()
    if name not in database.tables:
        raise table_not_found(f"Table not found: {name}")
    return database.tables[name]


def _backups(table: Table, now: float) -> dict[str, Any]:
    recovery: dict[str, Any] = {"PointInTimeRecoveryStatus": "DISABLED"}
    if table.recovery is not None:
        since, days = table.recovery
        recovery = {
            "PointInTimeRecoveryStatus": "ENABLED",
            "RecoveryPeriodInDays": days,
            "EarliestRestorableDateTime": round(since, 3),
            "LatestRestorableDateTime": round(now, 3),
        }
    described = {"ContinuousBackupsStatus": "ENABLED", "PointInTimeRecoveryDescription": recovery}
    return {"ContinuousBackupsDescription": described}
