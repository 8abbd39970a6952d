"""Read rows of plain JSON and of CSV as the columns that are declared for them, without guessing any type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv

from ddbio.core.items.declared_text import csv_type, has_map, json_type, restore
from ddbio.core.items.decode import from_dynamodb_json
from ddbio.core.schema.arrow import RESCUE_NAME, fields_within, is_list, is_number, is_text, tag_of_field
from ddbio.errors import DecodeError
from ddbio.files.file_format import NO_TYPES
from ddbio.files.text_rows import (
    has_inexact_numbers,
    json_items,
    lines_of_source,
    parse_csv,
    parse_json_rows,
    utf8_json,
)

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
    table = _json_by_arrow(data, schema)
    if table is not None:
        return table
    fields = {field.name: field for field in schema}
    return pa.Table.from_batches([_json_exactly(data, schema, types, fields)])


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
    chosen = (field for field in columns if field.name not in types and field.name != RESCUE_NAME)
    # Arrow takes a text for a number where numbers are kept as text.
    table = _json_by_arrow(data, columns) if all(map(_has_own_type, chosen)) and _RESCUE_MEMBER not in data else None
    return pa.Table.from_batches([_json_exactly(data, columns, types, types)]) if table is None else table


def _has_own_type(field: pa.Field[Any]) -> bool:
    """Return whether values of JSON that Arrow reads as a column have the column's type of DynamoDB."""
    kind: Any = field.type
    if is_list(kind) or pa.types.is_struct(kind):
        return all(map(_has_own_type, fields_within(kind)))
    own: dict[str, Any] = {"S": is_text, "N": is_number, "BOOL": pa.types.is_boolean, "NULL": pa.types.is_null}
    tag = tag_of_field(field)
    return tag in own and bool(own[tag](kind))


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


def _json_by_arrow(data: bytes, schema: pa.Schema) -> pa.Table | None:
    """Return the rows, or None if Arrow cannot read them as these columns, or not exactly."""
    if any(has_map(field.type) for field in schema) or not data.strip():
        return None
    if any(_has_float(field.type) for field in schema) and has_inexact_numbers(data):
        return None
    wanted = pa.schema([field.with_type(json_type(field.type)) for field in schema])
    try:
        table = parse_json_rows(data, explicit_schema=wanted, unexpected_field_behavior="error")
        columns = [
            pa.chunked_array([restore(each, field.type, field.name) for each in column.chunks], field.type)
            for field, column in zip(schema, table.columns, strict=True)
        ]
    except (pa.ArrowException, DecodeError):
        return None
    return pa.Table.from_arrays(columns, schema=schema)


def _has_float(kind: Any) -> bool:
    return pa.types.is_floating(kind) or any(_has_float(kind.field(place).type) for place in range(kind.num_fields))


def _json_exactly(
    data: bytes, schema: pa.Schema, types: Mapping[str, pa.Field[Any]], fields: Mapping[str, pa.Field[Any]]
) -> pa.RecordBatch:
    """Return the rows as columns; values of ``fields`` have these types, others their own."""
    lines, places = list[bytes](), list[int]()
    for line, _, item in json_items(data, types, fields):
        lines.append(utf8_json(item, line))
        places.append(line)
    with lines_of_source(places):
        batch = from_dynamodb_json(b"\n".join(lines), schema, nulls="keep")
    # The decoder adds the rescue column, which is said to be there or was not written.
    return batch if RESCUE_NAME in schema.names else _without_rescue(batch)


def _without_rescue(batch: pa.RecordBatch) -> pa.RecordBatch:
    rescued = batch.column(RESCUE_NAME)
    if rescued.null_count < len(rescued):
        raise DecodeError(f"a value does not fit its column: {rescued.drop_null()[0].as_py()}")
    return batch.select([name for name in batch.schema.names if name != RESCUE_NAME])
