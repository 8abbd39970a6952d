"""Read the members of one request with their types and bounds; refuses what has another JSON type."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ddbio.testing.refusal import constraint, invalid, lacking, malformed
from ddbio.testing.values import canonical_value

if TYPE_CHECKING:
    from ddbio.core.attribute import Item

_T = TypeVar("_T")

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html#HowItWorks.NamingRules
_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
_SURROGATE = re.compile(r"\\u[dD]")
_TABLE_ARN = re.compile(r"arn:[^:]*:dynamodb:[^:]*:[^:]*:table/([^/]+)")

# Expressions that decide over items belong to a full emulator.
_LACKING = (
    "AttributeUpdates",
    "ConditionalOperator",
    "Expected",
    "FilterExpression",
    "KeyConditions",
    "QueryFilter",
    "ScanFilter",
)


class Request:
    """Hold the parsed body of one request."""

    def __init__(self, members: dict[str, Any]) -> None:
        self.members = members
        for name in _LACKING:
            if name in members:
                raise lacking(name)

    @classmethod
    def parse(cls, body: bytes) -> Request:
        """Return the request in a body; refuse a body that is not one JSON object."""
        try:
            text = body.decode()
            parsed = json.loads(text, parse_constant=_refuse_constant)
            if _SURROGATE.search(text):
                # Half a surrogate pair has no UTF-8; the UnicodeEncodeError of such text is a ValueError.
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
        """Return a string member, one of ``choices`` where they are given."""
        value = self._typed(name, str)
        if choices is not None and value is not None and value not in choices:
            raise constraint(value, _member(name), f"satisfy enum value set: [{', '.join(choices)}]")
        return value

    def boolean(self, name: str) -> bool:
        """Return a boolean member; absent is false."""
        return bool(self._typed(name, bool))

    def integer(self, name: str, low: int, high: int | None = None) -> int | None:
        """Return an integer member within its bounds."""
        value = self._typed(name, int)
        if value is None:
            return None
        if value < low:
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

    def required(self, name: str) -> Any:
        """Return a member that must be there."""
        value = self.members.get(name)
        if value is None:
            raise constraint_null(name)
        return value

    def table_name(self, name: str = "TableName") -> str:
        """Return the table's name, which may be given as an ARN."""
        self.required(name)
        return checked_name(self.text(name) or "", name)

    def key(self, name: str = "Key") -> Item:
        """Return a key with its values in canonical spelling."""
        self.required(name)
        return canonical_map(self.mapping(name) or {})


def canonical_map(values: Any) -> Item:
    """Return a map of attribute values in canonical spelling."""
    if type(values) is not dict:
        raise malformed()
    return {name: canonical_value(value) for name, value in values.items()}


def checked_name(text: str, member: str) -> str:
    """Return the name in a table's name or ARN; refuse one that no table or index can have."""
    arn = _TABLE_ARN.match(text)
    name = arn[1] if arn else text
    if _NAME.fullmatch(name) is None:
        raise invalid(
            f"Invalid table/index name in {member}. Table/index names must be between 3 and 255 characters long, "
            "and may contain only the characters a-z, A-Z, 0-9, '_', '-', and '.'"
        )
    return name


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
