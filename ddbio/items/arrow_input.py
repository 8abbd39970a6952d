"""Reading of external Arrow data: tables and data frames become batches, and arrays are checked for memory safety.

Arrow does not check the offsets, indices and views of IPC files and of other libraries, but the loops rely on them.
The check here is ``validate(full=True)`` without the check of UTF-8, which would take six times as long as all other
checks. The code that reads a text validates it, so an invalid text affects its row, not the batch.
"""

from __future__ import annotations

import collections
import datetime as dt
import itertools
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.batch_stream import RecordBatchStream
from ddbio.items.expansion import bounded_batches, may_expand
from ddbio.items.kernel.arrays import bits_of, offsets_of
from ddbio.items.python_rows import is_missing, python_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["checked_batches", "record_batch_reader"]

# Arrow's names for the unnamed levels of a pandas index.
_UNNAMED = re.compile(r"__index_level_\d+__")
# Types of polars that polars exports as addresses, or as types unknown to Arrow.
_UNSUPPORTED = {"Object", "Int128", "UInt128"}
_TEXTS = {str, type(None)}
_PLAIN = {str, int, float, bool, bytes}
# Kinds of objects that Arrow does not change if all values of a column have the same kind: see _kind.
_EXACT = {str, int, float, bool, bytes, Decimal, dt.date, dt.time, dt.timedelta, "naive", "aware"}
_EXACT |= {np.dtype(name) for name in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")}


def record_batch_reader(data: Any) -> pa.RecordBatchReader:
    """Return a reader of a record batch, a table, a reader, or any data frame that exports itself as Arrow.

    Raises
    ------
    SchemaError
        The data is none of these, or Arrow has no type for one of its columns.
    """
    # The C interface cuts names at a NUL.
    match data:
        case pa.RecordBatch():
            return pa.RecordBatchReader.from_batches(data.schema, [data])
        case pa.Table():
            return data.to_reader()
        case pa.RecordBatchReader():
            return data
        case RecordBatchStream():
            return data.to_reader()
    if not (hasattr(data, "__arrow_c_stream__") or (hasattr(data, "iloc") and hasattr(data, "columns"))):
        raise SchemaError(f"a {type(data).__name__} holds no columns: give a record batch, a table or a data frame")
    try:
        return _read_frame(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"the {type(data).__name__} cannot be read as Arrow columns: {error}") from error


def _read_frame(frame: Any) -> pa.RecordBatchReader:
    if hasattr(frame, "iloc") and hasattr(frame, "columns"):
        return _read_pandas(frame).to_reader()
    if type(frame).__module__.startswith("polars") and hasattr(frame, "get_columns"):
        return _read_polars(frame)
    return pa.RecordBatchReader.from_stream(frame)


def _read_polars(frame: Any) -> pa.RecordBatchReader:
    """Return a frame's rows. Columns of types that Arrow cannot read are converted value by value."""
    names = [column.name for column in frame.get_columns() if str(column.dtype) in _UNSUPPORTED]
    if not names:
        return pa.RecordBatchReader.from_stream(frame)
    columns = {name: python_column(name, frame[name].to_list()) for name in names}
    others = frame.drop(names)
    return _insert_columns(pa.table(others) if others.width else None, columns, frame.columns).to_reader()


def _read_pandas(frame: Any) -> pa.Table:
    """Return a frame's columns and the named levels of its index. Unnamed levels are row numbers.

    Arrow infers one type for a column of objects. Where that would change or refuse a value, the values are serialized
    one by one.

    Raises
    ------
    SchemaError
        Columns have the same name, or contain periods.
    """
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise SchemaError(f"several have one name: {', '.join(names)}")
    if periods := [name for name, kind in zip(names, frame.dtypes, strict=True) if str(kind).startswith("period[")]:
        raise SchemaError(f"{periods[0]}: DynamoDB has no periods: use .dt.to_timestamp() or .astype(str)")
    objects = [index for index, kind in enumerate(frame.dtypes) if kind == "object"]
    own = [index for index in objects if not _is_exact(frame.iloc[:, index].to_numpy())]
    try:
        return _with_objects(frame, names, own)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # A text contains half of a surrogate pair, or an int has more than 64 bits.
        return _with_objects(frame, names, objects)


def _with_objects(frame: Any, names: list[str], objects: list[int]) -> pa.Table:
    """Return a frame as a table, with the columns of objects converted value by value."""
    columns = {
        names[index]: python_column(
            names[index], [None if _is_none(value) else value for value in frame.iloc[:, index]]
        )
        for index in objects
    }
    others = [index for index in range(len(names)) if index not in set(objects)]
    table = pa.Table.from_pandas(frame.iloc[:, others], preserve_index=True)
    table = table.drop_columns([name for name in table.schema.names if _UNNAMED.fullmatch(name)])
    return _insert_columns(table, columns, names)


def _insert_columns(table: pa.Table | None, columns: Mapping[str, tuple[Any, Any]], order: list[str]) -> pa.Table:
    """Return the table with more columns, each at its index in the order."""
    if table is None or not table.num_columns:
        schema = pa.schema([field for field, _ in columns.values()])
        return pa.Table.from_arrays([array for _, array in columns.values()], schema=schema)
    for index, name in enumerate(order):
        if name in columns:
            table = table.add_column(index, *columns[name])
    return table


def _is_exact(values: Iterable[Any]) -> bool:
    """Return whether values, and the values nested in them, have one type each, so that Arrow does not change them."""
    values = list(values)
    if set(map(type, values)) <= _TEXTS:
        return True
    present = [value for value in values if not _is_none(value)]
    kinds = set(map(type, present))
    if not kinds <= _PLAIN:
        kinds = set(map(_kind, present))
    if len(kinds) != 1:
        return not kinds
    (kind,) = kinds
    if kind is list:
        return _is_exact(itertools.chain.from_iterable(present))
    if kind is dict:
        members = collections.defaultdict[Any, list[Any]](list)
        for name, value in itertools.chain.from_iterable(value.items() for value in present):
            members[name].append(value)
        return all(isinstance(name, str) and _is_exact(values_of_member) for name, values_of_member in members.items())
    return kind in _EXACT


def _kind(value: Any) -> Any:
    """Return the type as which Arrow reads a value, or None if Arrow would change it."""
    match value:
        case str():
            return str
        case np.ndarray():
            # The numbers of an array have one type.
            return value.dtype if value.dtype.kind in "iufb" and value.ndim == 1 else list
        case list() | tuple():
            return list
        case dt.datetime():
            return None if getattr(value, "nanosecond", 0) else "naive" if value.tzinfo is None else "aware"
        case dt.time():
            return dt.time if value.tzinfo is None else None
    return type(value)


def _is_none(value: Any) -> bool:
    # Arrow also treats NaN as a missing value of pandas.
    return is_missing(value) or (isinstance(value, float) and math.isnan(value))


def checked_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check that all arrays stay within their memory, and yield the rows in batches of bounded expanded size.

    Raises
    ------
    DecodeError
        An array points outside its memory: the message contains the number of its batch, from 0, and its column. Or a
        column's name is not UTF-8, or ``bounded_batches`` refuses a batch.
    """
    schema, expands = None, False
    for number, batch in enumerate(batches):
        if schema is None or not batch.schema.equals(schema):
            schema = batch.schema
            _check_names(schema)
            # Rows without columns take no bytes.
            expands = not len(schema) or any(may_expand(field.type) for field in schema)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.validate()
                _check(column)
            except (pa.ArrowException, _BoundsError) as error:
                raise DecodeError(f"record batch {number}: column {name!r} is damaged: {error}") from None
        if not expands:
            yield batch
            continue
        try:
            yield from bounded_batches(batch)
        except DecodeError as error:
            raise DecodeError(f"record batch {number}: {error}") from None


class _BoundsError(Exception):
    """Description of the damage of an array."""


def _check_names(fields: Iterable[pa.Field[Any]]) -> None:
    try:
        for field in fields:
            _ = field.name
            # The zone of a time is also text.
            _ = getattr(field.type, "tz", None)
            _check_names(_fields_within(field.type))
    except UnicodeError as error:
        raise DecodeError(f"the name of a column is not UTF-8: {error}") from None


def _fields_within(kind: Any) -> list[pa.Field[Any]]:
    if kind.num_fields:
        return [kind.field(index) for index in range(kind.num_fields)]
    if isinstance(kind, pa.BaseExtensionType):
        return _fields_within(kind.storage_type)
    return _fields_within(kind.value_type) if isinstance(kind, pa.DictionaryType) else []


def _check(array: Any) -> None:  # noqa: C901 - one branch a layout
    """Check an array. The sizes of its buffers, and of those of its children, must already be checked."""
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
        for index in range(kind.num_fields):
            _check(array.field(index))
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
        raise _BoundsError(f"{nulls} entries are null, but its null count is {array.null_count}")


def _first_and_count(array: Any, limit: int) -> tuple[int, int]:
    offsets = offsets_of(array)
    first, last = int(offsets[0]), int(offsets[-1])
    if first < 0 or last > limit:
        raise _BoundsError(f"entries are at {first} to {last} of {limit}")
    if (offsets[1:] < offsets[:-1]).any():
        first_bad = int(np.flatnonzero(offsets[1:] < offsets[:-1])[0])
        raise _BoundsError(f"entry {first_bad} ends before it begins")
    return first, last - first


def _check_list_view(array: Any) -> None:
    present = array.is_valid().to_numpy(zero_copy_only=False)
    starts, sizes = (np.asarray(numbers)[present].astype(np.int64) for numbers in (array.offsets, array.sizes))
    starts, sizes = starts[sizes != 0], sizes[sizes != 0]
    if not len(starts):
        return
    stops = starts + sizes
    if sizes.min() < 0 or starts.min() < 0 or stops.max() > len(array.values) or stops.min() < 0:
        raise _BoundsError("an entry is outside the values")
    _check(array.values.slice(int(starts.min()), int(stops.max() - starts.min())))


def _check_indices(array: Any) -> None:
    indices = array.indices.drop_null().to_numpy(zero_copy_only=False)
    if len(indices) and (indices.min() < 0 or indices.max() >= len(array.dictionary)):
        raise _BoundsError(f"an index is not among the {len(array.dictionary)} entries of its dictionary")
