"""Evaluate the conditions of writes, and find the range of keys that a Query's condition asks for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.testing.expressions.parsing import Placeholders, Tokens
from ddbio.testing.expressions.predicates import PredicateParser
from ddbio.testing.refusal import Refusal, condition_failed, invalid, invalid_values
from ddbio.testing.tables.items import Key, KeyAttribute, KeySchema, hash_of

if TYPE_CHECKING:
    from decimal import Decimal

    from ddbio.items.attribute import AttributeValue, Item
    from ddbio.testing.expressions.predicates import Predicate
    from ddbio.testing.request import Request


EXPRESSIONS = ("ConditionExpression", "UpdateExpression")
_COMPARATORS = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Each comparator with the one that means the same from the other side."""
_HIGHEST_BYTE = 0xFF


class Guard(NamedTuple):
    """Hold the condition of one write, and whether a failure shows the item that failed it."""

    predicate: Predicate | None
    shows_item: bool

    @classmethod
    def of(cls, request: Request, placeholders: Placeholders) -> Guard:
        """Return the guard of a request; a request without condition always passes."""
        text = request.text("ConditionExpression")
        shown = request.text("ReturnValuesOnConditionCheckFailure", ("ALL_OLD", "NONE"))
        return cls(None if text is None else predicate_of(text, placeholders), shown == "ALL_OLD")

    def refusal(self, item: Item | None) -> Refusal | None:
        """Return the refusal of a write over this item, or None if its condition holds; no item has no attributes."""
        if self.predicate is None or self.predicate(item or {}):
            return None
        return condition_failed(item if self.shows_item else None)


def write_placeholders(request: Request) -> Placeholders:
    """Return the placeholders of a request that writes one item."""
    return Placeholders(request, has_expression=any(request.text(name) is not None for name in EXPRESSIONS))


def predicate_of(text: str, placeholders: Placeholders) -> Predicate:
    """Return a ConditionExpression as a function of an item in canonical form."""
    return PredicateParser("ConditionExpression", text, placeholders).parsed()


def checked_return(request: Request, allowed: tuple[str, ...]) -> str:
    """Return the ReturnValues of a write; refuse a choice that its operation does not have."""
    returned = request.text("ReturnValues", ("ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW")) or "NONE"
    if returned not in allowed:
        raise invalid("Return values set to invalid value")
    return returned


_sort_value: Any = itemgetter(2)


class Condition(NamedTuple):
    """Hold one condition: an attribute, an operator and its constants."""

    name: str
    operator: str
    values: tuple[AttributeValue, ...]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Hold one partition key and the bounds of the sort key; None is no bound."""

    partition: bytes
    low: bytes | Decimal | None = None
    high: bytes | Decimal | None = None
    includes_low: bool = True
    includes_high: bool = True

    @property
    def hash_value(self) -> int:
        """The hash of the partition."""
        return hash_of(self.partition)

    def contains(self, key: Key) -> bool:
        """Return whether a key lies in the range."""
        value: Any = key[2]
        if key[1] != self.partition:
            return False
        if self.low is not None and not (value > self.low or (self.includes_low and value == self.low)):
            return False
        return self.high is None or value < self.high or (self.includes_high and value == self.high)

    def positions(self, keys: list[Key]) -> tuple[int, int]:
        """Return the half-open range of positions whose keys lie in the range."""
        beginning: Any = (self.hash_value, self.partition)
        # No byte string lies between a key and the same key with a zero byte added.
        ending: Any = (self.hash_value, self.partition + b"\0")
        first, last = bisect_left(keys, beginning), bisect_left(keys, ending)
        low, high = first, last
        if self.low is not None:
            search = bisect_left if self.includes_low else bisect_right
            low = search(keys, self.low, first, last, key=_sort_value)
        if self.high is not None:
            search = bisect_right if self.includes_high else bisect_left
            high = search(keys, self.high, first, last, key=_sort_value)
        return low, max(low, high)


def key_range(text: str, placeholders: Placeholders, keys: KeySchema) -> KeyRange:
    """Return the range that an expression describes on these keys."""
    tokens = Tokens("KeyConditionExpression", text)
    conditions = _conjunction(tokens, placeholders, depth=0)
    if tokens.peek():
        raise _unexpected(tokens)
    by_name: dict[str, Condition] = {}
    for condition in conditions:
        if condition.name in by_name:
            raise tokens.refusal("KeyConditionExpressions must only contain one condition per key")
        by_name[condition.name] = condition
    partition = by_name.pop(keys.partition.name, None)
    if partition is None:
        raise invalid(f"Query condition missed key schema element: {keys.partition.name}")
    if partition.operator != "=":
        raise invalid("Query key condition not supported")
    partition_bytes = keys.partition.bytes_of(_checked(keys.partition, partition.values[0]))
    sort = by_name.pop(keys.sort.name, None) if keys.sort is not None else None
    if by_name:
        missed = keys.sort.name if keys.sort is not None and sort is None else next(iter(by_name))
        raise invalid(f"Query condition missed key schema element: {missed}")
    if keys.sort is None or sort is None:
        return KeyRange(partition_bytes)
    return _sort_range(partition_bytes, keys.sort, sort)


def _checked(attribute: KeyAttribute, value: AttributeValue) -> AttributeValue:
    if attribute.tag not in value:
        raise invalid_values("Condition parameter type does not match schema type")
    if not attribute.bytes_of(value):
        raise invalid_values(
            f"The AttributeValue for a key attribute cannot contain an empty value. Key: {attribute.name}"
        )
    return value


def _sort_range(partition: bytes, attribute: KeyAttribute, condition: Condition) -> KeyRange:
    values: list[Any] = [attribute.sort_value(_checked(attribute, value)) for value in condition.values]
    match condition.operator:
        case "=":
            return KeyRange(partition, values[0], values[0])
        case "<" | "<=" as operator:
            return KeyRange(partition, high=values[0], includes_high=operator == "<=")
        case ">" | ">=" as operator:
            return KeyRange(partition, low=values[0], includes_low=operator == ">=")
        case "BETWEEN":
            if values[0] > values[1]:
                raise invalid(
                    "Invalid KeyConditionExpression: The BETWEEN operator requires upper bound to be greater than or "
                    "equal to lower bound"
                )
            return KeyRange(partition, values[0], values[1])
        case _:
            if attribute.tag == "N":
                raise invalid(
                    "Invalid KeyConditionExpression: Incorrect operand type for operator or function; "
                    "operator or function: begins_with, operand type: N"
                )
            return KeyRange(partition, values[0], _after_prefix(values[0]), includes_high=False)


def _after_prefix(prefix: bytes) -> bytes | None:
    trimmed = prefix.rstrip(bytes([_HIGHEST_BYTE]))
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


def _conjunction(tokens: Tokens, placeholders: Placeholders, depth: int) -> list[Condition]:
    conditions = _term(tokens, placeholders, depth)
    while tokens.accept("AND"):
        conditions += _term(tokens, placeholders, depth)
    return conditions


def _term(tokens: Tokens, placeholders: Placeholders, depth: int) -> list[Condition]:
    if tokens.accept("("):
        if tokens.peek() == "(" and depth:
            raise tokens.refusal("The expression has redundant parentheses;")
        conditions = _conjunction(tokens, placeholders, depth + 1)
        if not tokens.accept(")"):
            raise _unexpected(tokens)
        return conditions
    return [_condition(tokens, placeholders)]


def _condition(tokens: Tokens, placeholders: Placeholders) -> Condition:
    first = tokens.next()
    if tokens.peek() == "(":
        return _begins_with(tokens, placeholders, first)
    if first.startswith(":"):
        operator = _comparator(tokens)
        value = placeholders.value(tokens, first)
        return Condition(_name(tokens, placeholders, tokens.next()), _COMPARATORS[operator], (value,))
    name = _name(tokens, placeholders, first)
    if tokens.accept("BETWEEN"):
        low = placeholders.value(tokens, tokens.next())
        tokens.expect("AND")
        return Condition(name, "BETWEEN", (low, placeholders.value(tokens, tokens.next())))
    operator = _comparator(tokens)
    return Condition(name, operator, (placeholders.value(tokens, tokens.next()),))


def _begins_with(tokens: Tokens, placeholders: Placeholders, function: str) -> Condition:
    if function != "begins_with":
        raise tokens.refusal(f"Invalid operator used in KeyConditionExpression: {function}")
    tokens.expect("(")
    name = _name(tokens, placeholders, tokens.next())
    tokens.expect(",")
    value = placeholders.value(tokens, tokens.next())
    tokens.expect(")")
    return Condition(name, "begins_with", (value,))


def _comparator(tokens: Tokens) -> str:
    if tokens.peek() not in _COMPARATORS:
        raise _unexpected(tokens)
    return tokens.next()


def _name(tokens: Tokens, placeholders: Placeholders, token: str) -> str:
    if token.upper() == "NOT":
        raise tokens.refusal("Invalid operator used in KeyConditionExpression: NOT")
    name = placeholders.name(tokens, token)
    if tokens.peek() in {".", "["}:
        raise tokens.refusal("KeyConditionExpressions cannot have conditions on nested attributes")
    return name


def _unexpected(tokens: Tokens) -> Exception:
    operator = tokens.peek().upper()
    if operator in {"OR", "NOT", "IN", "<>"}:
        return tokens.refusal(f"Invalid operator used in KeyConditionExpression: {operator}")
    return tokens.syntax_error(tokens.peek())
