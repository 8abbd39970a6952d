"""PutItem, DeleteItem, BatchWriteItem and UpdateItem."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ddbio.testing.expressions.conditions import Guard, checked_return
from ddbio.testing.expressions.parsing import Placeholders
from ddbio.testing.expressions.updates import Update, check_keys_unchanged, requested_update
from ddbio.testing.pricing import item_bytes
from ddbio.testing.refusal import Refusal, constraint_of_map, invalid, invalid_values, malformed
from ddbio.testing.request import MAX_ITEM_BYTES, Request, canonical_map, checked_name, stored_item
from ddbio.testing.tables.database import Database, collection_metrics, consumed_list, consumed_member
from ddbio.testing.tables.table import Change, Table
from ddbio.testing.validation import RETURN_VALUES, shown_value

if TYPE_CHECKING:
    from ddbio.items.attribute import Item
    from ddbio.testing.tables.capacity import Draw
    from ddbio.testing.tables.table import Key


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
MAX_BATCH_WRITES = 25
_NO_GUARD = Guard(None, shows_item=False)
_GUARD_MEMBERS = frozenset({"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"})
_TOO_LARGE_UPDATE = "Item size to update has exceeded the maximum allowed size"


class Write(NamedTuple):
    """One checked put or delete of an item."""

    table: Table
    key: Key
    new: Item | None
    size_bytes: int


class Plan(NamedTuple):
    """The change of one write, and the refusal of its condition if that is false."""

    table: Table
    key: Item
    """The key, or an item that contains it."""
    change: Change
    new: Item | None
    size_bytes: int
    failure: Refusal | None
    update: Update | None = None

    def attributes(self, returned: str) -> Item:
        """Return the attributes that ReturnValues selects."""
        if returned == "NONE":
            return {}
        item = self.change.old if returned.endswith("OLD") else self.new
        if item is None:
            return {}
        return item if returned.startswith("ALL") or self.update is None else self.update.touched(item)


Planner: TypeAlias = Callable[[Table], Plan]
"""Plans a write, whose request is already checked, on its table."""


def parsed_put(request: Request) -> Planner:
    """Return the planner of a put. Raise on errors that do not depend on the table."""
    guard = _guard(request)
    item, size_bytes = stored_item(request.required("Item"))

    def plan(table: Table) -> Plan:
        table.check_item(item)
        change = table.plan_write(table.keys.key_of(item), item, size_bytes)
        failure = guard.refusal(change.old) if guard.predicate is not None else None
        return Plan(table, item, change, item, size_bytes, failure)

    return plan


def parsed_delete(request: Request) -> Planner:
    """Return the planner of a delete. Raise on errors that do not depend on the table."""
    guard = _guard(request)
    key = canonical_map(request.required("Key"))

    def plan(table: Table) -> Plan:
        table.keys.check_key(key)
        change = table.plan_write(table.keys.key_of(key), None)
        failure = guard.refusal(change.old) if guard.predicate is not None else None
        return Plan(table, key, change, None, stored_bytes(change), failure)

    return plan


def parsed_update(request: Request) -> Planner:
    """Return the planner of an update. Raise on errors that do not depend on the table."""
    placeholders = Placeholders.of(request, "UpdateExpression", "ConditionExpression")
    update = requested_update(request, placeholders)
    guard = Guard.of(request, placeholders)
    placeholders.check_all_used()
    key = canonical_map(request.required("Key"))

    def plan(table: Table) -> Plan:
        table.keys.check_key(key)
        check_keys_unchanged(update, table.keys)
        position = table.keys.key_of(key)
        old = table.read_item(position)
        failure = guard.refusal(old)
        new, size_bytes = None, 0
        try:
            new = update.applied(key, old)
            if new is not None:
                new, size_bytes = _stored(update, new)
                table.check_item(new)
        except Refusal:
            # Errors of the update do not matter if its condition is false.
            if failure is None:
                raise
        return Plan(table, key, table.plan_write(position, new, size_bytes), new, size_bytes, failure, update)

    return plan


def _stored(update: Update, item: Item) -> tuple[Item, int]:
    """Return an updated item and its size. Only an update below an attribute can nest it too deeply."""
    if update.is_nested:
        return stored_item(item, _TOO_LARGE_UPDATE)
    size_bytes = item_bytes(item)
    if size_bytes > MAX_ITEM_BYTES:
        raise invalid_values(_TOO_LARGE_UPDATE)
    return item, size_bytes


def _guard(request: Request) -> Guard:
    if _GUARD_MEMBERS.isdisjoint(request.members):
        return _NO_GUARD
    placeholders = Placeholders.of(request, "ConditionExpression")
    guard = Guard.of(request, placeholders)
    placeholders.check_all_used()
    return guard


def stored_bytes(change: Change) -> int:
    """Return the size of the item that a change replaces."""
    return change.stored.size_bytes if change.stored else 0


def put_item(database: Database, request: Request) -> dict[str, Any]:
    """Put one item."""
    return _written(database, request, parsed_put, ("NONE", "ALL_OLD"))


def delete_item(database: Database, request: Request) -> dict[str, Any]:
    """Delete one item, which need not exist."""
    return _written(database, request, parsed_delete, ("NONE", "ALL_OLD"))


def update_item(database: Database, request: Request) -> dict[str, Any]:
    """Change attributes of one item. A missing item is created."""
    return _written(database, request, parsed_update, RETURN_VALUES)


def _written(
    database: Database, request: Request, parsed: Callable[[Request], Planner], returns: tuple[str, ...]
) -> dict[str, Any]:
    returned = checked_return(request, returns)
    planner = parsed(request)
    plan = planner(database.table(request))
    database.write(plan.change, plan.failure)
    attributes = plan.attributes(returned)
    reply = {"Attributes": attributes} if attributes else {}
    reply |= consumed_member(request, plan.table, plan.change.draws)
    metrics = collection_metrics(request, plan.table, [plan.key])
    if metrics:
        reply["ItemCollectionMetrics"] = metrics[0]
    return reply


def planned_put(table: Table, item: Any) -> Write:
    """Return the put of an item. Raise if it cannot be stored."""
    canonical, size_bytes = stored_item(item)
    table.check_item(canonical)
    return Write(table, table.keys.key_of(canonical), canonical, size_bytes)


def planned_delete(table: Table, key: Any) -> Write:
    """Return the delete of a key. Raise if it is not a key of the table."""
    canonical = canonical_map(key)
    table.keys.check_key(canonical)
    return Write(table, table.keys.key_of(canonical), None, 0)


def batch_write_item(database: Database, request: Request) -> dict[str, Any]:
    """Put and delete up to 25 items. Each is admitted or throttled separately; throttled items are unprocessed."""
    asked = request.required("RequestItems")
    writes = _checked_batch(database, asked)
    draws: dict[str, list[Draw]] = {}
    unprocessed: dict[str, list[Any]] = {}
    keys: dict[str, list[Item]] = {}
    refusal: Refusal | None = None
    shows_metrics = request.text("ReturnItemCollectionMetrics") == "SIZE"
    leaves_unprocessed = database.fault_injector.leaves_unprocessed
    for name, original, write in writes:
        if leaves_unprocessed():
            unprocessed.setdefault(name, []).append(original)
            continue
        change = write.table.plan_write(write.key, write.new, write.size_bytes)
        try:
            database.take(change.draws)
        except Refusal as refused:
            refusal = refusal or refused
            unprocessed.setdefault(name, []).append(original)
            continue
        change.apply()
        draws.setdefault(write.table.name, []).extend(change.draws)
        if shows_metrics:
            item = original["PutRequest"]["Item"] if "PutRequest" in original else original["DeleteRequest"]["Key"]
            keys.setdefault(write.table.name, []).append(item)
    if refusal is not None and not draws:
        raise refusal
    metrics = {
        name: listed
        for name, written in keys.items()
        if (listed := collection_metrics(request, database.named(name), written))
    }
    return {
        "UnprocessedItems": unprocessed,
        **consumed_list(request, draws, database),
        **({"ItemCollectionMetrics": metrics} if metrics else {}),
    }


def _checked_batch(database: Database, asked: Any) -> list[tuple[str, Any, Write]]:
    if type(asked) is not dict or any(type(listed) is not list for listed in asked.values()):
        raise malformed()
    if not asked:
        raise invalid("The requestItems parameter is required for BatchWriteItem")
    if not all(0 < len(listed) <= MAX_BATCH_WRITES for listed in asked.values()):
        raise constraint_of_map(shown_value(asked), "requestItems", MAX_BATCH_WRITES)
    if sum(map(len, asked.values())) > MAX_BATCH_WRITES:
        raise invalid("Too many items requested for the BatchWriteItem call")
    writes = []
    seen: set[tuple[str, Key]] = set()
    for name, listed in asked.items():
        table = database.named(checked_name(name, "RequestItems"))
        for original in listed:
            write = _batched(table, original)
            if (table.name, write.key) in seen:
                raise invalid("Provided list of item keys contains duplicates")
            seen.add((table.name, write.key))
            writes.append((name, original, write))
    return writes


def _batched(table: Table, original: Any) -> Write:
    match original:
        case {"PutRequest": {"Item": item}} if len(original) == 1:
            return planned_put(table, item)
        case {"DeleteRequest": {"Key": key}} if len(original) == 1:
            return planned_delete(table, key)
        case dict():
            raise invalid("Supplied AttributeValue has more than one datatypes set or no PutRequest or DeleteRequest")
        case _:
            raise malformed()
