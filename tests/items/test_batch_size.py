"""Memory size of rows, also for arrays that lack buffers."""

from __future__ import annotations

import io
from decimal import Decimal

import pyarrow as pa
import pytest

import ddbio
from ddbio.items.batch_size import batch_bytes

ROWS = 1000
COLUMNS = {
    "n": pa.array(range(ROWS)),
    "flag": pa.array([True] * ROWS),
    "text": pa.array(["x" * (row % 9) for row in range(ROWS)]),
    "view": pa.array(["a text of more than twelve bytes"] * ROWS, pa.string_view()),
    "words": pa.array(["x", "y"] * (ROWS // 2)).dictionary_encode(),
    "price": pa.array([Decimal("1.25")] * ROWS),
    "list": pa.array([[1] * (row % 4) for row in range(ROWS)]),
    "lists": pa.array([[["x"], []]] * ROWS, pa.large_list(pa.list_(pa.string()))),
    "map": pa.array([[("k", 1)]] * ROWS, pa.map_(pa.string(), pa.int8())),
    "struct": pa.array([{"a": [1, 2], "b": "x"}] * ROWS),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_take_what_pyarrow_counts(name):
    """The size of a batch, and of a slice, equals that of pyarrow where pyarrow can compute it."""
    batch = pa.RecordBatch.from_arrays([COLUMNS[name]], names=[name])
    assert batch_bytes(batch) == batch.nbytes
    assert batch_bytes(batch.slice(100, 300)) == batch.slice(100, 300).nbytes
    assert batch_bytes(batch.slice(ROWS)) == 0


def test_an_empty_list_without_offsets():
    """Lists in a list without entries, as written by other programs, have size 0 and do not crash the process."""
    nothing = pa.py_buffer(b"")
    texts = pa.Array.from_buffers(pa.string(), 0, [None, nothing, nothing])
    inner = pa.Array.from_buffers(pa.list_(pa.string()), 0, [None, nothing], children=[texts])
    middle = pa.Array.from_buffers(pa.list_(inner.type), 0, [None, nothing], children=[inner])
    one_null = [pa.py_buffer(bytes(1)), pa.py_buffer(bytes(8))]
    lists = pa.Array.from_buffers(pa.list_(middle.type), 1, one_null, children=[middle])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("a", lists.type)])) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays([lists], names=["a"]))
    batch = pa.ipc.open_stream(sink.getvalue()).read_next_batch()
    assert batch_bytes(batch) == 4
    assert ddbio.to_dynamodb_json(batch) == b"{}\n"
    assert ddbio.digest(batch) == ddbio.digest(b"{}")
