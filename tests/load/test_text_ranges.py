"""Large text files are read by ranges of bytes: units that are read, finished and resumed one by one."""

import json

import pyarrow as pa
import pytest

from ddbio.budget import LocalBudget
from ddbio.errors import DecodeError
from ddbio.formats import text_reader
from ddbio.formats.row_files import read_batches
from ddbio.formats.text_ranges import byte_ranges
from ddbio.items.digest_columns import digest_of_batches
from ddbio.items.reference import items_of
from ddbio.jobs.engine import open_engine
from ddbio.load.checkpoint import Checkpoint
from ddbio.load.options import LoadOptions
from ddbio.load.plan import plan_write
from ddbio.load.sources import open_source
from ddbio.load.unit_reader import RowOrigins, UnitReader, read_layouts
from ddbio.options import parse_options
from tests.load.file_units import FACTS

ROWS = 4_000
PAD = "x" * 5_000
RANGE_BYTES = 8 * 1024 * 1024


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    """Read files by ranges of some blocks each, instead of much larger ones."""
    monkeypatch.setattr(text_reader, "RANGE_BYTES", RANGE_BYTES)
    monkeypatch.setattr(byte_ranges, "__defaults__", (RANGE_BYTES,))


def options_of(source, **options):
    """Return the options of a load."""
    return parse_options(LoadOptions, {"source": str(source), "table": "rows", **options})


def opened_in_ranges(source, **options):
    """Return the source, and a reader with the layouts of its text."""
    options = options_of(source, **options)
    actual, plan = open_source(options, {}, splits_text=True), plan_write(FACTS, options)
    engine = open_engine("local")
    budget = LocalBudget(None, job="test")
    reader = UnitReader(
        actual.store, plan, texts=read_layouts(UnitReader(actual.store, plan), actual.units, engine, budget)
    )
    return actual, reader


def rows_of(reader, units, origins=None):
    """Return the rows of some units as batches and raw items."""
    result = []
    for value in reader.read(units, lambda *_: None, origins=origins):
        if isinstance(value, Checkpoint):
            value.reached()
        else:
            result.append(value)
    return result


def keys_of(parts):
    """Return the keys of rows."""
    if isinstance(parts[0], pa.RecordBatch):
        return [item["pk"]["S"] for batch in parts for item in items_of(batch.select(["pk"]))]
    return [json.loads(items.item_text(row))["pk"]["S"] for items in parts for row in range(len(items))]


def test_plain_lines_are_units_of_one_set_of_columns(tmp_path):
    """Each range has its own rows, in the order of the file, with the columns for all rows of the file."""
    with (tmp_path / "a.jsonl").open("w") as file:
        for number in range(ROWS):
            row = {"pk": f"k{number}", "n": number if number < ROWS - 9 else "late", "pad": PAD, "é": {"x": [number]}}
            file.write(json.dumps(row) + "\n")
    source, reader = opened_in_ranges(tmp_path)
    assert len(source.units) == 3
    assert all(unit.size_bytes <= RANGE_BYTES for unit in source.units)
    actual = [rows_of(reader, [unit]) for unit in source.units]
    assert [key for value in actual for key in keys_of(value)] == [f"k{number}" for number in range(ROWS)]
    assert len({batch.schema.serialize().to_pybytes() for value in actual for batch in value}) == 1
    expected = digest_of_batches(read_batches(source.store, next(source.store.list("a.jsonl"))))
    assert digest_of_batches(batch for value in actual for batch in value) == expected


def test_items_in_lines_have_line_numbers(tmp_path):
    """DynamoDB JSON stays text. The line of a row, and of an error, includes the lines of all earlier ranges."""
    path = tmp_path / "a.json"
    with path.open("w") as file:
        for number in range(ROWS):
            blank = "\n" * (number % 100 == 0)
            file.write(json.dumps({"Item": {"pk": {"S": f"k{number}"}, "pad": {"S": PAD}}}) + "\n" + blank)
    source, reader = opened_in_ranges(path)
    assert len(source.units) == 3
    assert reader.texts == {}
    origins, row, keys = RowOrigins("here"), 0, []
    last = source.units[2]
    actual = rows_of(reader, [last], origins)
    keys = keys_of(actual)
    first = int(keys[0][1:])
    assert keys == [f"k{number}" for number in range(first, ROWS)]
    for row in (0, len(keys) - 1):
        assert origins.of(row) == ("here/a.json", None, first + row + 1 + -(-(first + row + 1) // 100))
    text = path.read_bytes()
    path.write_bytes(text[:-3] + b"!!\n")
    source, reader = opened_in_ranges(path)
    with pytest.raises(DecodeError) as raised:
        rows_of(reader, [source.units[2]])
    assert raised.value.line == ROWS + 40


@pytest.mark.parametrize("bad", [False, True])
def test_csv_is_units_unless_its_quotes_are_unpaired(tmp_path, bad):
    """Cells with line ends are allowed. If quotes are plain characters, all rows are in the first unit."""
    pad = PAD + ('6" pipe' if bad else "")
    with (tmp_path / "a.csv").open("w") as file:
        file.write("pk,n,note\n")
        for number in range(ROWS):
            note = pad if number % 3 else f'"{PAD}\n,"'
            file.write(f"k{number},{number if number < ROWS - 9 else '0x'},{note}\n")
    source, reader = opened_in_ranges(tmp_path)
    assert len(source.units) == 3
    actual = [rows_of(reader, [unit]) for unit in source.units]
    assert [key for value in actual if value for key in keys_of(value)] == [f"k{number}" for number in range(ROWS)]
    assert [bool(value) for value in actual] == [True, not bad, not bad]
    if not bad:
        origins = RowOrigins("here")
        keys = keys_of(rows_of(reader, [source.units[1]], origins))
        first = int(keys[0][1:])
        assert origins.of(0) == ("here/a.csv", None, 2 + first + -(-first // 3))
        assert {str(batch.schema.field("n").type) for value in actual for batch in value} == {"string"}
