"""Read rows of plain JSON and of CSV as the columns that are declared for them, without guessing any type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv

from ddbio.errors import DecodeError, SchemaError
from ddbio.formats.file_format import NO_TYPES
from ddbio.formats.text_rows import (
    json_items,
    lines_of_source,
    parse_csv,
    utf8_json,
    without_empty_rescue,
)
from ddbio.items.declared_text import csv_type, has_map, json_type, restore
from ddbio.items.decode import from_dynamodb_json
from ddbio.items.kernel.first_calls import FIRST_CALLS
from ddbio.items.kernel.typed_items import typed_lines
from ddbio.items.schema.arrow import RESCUE_NAME, fields_within, name_of_field, tag_of_field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VALUE = "value"
_RESCUE_MEMBER = f'"{RESCUE_NAME}"'.encode()


def read_json_as(data: bytes, schema: pa.Schema, types: Mapping[str, pa.Field[Any]] = NO_TYPES) -> pa.Table:
    """Return the rows of a sequence of JSON objects; a value that fits no column is in ``_rescue``.

    Parameters
    ----------
    types
        The columns that were declared by a person: a number becomes text where text is declared.

    Raises
    ------
    DecodeError
        If the text is anything else.
    """
    return FIRST_CALLS.answer(len(data), _read_as, _read_as_exactly, data, schema, types)


def read_json_by_columns(data: bytes, columns: pa.Schema, types: Mapping[str, pa.Field[Any]] = NO_TYPES) -> pa.Table:
    """Return the rows of a sequence of JSON objects, whose values have their own types; others are in ``_rescue``.

    Parameters
    ----------
    columns
        Normalised columns that were chosen for such rows; only those in ``types`` were declared.

    Raises
    ------
    DecodeError
        If the text is anything else.
    """
    return FIRST_CALLS.answer(len(data), _read_by_columns, _read_by_columns_exactly, data, columns, types)


def _read_as(data: bytes, schema: pa.Schema, types: Mapping[str, pa.Field[Any]]) -> pa.Table:
    found = None if _RESCUE_MEMBER in data else _as_written(data, schema)
    return _read_as_exactly(data, schema, types) if found is None else found


def _read_as_exactly(data: bytes, schema: pa.Schema, types: Mapping[str, pa.Field[Any]]) -> pa.Table:
    return _json_exactly(data, schema, types, {field.name: field for field in schema})


def _read_by_columns(data: bytes, columns: pa.Schema, types: Mapping[str, pa.Field[Any]]) -> pa.Table:
    typed = None if _RESCUE_MEMBER in data or any(map(_is_read_otherwise, types.values())) else typed_lines(data)
    try:
        found = None if typed is None else from_dynamodb_json(typed.lines, columns, nulls="keep")
    except DecodeError:
        found = None
    # What does not fit a declared column may be of its type after all: a number is a text where text is declared.
    if found is None or ((types or RESCUE_NAME not in columns.names) and _has_rescued(found)):
        return _read_by_columns_exactly(data, columns, types)
    return pa.Table.from_batches([found if RESCUE_NAME in columns.names else without_empty_rescue(found)])


def _read_by_columns_exactly(data: bytes, columns: pa.Schema, types: Mapping[str, pa.Field[Any]]) -> pa.Table:
    return _json_exactly(data, columns, types, types)


def _is_read_otherwise(declared: pa.Field[Any]) -> bool:
    """Return whether a column takes texts that are no texts in DynamoDB, or is of another attribute."""
    within = any(map(_is_read_otherwise, fields_within(declared.type)))
    return within or tag_of_field(declared) == "JSON" or name_of_field(declared) != declared.name


def read_csv_as(data: bytes, schema: pa.Schema, names: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of CSV that ddbio wrote: a cell is null if it is empty and has no quotes.

    Parameters
    ----------
    names
        The names of the columns if the text does not begin with them.

    Raises
    ------
    DecodeError
        If a cell is no value of its column.
    pyarrow.ArrowInvalid
        If it is no CSV.
    """
    converting = pa.csv.ConvertOptions(
        column_types={field.name: csv_type(field.type) for field in schema},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["true"],
        false_values=["false"],
    )
    table = parse_csv(data, names, converting)
    fields = [schema.field(name) for name in table.schema.names if name in schema.names]
    columns = [_of_cells(table.column(field.name), field) for field in fields]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _of_cells(cells: Any, field: pa.Field[Any]) -> Any:
    if not field.type.num_fields:
        return pa.chunked_array([restore(each, field.type, field.name) for each in cells.chunks], field.type)
    texts = cells.combine_chunks()
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    shown = (f'{{"{_VALUE}":{text}}}' for text in texts.drop_null().to_pylist())
    found = read_json_as("\n".join(shown).encode(), pa.schema([field.with_name(_VALUE)]))
    values: Any = found.column(_VALUE).combine_chunks() if found.num_rows else pa.nulls(0, field.type)
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return values.take(_places(texts))


def _places(texts: Any) -> Any:
    """Return for each entry its place among those that are valid, or null."""
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(valid.cumsum() - 1, mask=~valid)


def _as_written(data: bytes, schema: pa.Schema) -> pa.Table | None:
    """Return rows that ``plain_json`` wrote, or None if a value is not as it writes them."""
    fields = [field for field in schema if field.name != RESCUE_NAME]
    # A null is no member of an object, but of a map.
    if any(has_map(each.type) and (b"null" in data or json_type(each.type) != each.type) for each in fields):
        return None
    typed = typed_lines(data)
    if typed is None:
        return None
    try:
        wanted = pa.schema([pa.field(each.name, json_type(each.type)) for each in fields])
        found = from_dynamodb_json(typed.lines, wanted, nulls="merge")
        if _has_rescued(found):
            return None
        columns = {each.name: restore(found.column(each.name), each.type, each.name) for each in fields}
    except (pa.ArrowException, DecodeError, SchemaError):
        return None
    arrays = [columns.get(each.name, pa.nulls(found.num_rows, each.type)) for each in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _has_rescued(batch: pa.RecordBatch) -> bool:
    return batch.column(RESCUE_NAME).null_count < batch.num_rows


def _json_exactly(
    data: bytes, schema: pa.Schema, types: Mapping[str, pa.Field[Any]], fields: Mapping[str, pa.Field[Any]]
) -> pa.Table:
    """Return the rows as columns; values of ``fields`` have these types, others their own."""
    lines, places = list[bytes](), list[int]()
    for line, _, item in json_items(data, types, fields):
        lines.append(utf8_json(item, line))
        places.append(line)
    with lines_of_source(places):
        batch = from_dynamodb_json(b"\n".join(lines), schema, nulls="keep")
    # The decoder adds the rescue column, which is said to be there or was not written.
    return pa.Table.from_batches([batch if RESCUE_NAME in schema.names else _without_rescue(batch)])


def _without_rescue(batch: pa.RecordBatch) -> pa.RecordBatch:
    if _has_rescued(batch):
        raise DecodeError(f"a value does not fit its column: {batch.column(RESCUE_NAME).drop_null()[0].as_py()}")
    return without_empty_rescue(batch)
