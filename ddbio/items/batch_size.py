"""Memory size of the rows of a record batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator


_OFFSET_BYTES = 4


def batch_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of a batch's rows in bytes, without the validity bits of structs and lists.

    This replaces ``batch.nbytes``, which in pyarrow 25 crashes the process for an empty list of lists without offsets,
    as Spark's JVM writes it.
    """
    return sum(_array_bytes(column) for column in batch.columns)


def value_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of a batch in bytes without its nulls, of which sparse rows have many."""
    rows, total = batch.num_rows, 0
    for array in batch.columns:
        nulls = array.null_count
        if nulls < rows:
            total += _array_bytes(array) - nulls * (_bytes_per_null(array.type) if nulls else 0)
    return max(0, total)


def _bytes_per_null(kind: Any) -> int:
    """Return the bytes of one null in a column of this type, or 0 if the column has more than one array."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _OFFSET_BYTES
    return int(kind.bit_width) // 8 if pa.types.is_primitive(kind) else 0


def _array_bytes(array: Any) -> int:
    if not len(array):
        return 0
    kind = array.type
    if not kind.num_fields:
        return int(array.nbytes)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = array.offsets
        first, stop = offsets[0].as_py(), offsets[-1].as_py()
        within = (values.slice(first, stop - first) for values in _values(array))
        return int(offsets[:-1].nbytes) + sum(map(_array_bytes, within))
    if pa.types.is_struct(kind):
        return sum(_array_bytes(array.field(number)) for number in range(kind.num_fields))
    return int(array.nbytes)


def _values(array: Any) -> Iterator[Any]:
    if pa.types.is_map(array.type):
        yield array.keys
        yield array.items
    else:
        yield array.values
