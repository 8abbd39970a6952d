"""Turn record batches back into items, plainly: the exact inverse of decoding.

Refuses what DynamoDB has no form for: a number beyond 38 digits, a float that is not a number, text that should be its
JSON and is not; and two values of one attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ddbio.core.attribute import AttributeValue, Item, canonical_number, check_item, check_value, encode_base64
from ddbio.core.rescue import given_twice, null_value
from ddbio.core.schema.arrow import normalize_schema
from ddbio.core.schema.field import RESCUE_NAME, fields_within, name_of_field, tag_of_field
from ddbio.core.text.json_text import compact_json, parse_json
from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

_Restore: TypeAlias = Callable[[Any], Any]


def items_of(batch: pa.RecordBatch) -> Iterator[Item]:
    """Yield the item of each row: null means missing, rescued attributes are back in their place.

    Sets, NULL and JSON text are told apart by the field metadata ``ddb:type``; a batch without it is read by its Arrow
    types alone.

    Raises
    ------
    SchemaError
        A column has an Arrow type that DynamoDB has no exact form for.
    DecodeError
        A number is beyond 38 digits or out of range.
    EncodeError
        An attribute is in its column and in the rescue column.
    """
    schema = normalize_schema(batch.schema)
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
            raise given_twice(row, name)
        yield item | others


def checked_json(text: bytes, check: Callable[[Any], None], path: str) -> Any:
    """Return the item, or the attribute value, that a text of DynamoDB JSON holds.

    Parameters
    ----------
    check
        Refuses what is none: ``check_item`` or ``check_value``.
    path
        What an error's message begins with.

    Raises
    ------
    DecodeError
        It holds none.
    """
    try:
        parsed = parse_json(text)
        check(parsed)
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}") from None
    return parsed


def to_dynamodb_json(batch: pa.RecordBatch) -> bytes:
    """Return the batch as DynamoDB JSON, an item per line, without white space.

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
    """Return the way from a Python value that is not None to its attribute value."""
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
