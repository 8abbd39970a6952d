"""Arrays that point outside their memory are refused, regardless of the source of the rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import DecodeError
from ddbio.formats.row_files import RowFiles
from ddbio.items.arrow_input import checked_batches
from ddbio.load.sources import batches_of
from ddbio.storage.local_store import LocalStore


def words(*values, dtype=np.int32):
    """Return a buffer of numbers."""
    return pa.py_buffer(np.array(values, dtype).tobytes())


def texts(*offsets, data=b"abc"):
    """Return texts with these offsets, valid or not."""
    # A slice of an array with valid first and last offsets: no other code checks the offsets between.
    buffers = [None, words(0, *offsets, len(data)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) + 1, buffers)


def lists(*offsets):
    """Return lists of three texts with these offsets."""
    values = pa.array(["a", "b", "c"])
    return pa.Array.from_buffers(
        pa.list_(pa.string()), len(offsets) + 1, [None, words(0, *offsets, 3)], children=[values]
    )


def indices(*positions):
    """Return a dictionary array of one entry with these indices."""
    return pa.DictionaryArray.from_buffers(
        pa.dictionary(pa.int32(), pa.string()), len(positions), [None, words(*positions)], pa.array(["a"])
    )


def view(start, size):
    """Return a view of a list of two entries."""
    buffers = [None, words(start), words(size)]
    return pa.Array.from_buffers(pa.list_view(pa.int64()), 1, buffers, children=[pa.array([1, 2])])


def nulls(declared):
    """Return numbers, one of them null, with a wrong null count."""
    return pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\x05"), words(1, 2, 3, dtype=np.int64)], declared)


DAMAGED = {
    "texts": texts(1 << 29),
    "texts before their bytes": texts(-5),
    "lists": lists(1 << 29),
    "texts in lists": pa.ListArray.from_arrays(pa.array([0, 1, 2]), texts(1 << 29)),
    "texts in structs": pa.StructArray.from_arrays([texts(1 << 29)], ["a"]),
    "texts in a fixed size": pa.FixedSizeListArray.from_arrays(texts(1 << 29), 2),
    "indices": indices(0, 7),
    "negative indices": indices(-1),
    "a view of a list": view(1, 9),
    "a view from before": view(-1, 2),
    "nulls": nulls(2),
}


@pytest.mark.parametrize("array", DAMAGED.values(), ids=DAMAGED)
def test_what_points_outside_is_refused(array):
    """Each layout that can point outside its memory is refused.

    The message has the number of the batch and the column.
    """
    good = pa.RecordBatch.from_arrays([array.slice(0, 0)], ["a"])
    bad = pa.RecordBatch.from_arrays([array], ["a"])
    with pytest.raises(DecodeError, match=r"^record batch 1: column 'a' is damaged: "):
        list(checked_batches([good, bad]))


BAD = pa.RecordBatch.from_arrays([texts(1 << 29)], ["pk"])


@pytest.mark.parametrize("start", [0, 1])
def test_slices_are_checked_by_their_own_ends(start):
    """A slice of a batch whose ends are damaged is refused, even if the ends of the batch are valid."""
    with pytest.raises(DecodeError, match="record batch 0: column 'pk' is damaged"):
        list(checked_batches([BAD.slice(start, 1)]))


@pytest.mark.parametrize(
    "take",
    [ddbio.to_dynamodb_json, ddbio.digest, lambda rows: list(batches_of(rows)), lambda rows: list(batches_of([rows]))],
    ids=["to_dynamodb_json", "digest", "write_table", "write_table of batches"],
)
@pytest.mark.parametrize("rows", [BAD, pa.Table.from_batches([BAD])], ids=["batch", "table"])
def test_rows_of_memory_are_checked(take, rows):
    """Every verb checks the rows that a user passes."""
    with pytest.raises(DecodeError, match="record batch 0: column 'pk' is damaged"):
        take(rows)


@pytest.mark.parametrize(("opened", "name"), [(pa.ipc.new_file, "rows.arrow"), (pa.ipc.new_stream, "rows.ipc")])
def test_a_file_is_refused_by_name_and_batch(tmp_path, opened, name):
    """A crafted file is refused. The message names the file and the batch."""
    with opened(tmp_path / name, BAD.schema) as writer:
        writer.write_batch(BAD.slice(0, 0))
        writer.write_batch(BAD)
    store = LocalStore(tmp_path)
    (entry,) = store.list()
    with pytest.raises(DecodeError, match=rf"^{name}: record batch 1: column 'pk' is damaged"):
        list(RowFiles(store).read(entry, 0))


WHOLE = {
    "texts": pa.array(["a", None, "é" * 20]),
    "views": pa.array(["a", None, "é" * 20], pa.string_view()),
    "lists": pa.array([["a"], None, []]),
    "views of lists": pa.array([[1], None, []], pa.list_view(pa.int64())),
    "maps": pa.array([[("a", ["b"])], None, []], pa.map_(pa.string(), pa.list_(pa.string()))),
    "structs": pa.array([{"a": ["b"]}, None, {}], pa.struct([("a", pa.list_(pa.string()))])),
    "runs": pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]),
    "categories": pd.Categorical(["a", None, "b"]),
    "nothing": pa.nulls(3),
    "not UTF-8": texts(1, 2, data=b"\xff\xfe\xfd"),
    # As Spark's JVM writes them.
    "no offsets": pa.Array.from_buffers(
        pa.list_(pa.list_(pa.int64())),
        3,
        [None, words(0, 0, 0, 0)],
        children=[
            pa.Array.from_buffers(
                pa.list_(pa.int64()), 0, [None, pa.py_buffer(b"")], children=[pa.array([], pa.int64())]
            )
        ],
    ),
}


@pytest.mark.parametrize("array", WHOLE.values(), ids=WHOLE)
def test_valid_arrays_pass(array):
    """Valid arrays of every layout pass unchanged, sliced anywhere.

    The reader of a row detects text that is not UTF-8.
    """
    batch = pa.RecordBatch.from_arrays([pa.array(array)], ["a"])
    for start in range(4):
        for count in range(4 - start):
            part = batch.slice(start, count)
            assert list(checked_batches([part])) == [part]
