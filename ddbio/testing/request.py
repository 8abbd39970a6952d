"""Typed and bounded members of a request, and canonical attribute values.

Input that DynamoDB would refuse raises DynamoDB's own error.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ddbio.errors import DecodeError
from ddbio.items.attribute import AttributeValue, Item, decode_base64, encode_base64
from ddbio.items.number import canonical_number
from ddbio.testing.pricing import item_bytes
from ddbio.testing.refusal import Refusal, constraint, invalid, invalid_values, malformed, violations

if TYPE_CHECKING:
    from collections.abc import Callable


# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-items
MAX_ITEM_BYTES = 400 * 1024
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-attributes
MAX_NAME_BYTES = 65_535
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-attributes
MAX_DEPTH = 32
_MAX_UNCHECKED_LENGTH = MAX_NAME_BYTES // 4

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode
_T = TypeVar("_T")
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html#HowItWorks.NamingRules
_NAME = re.compile(r"[a-zA-Z0-9_.-]+")
_MIN_NAME_LENGTH, _MAX_NAME_LENGTH = 3, 255
_SURROGATE = re.compile(r"\\u[dD]")
_TABLE_ARN = re.compile(r"arn:[^:]*:dynamodb:[^:]*:[^:]*:table/([^/]+)")


def to_json(value: Any) -> bytes:
    """Return compact JSON. Text that is not UTF-8 raises a SerializationException."""
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        raise malformed() from None


def stored_item(item: Any, too_large: str = "Item size has exceeded the maximum allowed size") -> tuple[Item, int]:
    """Return an item as the service stores it, and its size in bytes. Raise if the service would not store it."""
    canonical = _map(item, 0)
    try:
        size_bytes = item_bytes(canonical)
    except UnicodeEncodeError:
        raise malformed() from None
    if size_bytes > MAX_ITEM_BYTES:
        raise invalid_values(too_large)
    return canonical, size_bytes


def canonical_value(value: Any, depth: int = 1) -> AttributeValue:
    """Return one canonical attribute value. Raise if the value has not exactly one known type."""
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
        raise number_refusal(text, str(error)) from None


def number_refusal(text: str, problem: str) -> Refusal:
    """Return the refusal of a number that cannot be stored."""
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


def _set_of(canonical: Callable[[Any, int], str], empty: str) -> Callable[[Any, int], list[str]]:
    def elements(content: Any, depth: int) -> list[str]:
        if type(content) is not list:
            raise malformed()
        if not content:
            raise invalid_values(empty)
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
        if not 0 < len(name) <= _MAX_UNCHECKED_LENGTH:
            check_name(name)
        # Most values are strings, which need no further check.
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
    """Raise if an attribute name is empty or too long."""
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
    "SS": _set_of(_string, "An string set  may not be empty"),
    "NS": _set_of(_number, "An number set  may not be empty"),
    "BS": _set_of(_binary, "Binary sets should not be empty"),
    "L": _list,
    "M": _map,
}


class Request:
    """Parsed body of one request.

    Attributes
    ----------
    members
        The members by name.
    is_sent
        Whether the client sent the expressions. Otherwise they come from legacy parameters or a statement.
    """

    def __init__(self, members: dict[str, Any], *, is_sent: bool = True) -> None:
        self.members = members
        self.is_sent = is_sent

    @classmethod
    def parse(cls, body: bytes) -> Request:
        """Return the request in a body. Raise if the body is not one JSON object."""
        try:
            text = body.decode()
            parsed = json.loads(text, parse_constant=_refuse_constant)
            if _SURROGATE.search(text):
                # Half a surrogate pair has no UTF-8. The UnicodeEncodeError of such text is a ValueError.
                json.dumps(parsed, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise malformed() from None
        if type(parsed) is not dict:
            raise malformed()
        return cls(parsed)

    def _typed(self, name: str, kind: type[_T]) -> _T | None:
        value = self.members.get(name)
        if value is None:
            return None
        if type(value) is not kind:
            raise malformed(f"{name} is not a {kind.__name__}")
        return value

    def text(self, name: str, choices: tuple[str, ...] | None = None) -> str | None:
        """Return a string member. If ``choices`` is set, it must be one of them."""
        value = self._typed(name, str)
        if choices is not None and value is not None and value not in choices:
            raise constraint(value, _member(name), f"satisfy enum value set: [{', '.join(choices)}]")
        return value

    def boolean(self, name: str) -> bool:
        """Return a boolean member. The default is false."""
        return bool(self._typed(name, bool))

    def integer(self, name: str, low: int | None = None, high: int | None = None) -> int | None:
        """Return an integer member within its bounds."""
        value = self._typed(name, int)
        if value is None:
            return None
        if low is not None and value < low:
            raise constraint(value, _member(name), f"have value greater than or equal to {low}")
        if high is not None and value > high:
            raise constraint(value, _member(name), f"have value less than or equal to {high}")
        return value

    def mapping(self, name: str) -> dict[str, Any] | None:
        """Return an object member."""
        return self._typed(name, dict)

    def listing(self, name: str) -> list[Any] | None:
        """Return an array member."""
        return self._typed(name, list)

    def tags(self) -> dict[str, str]:
        """Return the tags of the request by key."""
        tags = {}
        for tag in self.listing("Tags") or ():
            match tag:
                case {"Key": str(key), "Value": str(value)}:
                    tags[key] = value
                case _:
                    raise malformed()
        return tags

    def required(self, name: str) -> Any:
        """Return a required member."""
        value = self.members.get(name)
        if value is None:
            raise constraint_null(name)
        return value

    def table_name(self, name: str = "TableName") -> str:
        """Return the table's name. The request may have its ARN instead."""
        self.required(name)
        return checked_name(self.text(name) or "", name)

    def key(self, name: str = "Key") -> Item:
        """Return a key with canonical values."""
        self.required(name)
        return canonical_map(self.mapping(name) or {})


def canonical_map(values: Any) -> Item:
    """Return a map of canonical attribute values."""
    if type(values) is not dict:
        raise malformed()
    return {name: canonical_value(value) for name, value in values.items()}


@lru_cache(maxsize=4096)
def checked_name(text: str, member: str) -> str:
    """Return the name in a table's name or ARN. Raise if no table or index can have it."""
    problems = name_problems(text, _member(member), 1 if member == "TableName" else _MIN_NAME_LENGTH)
    if problems:
        raise violations(problems)
    return _plain_name(text)


@lru_cache(maxsize=4096)
def name_problems(text: str, path: str, least: int) -> tuple[str, ...]:
    """Return the constraints that a table's name or ARN breaks, in the words of the service."""
    name = _plain_name(text)
    rules = (
        (not name or _NAME.fullmatch(name) is not None, f"satisfy regular expression pattern: {_NAME.pattern}"),
        (len(name) >= least, f"have length greater than or equal to {least}"),
        (len(name) <= _MAX_NAME_LENGTH, f"have length less than or equal to {_MAX_NAME_LENGTH}"),
    )
    return tuple(
        f"Value '{name}' at '{path}' failed to satisfy constraint: Member must {rule}"
        for is_satisfied, rule in rules
        if not is_satisfied
    )


def table_in_arn(text: str) -> str | None:
    """Return the name of the table in an ARN, or None if the text is no ARN of a table."""
    arn = _TABLE_ARN.match(text)
    return arn[1] if arn else None


def _plain_name(text: str) -> str:
    return table_in_arn(text) or text


def constraint_null(name: str) -> Exception:
    """Return the refusal of a request that lacks a required member."""
    return invalid(
        f"1 validation error detected: Value null at '{_member(name)}' failed to satisfy constraint: "
        "Member must not be null"
    )


def _member(name: str) -> str:
    return name[:1].lower() + name[1:]


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError
