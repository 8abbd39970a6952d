"""Bring attribute values into the service's own spelling; refuses what DynamoDB refuses to store."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ddbio.core.attribute import AttributeValue, Item, decode_base64, encode_base64
from ddbio.core.capacity import item_size_bytes
from ddbio.core.number import canonical_number
from ddbio.errors import DecodeError
from ddbio.testing.refusal import Refusal, invalid, invalid_values, malformed

if TYPE_CHECKING:
    from collections.abc import Callable

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-items
MAX_ITEM_BYTES = 400 * 1024
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-attributes
MAX_NAME_BYTES = 65_535
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-attributes
MAX_DEPTH = 32
_SURELY_SHORT = MAX_NAME_BYTES // 4

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


def to_wire(value: Any) -> bytes:
    """Return compact JSON; text that is not UTF-8 is a SerializationException."""
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        raise malformed() from None


def stored_item(item: Any) -> tuple[Item, int]:
    """Return an item as the service stores it, and its size in bytes; refuse what it would not store."""
    canonical = _map(item, 0)
    try:
        size_bytes = item_size_bytes(canonical)
    except UnicodeEncodeError:
        raise malformed() from None
    if size_bytes > MAX_ITEM_BYTES:
        raise invalid_values("Item size has exceeded the maximum allowed size")
    return canonical, size_bytes


def canonical_value(value: Any, depth: int = 1) -> AttributeValue:
    """Return one attribute value in canonical spelling; refuse a value that is not exactly one known type."""
    if type(value) is not dict:
        raise malformed()
    if len(value) != 1:
        problem = "has more than one datatypes set" if value else "is empty"
        raise invalid(f"Supplied AttributeValue {problem}, must contain exactly one of the supported datatypes")
    ((tag, content),) = value.items()
    canonical = _CANONICAL.get(tag)
    if canonical is None:
        raise invalid("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
    result = canonical(content, depth)
    return value if result is content else {tag: result}


def _string(content: Any, _: int) -> str:
    if type(content) is not str:
        raise malformed()
    return content


@lru_cache(maxsize=65536)
def _number_text(text: str) -> str:
    try:
        return canonical_number(text)
    except DecodeError as error:
        raise _number_refusal(text, str(error)) from None


def _number_refusal(text: str, problem: str) -> Refusal:
    if "significant digits" in problem:
        return invalid("Attempting to store more than 38 significant digits in a Number")
    if "outside" in problem:
        small = "-" in text.lower().partition("e")[2] or text.lstrip("+-0").startswith(".")
        direction, size = ("underflow", "smaller") if small else ("overflow", "larger")
        return invalid(f"Number {direction}. Attempting to store a number with magnitude {size} than supported range")
    return invalid(f"The parameter cannot be converted to a numeric value: {text}")


def _number(content: Any, _: int) -> str:
    if type(content) is not str:
        raise malformed()
    text = _number_text(content)
    return content if text == content else text


def _binary(content: Any, _: int) -> str:
    if type(content) is not str:
        raise malformed()
    try:
        return encode_base64(decode_base64(content))
    except DecodeError:
        raise malformed() from None


def _boolean(content: Any, _: int) -> bool:
    if type(content) is not bool:
        raise malformed()
    return content


def _null(content: Any, _: int) -> bool:
    if type(content) is not bool:
        raise malformed()
    if not content:
        raise invalid_values("Null attribute value types must have the value of true")
    return content


def _set_of(canonical: Callable[[Any, int], str], kind: str) -> Callable[[Any, int], list[str]]:
    def elements(content: Any, depth: int) -> list[str]:
        if type(content) is not list:
            raise malformed()
        if not content:
            raise invalid_values(f"An {kind} set  may not be empty")
        members = [canonical(element, depth) for element in content]
        if len(set(members)) != len(members):
            raise invalid_values(f"Input collection [{', '.join(members)}] contains duplicates.")
        return members

    return elements


def _list(content: Any, depth: int) -> list[AttributeValue]:
    if type(content) is not list:
        raise malformed()
    _check_depth(depth)
    return [canonical_value(element, depth + 1) for element in content]


def _map(content: Any, depth: int) -> Item:
    if type(content) is not dict:
        raise malformed()
    _check_depth(depth)
    canonical: Item = {}
    for name, value in content.items():
        if not 0 < len(name) <= _SURELY_SHORT:
            check_name(name)
        # Strings are most of most items, and need no second look.
        is_string = type(value) is dict and len(value) == 1 and type(value.get("S")) is str
        canonical[name] = value if is_string else canonical_value(value, depth + 1)
    return canonical


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise invalid(
            "Nesting Levels have exceeded supported limits: "
            "Attributes in the item have nested levels beyond supported limit"
        )


def check_name(name: str) -> None:
    """Refuse an attribute name that is empty or too long."""
    if not name:
        raise invalid_values("Empty attribute name")
    if len(name.encode(errors="replace")) > MAX_NAME_BYTES:
        raise invalid("Attribute name is too large, must be less than 65536 bytes")


_CANONICAL: dict[str, Callable[[Any, int], Any]] = {
    "S": _string,
    "N": _number,
    "B": _binary,
    "BOOL": _boolean,
    "NULL": _null,
    "SS": _set_of(_string, "string"),
    "NS": _set_of(_number, "number"),
    "BS": _set_of(_binary, "binary"),
    "L": _list,
    "M": _map,
}
