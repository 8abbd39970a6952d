"""Folds of a full export and increments to files: the table's state for any number of buckets, or nothing."""

import json
import random

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import ddbio
from ddbio.cli.main import run
from ddbio.errors import ExportIncompleteError, TargetError
from ddbio.export import fold, spill
from ddbio.items.reference import items_of
from ddbio.testing.export import Change, ExportWriter
from tests.export.fold_model import item, window

# With a running Spark session, Spark reads the exports; PySpark leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def read_back(folder):
    """Return the items in a folder of Parquet files, ordered by key."""
    table = ds.dataset(folder, format="parquet", exclude_invalid_files=True).to_table()
    return sorted((item for batch in table.to_batches() for item in items_of(batch)), key=lambda item: item["sk"]["N"])


def by_key(items):
    """Return items, ordered by key."""
    return sorted(items, key=lambda item_: item_["sk"]["N"])


def test_files_hold_the_state_of_the_model(tmp_path, seeds, monkeypatch):
    """For random changes, windows and buckets, the files have the final state of the table."""
    monkeypatch.setattr(fold, "_BUCKET_BYTES", 200)
    for seed in seeds(6, 200):
        monkeypatch.setattr(spill, "_FLUSH_BYTES", 2_000 if seed % 2 else 1)
        rng, out = random.Random(seed), tmp_path / f"out{seed}"
        writer = ExportWriter(tmp_path / f"in{seed}", seed=seed)
        state = {number: item(number, rng) for number in range(0 if seed % 6 == 0 else 15)}
        full = writer.full(state.values())
        increments = [writer.incremental(window(state, rng, 1_000_000 * turn)) for turn in range(1, 5)]
        rng.shuffle(increments)
        report = ddbio.fold_exports_to_files(full, increments, out, engine="local")
        assert read_back(out) == by_key(state.values()), seed
        assert (report.rows, report.windows) == (len(state), 4), seed


@pytest.fixture
def story(tmp_path):
    """Return a full export of three items and two windows: one with a change and a delete, then one with a new item."""
    writer, rng = ExportWriter(tmp_path / "in"), random.Random(1)
    items = {number: item(number, rng) for number in range(3)}
    full = writer.full(items.values())
    changed = {**items[1], "total": {"N": "7777"}}
    keys = [{name: table_item[name] for name in ("pk", "sk")} for table_item in (*items.values(), item(9, rng))]
    first = writer.incremental([Change(1, keys[1], changed, items[1]), Change(2, keys[2], None, items[2])])
    second = writer.incremental([Change(3, keys[3], {**keys[3], "total": {"N": "1"}})])
    return full, [first, second], [items[0], changed]


def test_state_as_of_the_end_of_a_window(story, tmp_path):
    """Later windows are left out; a time within a window cannot be restored."""
    full, increments, after_first = story
    end = json.loads((increments[0] / "manifest-summary.json").read_bytes())["exportToTime"]
    report = ddbio.fold_exports_to_files(full, increments, tmp_path / "out", as_of=end, engine="local")
    assert read_back(tmp_path / "out") == by_key(after_first)
    assert (report.items, report.changes, report.windows) == (3, 2, 1)
    with pytest.raises(ExportIncompleteError, match="was requested"):
        ddbio.fold_exports_to_files(full, increments, tmp_path / "no", as_of=end.replace(":00:00", ":30:00"))
    assert not (tmp_path / "no").exists()


def test_a_fold_is_planned(story, tmp_path):
    """The plan writes nothing, and has the input of the fold; the report includes both."""
    full, increments, *_ = story
    plan = ddbio.plan_fold_exports(full, increments, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    report = ddbio.fold_exports_to_files(full, increments, tmp_path / "out", engine="local")
    assert (plan.items, plan.changes, plan.windows) == (report.items, report.changes, report.windows)
    assert {"units", "requests", "bytes", "seconds", "usd", "lines"} <= plan.to_dict().keys()
    assert report.planned == plan.estimate.figures
    assert report.actual is not None
    assert report.actual.bytes == plan.file_bytes


def test_missing_window_leaves_nothing(story, tmp_path):
    """The error names the gap, and nothing is written."""
    full, (_, second), _ = story
    with pytest.raises(ExportIncompleteError, match="no export covers"):
        ddbio.fold_exports_to_files(full, [second], tmp_path / "out", engine="local")
    assert not (tmp_path / "out").exists()


def test_damaged_increment_leaves_nothing(story, tmp_path):
    """The error names a damaged file; neither output nor spilled rows stay."""
    full, increments, _ = story
    for path in (increments[0].parent / "data").iterdir():
        path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ExportIncompleteError, match="MD5 is"):
        ddbio.fold_exports_to_files(full, increments, tmp_path / "out", spill=str(tmp_path / "spill"), engine="local")
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.glob("spill/**/*") if path.is_file()]


def test_overwriting_never_deletes_an_increment(story, tmp_path):
    """A target that contains an export of the fold is refused, even one that is left out."""
    full, (first, second), _ = story
    end = json.loads((first / "manifest-summary.json").read_bytes())["exportToTime"]
    for dest in (full, first, second, first.parent / "data"):
        with pytest.raises(TargetError, match="mode overwrite would delete"):
            ddbio.fold_exports_to_files(full, [first, second], dest, as_of=end, mode="overwrite", engine="local")
    assert ddbio.fold_exports_to_files(full, [first, second], tmp_path / "out", engine="local").rows == 3


def test_nothing_changed(tmp_path):
    """Without changes the files have the items of the full export, although its keys are unknown."""
    writer, rng = ExportWriter(tmp_path / "in"), random.Random(1)
    full = writer.full([item(1, rng)])
    report = ddbio.fold_exports_to_files(full, [writer.incremental([])], tmp_path / "out", engine="local")
    assert (report.rows, report.windows, report.changes) == (1, 1, 0)


def test_keys_that_fit_no_column_are_distinguished(tmp_path):
    """Items whose keys were rescued are changed, put and deleted like others."""
    writer = ExportWriter(tmp_path / "in")
    items = [{"pk": {"S": "a"}, "sk": {"N": number}} for number in ("1", "1.5", "2.5", "3.5", "4.5")]
    full = writer.full(items[:4])
    changed = [{**table_item, "v": {"N": "1"}} for table_item in items]
    changes = [Change(1, items[2], changed[2], items[2]), Change(2, items[3], None, items[3])]
    increment = writer.incremental([*changes, Change(3, items[4], changed[4])])
    schema = pa.schema([("pk", pa.string()), ("sk", pa.int64()), ("v", pa.int64())])
    ddbio.fold_exports_to_files(full, [increment], tmp_path / "out", engine="local", schema=schema)
    assert read_back(tmp_path / "out") == [items[0], items[1], changed[2], changed[4]]


def test_commands(story, tmp_path, capsys):
    """The commands fold, and list the missing windows with the option names of starting an export."""
    full, (first, second), _ = story
    out = str(tmp_path / "out")
    assert not run(["export", "fold", str(full), str(second), str(first), out, "--json", "--engine", "local"])
    assert json.loads(capsys.readouterr().out)["rows"] == 3
    until = ["--until", "2026-11-01T06:00:00Z"]
    assert not run(["export", "windows", str(full), str(second), *until, "--json"])
    windows = json.loads(capsys.readouterr().out)["windows"]
    times = [(window_["from_time"][11:16], window_["to_time"][11:16]) for window_ in windows]
    assert times == [("01:00", "02:00"), ("03:00", "06:00")]
    assert not run(["export", "windows", str(full), str(first), str(second), "--until", "2026-11-01T03:10:00Z"])
    assert capsys.readouterr().out == "nothing to request yet\n"
    assert not run(["export", "windows", str(full), str(second), "--until", "2026-11-01T03:10:00Z"])
    assert capsys.readouterr().out == "--from 2026-11-01T01:00:00+00:00 --to 2026-11-01T02:00:00+00:00\n"
    assert not run(["export", "fold", str(full), str(first), out, "--mode", "overwrite", "--engine", "local"])
    assert "2 rows written" in capsys.readouterr().out
