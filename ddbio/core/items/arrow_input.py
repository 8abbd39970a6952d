"""Take Arrow data from outside: tables and data frames as batches, and arrays checked to stay within their own memory.

Arrow does not check the offsets, indices and views of IPC files and of other libraries, but the loops rely on them.
The check here is that of ``validate(full=True)`` without UTF-8, which would take six times as long as the rest. Whoever
reads a text validates it: one bad text spoils its row, not the batch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.core.expansion import bounded_batches
from ddbio.core.items.batch_stream import RecordBatchStream
from ddbio.core.items.python_rows import python_column
from ddbio.core.kernel.arrays import bits_of, offsets_of
from ddbio.errors import DecodeError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["checked_batches", "record_batch_reader"]

# Arrow's names for the unnamed levels of a pandas index.
_UNNAMED = re.compile(r"__index_level_\d+__")


def record_batch_reader(data: Any) -> pa.RecordBatchReader:
    """Return a reader of a record batch, a table, a reader, or any data frame that exports itself as Arrow.

    Raises
    ------
    SchemaError
        The data is none of these, or Arrow has no type for one of its columns.
    """
    # Names that hold a NUL are cut when they pass through the C interface.
    match data:
        case pa.RecordBatch():
            return pa.RecordBatchReader.from_batches(data.schema, [data])
        case pa.Table():
            return data.to_reader()
        case pa.RecordBatchReader():
            return data
        case RecordBatchStream():
            return data.to_reader()
    is_pandas = hasattr(data, "iloc") and hasattr(data, "columns")
    if not (is_pandas or hasattr(data, "__arrow_c_stream__")):
        raise SchemaError(f"a {type(data).__name__} holds no columns: give a record batch, a table or a data frame")
    try:
        return _of_pandas(data).to_reader() if is_pandas else pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"the {type(data).__name__} cannot be read as Arrow columns: {error}") from error


def _of_pandas(frame: Any) -> pa.Table:
    """Return a frame's columns and the named levels of its index: unnamed levels are row numbers.

    Columns of objects that Arrow has no type for are serialized value by value.
    """
    try:
        table = pa.Table.from_pandas(frame, preserve_index=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        if not frame.columns.is_unique:
            raise
        table = pa.Table.from_pandas(frame.select_dtypes(exclude="object"), preserve_index=True)
        columns: dict[str, tuple[Any, Any]] = {
            name: (table.schema.field(name), table.column(name)) for name in table.schema.names
        }
        for name in frame.select_dtypes("object").columns:
            values = [None if _is_nan(value) else value for value in frame[name]]
            columns[str(name)] = python_column(str(name), values)
        order = sorted(columns, key=[*map(str, frame.columns), *columns].index)
        schema = pa.schema([columns[name][0] for name in order])
        table = pa.table([columns[name][1] for name in order], schema=schema)
    return table.drop_columns([name for name in table.schema.names if _UNNAMED.fullmatch(name)])


def _is_nan(value: Any) -> bool:
    # Arrow takes it for a missing value of pandas, too.
    return isinstance(value, float) and value != value  # noqa: PLR0124 - NaN alone is not equal to itself


def checked_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, after a check that all arrays stay within their memory, in batches that expand to little.

    Raises
    ------
    DecodeError
        An array points outside its memory, and the message has the number of its batch, from 0, and its column; or a
        column's name is not UTF-8; or a batch expands as ``bounded_batches`` says.
    """
    schema = None
    for number, batch in enumerate(batches):
        if schema is None or not batch.schema.equals(schema):
            schema = batch.schema
            _check_names(schema)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.validate()
                _check(column)
            except (pa.ArrowException, _BoundsError) as error:
                raise DecodeError(f"record batch {number}: column {name!r} is damaged: {error}") from None
        try:
            yield from bounded_batches(batch)
        except DecodeError as error:
            raise DecodeError(f"record batch {number}: {error}") from None


class _BoundsError(Exception):
    """Say how an array is damaged."""


def _check_names(fields: Iterable[pa.Field[Any]]) -> None:
    try:
        for field in fields:
            _ = field.name
            # The zone of a time is text, too.
            _ = getattr(field.type, "tz", None)
            _check_names(_fields_within(field.type))
    except UnicodeError as error:
        raise DecodeError(f"the name of a column is not UTF-8: {error}") from None


def _fields_within(kind: Any) -> list[pa.Field[Any]]:
    if isinstance(kind, pa.BaseExtensionType):
        return _fields_within(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _fields_within(kind.value_type)
    return [kind.field(place) for place in range(kind.num_fields)]


def _check(array: Any) -> None:  # noqa: C901 - one branch a layout
    """Check an array whose buffers, and those of its children, are known to have the right sizes."""
    kind = array.type
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        _check(array.storage)
        return
    if not len(array):
        return
    _check_nulls(array)
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        data = array.buffers()[2]
        _first_and_count(array, 0 if data is None else data.size)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        for values in (array.keys, array.items) if types.is_map(kind) else (array.values,):
            _check(values.slice(*_first_and_count(array, len(values))))
    elif types.is_struct(kind):
        for place in range(kind.num_fields):
            _check(array.field(place))
    elif types.is_fixed_size_list(kind):
        _check(array.values.slice(kind.list_size * array.offset, kind.list_size * len(array)))
    elif types.is_list_view(kind) or types.is_large_list_view(kind):
        _check_list_view(array)
    elif types.is_dictionary(kind):
        _check_indices(array)
        _check(array.dictionary)
    elif types.is_string_view(kind):
        array.cast(pa.binary_view()).validate(full=True)
    elif kind.num_fields or types.is_binary_view(kind):
        array.validate(full=True)


def _check_nulls(array: Any) -> None:
    bitmap = array.buffers()[0]
    if bitmap is None:
        return
    nulls = len(array) - np.count_nonzero(bits_of(bitmap, array.offset, len(array)))
    if nulls != array.null_count:
        raise _BoundsError(f"{nulls} entries are null, and it says {array.null_count}")


def _first_and_count(array: Any, limit: int) -> tuple[int, int]:
    offsets = offsets_of(array)
    first, last = int(offsets[0]), int(offsets[-1])
    if first < 0 or last > limit:
        raise _BoundsError(f"entries lie at {first} to {last} of {limit}")
    if (offsets[1:] < offsets[:-1]).any():
        place = int(np.flatnonzero(offsets[1:] < offsets[:-1])[0])
        raise _BoundsError(f"entry {place} ends before it begins")
    return first, last - first


def _check_list_view(array: Any) -> None:
    present = array.is_valid().to_numpy(zero_copy_only=False)
    starts, sizes = (np.asarray(each)[present].astype(np.int64) for each in (array.offsets, array.sizes))
    starts, sizes = starts[sizes != 0], sizes[sizes != 0]
    if not len(starts):
        return
    stops = starts + sizes
    if sizes.min() < 0 or starts.min() < 0 or stops.max() > len(array.values) or stops.min() < 0:
        raise _BoundsError("an entry lies outside the values")
    _check(array.values.slice(int(starts.min()), int(stops.max() - starts.min())))


def _check_indices(array: Any) -> None:
    places = array.indices.drop_null().to_numpy(zero_copy_only=False)
    if len(places) and (places.min() < 0 or places.max() >= len(array.dictionary)):
        raise _BoundsError(f"an index is not among the {len(array.dictionary)} entries of its dictionary")
