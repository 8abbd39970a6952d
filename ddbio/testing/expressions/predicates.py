"""Evaluate the conditions of writes and the filters of reads on items in canonical form."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from ddbio.items.attribute import AttributeValue, Item, decode_base64
from ddbio.testing.expressions.parsing import Path, Placeholders, Tokens, document_path
from ddbio.testing.refusal import invalid

if TYPE_CHECKING:
    from collections.abc import Callable

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
_MOST_OPERANDS_OF_IN = 100


class PredicateParser:
    """Make a function of an item of a condition.

    Parameters
    ----------
    kind
        The member of the request that holds it: ``ConditionExpression`` or ``FilterExpression``.

    Attributes
    ----------
    names
        Attributes that the condition names.
    """

    def __init__(self, kind: str, text: str, placeholders: Placeholders) -> None:
        self._tokens = Tokens(kind, text)
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
                return lambda item: _begins(first(item), last(item))
            case _:
                return lambda item: _holds_part(first(item), last(item))

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
        if len(operands) > _MOST_OPERANDS_OF_IN:
            raise self._tokens.refusal(
                f"The IN operator is provided with too many operands; number of operands: {len(operands)}"
            )
        return lambda item: any(left(item) is not None and holds("=", left(item), each(item)) for each in operands)

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
        return lambda item: _found(item, path)


def _found(item: Item, path: Path) -> AttributeValue | None:
    value: Any = {"M": item}
    for step in path:
        members = value.get("M" if isinstance(step, str) else "L")
        if isinstance(step, str):
            value = (members or {}).get(step)
        else:
            value = members[step] if members is not None and step < len(members) else None
        if value is None:
            return None
    found: AttributeValue = value
    return found


def _size(value: AttributeValue | None) -> AttributeValue | None:
    if value is None:
        return None
    ((tag, content),) = value.items()
    if tag in {"N", "BOOL", "NULL"}:
        return None
    return {"N": str(len(decode_base64(content) if tag == "B" else content))}


def _begins(value: AttributeValue | None, prefix: AttributeValue | None) -> bool:
    if value is None or prefix is None or value.keys() != prefix.keys() or not value.keys() & {"S", "B"}:
        return False
    ((tag, content),), ((_, start),) = value.items(), prefix.items()
    return bool(_rank(tag, content).startswith(_rank(tag, start)))


def _holds_part(value: AttributeValue | None, part: AttributeValue | None) -> bool:
    if value is None or part is None:
        return False
    ((tag, content),), ((part_tag, wanted),) = value.items(), part.items()
    if tag in _SETS:
        return part_tag == _SETS[tag] and wanted in content
    if tag == "L":
        return any(holds("=", element, part) for element in content)
    return tag == part_tag and tag in {"S", "B"} and _rank(tag, wanted) in _rank(tag, content)


def holds(operator: str, left: AttributeValue | None, right: AttributeValue | None) -> bool:
    """Return whether a comparison of two canonical values holds; a missing value differs from every value."""
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
    """Refuse the filter of a Query that names an attribute of the key."""
    named = sorted(names.intersection(keys))
    if named:
        raise invalid(
            f"Filter Expression can only contain non-primary key attributes: Primary key attribute: {named[0]}"
        )
