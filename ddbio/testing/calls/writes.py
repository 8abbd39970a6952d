"""Answer PutItem, DeleteItem and BatchWriteItem; refuses to write two items with one condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.testing.expressions.condition import Guard, checked_return, write_placeholders
from ddbio.testing.refusal import Refusal, constraint, invalid, malformed
from ddbio.testing.request import Request, canonical_map, checked_name
from ddbio.testing.tables.database import Database, consumed_list, consumed_member
from ddbio.testing.values import stored_item

if TYPE_CHECKING:
    from ddbio.core.attribute import Item
    from ddbio.testing.tables.capacity import Draw
    from ddbio.testing.tables.schema import Key
    from ddbio.testing.tables.table import Table

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
MAX_BATCH_WRITES = 25


class Write(NamedTuple):
    """Hold one checked write of a whole item, or a delete."""

    table: Table
    key: Key
    new: Item | None
    size_bytes: int


def put_item(database: Database, request: Request) -> dict[str, Any]:
    """Put one whole item."""
    table = database.table(request)
    return _write_one(database, request, planned_put(table, request.required("Item")))


def delete_item(database: Database, request: Request) -> dict[str, Any]:
    """Delete one item, which need not exist."""
    table = database.table(request)
    return _write_one(database, request, planned_delete(table, request.required("Key")))


def planned_put(table: Table, item: Any) -> Write:
    """Return the put of an item; refuse one that cannot be stored."""
    canonical, size_bytes = stored_item(item)
    table.check_item(canonical)
    return Write(table, table.keys.key_of(canonical), canonical, size_bytes)


def planned_delete(table: Table, key: Any) -> Write:
    """Return the delete of a key; refuse one that is no key of the table."""
    canonical = canonical_map(key)
    table.keys.check_key(canonical)
    return Write(table, table.keys.key_of(canonical), None, 0)


def _write_one(database: Database, request: Request, write: Write) -> dict[str, Any]:
    returned = checked_return(request, ("NONE", "ALL_OLD"))
    placeholders = write_placeholders(request)
    guard = Guard.asked(request, placeholders)
    placeholders.check_all_used()
    change = write.table.plan_write(write.key, write.new, write.size_bytes)
    database.write(change, guard.refusal(change.old) if guard.predicate is not None else None)
    shown = change.old if returned == "ALL_OLD" else None
    return {**({} if shown is None else {"Attributes": shown}), **consumed_member(request, write.table, change.draws)}


def batch_write_item(database: Database, request: Request) -> dict[str, Any]:
    """Put and delete up to 25 items, each admitted by itself; what was not comes back as unprocessed."""
    asked = request.required("RequestItems")
    writes = _checked_batch(database, asked)
    draws: dict[str, list[Draw]] = {}
    unprocessed: dict[str, list[Any]] = {}
    refusal: Refusal | None = None
    leaves = database.mishaps.leaves
    for name, original, write in writes:
        if leaves():
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
    if refusal is not None and not draws:
        raise refusal
    return {"UnprocessedItems": unprocessed, **consumed_list(request, draws, database)}


def _checked_batch(database: Database, asked: Any) -> list[tuple[str, Any, Write]]:
    if type(asked) is not dict or any(type(listed) is not list for listed in asked.values()):
        raise malformed()
    if not asked or not all(asked.values()):
        raise constraint(asked, "requestItems", "have length greater than or equal to 1")
    if sum(map(len, asked.values())) > MAX_BATCH_WRITES:
        raise constraint("{...}", "requestItems", f"have length less than or equal to {MAX_BATCH_WRITES}")
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
