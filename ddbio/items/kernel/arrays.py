"""Conversion of Arrow arrays to a few plain layouts, and NumPy views of their buffers.

``plain_array`` removes dictionaries, run ends, extension types, views and fixed sizes. The other functions return the
offsets, bytes, words and validity of plain arrays for the loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_MAX_OFFSET = (1 << 31) - 1


def plain_array(array: Any) -> Any:
    """Return the array without extension type, dictionary, run ends, views and fixed sizes."""
    while True:
        arrow_type = array.type
        if isinstance(arrow_type, pa.BaseExtensionType):
            array = array.storage
            continue
        plainer = _PLAINER.get(arrow_type.id)
        if plainer is None:
            return array
        array = plainer(array)


def _without_hidden_views(array: Any) -> Any:
    """Clear the views of texts under nulls: pyarrow 25 trusts their lengths, and crashes."""
    if not array.null_count:
        return array
    present, buffers = valid_of(array), array.buffers()
    views = view_of(buffers[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))].reshape(-1, 2).copy()
    views[~present] = 0
    bits = np.packbits(present, bitorder="little")
    own = [pa.py_buffer(bits.data), pa.py_buffer(views.reshape(-1).data), *buffers[2:]]
    return pa.Array.from_buffers(array.type, len(array), own)


def int64_array(values: npt.NDArray[np.int64]) -> Any:
    """Return an array that shares the memory of the values. ``pa.array`` would import pandas to check their type."""
    return pa.Array.from_buffers(
        pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.int64).data)]
    )


def texts_array(*texts: str) -> Any:
    """Return an array of the texts. ``pa.array`` and ``pa.scalar`` would import pandas to check their type."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(texts), [None, pa.py_buffer(ends.data), pa.py_buffer(b"".join(encoded))]
    )


def joined_texts(*parts: Any) -> Any:
    """Concatenate the parts of each row; a part is an array of texts, or one text for all rows."""
    shared = iter(texts_array(*(part for part in parts if isinstance(part, str)), ""))
    columns = [next(shared) if isinstance(part, str) else part for part in parts]
    separator = next(shared)
    return pc.binary_join_element_wise(*columns, separator)


def int64_values(array: Any) -> npt.NDArray[np.int64]:
    """Return the values of an array of integers or times. The array's ``to_numpy`` would import pandas."""
    return words_of(array, 1).view(np.int64)


def bool_array(values: npt.NDArray[np.bool_]) -> Any:
    """Return an array of booleans."""
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed.data)])


def take_rows(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return the given rows of a batch, in that order and with the same schema."""
    try:
        return batch.take(int64_array(rows))
    except pa.ArrowNotImplementedError:
        # pyarrow 25 cannot take rows of views or run ends at any level of nesting, but it can concatenate slices.
        firsts = np.flatnonzero(np.diff(rows, prepend=rows[:1] - 2) != 1)
        runs = [(int(run[0]), len(run)) for run in np.split(rows, firsts[1:])] if len(rows) else [(0, 0)]
        columns = [pa.concat_arrays([column.slice(*run) for run in runs]) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def joined_batches(batches: Sequence[Any]) -> pa.RecordBatch:
    """Concatenate batches of the same schema."""
    if len(batches) == 1:
        return batches[0]  # type: ignore[no-any-return]
    columns = [pa.concat_arrays(list(column)) for column in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _take(values: Any, indices: Any) -> Any:
    plain = plain_array(values)
    # pyarrow 25 lets 32-bit offsets overflow.
    if pa.types.is_string(plain.type) and _may_overflow(plain, len(indices)):
        plain = plain.cast(pa.large_string())
    elif pa.types.is_binary(plain.type) and _may_overflow(plain, len(indices)):
        plain = plain.cast(pa.large_binary())
    try:
        return plain.take(indices)
    except pa.ArrowNotImplementedError:
        # pyarrow 25 cannot take rows of types with nested views or run ends.
        return _plain_nested(plain).take(indices)


def _plain_nested(array: Any) -> Any:
    """Return the array without views, dictionaries and run ends, in nested arrays too."""
    array, mask = plain_array(array), None
    kind = array.type
    if kind.num_fields and array.null_count:
        mask = array.is_null()
    if pa.types.is_struct(kind):
        children = [_plain_nested(array.field(index)) for index in range(kind.num_fields)]
        fields = [field.with_type(child.type) for field, child in zip(kind, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if pa.types.is_map(kind):
        maps: Any = pa.MapArray
        offsets, keys, items = entries_of(array, array.keys, array.items)
        offsets_array = pa.array(offsets.astype(np.int32))
        return maps.from_arrays(offsets_array, _plain_nested(keys), _plain_nested(items), mask=mask)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets, values = entries_of(array, array.values)
        return _lists(offsets, _plain_nested(values), mask)
    return array


def _may_overflow(texts: Any, count: int) -> bool:
    """Return whether ``count`` of these texts may have more bytes than 32-bit offsets can address."""
    return bool(count * np.diff(offsets_of(texts)).max(initial=0) > _MAX_OFFSET)


def _without_fixed_size(array: Any) -> Any:
    # The cast of pyarrow 25 loses the texts of views.
    size = array.type.list_size
    offsets = size * np.arange(len(array) + 1)
    return _lists(offsets, array.values.slice(size * array.offset, offsets[-1]), array.is_null())


def _without_view(array: Any) -> Any:
    lengths = np.where(array.is_valid(), array.sizes, 0)
    return _lists(
        _offsets_from(lengths), _concatenate_runs(array.values, array.offsets.to_numpy(), lengths), array.is_null()
    )


def _without_dictionary(array: Any) -> Any:
    return _take(array.dictionary, array.indices)


def _without_runs(array: Any) -> Any:
    entries = np.arange(array.offset, array.offset + len(array))
    return _take(array.values, pa.array(np.searchsorted(array.run_ends, entries, side="right")))


# Looking up the id of a type is cheaper than testing one type after the other.
_PLAINER: dict[int, Callable[[Any], Any]] = {
    pa.dictionary(pa.int8(), pa.int8()).id: _without_dictionary,
    pa.run_end_encoded(pa.int32(), pa.int8()).id: _without_runs,
    pa.list_(pa.int8(), 1).id: _without_fixed_size,
    pa.list_view(pa.int8()).id: _without_view,
    pa.large_list_view(pa.int8()).id: _without_view,
    pa.string_view().id: lambda array: _without_hidden_views(array).cast(pa.large_string()),
    pa.binary_view().id: lambda array: _without_hidden_views(array).cast(pa.large_binary()),
}


def without_hidden(array: Any, offsets: npt.NDArray[np.int64], values: Any) -> tuple[npt.NDArray[np.int64], Any]:
    """Return the offsets and the values (or keys) of a list or map array, without entries under nulls."""
    lengths = np.where(array.is_valid(), np.diff(offsets), 0)
    return _offsets_from(lengths), _concatenate_runs(values, offsets[:-1], lengths)


def _lists(offsets: npt.NDArray[np.int64], values: Any, mask: Any) -> Any:
    offsets_array: Any = pa.array(offsets)
    return pa.LargeListArray.from_arrays(offsets_array, values, mask=mask)


def _offsets_from(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def entries_of(array: Any, *parts: Any) -> tuple[Any, ...]:
    """Return the offsets of a list or map array, starting at 0, and the entries of each part, such as its values.

    Values outside of the entries are not validated.
    """
    offsets = offsets_of(array).astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    return (offsets - first, *(part.slice(first, count) for part in parts))


def _concatenate_runs(values: Any, starts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> Any:
    """Concatenate runs of values, which begin at ``starts`` and have these ``lengths``."""
    # pyarrow 25 loses the texts of extension types over views, and cannot make an empty array of every type.
    used = lengths > 0
    if not used.any():
        return plain_array(values.slice(0, 0))
    # Values outside of the used range are not validated.
    first, last = int(starts[used].min()), int((starts[used] + lengths[used]).max())
    plain = plain_array(values.slice(first, last - first))
    views: Any = pa.LargeListViewArray
    starts_and_lengths = [pa.array(part, pa.int64()) for part in (np.where(used, starts - first, 0), lengths)]
    return views.from_arrays(*starts_and_lengths, plain).flatten()


_EMPTY: npt.NDArray[np.uint8] = np.frombuffer(b"", np.uint8)


def as_type(array: Any, arrow_type: pa.DataType) -> Any:
    """Cast an array unless it already has the type: a cast is costly for a few rows."""
    return array if array.type == arrow_type else array.cast(arrow_type)


def binary_array(array: Any) -> Any:
    """Return an array of bytes in a layout with offsets."""
    has_offsets = pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)
    return array if has_offsets else array.cast(pa.large_binary())


def text_array(array: Any) -> Any:
    """Convert an array of texts or numbers to texts with offsets."""
    if pa.types.is_float16(array.type) or pa.types.is_float32(array.type):
        array = array.cast(pa.float32()).cast(pa.float64())
    has_offsets = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    return array if has_offsets else array.cast(pa.large_string())


def view_of(buffer: Any, dtype: Any) -> Any:
    """Return a read-only NumPy view of a buffer: the loops are compiled for read-only arrays only."""
    if buffer is None or not buffer.size:
        return _EMPTY.view(dtype)
    width = np.dtype(dtype).itemsize
    view: npt.NDArray[Any] = np.frombuffer(buffer, dtype, buffer.size // width)
    if not view.flags.aligned:
        view = view.copy()
    view.flags.writeable = False
    return view


def spans_of(array: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of an array of texts or bytes, and the offsets of its entries."""
    return view_of(array.buffers()[2], np.uint8), offsets_of(array).astype(np.int64)


def words_of(array: Any, width: int) -> npt.NDArray[np.uint64]:
    """Return the 64-bit words of an array of integers or decimals, ``width`` words a value."""
    words: npt.NDArray[np.uint64] = view_of(array.buffers()[1], np.uint64)
    return words[width * array.offset : width * (array.offset + len(array))]


def offsets_of(array: Any) -> npt.NDArray[Any]:
    """Return the offsets of the array's entries."""
    is_wide = (
        pa.types.is_large_list(array.type)
        or pa.types.is_large_string(array.type)
        or pa.types.is_large_binary(array.type)
    )
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(1, np.int64)
    offsets = view_of(buffer, np.int64 if is_wide else np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]  # type: ignore[no-any-return]


def bits_of(buffer: pa.Buffer, offset: int, length: int) -> npt.NDArray[np.uint8]:
    """Return a byte, 0 or 1, for each of Arrow's bits."""
    first = offset // 8
    packed: npt.NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)  # type: ignore[call-overload] # any buffer will do
    packed = packed[first : (offset + length + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[offset - 8 * first :][:length]


def valid_of(array: Any) -> npt.NDArray[Any]:
    """Return whether each entry is valid, i.e. not null."""
    buffer = array.buffers()[0]
    if buffer is None:
        if not array.null_count:
            return np.ones(len(array), np.bool_)
        return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    return bits_of(buffer, array.offset, len(array)).view(np.bool_)
