"""Make hints of the filters that Spark pushes down: conditions that every item meets whose row Spark would keep.

Spark applies each filter again, so a condition may let more items through, and never fewer. A row is kept if the filter
is true of its columns; that a column is null says little of its attribute, which may be missing, NULL, or a value that
fits no column. So each filter has two conditions, one for where it is true and one for where it is false, and ``NOT``
exchanges them. None is the condition that every item meets: it is the answer wherever anything is in doubt.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.items.attribute import decode_base64, encode_base64
from ddbio.items.number import MAX_DIGITS, canonical_number
from ddbio.items.schema.arrow import fields_within, is_decimal, is_text, name_of_field, tag_of_field
from ddbio.items.schema.times import DIGITS, TimeForm, form_of_field
from ddbio.scan.conditions import (
    Expressions,
    Negated,
    Several,
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
"""A column, a constant or a call of one of Spark's predicates, as the shim writes it; empty if it is anything else."""

_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>", "<=>": "<=>"}
_PARTS = {"STARTS_WITH": "begins_with", "CONTAINS": "contains"}
_WHOLE = {"tinyint", "smallint", "int", "bigint"}

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys
_LONGEST_PARTITION_KEY_BYTES, _LONGEST_SORT_KEY_BYTES = 2048, 1024
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters: 4 KB,
# 300 operators and 2 MB of values, the caller's own included.
_LONGEST_EXPRESSION, _MOST_TESTS, _LONGEST_VALUE_BYTES = 3_500, 150, 8 << 10

# Beyond lie numbers that are none of DynamoDB's; between the smallest and zero there is nothing to tell apart.
_LARGEST, _SMALLEST = Decimal("9E+124"), Decimal("1E-120")
_ROUNDED = {-1: Context(prec=MAX_DIGITS, rounding=ROUND_FLOOR), 1: Context(prec=MAX_DIGITS, rounding=ROUND_CEILING)}

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - Spark's microseconds, in UTC or in no zone


def pushed_condition(
    filters: Iterable[Filter], columns: pa.Schema, keys: Sequence[tuple[str, str]], given: str | None, most_queries: int
) -> str | None:
    """Return the condition of a read under these filters, all of which its rows must meet; None is no condition.

    If the filters bind the partition key, and the caller's condition leaves it to them, it is one for Queries.

    Parameters
    ----------
    columns
        The normalised columns of all attributes that the filters may name.
    keys
        The partition key, and the sort key if there is one, with their types: those of the index that is read.
    given
        The caller's own condition.
    most_queries
        How many item collections may be asked for instead of everything.
    """
    hints = _Hints(columns, keys)
    parts = _flat("AND", [hint for each in filters if (hint := hints.where(each, truth=True)) is not None])
    own = None if given is None else parse_condition(given)
    given_parts = [] if own is None else [own]
    names = tuple(name for name, _ in keys)
    plain = [part for part in parts if set(names).isdisjoint(part.names())]
    if own is not None and key_query(own, names) is not None:
        return _text(_within_limits([own], plain))
    bound = _bound_values(parts, names[0])
    if bound is not None and len(bound) <= most_queries:
        partition = Test("IN", (names[0],), bound) if len(bound) > 1 else Test("=", (names[0],), bound)
        sort = _sort_tests(parts, names[1]) if len(names) > 1 else []
        for stated in ([partition, *sort], [partition]) if sort else ([partition],):
            found = _within_limits(given_parts, plain, stated)
            if found is not None and key_query(found, names) is not None:
                return format_condition(found)
    # What states too many partition keys would be asked for by Queries all the same.
    loose = [part for part in parts if _values_of(part, names[0]) is None or not isinstance(part, Test)]
    return _text(_within_limits(given_parts, loose))


def _text(condition: Condition | None) -> str | None:
    return None if condition is None else format_condition(condition)


class _Hints:
    """Make conditions of filters over these columns."""

    def __init__(self, columns: pa.Schema, keys: Sequence[tuple[str, str]]) -> None:
        self._columns: Mapping[str, pa.Field[Any]] = {field.name: field for field in columns}
        longest = (_LONGEST_PARTITION_KEY_BYTES, _LONGEST_SORT_KEY_BYTES)
        self._keys = {name: (tag, size) for (name, tag), size in zip(keys, longest, strict=False)}

    def where(self, given: Filter, *, truth: bool) -> Condition | None:  # noqa: PLR0911 - one for each kind
        """Return the condition of all items of whose rows a filter is true, or false; None is no condition."""
        name, arguments = given.get("call", ""), given.get("arguments", [])
        match name:
            case "AND" | "OR":
                parts = [self.where(each, truth=truth) for each in arguments]
                return _all(parts) if (name == "AND") is truth else _any(parts)
            case "NOT" if len(arguments) == 1:
                return self.where(arguments[0], truth=not truth)
        if name in _MIRRORED and len(arguments) == 2 and "column" in arguments[1]:  # noqa: PLR2004 - both sides
            name, arguments = _MIRRORED[name], arguments[::-1]
        found = self._field(arguments[0]) if arguments else None
        constants = [each.get("value") for each in arguments[1:]]
        if found is None or any("value" not in each for each in arguments[1:]):
            return None
        path, field = found
        if name in {"IS_NULL", "IS_NOT_NULL"} and not constants:
            return self._null(path, field, is_null=(name == "IS_NULL") is truth)
        if name == "<=>" and constants == [None]:
            return self._null(path, field, is_null=truth)
        if name == "<=>" and not truth:
            return None
        return self._allowed(_leaf(name, path, field, arguments[1:], truth=truth))

    def _field(self, given: Filter) -> tuple[Path, pa.Field[Any]] | None:
        """Return the attribute that a column, or a member of a struct, stands for."""
        names = given.get("column") or ()
        field = self._columns.get(names[0]) if names else None
        if field is None or tag_of_field(field) == "RESCUE":
            return None
        path: list[str | int] = [name_of_field(field)]
        for name in names[1:]:
            if not pa.types.is_struct(field.type):
                return None
            field = next((each for each in fields_within(field.type) if each.name == name), None)
            if field is None:
                return None
            path.append(name_of_field(field))
        return tuple(path), field

    def _null(self, path: Path, field: pa.Field[Any], *, is_null: bool) -> Condition | None:
        if path[0] in self._keys:
            # Every item has it.
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

    def _allowed(self, found: Condition | None) -> Condition | None:
        """Leave out what the service would refuse: keys that no item can have, and values of many bytes."""
        test = found.part if isinstance(found, Negated) else found
        if not isinstance(test, Test):
            return found
        tag, longest = self._keys.get(str(test.path[0]), (None, _LONGEST_VALUE_BYTES))
        for value in test.values:
            size = _size(value)
            if size > longest or (tag is not None and (size == 0 or tag not in value)):
                return None
        return found


def _size(value: AttributeValue) -> int:
    match value:
        case {"S": text}:
            return len(text.encode())
        case {"B": base64}:
            return len(decode_base64(base64))
    return 1


def _leaf(name: str, path: Path, field: pa.Field[Any], constants: Sequence[Filter], *, truth: bool) -> Condition | None:
    if name == "IN":
        present = [each for each in constants if each["value"] is not None]
        if truth:
            return _any([_comparison("=", path, field, each) for each in present]) if present else None
        # Of a list with a null it is never false.
        is_told = len(present) == len(constants)
        return _all([_comparison("<>", path, field, each) for each in present]) if is_told else None
    if len(constants) != 1 or constants[0]["value"] is None:
        return None
    if name in _PARTS:
        test = _part(_PARTS[name], path, field, constants[0])
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
    """Return the condition of all items whose column compares so with a constant; None if it is in doubt."""
    tag, kind, text = tag_of_field(field), constant["type"], constant["value"]
    if (form := form_of_field(field)) is not None:
        return _time(operator, path, form, constant)
    if tag == "S" and is_text(field.type) and kind == "string":
        return Test(operator, path, ({"S": text},))
    if tag == "B" and pa.types.is_binary(field.type) and kind == "binary":
        return Test(operator, path, ({"B": encode_base64(bytes.fromhex(text))},))
    if tag == "BOOL" and kind == "boolean":
        # There is no order of DynamoDB's among them.
        return Test(operator, path, ({"BOOL": text == "true"},)) if operator in {"=", "<>"} else None
    if tag != "N":
        return None
    if is_text(field.type) and kind == "string" and operator == "=":
        return _number("=", path, text)
    if pa.types.is_float64(field.type) and kind == "double":
        return _double(operator, path, float(text))
    is_exact = pa.types.is_integer(field.type) or is_decimal(field.type)
    return _number(operator, path, text) if is_exact and (kind in _WHOLE or kind.startswith("decimal(")) else None


def _number(operator: str, path: Path, text: str) -> Test | None:
    try:
        return Test(operator, path, ({"N": canonical_number(text)},))
    except DecodeError:
        return None


def _double(operator: str, path: Path, value: float) -> Condition | None:
    """Return bounds of the exact numbers whose nearest double compares so: those up to the neighbours of the double."""
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


def _time(  # noqa: PLR0911 - one for each form
    operator: str, path: Path, form: TimeForm, constant: Filter
) -> Condition | None:
    """Return the condition on the text or number of a time: both are in the order of times, one for each."""
    count = int(constant["value"])
    try:
        if constant["type"] == "date":
            if form.kind != "date":
                return None
            return Test(operator, path, ({"S": (_EPOCH + dt.timedelta(days=count)).date().isoformat()},))
        is_local = form.zone == "_local"
        wanted = {"timestamp_ntz"} if is_local else {"timestamp"}
        if constant["type"] not in wanted or form.kind == "date" or form.unit not in {"s", "ms", "us"}:
            return None
        step = 10 ** (6 - DIGITS[form.unit])
        whole, rest = divmod(count, step)
        if rest and operator in {"=", "<>"}:
            # No value of this form is the constant.
            return None
        # A time between two values of the form is above the lower one, and below the upper one.
        whole += 1 if rest and operator in {">", ">="} else 0
        loose = {"<": "<=", ">": ">="}.get(operator, operator) if rest else operator
        if form.kind == "epoch":
            return _number(loose, path, str(whole))
        at = _EPOCH + dt.timedelta(microseconds=whole * step)
        digits = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}[form.unit]
        return Test(loose, path, ({"S": at.isoformat(timespec=digits) + form.ending},))
    except (OverflowError, ValueError):
        # Beyond the years 1 to 9999 of the texts.
        return None


def _flat(operator: str, parts: Iterable[Condition]) -> list[Condition]:
    """Return the parts, and those of parts of the same operator in their places; each once."""
    found: dict[str, Condition] = {}
    for part in parts:
        inside = part.parts if isinstance(part, Several) and part.operator == operator else (part,)
        found |= {format_condition(each): each for each in inside}
    return list(found.values())


def _joined(operator: str, parts: Sequence[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else Several(operator, tuple(parts))


def _all(parts: Iterable[Condition | None]) -> Condition | None:
    """Return the condition of items that meet all parts: one that is in doubt asks for nothing."""
    known = _flat("AND", [part for part in parts if part is not None])
    # No missing attribute meets a comparison, except that it differs.
    present = {
        part.path for part in known if isinstance(part, Test) and part.operator not in {"attribute_exists", "<>"}
    }
    known = [
        part
        for part in known
        if not (isinstance(part, Test) and part.operator == "attribute_exists" and part.path in present)
    ]
    return _joined("AND", known) if known else None


def _any(parts: Sequence[Condition | None]) -> Condition | None:
    """Return the condition of items that meet at least one part: one that is in doubt may be met by every item."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    values: dict[Path, list[AttributeValue]] = {}
    others: list[Condition] = []
    for part in _flat("OR", known):
        if isinstance(part, Test) and part.operator in {"=", "IN"}:
            values.setdefault(part.path, []).extend(part.values)
        else:
            others.append(part)
    for path, several in values.items():
        unique = tuple({str(value): value for value in several}.values())
        others.append(Test("=" if len(unique) == 1 else "IN", path, unique))
    return _joined("OR", others)


def _bound_values(parts: Sequence[Condition], name: str) -> tuple[AttributeValue, ...] | None:
    """Return the values of which every item that meets all parts has one, as few as the parts say, or None."""
    found = [values for part in parts if (values := _values_of(part, name)) is not None]
    return min(found, key=len, default=None)


def _values_of(part: Condition, name: str) -> tuple[AttributeValue, ...] | None:
    if isinstance(part, Test):
        return part.values if part.path == (name,) and part.operator in {"=", "IN"} else None
    if isinstance(part, Negated):
        return None
    if part.operator == "AND":
        return _bound_values(part.parts, name)
    each = [_values_of(inside, name) for inside in part.parts]
    unique = {str(value): value for values in each for value in values or ()}
    return None if None in each else tuple(unique.values())


def _sort_tests(parts: Sequence[Condition], name: str) -> list[Condition]:
    """Return what a Query can ask of a sort key: one value, or a prefix, or bounds, which it takes as inclusive."""
    tests = [part for part in parts if isinstance(part, Test) and part.path == (name,)]
    for wanted in ("=", "begins_with"):
        for test in tests:
            if test.operator == wanted:
                return [test]
    lows = [test for test in tests if test.operator in {">", ">="}]
    highs = [test for test in tests if test.operator in {"<", "<="}]
    low = max(lows, key=lambda test: _rank(test.values[0]), default=None)
    high = min(highs, key=lambda test: _rank(test.values[0]), default=None)
    if low is None or high is None or _rank(low.values[0]) > _rank(high.values[0]):
        # The service refuses bounds in the wrong order.
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
    raise AssertionError(f"{value} is no value of a key")


def _within_limits(
    given: Sequence[Condition], hints: Sequence[Condition], keys: Sequence[Condition] = ()
) -> Condition | None:
    """Return conditions and as many hints as an expression has room for, besides keys; None if there is none."""
    kept = _flat("AND", given)
    for hint in hints:
        parts = _flat("AND", [*kept, hint])
        found = _joined("AND", parts)
        if len(found.write(Expressions())) <= _LONGEST_EXPRESSION and len(list(found.names())) <= _MOST_TESTS:
            kept = parts
    parts = _flat("AND", [*keys, *kept])
    return _joined("AND", parts) if parts else None
