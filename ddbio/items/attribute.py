"""Validation of DynamoDB attribute values, and exact conversion to Python values and back.

This is the reference implementation, with which the tests compare faster code. Values that DynamoDB refuses are a
DecodeError: a value that is not exactly one known type, a number beyond 38 digits or out of range, text that is not
UTF-8, invalid base64. Numbers are validated in ``number``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.number import MAX_EXPONENT, canonical_number, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

AttributeValue: TypeAlias = dict[str, Any]
"""One value in DynamoDB JSON, parsed: a type and its content, ``{"S": "text"}``."""

Item: TypeAlias = dict[str, AttributeValue]
"""One item in DynamoDB JSON, parsed by ``json.loads``."""

TAGS = ("S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "L", "M")
"""All types of DynamoDB."""


def decode_base64(text: str) -> bytes:
    """Return the bytes of padded base64 text, strictly.

    Raises
    ------
    DecodeError
        The text is not base64.
    """
    # The strict mode does not refuse surplus padding.
    if len(text) % 4 or text.endswith("==="):
        raise DecodeError(f"{quoted(text)} is not base64: wrong length or padding")
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise DecodeError(f"{quoted(text)} is not base64: {error}") from None


def encode_base64(value: bytes) -> str:
    """Return bytes as base64 with padding, as DynamoDB writes them."""
    return base64.b64encode(value).decode("ascii")


def tag_of(value: AttributeValue) -> str:
    """Return the type of a checked attribute value."""
    return next(iter(value))


def to_python(value: AttributeValue) -> Any:
    """Return the value as ``str``, exact ``Decimal``, ``bytes``, ``bool``, ``None``, ``set``, ``list`` or ``dict``.

    Raises
    ------
    DecodeError
        The value is not exactly one known type with content of that type.
    """
    check_value(value)
    return _python(value)


def _python(value: AttributeValue) -> Any:
    ((tag, content),) = value.items()
    return _TO_PYTHON[tag](content)


def _number(text: str) -> Decimal:
    # The constructor is exact. Only arithmetic rounds to the context.
    return Decimal(canonical_number(text))


_TO_PYTHON: dict[str, Callable[[Any], Any]] = {
    "S": str,
    "N": _number,
    "B": decode_base64,
    "BOOL": bool,
    "NULL": lambda _: None,
    "SS": set,
    "NS": lambda content: {_number(text) for text in content},
    "BS": lambda content: {decode_base64(text) for text in content},
    "L": lambda content: [_python(element) for element in content],
    "M": lambda content: {name: _python(member) for name, member in content.items()},
}


def from_python(value: Any) -> AttributeValue:  # noqa: PLR0911 - one line a type
    """Return the attribute value of a Python value, with canonical numbers and sorted sets.

    Raises
    ------
    SchemaError
        DynamoDB has no exact encoding of the value: a ``float``, an empty or mixed set, an unknown type.
    DecodeError
        A number is beyond 38 digits or out of range.
    """
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | Decimal():
            return {"N": _number_text(value)}
        case str():
            return {"S": value}
        case bytes() | bytearray() | memoryview():
            return {"B": encode_base64(bytes(value))}
        case set() | frozenset():
            return _set_from_python(value)
        case list() | tuple():
            return {"L": [from_python(element) for element in value]}
        case Mapping():
            return {"M": {_name(name): from_python(member) for name, member in value.items()}}
        case float():
            raise SchemaError(f"{value!r} is a float, which is not exact: pass decimal.Decimal(str(value)) instead")
        case _:
            raise SchemaError(f"DynamoDB has no type for a {type(value).__name__}: convert {quoted(value)} first")


def _number_text(value: int | Decimal) -> str:
    # Python refuses to print an int of more than 4,300 digits. DynamoDB's limit is far lower.
    if isinstance(value, int) and abs(value) >= 10 ** (MAX_EXPONENT + 1):
        raise DecodeError(f"an integer of {value.bit_length()} bits is outside the range to 9.99E+{MAX_EXPONENT}")
    return canonical_number(str(value))


def _name(name: Any) -> str:
    if isinstance(name, str):
        return name
    raise SchemaError(f"{quoted(name)} is no attribute name: DynamoDB's names are strings")


def _set_from_python(value: Iterable[Any]) -> AttributeValue:
    elements = [from_python(element) for element in value]
    tags = {tag_of(element) for element in elements}
    if len(tags) != 1 or not tags <= {"S", "N", "B"}:
        raise SchemaError(f"{quoted(value)} is no DynamoDB set: all elements must be strings, or numbers, or bytes")
    tag = tags.pop()
    return {tag + "S": sorted(element[tag] for element in elements)}


def check_item(item: Any, path: str = "") -> None:
    """Check that every value of an item is exactly one known type with content of that type.

    Parameters
    ----------
    item
        The parsed JSON of one item.
    path
        The name of the item in an error.

    Raises
    ------
    DecodeError
        A value is invalid. The message begins with its path.
    """
    if type(item) is not dict:
        raise DecodeError(f"{path or 'item'}: expected an object of attributes, found {quoted(item)}")
    for name, value in item.items():
        _check_text(name, path or "item")
        check_value(value, f"{path}.{name}" if path else name)


def check_value(value: Any, path: str = "value") -> None:
    """Check that a value is exactly one known type with content of that type.

    Raises
    ------
    DecodeError
        It is invalid. The message begins with ``path``.
    """
    if type(value) is not dict or len(value) != 1:
        raise DecodeError(f'{path}: expected one type and its value, like {{"S": "text"}}, found {quoted(value)}')
    ((tag, content),) = value.items()
    check = _CHECKS.get(tag)
    if check is None:
        raise DecodeError(f"{path}: {quoted(tag)} is not a DynamoDB type; the types are {', '.join(TAGS)}")
    check(content, path)


def _check_text(content: Any, path: str) -> None:
    if type(content) is not str:
        raise DecodeError(f"{path}: expected a JSON string, found {quoted(content)}")
    if not content.isascii():
        try:
            content.encode()
        except UnicodeEncodeError:
            raise DecodeError(f"{path}: {quoted(content)} holds half of a surrogate pair, which is not UTF-8") from None


def _check_parsed(parse: Callable[[str], Any]) -> Callable[[Any, str], None]:
    def check(content: Any, path: str) -> None:
        _check_text(content, path)
        try:
            parse(content)
        except DecodeError as error:
            raise DecodeError(f"{path}: {error}") from None

    return check


def _check_bool(content: Any, path: str) -> None:
    if type(content) is not bool:
        raise DecodeError(f"{path}: BOOL must be true or false, found {quoted(content)}")


def _check_null(content: Any, path: str) -> None:
    if content is not True:
        raise DecodeError(f"{path}: NULL must be true, found {quoted(content)}")


def _check_each(check: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
    def check_list(content: Any, path: str) -> None:
        if type(content) is not list:
            raise DecodeError(f"{path}: expected a JSON array, found {quoted(content)}")
        for index, element in enumerate(content):
            check(element, f"{path}[{index}]")

    return check_list


_check_number = _check_parsed(canonical_number)
_check_binary = _check_parsed(decode_base64)
_CHECKS: dict[str, Callable[[Any, str], None]] = {
    "S": _check_text,
    "N": _check_number,
    "B": _check_binary,
    "BOOL": _check_bool,
    "NULL": _check_null,
    "SS": _check_each(_check_text),
    "NS": _check_each(_check_number),
    "BS": _check_each(_check_binary),
    "L": _check_each(check_value),
    "M": check_item,
}
