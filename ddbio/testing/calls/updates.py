"""Answer UpdateItem by lists of SET and REMOVE; refuses arithmetic, nested attributes, ADD and DELETE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddbio.core.capacity import item_size_bytes
from ddbio.testing.expressions.condition import Guard, checked_return, write_placeholders
from ddbio.testing.expressions.names import Placeholders, Tokens
from ddbio.testing.refusal import invalid_values, lacking
from ddbio.testing.request import Request, canonical_map
from ddbio.testing.tables.database import Database, consumed_member
from ddbio.testing.values import MAX_ITEM_BYTES

if TYPE_CHECKING:
    from ddbio.core.attribute import AttributeValue, Item
    from ddbio.testing.tables.schema import KeySchema

_RETURNS = ("ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW")
_LACKING_SECTIONS = ("ADD", "DELETE")


@dataclass(slots=True)
class Update:
    """Hold what an UpdateExpression sets and removes."""

    sets: dict[str, AttributeValue] = field(default_factory=dict)
    removes: set[str] = field(default_factory=set)

    def applied(self, key: Item, old: Item | None) -> Item | None:
        """Return the item after the update; one that only removes makes no item."""
        if old is None and self.removes and not self.sets:
            return None
        kept = {name: value for name, value in (old or key).items() if name not in self.removes}
        return {**kept, **self.sets}

    @property
    def names(self) -> set[str]:
        """The attributes that the update touches."""
        return self.removes.union(self.sets)


def update_item(database: Database, request: Request) -> dict[str, Any]:
    """Set and remove attributes of one item, which is made if there is none, under a condition."""
    table = database.table(request)
    given = canonical_map(request.required("Key"))
    table.keys.check_key(given)
    returned = checked_return(request, _RETURNS)
    placeholders = write_placeholders(request)
    guard = Guard.asked(request, placeholders)
    update = asked_update(request, placeholders, table.keys)
    placeholders.check_all_used()
    key = table.keys.key_of(given)
    new = update.applied(given, table.read_item(key))
    size_bytes = 0 if new is None else item_size_bytes(new)
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


def asked_update(request: Request, placeholders: Placeholders, keys: KeySchema) -> Update:
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
