"""Answer PutItem, DeleteItem, BatchWriteItem and UpdateItem.

UpdateItem takes lists of SET and REMOVE; it has no arithmetic, no nested attributes, no ADD and no DELETE.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.testing.expressions.conditions import Guard, checked_return, write_placeholders
from ddbio.testing.expressions.parsing import Placeholders, Tokens
from ddbio.testing.pricing import item_bytes
from ddbio.testing.refusal import Refusal, constraint, invalid, invalid_values, lacking, malformed
from ddbio.testing.request import MAX_ITEM_BYTES, Request, canonical_map, checked_name, stored_item
from ddbio.testing.tables.database import Database, consumed_list, consumed_member

if TYPE_CHECKING:
    from ddbio.items.attribute import AttributeValue, Item
    from ddbio.testing.tables.capacity import Draw
    from ddbio.testing.tables.table import Key, KeySchema, Table


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
MAX_BATCH_WRITES = 25
_RETURNS = ("ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW")
_LACKING_SECTIONS = ("ADD", "DELETE")


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
    """Return the delete of a key; refuse one that is not a key of the table."""
    canonical = canonical_map(key)
    table.keys.check_key(canonical)
    return Write(table, table.keys.key_of(canonical), None, 0)


def _write_one(database: Database, request: Request, write: Write) -> dict[str, Any]:
    returned = checked_return(request, ("NONE", "ALL_OLD"))
    placeholders = write_placeholders(request)
    guard = Guard.of(request, placeholders)
    placeholders.check_all_used()
    change = write.table.plan_write(write.key, write.new, write.size_bytes)
    database.write(change, guard.refusal(change.old) if guard.predicate is not None else None)
    shown = change.old if returned == "ALL_OLD" else None
    return {**({} if shown is None else {"Attributes": shown}), **consumed_member(request, write.table, change.draws)}


def batch_write_item(database: Database, request: Request) -> dict[str, Any]:
    """Put and delete up to 25 items. Each is admitted or throttled by itself; throttled items are unprocessed."""
    asked = request.required("RequestItems")
    writes = _checked_batch(database, asked)
    draws: dict[str, list[Draw]] = {}
    unprocessed: dict[str, list[Any]] = {}
    refusal: Refusal | None = None
    leaves = database.fault_injector.leaves
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


@dataclass(slots=True)
class Update:
    """Hold what an UpdateExpression sets and removes."""

    sets: dict[str, AttributeValue] = field(default_factory=dict)
    removes: set[str] = field(default_factory=set)

    def applied(self, key: Item, old: Item | None) -> Item | None:
        """Return the item after the update; an update that only removes makes no new item."""
        if old is None and self.removes and not self.sets:
            return None
        remaining = {name: value for name, value in (old or key).items() if name not in self.removes}
        return {**remaining, **self.sets}

    @property
    def names(self) -> set[str]:
        """The attributes that the update touches."""
        return self.removes.union(self.sets)


def update_item(database: Database, request: Request) -> dict[str, Any]:
    """Set and remove attributes of one item, under a condition; a missing item is made."""
    table = database.table(request)
    given = canonical_map(request.required("Key"))
    table.keys.check_key(given)
    returned = checked_return(request, _RETURNS)
    placeholders = write_placeholders(request)
    guard = Guard.of(request, placeholders)
    update = requested_update(request, placeholders, table.keys)
    placeholders.check_all_used()
    key = table.keys.key_of(given)
    new = update.applied(given, table.read_item(key))
    size_bytes = 0 if new is None else item_bytes(new)
    if size_bytes > MAX_ITEM_BYTES:
        raise invalid_values("Item size to update has exceeded the maximum allowed size")
    if new is not None:
        table.check_item(new)
    change = table.plan_write(key, new, size_bytes)
    old = change.old
    database.write(change, guard.refusal(old))
    attributes = _returned(returned, old, new, update.names)
    return {**({"Attributes": attributes} if attributes else {}), **consumed_member(request, table, change.draws)}


def _returned(returned: str, old: Item | None, new: Item | None, touched: set[str]) -> Item:
    item = (old if returned.endswith("OLD") else new) or {}
    if returned == "NONE":
        return {}
    return item if returned.startswith("ALL") else {name: item[name] for name in item if name in touched}


def requested_update(request: Request, placeholders: Placeholders, keys: KeySchema) -> Update:
    """Return the update a request asks for; refuse one that touches the key or an attribute twice."""
    text = request.text("UpdateExpression")
    if text is None:
        return Update()
    tokens = Tokens("UpdateExpression", text)
    update = _parsed(tokens, placeholders)
    for name in keys.names:
        if name in update.names:
            raise invalid_values(f"Cannot update attribute {name}. This attribute is part of the key")
    return update


def _parsed(tokens: Tokens, placeholders: Placeholders) -> Update:
    update = Update()
    seen: set[str] = set()
    while tokens.peek():
        section = tokens.next().upper()
        if section in _LACKING_SECTIONS:
            raise lacking(f"{section} in an UpdateExpression")
        if section not in {"SET", "REMOVE"}:
            raise tokens.syntax_error(section)
        if section in seen:
            raise tokens.refusal(f'The "{section}" section can only be used once in an update expression;')
        seen.add(section)
        _read_clause(tokens, placeholders, update, section)
        while tokens.accept(","):
            _read_clause(tokens, placeholders, update, section)
    return update


def _read_clause(tokens: Tokens, placeholders: Placeholders, update: Update, section: str) -> None:
    name = placeholders.name(tokens, tokens.next())
    if tokens.peek() in {".", "["}:
        raise lacking("A nested attribute in an UpdateExpression")
    if name in update.names:
        raise tokens.refusal(
            "Two document paths overlap with each other; must remove or rewrite one of these paths; "
            f"path one: [{name}], path two: [{name}]"
        )
    if section == "REMOVE":
        update.removes.add(name)
        return
    tokens.expect("=")
    operand = tokens.next()
    if not operand.startswith(":"):
        raise lacking("SET of anything but a plain value")
    update.sets[name] = placeholders.value(tokens, operand)
