"""Evaluation of a condition on items, by the rules of the service, for data that the service does not filter.

The speed is that of Python. Conditions that the service can evaluate are faster there.
"""

from __future__ import annotations

import operator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from ddbio.items.attribute import decode_base64
from ddbio.scan.conditions import Compound, Negated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddbio.items.attribute import AttributeValue, Item
    from ddbio.scan.conditions import Condition, Path, Test

Predicate: TypeAlias = "Callable[[Item], bool]"
_Read: TypeAlias = "Callable[[Item], AttributeValue | None]"
_Check: TypeAlias = "Callable[[AttributeValue | None], bool]"

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ORDERED = frozenset({"S", "N", "B"})
_ELEMENTS = {"SS": "S", "NS": "N", "BS": "B"}
_WITHOUT_SIZE = frozenset({"N", "BOOL", "NULL"})


def predicate_of(condition: Condition) -> Predicate:
    """Return a condition as a function of an item of valid DynamoDB JSON."""
    if isinstance(condition, Compound):
        parts, combine = [predicate_of(part) for part in condition.parts], all if condition.operator == "AND" else any
        return lambda item: combine(part(item) for part in parts)
    if isinstance(condition, Negated):
        negated = predicate_of(condition.part)
        return lambda item: not negated(item)
    return _test(condition)


def _test(test: Test) -> Predicate:
    read = _reader(test.path)
    if test.operator.startswith("size "):
        compare = _comparison(test.operator.removeprefix("size "), test.values[0])
        return lambda item: compare(_size(read(item)))
    if test.operator in _CHECKS:
        check = _CHECKS[test.operator](test.values)
    else:
        check = _comparison(test.operator, test.values[0])
    return lambda item: check(read(item))


def _reader(path: Path) -> _Read:
    """Return the function that reads the value at a path of an item."""
    name, *steps = path
    if not steps:
        return lambda item: item.get(str(name))

    def read(item: Item) -> AttributeValue | None:
        value: AttributeValue | None = item.get(str(name))
        for step in steps:
            if value is None:
                return None
            if isinstance(step, str):
                value = value.get("M", {}).get(step)
            else:
                elements = value.get("L", ())
                value = elements[step] if step < len(elements) else None
        return value

    return read


def _constant(value: AttributeValue) -> tuple[str, Any]:
    ((tag, content),) = value.items()
    return tag, _comparable(tag, content)


def _comparable(tag: str, content: Any) -> Any:
    """Return the content of a scalar with the order of the service. Text has that of its UTF-8 bytes."""
    if tag == "N":
        return Decimal(content)
    return decode_base64(content) if tag == "B" else content


def _comparison(comparator: str, constant: AttributeValue) -> _Check:
    """Return a comparison with a constant. A missing value differs from every value."""
    constant_tag, expected = _constant(constant)

    def is_equal(value: AttributeValue | None) -> bool:
        return (
            value is not None and constant_tag in value and _comparable(constant_tag, value[constant_tag]) == expected
        )

    if comparator == "=":
        return is_equal
    if comparator == "<>":
        return lambda value: not is_equal(value)
    order = _ORDERS[comparator]
    if constant_tag not in _ORDERED:
        return lambda _: False

    def is_ordered(value: AttributeValue | None) -> bool:
        if value is None or constant_tag not in value:
            return False
        return order(_comparable(constant_tag, value[constant_tag]), expected)

    return is_ordered


def _between(bounds: Sequence[AttributeValue]) -> _Check:
    low, high = (_comparison(order, bound) for order, bound in zip((">=", "<="), bounds, strict=True))
    return lambda value: low(value) and high(value)


def _member(values: Sequence[AttributeValue]) -> _Check:
    comparisons = [_comparison("=", constant) for constant in values]
    return lambda value: any(is_equal(value) for is_equal in comparisons)


def _begins_with(values: Sequence[AttributeValue]) -> _Check:
    prefix_tag, prefix = _constant(values[0])

    def begins(value: AttributeValue | None) -> bool:
        if value is None or prefix_tag not in value or prefix_tag not in {"S", "B"}:
            return False
        return bool(_comparable(prefix_tag, value[prefix_tag]).startswith(prefix))

    return begins


def _contains(values: Sequence[AttributeValue]) -> _Check:
    part_tag, part = _constant(values[0])

    def contains(value: AttributeValue | None) -> bool:
        if value is None:
            return False
        ((tag, content),) = value.items()
        if tag in _ELEMENTS:
            return part_tag == _ELEMENTS[tag] and any(_comparable(part_tag, element) == part for element in content)
        if tag == "L":
            return any(part_tag in element and _comparable(part_tag, element[part_tag]) == part for element in content)
        return tag == part_tag and tag in {"S", "B"} and part in _comparable(tag, content)

    return contains


def _has_type(values: Sequence[AttributeValue]) -> _Check:
    tag = values[0]["S"]
    return lambda value: value is not None and tag in value


_CHECKS: dict[str, Callable[[Sequence[AttributeValue]], _Check]] = {
    "attribute_exists": lambda _: lambda value: value is not None,
    "attribute_not_exists": lambda _: lambda value: value is None,
    "attribute_type": _has_type,
    "begins_with": _begins_with,
    "contains": _contains,
    "BETWEEN": _between,
    "IN": _member,
}


def _size(value: AttributeValue | None) -> AttributeValue | None:
    if value is None:
        return None
    ((tag, content),) = value.items()
    if tag in _WITHOUT_SIZE:
        return None
    return {"N": str(len(decode_base64(content) if tag == "B" else content))}
