"""Few stored bytes expand to bounded memory: in pieces, or refused because of the size of the batch or a row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import DecodeError, SchemaError
from ddbio.items import expansion
from ddbio.items.arrow_input import checked_batches
from ddbio.items.expansion import FREE_BYTES, bounded_batches, check_expansion, check_rows

MANY = 10**9
INT32 = pa.int32()
LONG = "x" * 300_000


def repeated(values, count):
    """Return a dictionary array with ``count`` copies of the first entry."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array(values))


def views_of_one(count):
    """Return views that all point to the same long text."""
    [_, views, data] = pa.array([LONG], pa.string_view()).buffers()
    return pa.Array.from_buffers(pa.string_view(), count, [None, pa.py_buffer(views.to_pybytes() * count), data])


def list_views(count, kind=pa.ListViewArray, width=INT32):
    """Return lists that all point to the same values."""
    return kind.from_arrays(pa.array([0] * count, width), pa.array([count] * count, width), pa.array(range(count)))


BOMBS = {
    "nulls": pa.nulls(MANY),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([MANY], pa.int64()), pa.array(["x"])),
    "long runs": pa.RunEndEncodedArray.from_arrays(pa.array([15_000], pa.int32()), pa.array([LONG])),
    "a dictionary": repeated([LONG], 15_000),
    "a dictionary of binary": repeated([LONG.encode()], 15_000),
    "a dictionary in structs": pa.StructArray.from_arrays([repeated([LONG], 15_000)], ["a"]),
    "a dictionary in lists": pa.ListArray.from_arrays(pa.array([*range(15_001)], pa.int32()), repeated([LONG], 15_000)),
    "a dictionary of lists": repeated([[LONG]], 15_000),
    "a dictionary of dictionaries": pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(15_000, np.int8)), repeated([LONG], 3)
    ),
    "views": views_of_one(15_000),
    "views of lists": list_views(10_000),
    "large views of lists": list_views(10_000, pa.LargeListViewArray, pa.int64()),
    "nulls in one list": pa.ListArray.from_arrays(pa.array([0, MANY], pa.int32()), pa.nulls(MANY)),
    "nulls of a fixed size": pa.FixedSizeListArray.from_arrays(pa.nulls(MANY), MANY),
    "nulls in structs": pa.StructArray.from_arrays([pa.nulls(MANY)], ["a"]),
    "lists of nothing": pa.FixedSizeListArray.from_buffers(
        pa.list_(pa.int64(), 0), MANY, [None], children=[pa.array([], pa.int64())]
    ),
    "structs of nothing": pa.StructArray.from_buffers(pa.struct([]), MANY, [None], children=[]),
    "no bytes": pa.Array.from_buffers(pa.binary(0), MANY, [None, pa.py_buffer(b"")]),
    "one large row": pa.MapArray.from_arrays(
        pa.array([0, 100_000], pa.int32()), pa.array(map(str, range(100_000))), repeated(["x" * 3000], 100_000)
    ),
}


@pytest.mark.parametrize("array", BOMBS.values(), ids=BOMBS)
def test_what_expands_beyond_its_size_is_refused(array):
    """Each layout that may expand is refused before it expands. The message has the number of the batch."""
    batch = pa.RecordBatch.from_arrays([array], ["a"])
    with pytest.raises(DecodeError, match=r"^record batch 0: (it inflates|[0-9,]+ entries|row 0 expands)"):
        list(checked_batches([batch]))
    with pytest.raises((DecodeError, SchemaError)):
        ddbio.to_dynamodb_json(batch)


def test_rows_without_columns_are_refused():
    """A batch may have rows without columns."""
    batch = pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), MANY, [None], children=[]))
    with pytest.raises(DecodeError, match="entries are in 0 bytes"):
        list(bounded_batches(batch))


FEW = {
    "nulls": pa.nulls(9),
    "a dictionary": pa.array(["a", None, "b" * 20] * 3).dictionary_encode(),
    "indices that are null": pa.DictionaryArray.from_arrays(pa.array([None, 0, 1], pa.int8()), pa.array(["a", None])),
    "an empty dictionary": pa.DictionaryArray.from_arrays(pa.array([None] * 3, pa.int8()), pa.array([], pa.string())),
    "runs": pa.RunEndEncodedArray.from_arrays([2, 9], ["a", "b"]),
    "views": pa.array(["a", None, "b" * 20], pa.string_view()),
    "views of lists": pa.array([[1, 2], None, [3], []], pa.list_view(pa.int64())),
    "a fixed size": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
    "maps of nulls": pa.array([[("a", None)], None, []], pa.map_(pa.string(), pa.null())),
    "structs of views": pa.array([{"a": "b" * 20}, None], pa.struct([("a", pa.string_view())])),
}


@pytest.mark.parametrize("array", FEW.values(), ids=FEW)
def test_sizes_are_those_of_plain_rows(array):
    """The size of a row is that of its plain layout, regardless of the offset of the array."""
    held = 1 << 20
    sizes = expansion._sizes(array, held)
    for start in range(len(array) + 1):
        assert expansion._sizes(array.slice(start), held).tolist() == sizes[start:].tolist()
    texts = [len(str(value or "")) for value in array.to_pylist()]
    assert (sizes >= np.minimum(texts, 2)).all()


def test_what_expands_within_its_limits_comes_in_pieces():
    """A long text of many rows is yielded row by row, and nothing is lost between the pieces."""
    keys = pa.array([f"{number:08}" * 20 for number in range(3_000)])
    batch = pa.RecordBatch.from_arrays([keys, repeated(["x" * 100_000], 3_000)], ["pk", "c"])
    pieces = list(bounded_batches(batch))
    assert len(pieces) > 3
    assert pa.Table.from_batches(pieces).column("pk").to_pylist() == keys.to_pylist()
    assert all(piece.num_rows * 100_000 <= FREE_BYTES for piece in pieces)


def test_batches_that_do_not_expand_are_not_split():
    """Columns without repeated values are not measured, regardless of their size, nor are views of as many bytes."""
    texts = [f"{number:09}" * 30 for number in range(300_000)]
    for kind in (pa.string(), pa.string_view()):
        batch = pa.RecordBatch.from_arrays([pa.array(texts, kind)], ["pk"])
        assert list(bounded_batches(batch)) == [batch]


@pytest.mark.parametrize(
    ("stored", "expanded", "max_bytes"), [(1000, FREE_BYTES + 1, None), (1 << 30, 2 << 30, 1 << 30)]
)
def test_ratio_and_size_are_limited(stored, expanded, max_bytes):
    """The limit of the ratio applies from a minimum size. The limit of a size in one piece always applies."""
    with pytest.raises(DecodeError, match="inflates to more than"):
        check_expansion(stored, expanded, max_bytes)
    check_expansion(stored, FREE_BYTES, max_bytes)
    check_expansion(expanded, expanded, None)


def test_rows_are_limited_by_the_size_of_their_file():
    """More rows than bytes can distinguish are not rows of a table."""
    check_rows(10**6, 10**9)
    with pytest.raises(DecodeError, match="1,000,000,001 rows in 1,000,000 bytes"):
        check_rows(10**6, 10**9 + 1)
