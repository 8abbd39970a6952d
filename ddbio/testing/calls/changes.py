"""Answer UpdateTable at once: numbers, billing mode, stream specification, indexes; refuses two kinds in one call."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddbio.testing.calls.control import describe, existing_table
from ddbio.testing.refusal import Refusal, invalid, invalid_values, limit_exceeded, malformed, not_found
from ddbio.testing.tables.definition import Billing, add_index, attribute_types, with_stream

if TYPE_CHECKING:
    from ddbio.testing.request import Request
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.table import Index, Table

_BILLING_MEMBERS = ("BillingMode", "ProvisionedThroughput", "OnDemandThroughput")


def update_table(database: Database, request: Request) -> dict[str, Any]:
    """Change a table; what the service does in minutes is done when the reply is sent."""
    table = existing_table(database, request)
    bills = any(member in request.members for member in _BILLING_MEMBERS)
    streams = request.mapping("StreamSpecification")
    index_updates = request.listing("GlobalSecondaryIndexUpdates") or []
    if not bills and streams is None and not index_updates:
        raise invalid(
            "At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled or "
            "GlobalSecondaryIndexUpdates is required"
        )
    if bills + (streams is not None) > 1 or sum("Update" not in update for update in index_updates) > 1:
        raise limit_exceeded(
            "Subscriber limit exceeded: only one kind of change, and one index, is allowed per UpdateTable"
        )
    if bills or index_updates:
        _Change(database, table, request).run(index_updates, bills=bills)
    if streams is not None:
        _change_stream(table, streams)
    return {"TableDescription": describe(table, "UPDATING")}


def _change_stream(table: Table, specification: dict[str, Any]) -> None:
    is_on = "StreamSpecification" in table.description
    if bool(specification.get("StreamEnabled")) == is_on:
        raise invalid(f"Table already has {'an enabled' if is_on else 'no'} stream: {table.name}")
    if is_on:
        # The stream's ARN stays, as its records would.
        del table.description["StreamSpecification"]
    else:
        table.description |= with_stream(table.arn, specification)


class _Change:
    def __init__(self, database: Database, table: Table, request: Request) -> None:
        self._database = database
        self._table = table
        self._request = request
        mode = request.text("BillingMode", ("PROVISIONED", "PAY_PER_REQUEST"))
        was_on_demand = "BillingModeSummary" in table.description
        on_demand = was_on_demand if mode is None else mode == "PAY_PER_REQUEST"
        self._billing = Billing(on_demand=on_demand, defaults=database.defaults)

    def run(self, index_updates: list[dict[str, Any]], *, bills: bool) -> None:
        table = self._table
        if bills:
            described = self._billing.description(self._request.members)
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
        given = self._request.listing("AttributeDefinitions") or []
        types = attribute_types([*table.description["AttributeDefinitions"], *given])
        add_index(table, "Global", definition, types, self._billing)
        index = table.indexes[definition["IndexName"]]
        for _, stored in table.shelf.frozen().entries():
            item = json.loads(stored.wire)
            try:
                index.keys.check_indexed(item, index.name)
            except Refusal:
                # Values that an index cannot hold are left out when it is made.
                continue
            entry = index.entry(item)
            if entry is not None:
                index.shelf.replace(*entry)
        self._describe_attributes(types)
        self._declare(index)

    def _delete(self, index: Index) -> None:
        del self._table.indexes[index.name]
        self._database.capacity.forget(index.arn)
        self._describe_attributes(attribute_types(self._table.description["AttributeDefinitions"]))

    def _describe_attributes(self, types: dict[str, str]) -> None:
        table = self._table
        used = set(table.keys.names).union(*(index.keys.names for index in table.indexes.values()))
        if not used <= set(types):
            raise invalid_values("Some index key attributes are not defined in AttributeDefinitions")
        table.description["AttributeDefinitions"] = [
            {"AttributeName": name, "AttributeType": tag} for name, tag in types.items() if name in used
        ]

    def _declare(self, of: Table | Index) -> None:
        self._database.capacity.declare(of.arn, of.throughput, self._database.clock())


def _redescribe(description: dict[str, Any], billing: dict[str, Any]) -> None:
    for member in ("ProvisionedThroughput", "OnDemandThroughput"):
        description.pop(member, None)
    description |= billing
