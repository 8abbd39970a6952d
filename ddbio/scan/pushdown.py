"""Conditions from the filters that Spark pushes down: they match every item whose row Spark would keep.

Spark applies each filter again, so a condition may match more items than the filter, but never fewer. A null column
reveals little about its attribute, which may be missing, NULL, or a value that does not fit the column. So each filter
has two conditions, one for true and one for false, and ``NOT`` exchanges them. None is the condition that matches all
items; it is the result for everything that cannot be expressed exactly.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.items.attribute import decode_base64, encode_base64
from ddbio.items.number import MAX_DIGITS, canonical_number
from ddbio.items.schema.arrow import fields_within, is_decimal, is_text, name_of_field, tag_of_field
from ddbio.items.schema.times import DIGITS, TimeFormat, format_of_field
from ddbio.scan.conditions import (
    Compound,
    Expressions,
    Negated,
    Test,
    format_condition,
    key_query,
    parse_condition,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddbio.items.attribute import AttributeValue
    from ddbio.scan.conditions import Condition, Path

Filter = dict[str, Any]
"""A column, a constant or a call of a Spark predicate, as the shim encodes it; empty for anything else."""

_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>", "<=>": "<=>"}
_TEXT_FUNCTIONS = {"STARTS_WITH": "begins_with", "CONTAINS": "contains"}
_INTEGER_TYPES = {"tinyint", "smallint", "int", "bigint"}

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys
_MAX_PARTITION_KEY_BYTES, _MAX_SORT_KEY_BYTES = 2048, 1024
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters: 4 KB,
# 300 operators and 2 MB of values, including those of the caller.
_MAX_EXPRESSION, _MAX_TESTS, _MAX_VALUE_BYTES = 3_500, 150, 8 << 10

# DynamoDB has no number above the largest, and none between zero and the smallest.
_LARGEST, _SMALLEST = Decimal("9E+124"), Decimal("1E-120")
_ROUNDED = {-1: Context(prec=MAX_DIGITS, rounding=ROUND_FLOOR), 1: Context(prec=MAX_DIGITS, rounding=ROUND_CEILING)}

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - Spark's microseconds, in UTC or in no zone


class PushedKeys(NamedTuple):
    """The key of a table or index: names and types of its attributes, and how many are the partition key."""

    types: tuple[tuple[str, str], ...]
    partition_count: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all key attributes."""
        return tuple(name for name, _ in self.types)


def pushed_condition(
    filters: Iterable[Filter], columns: pa.Schema, keys: PushedKeys, where: str | None, max_queries: int
) -> str | None:
    """Return the condition of a read with these filters, all of which apply to its rows; None means no condition.

    If the filters bind the partition key and the caller's condition does not, the result is a condition of Queries.

    Parameters
    ----------
    columns
        The normalised columns of all attributes that the filters may reference.
    keys
        The key of the table or index.
    where
        The caller's condition.
    max_queries
        Maximum number of item collections that are read by Queries instead of a scan.
    """
    hints = _Hints(columns, keys)
    names, count = keys.names, keys.partition_count
    parts = _flat(
        "AND", [hint for pushed_filter in filters if (hint := hints.where(pushed_filter, truth=True)) is not None]
    )
    own = None if where is None else parse_condition(where)
    own_parts = [] if own is None else [own]
    plain = [part for part in parts if set(names).isdisjoint(part.names())]
    if own is not None and key_query(own, names, count) is not None:
        return _text(_within_limits([own], plain))
    bound = {name: values for name in names[:count] if (values := _bound_values(parts, name)) is not None}
    if len(bound) == count and math.prod(map(len, bound.values())) <= max_queries:
        partition = [Test("IN" if len(values) > 1 else "=", (name,), values) for name, values in bound.items()]
        sort = _sort_key_tests(parts, names[count:])
        for key_parts in ([*partition, *sort], partition) if sort else (partition,):
            condition = _within_limits(own_parts, plain, key_parts)
            if condition is not None and key_query(condition, names, count) is not None:
                return format_condition(condition)
    # Other filters that bind the partition key to many values are left out, since they would lead to Queries too.
    loose = [
        part
        for part in parts
        if len(bound) < count or not isinstance(part, Test) or all(_values_of(part, name) is None for name in bound)
    ]
    return _text(_within_limits(own_parts, loose))


def _text(condition: Condition | None) -> str | None:
    return None if condition is None else format_condition(condition)


class _Hints:
    """Builder of conditions from filters on these columns."""

    def __init__(self, columns: pa.Schema, keys: PushedKeys) -> None:
        self._columns: Mapping[str, pa.Field[Any]] = {field.name: field for field in columns}
        self._keys = {
            name: (tag, _MAX_PARTITION_KEY_BYTES if position < keys.partition_count else _MAX_SORT_KEY_BYTES)
            for position, (name, tag) in enumerate(keys.types)
        }

    def where(self, filter_: Filter, *, truth: bool) -> Condition | None:  # noqa: PLR0911 - one for each kind
        """Return the condition of all items for whose rows a filter is true, or false; None means no condition."""
        name, arguments = filter_.get("call", ""), filter_.get("arguments", [])
        match name:
            case "AND" | "OR":
                parts = [self.where(argument, truth=truth) for argument in arguments]
                return _all(parts) if (name == "AND") is truth else _any(parts)
            case "NOT" if len(arguments) == 1:
                return self.where(arguments[0], truth=not truth)
        if name in _MIRRORED and len(arguments) == 2 and "column" in arguments[1]:  # noqa: PLR2004 - both sides
            name, arguments = _MIRRORED[name], arguments[::-1]
        target = self._field(arguments[0]) if arguments else None
        constants = [argument.get("value") for argument in arguments[1:]]
        if target is None or any("value" not in argument for argument in arguments[1:]):
            return None
        path, field = target
        if name in {"IS_NULL", "IS_NOT_NULL"} and not constants:
            return self._null(path, field, is_null=(name == "IS_NULL") is truth)
        if name == "<=>" and constants == [None]:
            return self._null(path, field, is_null=truth)
        if name == "<=>" and not truth:
            return None
        return self._allowed(_leaf(name, path, field, arguments[1:], truth=truth))

    def _field(self, column: Filter) -> tuple[Path, pa.Field[Any]] | None:
        """Return the path and the field of a column or of a member of a struct."""
        names = column.get("column") or ()
        field = self._columns.get(names[0]) if names else None
        if field is None or tag_of_field(field) == "RESCUE":
            return None
        path: list[str | int] = [name_of_field(field)]
        for name in names[1:]:
            if not pa.types.is_struct(field.type):
                return None
            field = next((member for member in fields_within(field.type) if member.name == name), None)
            if field is None:
                return None
            path.append(name_of_field(field))
        return tuple(path), field

    def _null(self, path: Path, field: pa.Field[Any], *, is_null: bool) -> Condition | None:
        if path[0] in self._keys:
            # Every item has its key attributes.
            return None
        if not is_null:
            return Test("attribute_exists", path)
        tag = tag_of_field(field)
        every_value_fits = (
            (tag == "S" and is_text(field.type)) or tag == "BOOL" or (tag == "B" and pa.types.is_binary(field.type))
        )
        if len(path) > 1 or not every_value_fits:
            return None
        return Negated(Test("attribute_type", path, ({"S": tag},)))

    def _allowed(self, condition: Condition | None) -> Condition | None:
        """Return None for a condition that the service would refuse, because of an impossible key or a large value."""
        test = condition.part if isinstance(condition, Negated) else condition
        if not isinstance(test, Test):
            return condition
        tag, longest = self._keys.get(str(test.path[0]), (None, _MAX_VALUE_BYTES))
        for value in test.values:
            size = _size(value)
            if size > longest or (tag is not None and (size == 0 or tag not in value)):
                return None
        return condition


def _size(value: AttributeValue) -> int:
    match value:
        case {"S": text}:
            return len(text.encode())
        case {"B": base64}:
            return len(decode_base64(base64))
    return 1


def _leaf(name: str, path: Path, field: pa.Field[Any], constants: Sequence[Filter], *, truth: bool) -> Condition | None:
    if name == "IN":
        present = [constant for constant in constants if constant["value"] is not None]
        if truth:
            return _any([_comparison("=", path, field, constant) for constant in present]) if present else None
        # With a null in the list, NOT IN is never true.
        has_no_null = len(present) == len(constants)
        return _all([_comparison("<>", path, field, constant) for constant in present]) if has_no_null else None
    if len(constants) != 1 or constants[0]["value"] is None:
        return None
    if name in _TEXT_FUNCTIONS:
        test = _part(_TEXT_FUNCTIONS[name], path, field, constants[0])
        return test if truth or test is None else Negated(test)
    operator = "=" if name == "<=>" else name
    if operator not in _OPPOSITE:
        return None
    return _comparison(operator if truth else _OPPOSITE[operator], path, field, constants[0])


def _part(function: str, path: Path, field: pa.Field[Any], constant: Filter) -> Test | None:
    is_plain = tag_of_field(field) == "S" and is_text(field.type) and constant["type"] == "string"
    return Test(function, path, ({"S": constant["value"]},)) if is_plain and constant["value"] else None


def _comparison(  # noqa: PLR0911 - one for each type
    operator: str, path: Path, field: pa.Field[Any], constant: Filter
) -> Condition | None:
    """Return the condition of all items whose column satisfies the comparison; None if that is uncertain."""
    tag, kind, text = tag_of_field(field), constant["type"], constant["value"]
    if (form := format_of_field(field)) is not None:
        return _time(operator, path, form, constant)
    if tag == "S" and is_text(field.type) and kind == "string":
        return Test(operator, path, ({"S": text},))
    if tag == "B" and pa.types.is_binary(field.type) and kind == "binary":
        return Test(operator, path, ({"B": encode_base64(bytes.fromhex(text))},))
    if tag == "BOOL" and kind == "boolean":
        # DynamoDB does not order booleans.
        return Test(operator, path, ({"BOOL": text == "true"},)) if operator in {"=", "<>"} else None
    if tag != "N":
        return None
    if is_text(field.type) and kind == "string" and operator == "=":
        return _number("=", path, text)
    if pa.types.is_float64(field.type) and kind == "double":
        return _double(operator, path, float(text))
    is_exact = pa.types.is_integer(field.type) or is_decimal(field.type)
    return (
        _number(operator, path, text) if is_exact and (kind in _INTEGER_TYPES or kind.startswith("decimal(")) else None
    )


def _number(operator: str, path: Path, text: str) -> Test | None:
    try:
        return Test(operator, path, ({"N": canonical_number(text)},))
    except DecodeError:
        return None


def _double(operator: str, path: Path, value: float) -> Condition | None:
    """Return bounds of all exact numbers whose nearest double satisfies the comparison: the neighbouring doubles."""
    if not math.isfinite(value) or operator == "<>":
        return None
    low = None if operator in {"<", "<="} else _bound(">=", path, math.nextafter(value, -math.inf), -1)
    high = None if operator in {">", ">="} else _bound("<=", path, math.nextafter(value, math.inf), 1)
    return _all([low, high])


def _bound(operator: str, path: Path, value: float, outward: int) -> Test | None:
    exact = Decimal(value)
    if abs(exact) > _LARGEST:
        return None
    if abs(exact) < _SMALLEST:
        exact = outward * _SMALLEST
    return _number(operator, path, str(_ROUNDED[outward].plus(exact)))


def _time(  # noqa: PLR0911 - one for each time format
    operator: str, path: Path, form: TimeFormat, constant: Filter
) -> Condition | None:
    """Return the condition on a time that is stored as text or number; both sort like the times they represent."""
    count = int(constant["value"])
    try:
        if constant["type"] == "date":
            if form.kind != "date":
                return None
            return Test(operator, path, ({"S": (_EPOCH + dt.timedelta(days=count)).date().isoformat()},))
        is_local = form.zone == "_local"
        types = {"timestamp_ntz"} if is_local else {"timestamp"}
        if constant["type"] not in types or form.kind == "date" or form.unit not in {"s", "ms", "us"}:
            return None
        step = 10 ** (6 - DIGITS[form.unit])
        steps, remainder = divmod(count, step)
        if remainder and operator in {"=", "<>"}:
            # No value with this precision is equal to the constant.
            return None
        # A time between two such values is above the lower one, and below the upper one.
        steps += 1 if remainder and operator in {">", ">="} else 0
        loose = {"<": "<=", ">": ">="}.get(operator, operator) if remainder else operator
        if form.kind == "epoch":
            return _number(loose, path, str(steps))
        at = _EPOCH + dt.timedelta(microseconds=steps * step)
        digits = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}[form.unit]
        return Test(loose, path, ({"S": at.isoformat(timespec=digits) + form.ending},))
    except (OverflowError, ValueError):
        # The texts have only the years 1 to 9999.
        return None


def _flat(operator: str, parts: Iterable[Condition]) -> list[Condition]:
    """Return the parts without duplicates, with nested conditions of the same operator replaced by their parts."""
    by_text: dict[str, Condition] = {}
    for part in parts:
        inside = part.parts if isinstance(part, Compound) and part.operator == operator else (part,)
        by_text |= {format_condition(condition): condition for condition in inside}
    return list(by_text.values())


def _joined(operator: str, parts: Sequence[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else Compound(operator, tuple(parts))


def _all(parts: Iterable[Condition | None]) -> Condition | None:
    """Return the condition of items that match all parts; parts that are None are left out."""
    conditions = _flat("AND", [part for part in parts if part is not None])
    # An item without the attribute matches no comparison, except "<>".
    present = {
        part.path for part in conditions if isinstance(part, Test) and part.operator not in {"attribute_exists", "<>"}
    }
    conditions = [
        part
        for part in conditions
        if not (isinstance(part, Test) and part.operator == "attribute_exists" and part.path in present)
    ]
    return _joined("AND", conditions) if conditions else None


def _any(parts: Sequence[Condition | None]) -> Condition | None:
    """Return the condition of items that match at least one part; None if any part is None."""
    conditions = [part for part in parts if part is not None]
    if len(conditions) < len(parts):
        return None
    values: dict[Path, list[AttributeValue]] = {}
    others: list[Condition] = []
    for part in _flat("OR", conditions):
        if isinstance(part, Test) and part.operator in {"=", "IN"}:
            values.setdefault(part.path, []).extend(part.values)
        else:
            others.append(part)
    for path, several in values.items():
        unique = tuple({str(value): value for value in several}.values())
        others.append(Test("=" if len(unique) == 1 else "IN", path, unique))
    return _joined("OR", others)


def _bound_values(parts: Sequence[Condition], name: str) -> tuple[AttributeValue, ...] | None:
    """Return the smallest set of values that the parts allow for an attribute; None if they do not bind it."""
    candidates = [values for part in parts if (values := _values_of(part, name)) is not None]
    return min(candidates, key=len, default=None)


def _values_of(part: Condition, name: str) -> tuple[AttributeValue, ...] | None:
    if isinstance(part, Test):
        return part.values if part.path == (name,) and part.operator in {"=", "IN"} else None
    if isinstance(part, Negated):
        return None
    if part.operator == "AND":
        return _bound_values(part.parts, name)
    alternatives = [_values_of(inside, name) for inside in part.parts]
    unique = {str(value): value for values in alternatives for value in values or ()}
    return None if None in alternatives else tuple(unique.values())


def _sort_key_tests(parts: Sequence[Condition], names: Sequence[str]) -> list[Condition]:
    """Return the tests of the sort attributes that a Query can use: equalities, then at most one range."""
    tests: list[Condition] = []
    for name in names:
        own = _sort_tests(parts, name)
        tests += own
        if not all(isinstance(test, Test) and test.operator == "=" for test in own) or not own:
            break
    return tests


def _sort_tests(parts: Sequence[Condition], name: str) -> list[Condition]:
    """Return the tests of a sort key that a Query can use: one value, a prefix, or inclusive bounds."""
    tests = [part for part in parts if isinstance(part, Test) and part.path == (name,)]
    for operator in ("=", "begins_with"):
        for test in tests:
            if test.operator == operator:
                return [test]
    lows = [test for test in tests if test.operator in {">", ">="}]
    highs = [test for test in tests if test.operator in {"<", "<="}]
    low = max(lows, key=lambda test: _rank(test.values[0]), default=None)
    high = min(highs, key=lambda test: _rank(test.values[0]), default=None)
    if low is None or high is None or _rank(low.values[0]) > _rank(high.values[0]):
        # The service refuses bounds in descending order.
        return [test for test in (low or high,) if test is not None]
    return [Test(">=", low.path, low.values), Test("<=", high.path, high.values)]


def _rank(value: AttributeValue) -> Any:
    match value:
        case {"S": text}:
            return text.encode()
        case {"B": base64}:
            return decode_base64(base64)
        case {"N": number}:
            return Decimal(number)
    raise AssertionError(f"{value} is not a key value")


def _within_limits(
    required: Sequence[Condition], hints: Sequence[Condition], keys: Sequence[Condition] = ()
) -> Condition | None:
    """Return the required conditions with as many hints as expressions allow; None if there are none."""
    accepted = _flat("AND", required)
    for hint in hints:
        parts = _flat("AND", [*accepted, hint])
        candidate = _joined("AND", parts)
        if len(candidate.write(Expressions())) <= _MAX_EXPRESSION and len(list(candidate.names())) <= _MAX_TESTS:
            accepted = parts
    parts = _flat("AND", [*keys, *accepted])
    return _joined("AND", parts) if parts else None
