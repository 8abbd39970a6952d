from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddbio.errors import OptionError
from ddbio.folders import rewrite as sorting

ROWS = st.lists(st.tuples(st.sampled_from("abc") | st.none(), st.integers(-3, 3)), max_size=60)
SCHEMA = pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64(), metadata={b"ddb:type": b"N"})])


def batch_of(rows):
    """Return rows as a batch."""
    return pa.RecordBatch.from_arrays(
        [pa.array([k for k, _ in rows], pa.string()), pa.array([n for _, n in rows], pa.int64())], schema=SCHEMA
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROWS, max_size=6))
def test_runs_are_merged_in_order(tmp_path_factory, parts):
    """The merged rows are those of a sort in memory, for any runs."""
    runs = [pa.Table.from_batches([batch_of(rows)]).sort_by([("k", "ascending"), ("n", "ascending")]) for rows in parts]
    streams = [
        iter([run.slice(at, 7).combine_chunks().to_batches()[0] for at in range(0, run.num_rows, 7)]) for run in runs
    ]
    merged = [row for batch in sorting._merge(streams, ["k", "n"]) for row in batch.to_pylist()]
    wanted = [row for rows in parts for row in batch_of(rows).to_pylist()]
    assert merged == sorted(wanted, key=lambda row: (row["k"] is None, row["k"] or "", row["n"]))


def test_more_than_the_memory_is_sorted_by_a_disk(tmp_path):
    """Rows of several runs are returned in order, with their schema; the disk is empty afterwards."""
    size = 60_000
    batches = [
        pa.RecordBatch.from_arrays(
            [
                pa.array([f"{(row * 7919 + part) % 10_007:05}" * 60 for row in range(size // 20)]),
                pa.array(range(size // 20)),
            ],
            schema=SCHEMA,
        )
        for part in range(70)
    ]
    sorted_batches = list(sorting.sort_batches(iter(batches), ["k", "n"], tmp_path))
    keys = [key for batch in sorted_batches for key in batch["k"].to_pylist()]
    assert keys == sorted(keys)
    assert len(keys) == 70 * (size // 20)
    assert sorted_batches[0].schema.equals(SCHEMA, check_metadata=True)
    assert list(tmp_path.iterdir()) == []


def test_columns_without_an_order_are_refused(tmp_path):
    """The message names the existing columns, or the type."""
    with pytest.raises(OptionError, match="no column 'x' to sort by: there are k, n"):
        list(sorting.sort_batches([batch_of([("a", 1)])], ["x"], tmp_path))
    lists = pa.RecordBatch.from_arrays([pa.array([[1], [2]])], ["l"])
    with pytest.raises(OptionError, match="cannot be sorted by l"):
        list(sorting.sort_batches([lists], ["l"], tmp_path))
    assert list(sorting.sort_batches([], ["k"], tmp_path)) == []
