"""Write whatever holds Arrow columns as lines of DynamoDB JSON; refuses what DynamoDB would refuse."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.core.arrow_bounds import bounded
from ddbio.core.encode import Encoder
from ddbio.core.idle import Idle
from ddbio.core.kernel.encode.fields import plain_array
from ddbio.core.schema.item_schema import arrow_schema_of
from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from ddbio.core.schema.item_schema import ItemSchema

__all__ = ["reader_of", "to_dynamodb_json"]

_ENCODERS_KEPT, _BYTES_KEPT = 16, 64 << 20
_idle = Idle[bytes, Encoder](_ENCODERS_KEPT, _BYTES_KEPT)

# What Arrow calls the levels of an index of pandas that have no name.
_UNNAMED = re.compile(r"__index_level_\d+__")


def to_dynamodb_json(data: Any, schema: ItemSchema | pa.Schema | str | None = None) -> bytes:
    """Return rows as DynamoDB JSON, an item per line, without white space.

    Parameters
    ----------
    data
        A record batch, a table, a reader of batches, or any other data frame that offers itself as Arrow.
    schema
        DynamoDB's types of the columns, by name, where a file format has lost them.

    Raises
    ------
    SchemaError
        A column's type has no DynamoDB form, or is not what the schema says.
    EncodeError
        DynamoDB would refuse a row; the first is named.
    DecodeError
        An array points outside its own memory.
    """
    reader = reader_of(data)
    wanted = reader.schema if schema is None else _restored(reader.schema, arrow_schema_of(schema))
    # Schemas of different metadata are equal to Arrow, their bytes are not.
    key = wanted.serialize().to_pybytes()
    encoder, lines, row = _idle.take(key) or Encoder(wanted), list[bytes](), 0
    for batch in bounded(reader):
        lines.append(encoder.encode_lines(_cast(batch, wanted), first_row=row))
        row += batch.num_rows
    _idle.give_back(key, encoder, encoder.kept_bytes)
    return b"".join(lines)


def reader_of(data: Any) -> pa.RecordBatchReader:
    """Return the batches of a record batch, a table, a reader, or any other data frame that offers itself as Arrow.

    Raises
    ------
    SchemaError
        It is none of these, or Arrow has no type for one of its columns.
    """
    # Names that hold a NUL are cut where they pass from one library to another.
    match data:
        case pa.RecordBatch():
            return pa.RecordBatchReader.from_batches(data.schema, [data])
        case pa.Table():
            return data.to_reader()
        case pa.RecordBatchReader():
            return data
    is_pandas = hasattr(data, "iloc") and hasattr(data, "columns")
    if not (is_pandas or hasattr(data, "__arrow_c_stream__")):
        raise SchemaError(f"a {type(data).__name__} holds no columns: give a record batch, a table or a data frame")
    try:
        return _of_pandas(data).to_reader() if is_pandas else pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(f"the {type(data).__name__} cannot be read as Arrow columns: {error}") from error


def _of_pandas(frame: Any) -> pa.Table:
    """Return a frame's columns, and the levels of its index that have a name: others are row numbers."""
    table = pa.Table.from_pandas(frame, preserve_index=True)
    return table.drop_columns([name for name in table.schema.names if _UNNAMED.fullmatch(name)])


def _restored(found: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    return pa.schema([wanted.field(field.name) if field.name in wanted.names else field for field in found])


def _cast(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, wanted, strict=True):
        if column.type == field.type:
            # pyarrow 25 casts some arrays to their own type wrongly: slices with run ends to other values.
            columns.append(column)
            continue
        try:
            columns.append(plain_array(column).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                f"{field.name}: the column is {column.type}, the schema's {field.type}: {error}"
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
