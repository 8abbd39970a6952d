"""Read the DynamoDB JSON that text columns hold, and check it as the printing loop checks columns.

Refuses, with a RefusedValueError, what DynamoDB would not take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.core.attribute import check_item, check_value
from ddbio.core.capacity import item_size_bytes
from ddbio.core.kernel.encode import state as st
from ddbio.core.number import canonical_number
from ddbio.core.schema.arrow import SETS
from ddbio.core.text.json_text import compact_json, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.core.kernel.encode.keys import KeyRule


class RefusedValueError(Exception):
    """Carry the rule that a value breaks and the message from where it is found to its row."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(rule, message)
        self.rule = rule
        self.message = message


class Parsed(NamedTuple):
    """Hold what a text comes to: JSON that is ready to print, its size, and which keys it has."""

    text: bytes
    weight: int
    keys: int
    names: list[str]


def read_value(text: bytes, depth: int, rule: KeyRule | None) -> Parsed:
    """Return the attribute value of a column of JSON text, without its name.

    Raises
    ------
    DecodeError
        It is none.
    RefusedValueError
        DynamoDB does not take it.
    """
    value = parse_json(text)
    check_value(value)
    _check_limits(value, depth)
    if rule is not None:
        check_key(value, rule)
    encoded = compact_json(value).encode()
    return Parsed(encoded, item_size_bytes({"": value}), rule.bit if rule else 0, [])


def read_members(text: bytes, rules: Mapping[str, KeyRule]) -> Parsed:
    """Return the attributes of a row of the rescue column, without the braces around them.

    Raises
    ------
    DecodeError
        They are none.
    RefusedValueError
        DynamoDB does not take one of them.
    """
    item = parse_json(text)
    check_item(item)
    found = 0
    for name, value in item.items():
        _check_name(name)
        _check_limits(value, 1)
        if name in rules:
            check_key(value, rules[name])
            found |= rules[name].bit
    return Parsed(compact_json(item).encode()[1:-1], item_size_bytes(item), found, list(item))


def check_key(value: dict[str, Any], rule: KeyRule) -> None:
    """Refuse a value that is not of its key's type, empty or too long."""
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
        if depth >= st.MAX_DEPTH:
            raise RefusedValueError("depth", f"it is nested deeper than {st.MAX_DEPTH} levels")
        if tag == "M":
            for name in content:
                _check_name(name)
        for member in content if tag == "L" else content.values():
            _check_limits(member, depth + 1)


def _check_name(name: str) -> None:
    if not 1 <= len(name.encode()) <= st.MAX_NAME_BYTES:
        raise RefusedValueError("name", f"an attribute's name has 1 to {st.MAX_NAME_BYTES:,} bytes")
