"""Decide by a ConditionExpression whether a write may go on; refuses nested attributes and functions beyond existence.

Existence, comparisons and AND, OR, NOT are what writers need that must not replace a newer item; whatever else the
language has is refused by name, never answered as if it were not there.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ddbio.core.attribute import AttributeValue, Item, decode_base64
from ddbio.testing.expressions.names import Placeholders, Tokens
from ddbio.testing.refusal import Refusal, condition_failed, invalid, lacking

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.testing.request import Request

Predicate: TypeAlias = "Callable[[Item], bool]"
Operand: TypeAlias = "Callable[[Item], AttributeValue | None]"

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
_ORDERED_TAGS = frozenset({"S", "N", "B"})
_LACKING_FUNCTIONS = frozenset({"attribute_type", "begins_with", "contains", "size"})
EXPRESSIONS = ("ConditionExpression", "UpdateExpression")


class Guard(NamedTuple):
    """Hold the condition of one write, and whether a failure shows the item that failed it."""

    predicate: Predicate | None
    shows_item: bool

    @classmethod
    def asked(cls, request: Request, placeholders: Placeholders) -> Guard:
        """Return the guard of a request; without a condition it lets everything pass."""
        text = request.text("ConditionExpression")
        shown = request.text("ReturnValuesOnConditionCheckFailure", ("ALL_OLD", "NONE"))
        return cls(None if text is None else predicate_of(text, placeholders), shown == "ALL_OLD")

    def refusal(self, item: Item | None) -> Refusal | None:
        """Return the refusal of a write over this item, or None if it may go on; no item has no attribute."""
        if self.predicate is None or self.predicate(item or {}):
            return None
        return condition_failed(item if self.shows_item else None)


def write_placeholders(request: Request) -> Placeholders:
    """Return the placeholders of a request that writes one item."""
    return Placeholders(request, has_expression=any(request.text(name) is not None for name in EXPRESSIONS))


def predicate_of(text: str, placeholders: Placeholders) -> Predicate:
    """Return what decides a ConditionExpression over an item in canonical spelling."""
    return _Parser(Tokens("ConditionExpression", text), placeholders).parsed()


class _Parser:
    def __init__(self, tokens: Tokens, placeholders: Placeholders) -> None:
        self._tokens = tokens
        self._placeholders = placeholders

    def parsed(self) -> Predicate:
        predicate = self._alternatives()
        if self._tokens.peek():
            raise self._tokens.syntax_error(self._tokens.peek())
        return predicate

    def _alternatives(self) -> Predicate:
        parts = [self._conjunction()]
        while self._tokens.accept("OR"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else lambda item: any(part(item) for part in parts)

    def _conjunction(self) -> Predicate:
        parts = [self._term()]
        while self._tokens.accept("AND"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else lambda item: all(part(item) for part in parts)

    def _term(self) -> Predicate:
        if self._tokens.accept("NOT"):
            negated = self._term()
            return lambda item: not negated(item)
        if self._tokens.accept("("):
            inner = self._alternatives()
            self._tokens.expect(")")
            return inner
        first = self._tokens.next()
        return self._function(first) if self._tokens.peek() == "(" else self._comparison(first)

    def _function(self, function: str) -> Predicate:
        if function in _LACKING_FUNCTIONS:
            raise lacking(f"{function} in a ConditionExpression")
        if function not in {"attribute_exists", "attribute_not_exists"}:
            raise self._tokens.refusal(f"Invalid function name; function: {function}")
        self._tokens.expect("(")
        name = self._name(self._tokens.next())
        if self._tokens.peek() == ",":
            raise self._tokens.refusal(
                "Incorrect number of operands for operator or function; "
                f"operator or function: {function}, number of operands: 2"
            )
        self._tokens.expect(")")
        exists = function == "attribute_exists"
        return lambda item: (name in item) is exists

    def _comparison(self, first: str) -> Predicate:
        left = self._operand(first, self._tokens.peek())
        operator = self._tokens.next()
        if operator.upper() in {"BETWEEN", "IN"}:
            raise lacking(f"{operator.upper()} in a ConditionExpression")
        if operator not in {"=", "<>", *_ORDERS}:
            raise self._tokens.syntax_error(operator)
        right = self._operand(self._tokens.next(), operator)
        return lambda item: holds(operator, left(item), right(item))

    def _operand(self, token: str, operator: str) -> Operand:
        if not token.startswith(":"):
            name = self._name(token)
            return lambda item: item.get(name)
        value = self._placeholders.value(self._tokens, token)
        tag = next(iter(value))
        if operator in _ORDERS and tag not in _ORDERED_TAGS:
            raise self._tokens.refusal(
                "Incorrect operand type for operator or function; "
                f"operator or function: {operator}, operand type: {tag}"
            )
        return lambda _: value

    def _name(self, token: str) -> str:
        name = self._placeholders.name(self._tokens, token)
        if self._tokens.peek() in {".", "["}:
            raise lacking("A nested attribute in a ConditionExpression")
        return name


def holds(operator: str, left: AttributeValue | None, right: AttributeValue | None) -> bool:
    """Return whether a comparison of two canonical values holds; what is absent differs from everything."""
    if left is None or right is None:
        return operator == "<>"
    if operator in {"=", "<>"}:
        return (_comparable(left) == _comparable(right)) is (operator == "=")
    ((tag, one),), ((other_tag, other),) = left.items(), right.items()
    return tag == other_tag and tag in _ORDERED_TAGS and _ORDERS[operator](_rank(tag, one), _rank(tag, other))


def _rank(tag: str, content: str) -> Decimal | bytes:
    if tag == "N":
        return Decimal(content)
    return decode_base64(content) if tag == "B" else content.encode(errors="replace")


def _comparable(value: AttributeValue) -> Any:
    ((tag, content),) = value.items()
    if tag in {"SS", "NS", "BS"}:
        return tag, frozenset(content)
    if tag == "L":
        return tag, [_comparable(element) for element in content]
    if tag == "M":
        return tag, {name: _comparable(member) for name, member in content.items()}
    return tag, content


def checked_return(request: Request, allowed: tuple[str, ...]) -> str:
    """Return which values a write gives back; refuse a choice that its operation does not have."""
    returned = request.text("ReturnValues", ("ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW")) or "NONE"
    if returned not in allowed:
        raise invalid("Return values set to invalid value")
    return returned
