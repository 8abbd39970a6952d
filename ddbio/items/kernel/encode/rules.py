"""Rules for keys, and validation of the DynamoDB JSON of text columns in plain Python.

The printing loop checks columns by the same rules. ``RefusedValueError`` has the rule that a value breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ddbio.items.attribute import check_item, check_value
from ddbio.items.capacity import item_size_bytes
from ddbio.items.json_text import compact_json, parse_json
from ddbio.items.kernel.encode import codes
from ddbio.items.number import canonical_number
from ddbio.items.schema.arrow import SETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.aws.table_description import IndexKey

INDEX_BIT: Final = 4
"""The bit of index keys in the set of a row's keys; they are optional."""


class KeyRule(NamedTuple):
    """Requirements for one key attribute."""

    tag: str
    bit: int
    longest: int
    index_name: str

    @property
    def owner(self) -> str:
        """Return the name of the key for a message."""
        return f"the key of index {self.index_name!r}" if self.index_name else "the key"

    @property
    def length_message(self) -> str:
        """Return the message about a key that is too long."""
        return f"{self.owner} has more than {self.longest:,} bytes"

    def type_message(self, tag: str) -> str:
        """Return the message about a key of another type."""
        return f"{self.owner} is {tag}, the table's is {self.tag}"


def key_rules(keys: Mapping[str, str], index_keys: Iterable[IndexKey]) -> dict[str, KeyRule]:
    """Return the rule of each key attribute; with several indexes the one that allows the fewest bytes."""
    rules = {
        name: KeyRule(tag, 1 << number, codes.MAX_KEY_BYTES[number], "")
        for number, (name, tag) in enumerate(keys.items())
    }
    for key in index_keys:
        rule = rules.get(key.name, KeyRule(key.tag, INDEX_BIT, key.longest_bytes + 1, ""))
        if key.longest_bytes < rule.longest:
            rules[key.name] = rule._replace(longest=key.longest_bytes, index_name=key.index)
    return rules


class RefusedValueError(Exception):
    """A value breaks a rule; has the rule and the message, to which the caller adds the row."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(rule, message)
        self.rule = rule
        self.message = message


class Parsed(NamedTuple):
    """Parsed text: JSON that is ready to print, its size, and the keys in it."""

    text: bytes
    size: int
    keys: int
    names: list[str]


def read_value(text: bytes, depth: int, rule: KeyRule | None) -> Parsed:
    """Parse an attribute value of a column of JSON text, without its name.

    Raises
    ------
    DecodeError
        The text is not an attribute value.
    RefusedValueError
        DynamoDB refuses the value.
    """
    value = parse_json(text)
    check_value(value)
    _check_limits(value, depth)
    if rule is not None:
        check_key(value, rule)
    encoded = compact_json(value).encode()
    return Parsed(encoded, item_size_bytes({"": value}), rule.bit if rule else 0, [])


def read_members(text: bytes, rules: Mapping[str, KeyRule]) -> Parsed:
    """Parse the attributes of a row of the rescue column; the result has no braces around them.

    Raises
    ------
    DecodeError
        The text is not an item.
    RefusedValueError
        DynamoDB refuses one of the attributes.
    """
    item = parse_json(text)
    check_item(item)
    keys = 0
    for name, value in item.items():
        _check_name(name)
        _check_limits(value, 1)
        if name in rules:
            check_key(value, rules[name])
            keys |= rules[name].bit
    return Parsed(compact_json(item).encode()[1:-1], item_size_bytes(item), keys, list(item))


def check_row(item: dict[str, Any]) -> None:
    """Raise if an item breaks a rule for all tables.

    Raises
    ------
    DecodeError
        A value is not an attribute value.
    RefusedValueError
        DynamoDB refuses the item.
    """
    check_item(item)
    for name, value in item.items():
        _check_name(name)
        _check_limits(value, 1)
    if item_size_bytes(item) > codes.MAX_ITEM_BYTES:
        raise RefusedValueError("item_size", f"an item has at most {codes.MAX_ITEM_BYTES:,} bytes")


def check_key(value: dict[str, Any], rule: KeyRule) -> None:
    """Raise if a value has another type than its key, is empty or is too long."""
    ((tag, _content),) = value.items()
    if tag != rule.tag:
        raise RefusedValueError("key_type", rule.type_message(tag))
    if tag == "N":
        return
    size = item_size_bytes({"": value})
    if size == 0:
        raise RefusedValueError("key_empty", f"{rule.owner} is empty")
    if size > rule.longest:
        raise RefusedValueError("key_length", rule.length_message)


def _check_limits(value: dict[str, Any], depth: int) -> None:
    ((tag, content),) = value.items()
    if tag in SETS:
        if not content:
            raise RefusedValueError("empty_set", "the set is empty")
        texts = [canonical_number(text) for text in content] if tag == "NS" else content
        if len(set(texts)) < len(texts):
            raise RefusedValueError("duplicate", "an element is twice in the set")
    elif tag in {"L", "M"}:
        if depth >= codes.MAX_DEPTH:
            raise RefusedValueError("depth", f"it is nested deeper than {codes.MAX_DEPTH} levels")
        if tag == "M":
            for name in content:
                _check_name(name)
        for member in content if tag == "L" else content.values():
            _check_limits(member, depth + 1)


def _check_name(name: str) -> None:
    if not 1 <= len(name.encode()) <= codes.MAX_NAME_BYTES:
        raise RefusedValueError("name", f"an attribute's name has 1 to {codes.MAX_NAME_BYTES:,} bytes")
