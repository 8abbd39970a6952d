"""Conversion of changes of other sources to the columns of a log: lines of incremental exports, and rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.log_rows import LogDecoder, item_schema
from ddbio.errors import SchemaError
from ddbio.formats.lake_columns import DELETED
from ddbio.formats.log_columns import EVENT_ID, EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE, OPERATION, SEQUENCE
from ddbio.items.changes import DELETE
from ddbio.items.json_text import compact_json
from ddbio.items.kernel.arrays import bool_array
from ddbio.items.schema.arrow import RESCUE_FIELD, RESCUE_NAME, name_of_field, normalize_field
from ddbio.items.schema.own_names import is_own

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_OWN = frozenset({OPERATION, SEQUENCE, EVENT_TIME, EXPIRED, EVENT_ID, OLD_IMAGE, OLD_RESCUE, DELETED, RESCUE_NAME})
_OPERATIONS = ("INSERT", "MODIFY", "REMOVE")
_DIGITS = r"^\d+$"


class ExportedChanges(LogDecoder):
    """Decoder of lines of incremental exports to rows of a log, with the write time in microseconds as sequence number.

    A line has the last state of an item in the export's window, so every put is a ``MODIFY``.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        super().__init__(item_schema(schema, keys), keys)

    def decode_lines(self, text: bytes | memoryview) -> pa.RecordBatch | None:
        """Return one row per line, in order; None if there are no lines.

        Raises
        ------
        DecodeError
            If a line is not a change.
        """
        decoded = self._decoder.decode(text)
        if not decoded.num_rows:
            return None
        removed: Any = pc.equal(decoded.column(1), pa.scalar(DELETE))
        operations = pc.if_else(removed, pa.scalar("REMOVE"), pa.scalar("MODIFY"))
        return self._log_rows(decoded, [operations, decoded.column(0).cast(pa.string())], None).rows


def change_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a log for rows with these columns.

    Rows have the attributes of the items under their names, and ``_sequence``, which orders the states of an item,
    ``_event_time``, and ``_op`` (``INSERT``, ``MODIFY``, ``REMOVE``) or ``_deleted``. ``_expired`` and ``_rescue`` are
    optional.

    Raises
    ------
    SchemaError
        If a required column is missing, or no attribute type matches the type of a column.
    """
    for name in (SEQUENCE, EVENT_TIME):
        if name not in schema.names:
            raise SchemaError(f"the rows have no column {name}: changes have the columns of a log, see docs/apply.md")
    if not pa.types.is_timestamp(schema.field(EVENT_TIME).type):
        raise SchemaError(f"{EVENT_TIME} is {schema.field(EVENT_TIME).type} in the rows: it must be a timestamp")
    own: list[pa.Field[Any]] = [
        pa.field(OPERATION, pa.string(), nullable=False),
        pa.field(SEQUENCE, pa.string(), nullable=False),
        pa.field(EVENT_TIME, pa.timestamp("us", "UTC"), nullable=False),
        pa.field(EXPIRED, pa.bool_(), nullable=False),
    ]
    attributes = [normalize_field(field, field.name) for field in schema if not is_own(field, _OWN)]
    return pa.schema([*own, *attributes, RESCUE_FIELD])


def change_batches(
    batches: Iterable[pa.RecordBatch], columns: pa.Schema, keys: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield rows in the columns that :func:`change_columns` returned; a delete has only the key attributes.

    Raises
    ------
    SchemaError
        If a row has no sequence number or time, or a value does not fit its column.
    """
    for batch in batches:
        if batch.num_rows:
            rows = pa.RecordBatch.from_arrays([_column(batch, field) for field in columns], schema=columns)
            yield _without_payload(rows, frozenset(keys))


def _without_payload(rows: pa.RecordBatch, keys: frozenset[str]) -> pa.RecordBatch:
    removed: Any = pc.equal(rows.column(OPERATION), pa.scalar("REMOVE"))
    if not pc.any(removed).as_py():
        return rows
    columns = list[Any]()
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if field.name == RESCUE_NAME:
            texts = zip(removed.to_pylist(), column.to_pylist(), strict=True)
            kept = [_of_key(text, keys) if gone and text else text for gone, text in texts]
            columns.append(pa.array(kept, pa.string()))
        elif is_own(field, _OWN) or name_of_field(field) in keys:
            columns.append(column)
        else:
            columns.append(pc.if_else(removed, pa.scalar(None, field.type), column))
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _of_key(text: str, keys: frozenset[str]) -> str | None:
    attributes = {name: value for name, value in json.loads(text).items() if name in keys}
    return compact_json(attributes) if attributes else None


def _column(batch: pa.RecordBatch, field: pa.Field[Any]) -> Any:
    convert = {OPERATION: _operations, EXPIRED: _expired, RESCUE_NAME: _rescued}.get(field.name)
    if convert is not None:
        return convert(batch)
    try:
        column: Any = batch.column(field.name).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(f"{field.name}: {error}") from error
    if field.name in {SEQUENCE, EVENT_TIME}:
        if column.null_count:
            raise SchemaError(f"{field.name}: {column.null_count} rows have no value")
        if field.name == SEQUENCE and not pc.all(pc.match_substring_regex(column, _DIGITS)).as_py():
            raise SchemaError(f"{SEQUENCE} has texts that are not whole numbers: they must order the states of an item")
    return column


def _operations(batch: pa.RecordBatch) -> Any:
    if OPERATION in batch.schema.names:
        operations: Any = batch.column(OPERATION).cast(pa.string())
        is_valid = pc.is_in(operations, value_set=pa.array(_OPERATIONS))
        if operations.null_count or not pc.all(is_valid).as_py():
            raise SchemaError(f"{OPERATION} must be one of {', '.join(_OPERATIONS)} in each row")
        return operations
    if DELETED in batch.schema.names:
        deleted: Any = batch.column(DELETED).fill_null(False)  # noqa: FBT003 - Arrow's
        return pc.if_else(deleted, pa.scalar("REMOVE"), pa.scalar("MODIFY"))
    return pa.repeat(pa.scalar("MODIFY"), batch.num_rows)


def _expired(batch: pa.RecordBatch) -> Any:
    if EXPIRED in batch.schema.names:
        return batch.column(EXPIRED).fill_null(False)  # noqa: FBT003 - Arrow's
    return bool_array(np.zeros(batch.num_rows, np.bool_))


def _rescued(batch: pa.RecordBatch) -> Any:
    if RESCUE_NAME in batch.schema.names:
        return batch.column(RESCUE_NAME).cast(pa.string())
    return pa.nulls(batch.num_rows, pa.string())
