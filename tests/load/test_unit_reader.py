"""Units are read one by one, or in rotation, each with its checkpoint."""

import itertools

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

from ddbio.load.checkpoint import Checkpoint
from ddbio.load.options import LoadOptions
from ddbio.load.plan import plan_write
from ddbio.load.sources import Unit
from ddbio.load.unit_reader import UnitReader, WithinUnits, split_streams
from ddbio.options import parse_options
from ddbio.storage.staged import StoredObject
from tests.load.file_units import FACTS, opened, read


def test_a_unit_is_read_without_the_others(folder):
    """Any unit may be left out, and a checkpoint reports when each has been read."""
    source = opened(folder)
    assert read(source, source.units) == {0: 300, 1: 300, 2: 300, 3: 100, 4: 1000, 5: 1, 6: 1000}
    assert read(source, source.units[3:6:2]) == {3: 100, 5: 1}


def test_units_far_apart_are_read_in_rotation(folder):
    """If any order is allowed, the first rows are from all parts of the source. Every unit has its checkpoint."""
    source = opened(folder)
    plan = plan_write(FACTS, parse_options(LoadOptions, {"source": "x", "table": "rows"}))
    first = list(itertools.islice(UnitReader(source.store, plan).read(source.units[:4], print, any_order=True), 4))
    assert sorted(batch.column(0)[0].as_py() for batch in first) == ["0000", "0300", "0600", "0900"]
    assert read(source, source.units, any_order=True) == read(source, source.units)


def test_slices_of_large_rows_are_small(tmp_path):
    """For rows of any size, the rows in memory come from all streams that are read at the same time."""
    texts = pa.array(["x" * 20_000] * 4000)
    table = pa.table({"pk": [f"{number:04}" for number in range(4000)], "text": texts})
    pq.write_table(table, tmp_path / "large.parquet", 1000)
    source = opened(tmp_path)
    plan = plan_write(FACTS, parse_options(LoadOptions, {"source": "x", "table": "rows"}))
    first = list(itertools.islice(UnitReader(source.store, plan).read(source.units, print, any_order=True), 4))
    assert sorted(batch.column(0)[0].as_py() for batch in first) == ["0000", "1000", "2000", "3000"]
    assert sum(batch.nbytes for batch in first) <= 64 << 20
    assert read(source, source.units, any_order=True) == read(source, source.units)


def test_streams_of_units_are_alike_and_few():
    """Adjacent units make streams of about the same size. Large ones are not read at the same time."""

    def units_of(sizes, path="a.parquet"):
        return [Unit(number, StoredObject(path, size), 0, size) for number, size in enumerate(sizes)]

    units = units_of([10] * 500)
    streams = split_streams(units)
    assert [unit for stream in streams for unit in stream] == units
    assert {len(stream) for stream in streams} <= {15, 16}
    assert [len(stream) for stream in split_streams(units_of([1 << 30] * 3))] == [3]
    assert [len(stream) for stream in split_streams(units_of([1 << 26] * 4, "a.json.gz"))] == [4]
    assert split_streams([]) == [[]]


def test_a_file_of_text_has_checkpoints_within(tmp_path):
    """Rows that are already written are skipped, and later checkpoints count from the file's first row."""
    (tmp_path / "a.csv").write_text("pk\n" + "".join(f"k{number}\n" for number in range(40_000)))
    source, begun, rows = opened(tmp_path), [], []
    plan = plan_write(FACTS, parse_options(LoadOptions, {"source": "x", "table": "rows"}))
    within = WithinUnits({0: 20_000}, lambda unit, count: begun.append((unit, count)))
    counts = {}
    for batch in UnitReader(source.store, plan).read(source.units, counts.__setitem__, within=within):
        if isinstance(batch, Checkpoint):
            batch.reached()
        else:
            rows += batch.column(0).to_pylist()
    assert rows == [f"k{number}" for number in range(20_000, 40_000)]
    assert counts == {0: 40_000}
    assert [unit for unit, _ in begun] == [0] * len(begun)
    assert min(count for _, count in begun) > 20_000
