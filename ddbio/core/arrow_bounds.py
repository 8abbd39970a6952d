"""Check that arrays of others stay within their own memory before a loop reads it; leave texts to their reader.

Arrow believes the offsets, indices and views of IPC files and of other libraries. What is checked here is what
``validate(full=True)`` checks, but for UTF-8: a text that is none spoils its row, not its batch, and takes six times as
long to find as all of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.core.kernel.encode.load import bits_of, offsets_of
from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["bounded"]


def bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches as they are, each once its arrays are known to stay within their memory.

    Raises
    ------
    DecodeError
        One does not, the message has the number of its batch, from 0, and the column; or a column's name is not UTF-8.
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
        yield batch


class _BoundsError(Exception):
    """Say what of an array is damaged."""


def _check_names(fields: Iterable[pa.Field[Any]]) -> None:
    try:
        for field in fields:
            _ = field.name
            _check_names(field.type.field(place) for place in range(field.type.num_fields))
    except UnicodeError as error:
        raise DecodeError(f"the name of a column is not UTF-8: {error}") from None


def _check(array: Any) -> None:  # noqa: C901 - one branch a layout
    """Check an array the sizes of whose buffers, and of those of its children, were found right."""
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
