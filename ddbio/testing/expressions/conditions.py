"""Conditions of writes, and the key range of a Query's condition."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from ddbio.items.attribute import AttributeValue, Item, decode_base64
from ddbio.testing.expressions.parsing import Path, Placeholders, Tokens, document_path
from ddbio.testing.refusal import Refusal, condition_failed, invalid, invalid_values
from ddbio.testing.tables.table import Key, KeyAttribute, KeySchema, SortValue, hash_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.items.attribute import AttributeValue, Item
    from ddbio.testing.request import Request

Predicate: TypeAlias = "Callable[[Item], bool]"
Operand: TypeAlias = "Callable[[Item], AttributeValue | None]"

ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
_ORDERED_TAGS = frozenset({"S", "N", "B"})
_TYPES = frozenset({"S", "N", "B", "SS", "NS", "BS", "BOOL", "NULL", "L", "M"})
_OPERANDS = {"attribute_exists": 1, "attribute_not_exists": 1, "attribute_type": 2, "begins_with": 2, "contains": 2}
_SIZE = "size"
_SETS = {"SS": "S", "NS": "N", "BS": "B"}
_MAX_OPERANDS_OF_IN = 100


class PredicateParser:
    """Parser of a condition, which becomes a function of an item.

    Parameters
    ----------
    kind
        The member of the request with the condition: ``ConditionExpression`` or ``FilterExpression``.

    Attributes
    ----------
    names
        Attributes that the condition names.
    """

    def __init__(self, kind: str, text: str, placeholders: Placeholders) -> None:
        self._tokens = placeholders.tokens(kind, text)
        self._placeholders = placeholders
        self.names: set[str] = set()

    def parsed(self) -> Predicate:
        """Return the condition as a function."""
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
        if self._tokens.peek() == "(" and first != _SIZE:
            return self._function(first)
        return self._comparison(self._operand(first))

    def _function(self, function: str) -> Predicate:
        if function not in _OPERANDS:
            raise self._tokens.refusal(f"Invalid function name; function: {function}")
        self._tokens.expect("(")
        operands = [self._operand(self._tokens.next())]
        while self._tokens.accept(","):
            operands.append(self._operand(self._tokens.next()))
        self._tokens.expect(")")
        if len(operands) != _OPERANDS[function]:
            raise self._tokens.refusal(
                "Incorrect number of operands for operator or function; "
                f"operator or function: {function}, number of operands: {len(operands)}"
            )
        first, last = operands[0], operands[-1]
        match function:
            case "attribute_exists" | "attribute_not_exists":
                return lambda item: (first(item) is not None) is (function == "attribute_exists")
            case "attribute_type":
                return self._type_test(first, last({}))
            case "begins_with":
                return lambda item: _starts_with(first(item), last(item))
            case _:
                return lambda item: _contains(first(item), last(item))

    def _type_test(self, operand: Operand, wanted: AttributeValue | None) -> Predicate:
        tag = (wanted or {}).get("S")
        if tag not in _TYPES:
            raise self._tokens.refusal(f"Invalid attribute type name found; type: {tag}")
        return lambda item: next(iter(operand(item) or {"": None})) == tag

    def _comparison(self, left: Operand) -> Predicate:
        if self._tokens.accept("BETWEEN"):
            low = self._constant_of("BETWEEN")
            self._tokens.expect("AND")
            high = self._constant_of("BETWEEN")
            return lambda item: holds(">=", left(item), low(item)) and holds("<=", left(item), high(item))
        if self._tokens.accept("IN"):
            return self._membership(left)
        operator = self._tokens.next()
        if operator not in {"=", "<>", *ORDERS}:
            raise self._tokens.syntax_error(operator)
        right = self._constant_of(operator)
        return lambda item: holds(operator, left(item), right(item))

    def _membership(self, left: Operand) -> Predicate:
        self._tokens.expect("(")
        operands = [self._operand(self._tokens.next())]
        while self._tokens.accept(","):
            operands.append(self._operand(self._tokens.next()))
        self._tokens.expect(")")
        if len(operands) > _MAX_OPERANDS_OF_IN:
            raise self._tokens.refusal(
                f"The IN operator is provided with too many operands; number of operands: {len(operands)}"
            )
        return lambda item: any(
            left(item) is not None and holds("=", left(item), operand(item)) for operand in operands
        )

    def _constant_of(self, operator: str) -> Operand:
        token = self._tokens.next()
        operand = self._operand(token)
        if token.startswith(":") and operator not in {"=", "<>"}:
            tag = next(iter(operand({}) or {}))
            if tag not in _ORDERED_TAGS:
                raise self._tokens.refusal(
                    "Incorrect operand type for operator or function; "
                    f"operator or function: {operator}, operand type: {tag}"
                )
        return operand

    def _operand(self, token: str) -> Operand:
        if token.startswith(":"):
            value = self._placeholders.value(self._tokens, token)
            return lambda _: value
        if token == _SIZE and self._tokens.accept("("):
            inner = self._operand(self._tokens.next())
            self._tokens.expect(")")
            return lambda item: _size(inner(item))
        path = document_path(self._tokens, self._placeholders, token)
        self.names.add(str(path[0]))
        return lambda item: value_at(item, path)


def value_at(item: Item, path: Path) -> AttributeValue | None:
    """Return the value at a path of an item, or None."""
    value: Any = {"M": item}
    for step in path:
        members = value.get("M" if isinstance(step, str) else "L")
        if isinstance(step, str):
            value = (members or {}).get(step)
        else:
            value = members[step] if members is not None and step < len(members) else None
        if value is None:
            return None
    result: AttributeValue = value
    return result


def _size(value: AttributeValue | None) -> AttributeValue | None:
    if value is None:
        return None
    ((tag, content),) = value.items()
    if tag in {"N", "BOOL", "NULL"}:
        return None
    return {"N": str(len(decode_base64(content) if tag == "B" else content))}


def _starts_with(value: AttributeValue | None, prefix: AttributeValue | None) -> bool:
    if value is None or prefix is None or value.keys() != prefix.keys() or not value.keys() & {"S", "B"}:
        return False
    ((tag, content),), ((_, start),) = value.items(), prefix.items()
    return bool(_rank(tag, content).startswith(_rank(tag, start)))


def _contains(value: AttributeValue | None, part: AttributeValue | None) -> bool:
    if value is None or part is None:
        return False
    ((tag, content),), ((part_tag, wanted),) = value.items(), part.items()
    if tag in _SETS:
        return part_tag == _SETS[tag] and wanted in content
    if tag == "L":
        return any(holds("=", element, part) for element in content)
    return tag == part_tag and tag in {"S", "B"} and _rank(tag, wanted) in _rank(tag, content)


def holds(operator: str, left: AttributeValue | None, right: AttributeValue | None) -> bool:
    """Return whether a comparison of two canonical values is true. A missing value differs from every value."""
    if left is None or right is None:
        return operator == "<>"
    if operator in {"=", "<>"}:
        return (_comparable(left) == _comparable(right)) is (operator == "=")
    ((tag, one),), ((other_tag, other),) = left.items(), right.items()
    return tag == other_tag and tag in _ORDERED_TAGS and ORDERS[operator](_rank(tag, one), _rank(tag, other))


def _rank(tag: str, content: str) -> Any:
    if tag == "N":
        return Decimal(content)
    return decode_base64(content) if tag == "B" else content.encode(errors="replace")


def _comparable(value: AttributeValue) -> Any:
    ((tag, content),) = value.items()
    if tag in _SETS:
        return tag, frozenset(content)
    if tag == "L":
        return tag, [_comparable(element) for element in content]
    if tag == "M":
        return tag, {name: _comparable(member) for name, member in content.items()}
    return tag, content


def check_filter_names(names: set[str], keys: tuple[str, ...]) -> None:
    """Raise if the filter of a Query names a key attribute."""
    named = sorted(names.intersection(keys))
    if named:
        raise invalid(
            f"Filter Expression can only contain non-primary key attributes: Primary key attribute: {named[0]}"
        )


_COMPARATORS = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Each comparator with the equivalent one for swapped operands."""
_HIGHEST_BYTE = 0xFF


class Guard(NamedTuple):
    """The condition of one write, and whether its failure shows the item."""

    predicate: Predicate | None
    shows_item: bool

    @classmethod
    def of(cls, request: Request, placeholders: Placeholders) -> Guard:
        """Return the guard of a request. Without a condition it always passes."""
        text = request.text("ConditionExpression")
        shown = request.text("ReturnValuesOnConditionCheckFailure")
        return cls(None if text is None else predicate_of(text, placeholders), shown == "ALL_OLD")

    def refusal(self, item: Item | None) -> Refusal | None:
        """Return the refusal of a write over this item, or None if its condition is true.

        A missing item has no attributes.
        """
        if self.predicate is None or self.predicate(item or {}):
            return None
        return condition_failed(item if self.shows_item else None)


def predicate_of(text: str, placeholders: Placeholders) -> Predicate:
    """Return a ConditionExpression as a predicate on canonical items."""
    return PredicateParser("ConditionExpression", text, placeholders).parsed()


def checked_return(request: Request, allowed: tuple[str, ...]) -> str:
    """Return the ReturnValues of a write. Raise if its operation does not support the value."""
    returned = request.text("ReturnValues") or "NONE"
    if returned not in allowed:
        raise invalid("Return values set to invalid value")
    return returned


class Condition(NamedTuple):
    """One key condition: an attribute, an operator and its constants."""

    name: str
    operator: str
    values: tuple[AttributeValue, ...]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """One partition key and the bounds of the sort key; None is no bound.

    If an index has several sort attributes, a bound is a tuple of the values of the first of them.
    """

    partition: bytes
    low: SortValue | None = None
    high: SortValue | None = None
    includes_low: bool = True
    includes_high: bool = True

    @property
    def hash_value(self) -> int:
        """The hash of the partition."""
        return hash_of(self.partition)

    def contains(self, key: Key) -> bool:
        """Return whether the range contains a key."""
        if key[1] != self.partition:
            return False
        if self.low is not None:
            value = _sort_value(self.low)(key)
            if not (value > self.low or (self.includes_low and value == self.low)):
                return False
        if self.high is None:
            return True
        value = _sort_value(self.high)(key)
        return bool(value < self.high or (self.includes_high and value == self.high))

    def positions(self, keys: list[Key]) -> tuple[int, int]:
        """Return the half-open range of positions whose keys are in the range."""
        beginning: Any = (self.hash_value, self.partition)
        # No byte string sorts between a key and the same key with an appended zero byte.
        ending: Any = (self.hash_value, self.partition + b"\0")
        first, last = bisect_left(keys, beginning), bisect_left(keys, ending)
        low, high = first, last
        if self.low is not None:
            search = bisect_left if self.includes_low else bisect_right
            low = search(keys, self.low, first, last, key=_sort_value(self.low))
        if self.high is not None:
            search = bisect_right if self.includes_high else bisect_left
            high = search(keys, self.high, first, last, key=_sort_value(self.high))
        return low, max(low, high)


def _sort_value(bound: SortValue) -> Callable[[Key], Any]:
    """Return the function that reads as many sort values from a key as a bound has."""
    if not isinstance(bound, tuple):
        return itemgetter(2)
    count = len(bound)
    return lambda key: cast("tuple[Any, ...]", key[2])[:count]


def key_range(text: str, placeholders: Placeholders, keys: KeySchema) -> KeyRange:
    """Return the range that an expression describes on these keys."""
    return range_of(key_conditions(text, placeholders), keys)


def key_conditions(text: str, placeholders: Placeholders) -> dict[str, Condition]:
    """Return the conditions of a KeyConditionExpression by attribute."""
    tokens = placeholders.tokens("KeyConditionExpression", text)
    conditions = _conjunction(tokens, placeholders, depth=0)
    if tokens.peek():
        raise _unexpected(tokens)
    by_name: dict[str, Condition] = {}
    for condition in conditions:
        if condition.name in by_name:
            raise tokens.refusal("KeyConditionExpressions must only contain one condition per key")
        by_name[condition.name] = condition
    return by_name


def range_of(conditions: dict[str, Condition], keys: KeySchema) -> KeyRange:
    """Return the range that conditions describe on these keys. Raise on conditions on other attributes."""
    by_name = dict(conditions)
    partition = keys.partition_bytes(
        {part.name: _checked(part, _equal_to(by_name.pop(part.name, None), part)) for part in keys.partition_attributes}
    )
    prefix: list[Any] = []
    bounds = KeyRange(partition)
    for attribute in keys.sort_attributes:
        if not by_name:
            break
        condition = by_name.pop(attribute.name, None)
        if condition is None:
            raise invalid(f"Query condition missed key schema element: {attribute.name}")
        if len(keys.sort_attributes) == 1:
            bounds = _sort_range(partition, attribute, condition)
        else:
            if bounds.low != bounds.high:
                raise invalid("Query key condition not supported")
            bounds = _with_prefix(tuple(prefix), _sort_range(partition, attribute, condition))
            prefix.append(attribute.sort_value(condition.values[0]))
    if by_name:
        raise invalid(f"Query condition missed key schema element: {next(iter(by_name))}")
    return bounds


def _equal_to(condition: Condition | None, attribute: KeyAttribute) -> AttributeValue:
    """Return the value that a condition requires of a partition key attribute."""
    if condition is None:
        raise invalid(f"Query condition missed key schema element: {attribute.name}")
    if condition.operator != "=":
        raise invalid("Query key condition not supported")
    return condition.values[0]


def _with_prefix(prefix: tuple[Any, ...], bounds: KeyRange) -> KeyRange:
    """Return the bounds of one sort attribute as bounds of a sort key that starts with ``prefix``."""
    low: Any = bounds.low
    high: Any = bounds.high
    return KeyRange(
        bounds.partition,
        low=(prefix or None) if low is None else (*prefix, low),
        high=(prefix or None) if high is None else (*prefix, high),
        includes_low=bounds.includes_low or bounds.low is None,
        includes_high=bounds.includes_high or bounds.high is None,
    )


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
