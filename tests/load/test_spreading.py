"""Windows of rows are spread without losing rows, the order of a key's rows or the meaning of a checkpoint."""

import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddbio.load.checkpoint import Checkpoint
from ddbio.load.plan import WritePlan
from ddbio.load.spreading import RowSpreader

WINDOW_BYTES = 400
SIZES = st.integers(0, 3) | st.integers(40, 60)
FEEDS = st.lists(st.none() | st.tuples(SIZES, st.sampled_from(["v", "w"])), max_size=12)


def plan_of(rate=None):
    """Return the plan of a write by eight lanes."""
    return WritePlan("t", (("pk", "S"),), "upsert", None, None, 8, rate)


def spread(feed, *, rate=None, any_order=False, window_bytes=WINDOW_BYTES):
    """Return the output for a feed, and the numbers of its rows."""
    spreading = RowSpreader(plan_of(rate), any_order=any_order, window_bytes=window_bytes)
    handed, numbers = [], []
    for element in (element for element in spreading.spread(feed) if element is not None):
        handed.append(element)
        if not isinstance(element, Checkpoint):
            numbers += [spreading.number_of(len(numbers) + index) for index in range(element.num_rows)]
    return handed, numbers


def rows_before(feed):
    """Return the rows of a feed, and the number of rows before each checkpoint, by its name."""
    rows, before = [], {}
    for element in feed:
        if isinstance(element, Checkpoint):
            before[element.reached] = len(rows)
        else:
            rows += [(element.schema.names[1], *row.values()) for row in element.to_pylist()]
    return rows, before


@settings(deadline=None)
@given(FEEDS, st.integers(1, 9), st.booleans())
def test_rows_keys_and_checkpoints(sizes, n_keys, any_order):
    """All rows are yielded, a key's rows in order unless any order is allowed, checkpoints after all earlier rows."""
    feed, start = [], 0
    for index, size in enumerate(sizes):
        if size is None:
            feed.append(Checkpoint(index))
            continue
        values = list(range(start, start + size[0]))
        keys = [str(value % n_keys) if value % 3 else f"own-{value}" for value in values]
        feed.append(pa.record_batch({"pk": pa.array(keys, pa.string()), size[1]: pa.array(values, pa.int64())}))
        start += size[0]
    rows, before = rows_before(feed)
    handed, numbers = spread(feed, any_order=any_order)
    actual, later = rows_before(handed)
    assert [rows[number] for number in numbers] == actual
    assert sorted(actual, key=lambda row: row[2]) == rows
    assert before.keys() == later.keys()
    assert all(set(rows[:count]) <= set(actual[: later[name]]) for name, count in before.items())
    if not any_order:
        for key in {row[1] for row in rows}:
            assert [row for row in actual if row[1] == key] == [row for row in rows if row[1] == key]


def test_numbers_of_rows_are_kept_while_they_may_be_asked_for():
    """A row that a lane still has keeps its number after many small windows. Finished rows are forgotten."""
    spreading = RowSpreader(plan_of(), any_order=True, window_bytes=1)
    feed = [pa.record_batch({"pk": [f"{n}-{index}" for index in range(1000)]}) for n in range(200)]
    handed = [batch.column(0).to_pylist() for batch in spreading.spread(feed) if batch is not None]
    number = spreading.number_of(150_003)
    assert handed[150][3] == f"150-{number - 150_000}"
    assert spreading.number_of(3) == 3


def test_rows_in_the_order_of_partitions_are_spread():
    """Each chunk has the same number of rows of four partitions, though the source reads one after the other."""
    count = 40_000
    feed = [
        pa.record_batch({"pk": [f"{n:06}" for n in range(first, first + 1000)], "n": range(first, first + 1000)})
        for first in range(0, count, 1000)
    ]
    chunks, _ = spread(feed, window_bytes=1 << 26)
    for chunk in chunks:
        portions = [sum(value * 4 // count == part for value in chunk.column(1).to_pylist()) for part in range(4)]
        assert max(portions) <= 1.1 * chunk.num_rows / 4


def test_the_same_column_as_list_and_set_stays_apart():
    """Batches whose types differ only in metadata are never joined."""
    plain = pa.schema({"pk": pa.string(), "v": pa.list_(pa.string())})
    tagged = plain.set(1, plain.field(1).with_metadata({"ddb:type": "SS"}))
    batches = [pa.record_batch([["a"], [["x"]]], schema=schema) for schema in (plain, tagged)]
    handed, _ = spread(batches)
    assert [batch.schema.field(1).metadata for batch in handed] == [None, {b"ddb:type": b"SS"}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.dictionary(pa.int32(), pa.string()), ["a", "b"]),
        (pa.decimal128(9, 2), [Decimal("1.00"), Decimal("2.50")]),
        (pa.map_(pa.string(), pa.int8()), [[("a", 1)], [("b", 2)]]),
        (pa.string_view(), ["a", "text that a view does not hold itself"]),
    ],
)
def test_all_types_can_be_joined(kind, values):
    """Dictionaries of different words, and other special columns, are also joined."""
    (joined,), _ = spread([pa.record_batch({"pk": [str(value)], "v": pa.array([value], kind)}) for value in values])
    assert joined.column(1).to_pylist() == values


def test_a_row_without_a_key_leaves_its_window_as_it_came():
    """Rows that the encoder will refuse do not fail here."""
    handed, _ = spread([pa.record_batch({"pk": ["a", None, "b", "a"], "v": [1, 2, 3, 4]})])
    assert rows_before(handed)[0] == [("v", "a", 1), ("v", None, 2), ("v", "b", 3), ("v", "a", 4)]


def test_putting_rows_in_another_order_needs_no_pandas():
    """An update and the first steps of a fold do not import pandas, which takes longer than they do for a few rows."""
    script = """
import sys, tempfile
import numpy as np, pyarrow as pa
from ddbio.load.plan import WritePlan
from ddbio.storage.local_store import LocalStore
from ddbio.export.spill import Spill, SpillWriter
from ddbio.load.spreading import RowSpreader
# To make an array of a list imports it.
ends = pa.py_buffer(np.arange(4, dtype=np.int32))
texts = pa.Array.from_buffers(pa.string(), 3, [None, ends, pa.py_buffer(b"bab")])
batch = pa.RecordBatch.from_arrays([texts], names=["pk"])
plan = WritePlan("t", (("pk", "S"),), "update", None, None, 8, None)
for any_order in (True, False):
    chunks = list(filter(None, RowSpreader(plan, any_order=any_order).spread([batch])))
    assert [each.num_rows for each in chunks] == [3]
SpillWriter(Spill(LocalStore(tempfile.mkdtemp()), 2), "items", "0").write(batch, np.array([1, 2, 1], np.uint64))
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize(("rate", "most"), [(2000.0, 20_000), (1000.0, 1000), (1.0, 200)])
def test_a_small_budget_needs_no_wide_window(rate, most):
    """Rows wait for others for seconds, and for one second at the rate of one partition, so that units finish soon."""
    feed = [pa.record_batch({"pk": [f"{n:06}" for n in range(first, first + 100)]}) for first in range(0, 40_000, 100)]
    marked = [element for index, batch in enumerate(feed) for element in (batch, Checkpoint(100 * (index + 1)))]
    handed, _ = spread([Checkpoint(0), *marked], rate=rate, window_bytes=1 << 26)
    _, later = rows_before(
        [
            element if isinstance(element, Checkpoint) else element.append_column("v", element.column(0))
            for element in handed
        ]
    )
    assert max(count - name for name, count in later.items()) <= most
