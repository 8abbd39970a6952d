"""Encode rows as Avro column by column: each column becomes the bytes of its values, which are joined row by row.

Every value may be null: it is a union of null and its type, in this order.

References
----------
https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.items.schema.arrow import is_decimal, is_list
from ddbio.items.schema.times import is_time_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# The stubs do not know what nested and computed arrays have.
_Array: TypeAlias = Any

_BYTES = pa.large_binary()
# The branches of a union as Avro numbers them, and the block without items that ends an array or a map.


def _constant(value: bytes) -> Any:
    # pa.scalar imports pandas.
    buffers = [None, pa.py_buffer(np.array([0, len(value)], np.int64).tobytes()), pa.py_buffer(value)]
    return pa.Array.from_buffers(_BYTES, 1, buffers)[0]


_NULL, _VALUE, _END, _NOTHING = map(_constant, (b"\x00", b"\x02", b"\x00", b""))


def encode_rows(batch: pa.RecordBatch) -> tuple[_Numbers, memoryview]:
    """Return where each row begins, and the last one ends, in the bytes of all; and these bytes.

    Parameters
    ----------
    batch
        Columns of the types that :func:`ddbio.formats.avro_schema.avro_names` returns.
    """
    rows = _members(batch.columns, batch.num_rows)
    _, offsets, data = rows.buffers()
    places = np.frombuffer(offsets, np.int64)[rows.offset : rows.offset + len(rows) + 1]
    return places, memoryview(b"" if data is None else data)


def _members(columns: Sequence[_Array], count: int) -> _Array:
    """Return the bytes of records by those of their members."""
    if not columns:
        return pa.repeat(_NOTHING, count)
    return _joined(*(_union(each) for each in columns))


def _union(values: _Array) -> _Array:
    encoded = _joined(_VALUE, _encoded(values))
    return pc.if_else(values.is_valid(), encoded, _NULL) if values.null_count else encoded


def _encoded(values: _Array) -> _Array:  # noqa: PLR0911 - one line a type
    """Return the bytes of values; anything for those that are null."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _members(values.flatten(), len(values))
    if pa.types.is_map(kind):
        keys, items = _entries(values)
        return _items(values, _joined(_encoded(keys), _union(items)))
    if is_list(kind):
        return _items(values, _union(values.flatten()))
    if is_decimal(kind):
        return _with_length(_decimals(values))
    if pa.types.is_boolean(kind):
        return _fixed(np.asarray(values.cast(pa.uint8()).fill_null(0)))
    if pa.types.is_floating(kind):
        return _fixed(np.asarray(values.fill_null(0.0)))
    if pa.types.is_integer(kind) or is_time_column(kind):
        numbers = values.cast(pa.int32()) if pa.types.is_date32(kind) else values
        return _longs(np.asarray(numbers.cast(pa.int64()).fill_null(0)))
    return _with_length(values.cast(_BYTES).fill_null(b""))


def _entries(maps: _Array) -> tuple[_Array, _Array]:
    """Return the keys and the items of all maps that are not null."""
    offsets = np.asarray(maps.offsets)
    keys, items = (each[offsets[0] : offsets[-1]] for each in (maps.keys, maps.items))
    kept = np.repeat(np.asarray(maps.is_valid()), np.diff(offsets))
    return (keys, items) if kept.all() else (keys.filter(kept), items.filter(kept))


def _items(values: _Array, encoded: _Array) -> _Array:
    """Return the bytes of arrays or maps by those of the items of all that are not null: one block each."""
    counts = np.where(np.asarray(values.is_valid()), np.diff(np.asarray(values.offsets)), 0)
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int64())
    lists: Any = pa.LargeListArray
    joined = pc.binary_join(lists.from_arrays(offsets, encoded), _NOTHING)
    blocks = _joined(_longs(counts), joined, _END)
    return pc.if_else(pa.array(counts > 0), blocks, _END)


def _with_length(values: _Array) -> _Array:
    return _joined(_longs(np.asarray(pc.binary_length(values))), values)


def _decimals(values: _Array) -> _Array:
    """Return decimals as two's complements, the largest byte first and none that is not needed."""
    width = values.type.byte_width
    if values.buffers()[1] is None:
        return pa.repeat(_NOTHING, len(values))
    data = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * width :][: len(values) * width]
    cells = data.reshape(len(values), width)[:, ::-1]
    is_negative = cells[:, :1] >> 7
    # A byte in front is needless if it repeats the sign that the next one begins with.
    needless = (cells[:, :-1] == is_negative * 0xFF) & (cells[:, 1:] >> 7 == is_negative)
    taken = np.ones(cells.shape, bool)
    taken[:, :-1] = ~np.logical_and.accumulate(needless, axis=1)
    return _taken(cells, taken)


def _longs(values: _Numbers) -> _Array:
    """Return whole numbers zigzag, seven bits a byte."""
    signed = values.astype(np.int64, copy=False)
    left = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    width = max(1, -(-int(left.max(initial=0)).bit_length() // 7))
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    cells = left[:, None] >> shifts
    taken = cells > 0
    taken[:, 0] = True
    more = np.zeros(cells.shape, np.uint8)
    more[:, :-1] = taken[:, 1:] * np.uint8(0x80)
    return _taken((cells & np.uint64(0x7F)).astype(np.uint8) | more, taken)


def _taken(cells: _Numbers, taken: _Numbers) -> _Array:
    """Return the bytes of each row that are taken."""
    offsets = np.concatenate(([0], np.cumsum(taken.sum(axis=1, dtype=np.int64))))
    return _binary(offsets, cells[taken])


def _fixed(values: _Numbers) -> _Array:
    offsets = np.arange(len(values) + 1, dtype=np.int64) * values.itemsize
    return _binary(offsets, np.ascontiguousarray(values))


def _binary(offsets: Any, data: Any) -> _Array:
    return pa.Array.from_buffers(_BYTES, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _joined(*parts: _Array) -> _Array:
    return pc.binary_join_element_wise(*parts, _NOTHING)
