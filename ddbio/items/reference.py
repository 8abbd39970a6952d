"""Decoding and encoding in plain Python, one value at a time: items to record batches, and record batches to items.

This is the reference for the compiled loops. Tests compare both, and this module reads what the loops refuse. A value
without an encoding in DynamoDB is an error: a number beyond 38 digits, a float that is not a number, text that is not
the expected DynamoDB JSON, two values of one attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.attribute import AttributeValue, Item, check_item, check_value, decode_base64, encode_base64
from ddbio.items.json_text import compact_json, parse_json
from ddbio.items.number import canonical_number
from ddbio.items.rescue import (
    DOES_NOT_FIT,
    OTHER_TYPE,
    UNKNOWN,
    KeptNull,
    MisfitError,
    MisfitLog,
    duplicate_error,
    null_value,
    rescue_text,
)
from ddbio.items.schema.arrow import (
    MAX_FLOAT32,
    RESCUE_NAME,
    fields_within,
    is_decimal,
    is_float,
    is_text,
    name_of_field,
    normalize_schema,
    tag_of_field,
)
from ddbio.items.schema.times import is_time_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Convert: TypeAlias = Callable[[AttributeValue], Any]
"""From a checked attribute value to a value for ``pyarrow.array``. Raises MisfitError or KeptNull."""

_Restore: TypeAlias = Callable[[Any], Any]
"""From a Python value of a column, not None, to its attribute value or the content of one."""


class RowBuilder:
    """Builder of record batches of one schema from checked items.

    Parameters
    ----------
    above
        A prefix for the paths of misfits.
    drop
        Attributes whose misfits are dropped.
    """

    def __init__(self, schema: pa.Schema, *, keep_nulls: bool, above: str = "", drop: Sequence[str] = ()) -> None:
        self.drop = frozenset(drop)
        self._schema = schema
        self._above = above
        self._merged_nulls = 0
        fields = [schema.field(index) for index in range(len(schema) - 1)]
        self._converters = {
            name: _converter(field, above + name, on_null=_keep_null if keep_nulls else self._merge_null)
            for name, field in ((name_of_field(field), field) for field in fields)
        }

    def batch(self, items: Sequence[Item], log: MisfitLog) -> pa.RecordBatch:
        """Return one row per item. Values that fit no column are counted in ``log`` and put into the rescue column."""
        columns: dict[str, list[Any]] = {name: [None] * len(items) for name in self._converters}
        rescues: list[str | None] = []
        for row, item in enumerate(items):
            rescued: Item = {}
            for name, value in item.items():
                convert = self._converters.get(name)
                if convert is None:
                    log.add(MisfitError(self._above + name, UNKNOWN, value), is_dropped=name in self.drop)
                    if name not in self.drop:
                        rescued[name] = value
                    continue
                self._merged_nulls = 0
                try:
                    columns[name][row] = convert(value)
                    if self._merged_nulls:
                        log.add_merged_nulls(self._above + name, self._merged_nulls)
                except MisfitError as misfit:
                    log.add(misfit, is_dropped=name in self.drop)
                    if name not in self.drop:
                        rescued[name] = value
                except KeptNull:
                    rescued[name] = value
            rescues.append(rescue_text(rescued))
        arrays = [pa.array([*columns.values(), rescues][index], field.type) for index, field in enumerate(self._schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _merge_null(self) -> None:
        self._merged_nulls += 1


def _keep_null() -> None:
    raise KeptNull


def _converter(field: pa.Field[Any], path: str, *, on_null: Callable[[], None]) -> Convert:
    """Return the conversion of a column or a struct's member, where null means missing. Each NULL calls ``on_null``."""
    if tag_of_field(field) == "JSON":
        return compact_json
    convert = _element_converter(field, path, on_null=on_null)

    def convert_member(value: AttributeValue) -> Any:
        if "NULL" in value:
            on_null()
        return convert(value)

    return convert_member


def _element_converter(field: pa.Field[Any], path: str, *, on_null: Callable[[], None]) -> Convert:
    """Return the conversion of a list's element or a map's value, where null means NULL: none is ever missing."""
    tag = tag_of_field(field)
    if tag == "JSON":
        return compact_json
    convert_content = _content_converter(field, path, on_null=on_null)

    def convert(value: AttributeValue) -> Any:
        if "NULL" in value:
            return None
        if tag not in value:
            raise MisfitError(path, OTHER_TYPE, value)
        try:
            return convert_content(value[tag])
        except _DoesNotFitError:
            raise MisfitError(path, DOES_NOT_FIT, value) from None

    return convert


class _DoesNotFitError(Exception):
    pass


def _content_converter(  # noqa: PLR0911 - one line a type
    field: pa.Field[Any], path: str, *, on_null: Callable[[], None]
) -> Callable[[Any], Any]:
    tag, arrow_type = tag_of_field(field), field.type
    match tag:
        case "N":
            return _number_converter(arrow_type)
        case "B":
            return decode_base64
        case "NS" | "BS":
            element = arrow_type.field(0)
            convert = _content_converter(element, path, on_null=on_null)
            return lambda content: [convert(text) for text in content]
        case "L":
            convert = _element_converter(arrow_type.field(0), f"{path}[]", on_null=on_null)
            return lambda content: [convert(element) for element in content]
        case "M" if pa.types.is_map(arrow_type):
            convert = _element_converter(arrow_type.item_field, f"{path}.*", on_null=on_null)
            return lambda content: [(name, convert(member)) for name, member in content.items()]
        case "M":
            return _struct_converter(arrow_type, path, on_null=on_null)
    return lambda content: content


def _struct_converter(
    arrow_type: pa.DataType, path: str, *, on_null: Callable[[], None]
) -> Callable[[Item], dict[str, Any]]:
    converters = {
        name_of_field(field): (
            field.name,
            _converter(field, f"{path}.{name_of_field(field)}", on_null=on_null),
        )
        for field in fields_within(arrow_type)
    }

    def convert(members: Item) -> dict[str, Any]:
        converted = {}
        for name, value in members.items():
            if name not in converters:
                raise MisfitError(f"{path}.*", UNKNOWN, {name: value})
            column, convert_member = converters[name]
            converted[column] = convert_member(value)
        return converted

    return convert


def _number_converter(arrow_type: Any) -> Callable[[str], Any]:
    if is_text(arrow_type):
        return canonical_number
    if is_decimal(arrow_type):
        return _decimal_converter(arrow_type.precision, arrow_type.scale)
    if is_float(arrow_type):
        return _float_converter(MAX_FLOAT32 if pa.types.is_float32(arrow_type) else float("inf"))
    is_signed = pa.types.is_signed_integer(arrow_type)
    bits = arrow_type.bit_width - is_signed
    return _integer_converter(range(-(2**bits) if is_signed else 0, 2**bits))


def _integer_converter(allowed: range) -> Callable[[str], int]:
    def convert(text: str) -> int:
        number = canonical_number(text)
        if "." in number or int(number) not in allowed:
            raise _DoesNotFitError
        return int(number)

    return convert


def _decimal_converter(precision: int, scale: int) -> Callable[[str], Decimal]:
    def convert(text: str) -> Decimal:
        number = canonical_number(text)
        integer, _, fraction = number.partition(".")
        if len(integer.lstrip("-0")) > precision - scale or len(fraction) > scale:
            raise _DoesNotFitError
        return Decimal(number)

    return convert


def _float_converter(largest: float) -> Callable[[str], float]:
    def convert(text: str) -> float:
        number = float(canonical_number(text))
        if abs(number) > largest:
            raise _DoesNotFitError
        return number

    return convert


def items_of(batch: pa.RecordBatch) -> Iterator[Item]:
    """Yield the item of each row. Null means missing, and rescued attributes belong to the item.

    The field metadata ``ddb:type`` marks columns of sets, NULL or JSON text. Without it the Arrow type decides.

    Raises
    ------
    SchemaError
        A column has an Arrow type without an exact encoding in DynamoDB.
    DecodeError
        A number is beyond 38 digits or out of range.
    EncodeError
        An attribute is in its column and in the rescue column.
    """
    schema = normalize_schema(batch.schema)
    for field in schema:
        if is_time_column(field.type):
            raise SchemaError(f"{field.name}: no DynamoDB type is an Arrow {field.type}: make text or numbers of it")
    columns = [_column(batch.column(field.name), field) for field in schema if field.name != RESCUE_NAME]
    has_rescue = RESCUE_NAME in batch.schema.names
    rescues = batch.column(RESCUE_NAME).to_pylist() if has_rescue else [None] * batch.num_rows
    names = [name_of_field(field) for field in schema][:-1]
    rows = zip(*columns, strict=True) if columns else [()] * batch.num_rows
    for row, (values, rescued) in enumerate(zip(rows, rescues, strict=True)):
        item = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        others: Item = {}
        if rescued is not None:
            others = checked_json(rescued.encode(), check_item, f"row {row}: {RESCUE_NAME}")
        for name in filter(item.__contains__, others):
            raise duplicate_error(row, name)
        yield item | others


def checked_json(text: bytes, check: Callable[[Any], None], path: str) -> Any:
    """Return the item or the attribute value in a text of DynamoDB JSON.

    Parameters
    ----------
    check
        ``check_item`` or ``check_value``.
    path
        The start of an error's message.

    Raises
    ------
    DecodeError
        The text is not a valid item or attribute value.
    """
    try:
        parsed = parse_json(text)
        check(parsed)
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}") from None
    return parsed


def plain_json_lines(batch: pa.RecordBatch) -> bytes:
    """Return the batch as DynamoDB JSON, one item per line, without white space.

    Raises
    ------
    SchemaError, DecodeError, EncodeError
        As ``items_of``.
    """
    return "".join(f"{compact_json(item)}\n" for item in items_of(batch)).encode()


def _column(column: pa.Array[Any], field: pa.Field[Any]) -> list[AttributeValue | None]:
    restore = _restorer(field)
    return [None if value is None else restore(value) for value in column.to_pylist()]


def _restorer(field: pa.Field[Any]) -> _Restore:
    """Return the conversion of a column's Python values, except None, to attribute values."""
    tag = tag_of_field(field)
    if tag == "JSON":
        return lambda text: checked_json(text.encode(), check_value, field.name)
    restore = _content_restorer(field)
    return lambda value: {tag: restore(value)}


def _content_restorer(field: pa.Field[Any]) -> _Restore:  # noqa: PLR0911 - one line a type
    tag, arrow_type = tag_of_field(field), field.type
    match tag:
        case "N":
            return lambda number: canonical_number(str(number))
        case "B":
            return encode_base64
        case "NS" | "BS":
            element = _content_restorer(arrow_type.field(0))
            return lambda elements: [element(value) for value in elements]
        case "L":
            element = _element_restorer(arrow_type.field(0))
            return lambda elements: [element(value) for value in elements]
        case "M" if pa.types.is_map(arrow_type):
            member = _element_restorer(arrow_type.item_field)
            return lambda entries: {name: member(value) for name, value in entries}
        case "M":
            return _struct_restorer(fields_within(arrow_type))
    return lambda content: content


def _element_restorer(field: pa.Field[Any]) -> _Restore:
    restore = _restorer(field)
    return lambda value: null_value() if value is None else restore(value)


def _struct_restorer(fields: list[pa.Field[Any]]) -> _Restore:
    members = [(name_of_field(field), field.name, _restorer(field)) for field in fields]
    return lambda struct: {
        name: restore(struct[column]) for name, column, restore in members if struct[column] is not None
    }
