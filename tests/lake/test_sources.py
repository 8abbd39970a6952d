"""Changes from incremental exports and from rows in memory: the table equals the exported or given items."""

from __future__ import annotations

import datetime as dt
import json
import random
from decimal import Decimal

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.aws import control_plane
from ddbio.cli.main import cli
from ddbio.errors import ExportIncompleteError, NotFoundError, OptionError, SchemaError, TargetError
from ddbio.lake.apply import apply_source
from ddbio.lake.changes import open_changes
from ddbio.lake.merging import SpreadMerging
from ddbio.lake.options import ApplyOptions
from ddbio.storage.local_store import LocalStore
from ddbio.testing.export import Change as Exported
from ddbio.testing.export import ExportWriter
from tests.lake.test_base_load import rows_of
from tests.lake.virtual_engine import VirtualEngine
from tests.lake.virtual_log import Change, VirtualLog, is_deleted

# Sockets that PySpark left to the garbage collector in an earlier test may be collected here.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

HOUR_US = 3_600_000_000
# The end of the writer's first export.
FIRST_US = 1_793_494_800_000_000
KEY = ("pk", "sk")


def item(number, rng):
    """Return an item as DynamoDB JSON, some values of which do not fit a numeric column."""
    value = {"S": "text"} if rng.random() < 0.1 else {"N": str(rng.randrange(10**6))}
    return {"pk": {"S": "a"}, "sk": {"N": str(number)}, "n": value, "tags": {"SS": ["x", f"t{number}"]}}


def key(number):
    """Return the key of an item."""
    return {"pk": {"S": "a"}, "sk": {"N": str(number)}}


def window(state, rng, number_of_window):
    """Change the state randomly; return the last change of each item in the window of this number, in any order."""
    exported = {}
    for number in rng.choices(range(20), k=12):
        old = state.pop(number, None)
        if old is None or rng.random() < 0.6:
            state[number] = item(number, rng)
        at = FIRST_US + (number_of_window - 1) * HOUR_US + rng.randrange(HOUR_US)
        first = exported[number].old if number in exported else old
        exported[number] = Exported(at, key(number), new=state.get(number), old=first)
    # Items that were created and deleted within the window are missing.
    changes = [change for change in exported.values() if change.new is not None or change.old is not None]
    rng.shuffle(changes)
    return changes


def live_items(path, kind):
    """Return the live items of a table, by sort key, as DynamoDB JSON."""
    rows = [row for row in rows_of(path, kind).values() if not is_deleted(row)]
    live = {}
    for row in rows:
        rescued = json.loads(row["_rescue"] or "{}")
        values = {"pk": {"S": row["pk"]}, "sk": {"N": str(row["sk"])}, "tags": {"SS": sorted(row["tags"])}}
        if row["n"] is not None:
            values["n"] = {"N": str(row["n"])}
        live[int(row["sk"])] = values | rescued
    return live


def plain(state):
    """Return items with sorted sets."""
    return {number: {**stored, "tags": {"SS": sorted(stored["tags"]["SS"])}} for number, stored in state.items()}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_exports_after_a_full_export(kind, seeds, tmp_path):
    """A base from a full export and the following windows, some of them twice, equal the state at the end of each."""
    for seed in seeds(3, 30):
        rng, lake = random.Random(seed), tmp_path / f"lake{seed}"
        writer = ExportWriter(tmp_path / str(seed), seed=seed)
        state = {number: item(number, rng) for number in range(12)}
        report = ddbio.read_export_to_files(
            writer.full(state.values()), lake, format=kind, key=KEY, buckets=3, engine="local"
        )
        assert report.rows == 12
        assert live_items(lake, kind) == plain(state), seed
        homes = []
        for turn in range(2, 6):
            changes = window(state, rng, turn) if turn != 4 else []
            homes.append(writer.incremental(changes))
            applied = ddbio.apply(homes[-1], lake, format=kind, max_records_per_batch=rng.choice([3, 1000]))
            assert applied.changes == len(changes) == applied.inserted + applied.updated + applied.deleted, seed
            assert live_items(lake, kind) == plain(state), seed
            again = ddbio.apply(rng.choice(homes), lake, format=kind)
            assert (again.changes, again.version) == (0, applied.version), seed


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_fold_is_a_base(kind, tmp_path):
    """A full export and its increments become a lake table with their final state; later windows are applied."""
    for seed, turns in ((0, 3), (1, 0)):
        rng, lake = random.Random(seed), tmp_path / f"lake{seed}"
        writer = ExportWriter(tmp_path / str(seed), seed=seed)
        state = {number: item(number, rng) for number in range(12)}
        base = writer.full(state.values())
        homes = [writer.incremental(window(state, rng, turn)) for turn in range(1, 1 + turns)]
        options = {"format": kind, "key": KEY, "buckets": 3, "engine": "local"}
        report = ddbio.fold_exports_to_files(base, homes, lake, **options)
        assert (report.rows, report.windows) == (len(state), turns)
        assert live_items(lake, kind) == plain(state)
        with pytest.raises(TargetError, match="is a table already"):
            ddbio.fold_exports_to_files(base, homes, lake, **options)
        # Folded changes are older than the base.
        for done in (ddbio.apply(home, lake, format=kind) for home in homes):
            assert done.changes == done.stale > 0
        changes = window(state, rng, 1 + turns)
        assert ddbio.apply(writer.incremental(changes), lake, format=kind).changes == len(changes)
        assert live_items(lake, kind) == plain(state)
        again = writer.incremental(window(state, rng, 2 + turns))
        ddbio.apply(again, lake, format=kind)
        assert live_items(lake, kind) == plain(state)


def test_a_gap_between_windows_is_refused(tmp_path):
    """Without the window in between the table is unchanged; with it, both are applied."""
    rng, writer, lake = random.Random(1), ExportWriter(tmp_path), tmp_path / "lake"
    ddbio.read_export_to_files(writer.full([item(1, rng)]), lake, format="delta", key=KEY, engine="local")
    first = writer.incremental([Exported(FIRST_US + 5, key(1), old=item(1, rng))])
    second = writer.incremental([Exported(FIRST_US + HOUR_US + 5, key(2), new=item(2, rng))])
    with pytest.raises(ExportIncompleteError, match="first apply an export of the time in between"):
        ddbio.apply(second, lake)
    wide = writer.incremental([Exported(FIRST_US + 2 * HOUR_US + 5, key(3), new=item(3, rng))], hours=2)
    for export in (first, second):
        ddbio.apply(export, lake)
    with pytest.raises(ExportIncompleteError, match="created before and deleted after"):
        ddbio.apply(wide, lake)
    assert set(live_items(lake, "delta")) == {2}


def test_what_exports_cannot_follow_is_refused(tmp_path):
    """A full export has no changes, a folder may be neither, and after a stream an export would win incorrectly."""
    rng, writer = random.Random(1), ExportWriter(tmp_path / "exports")
    with pytest.raises(OptionError, match="is a full export"):
        ddbio.apply(writer.full([item(1, rng)]), tmp_path / "lake")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match="manifest-summary"):
        ddbio.apply(tmp_path / "empty", tmp_path / "lake")
    log = VirtualLog(LocalStore(tmp_path / "log"))
    log.append([Change(1, "x", {"pk": "x", "n": 2})])
    ddbio.apply(tmp_path / "log", tmp_path / "lake")
    change = Exported(FIRST_US + 5, {"pk": {"S": "x"}}, new={"pk": {"S": "x"}})
    with pytest.raises(OptionError, match="apply exports first"):
        ddbio.apply(writer.incremental([change]), tmp_path / "lake")
    with pytest.raises(OptionError, match="key attributes are unknown"):
        ddbio.apply(writer.incremental([]), tmp_path / "other")


def test_a_log_follows_exports(tmp_path):
    """Changes of a stream win over those of exports, whose epoch is older."""
    writer, lake = ExportWriter(tmp_path / "exports"), tmp_path / "lake"
    made = {"pk": {"S": "x"}, "n": {"N": "1"}}
    export = writer.incremental([Exported(FIRST_US + 5, {"pk": {"S": "x"}}, new=made)])
    ddbio.apply(export, lake)
    log = VirtualLog(LocalStore(tmp_path / "log"))
    log.append([Change(1, "x", {"pk": "x", "n": 2})])
    assert ddbio.apply(tmp_path / "log", lake).updated == 1
    assert [row["n"] for row in deltalake.DeltaTable(lake).to_pyarrow_table().to_pylist()] == [2]


def test_an_export_by_tasks_that_are_pickled(tmp_path):
    """Tasks on workers read the files, merge by bucket, and stage the files of one commit; attributes get columns."""
    rng, writer = random.Random(3), ExportWriter(tmp_path, files=5)
    state = {}
    changes = window(state, rng, 1)
    home, folders = writer.incremental(changes), [tmp_path / "local", tmp_path / "spread"]
    ddbio.apply(home, folders[0])
    options = ApplyOptions(source=str(home), table=str(folders[1]))
    report = apply_source(open_changes(options), options, SpreadMerging(VirtualEngine(pickles=True)))
    assert report.changes == len(changes)
    assert live_items(folders[0], "delta") == live_items(folders[1], "delta") == plain(state)


def test_the_command_takes_an_export(tmp_path):
    """``ddbio apply EXPORT TABLE`` detects an incremental export by its manifest; ``export read`` creates its base."""
    rng, writer = random.Random(2), ExportWriter(tmp_path)
    full = writer.full([item(1, rng), item(2, rng)])
    read = ["export", "read", str(full), str(tmp_path / "lake"), "--format", "delta", "--key", "pk,sk", "--json"]
    assert json.loads(CliRunner().invoke(cli, read, catch_exceptions=False).stdout)["rows"] == 2
    home = writer.incremental([Exported(FIRST_US + 5, key(2), old=item(2, rng))])
    apply = ["apply", str(home), str(tmp_path / "lake")]
    done = CliRunner().invoke(cli, [*apply, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["deleted"] == 1
    hudi = CliRunner().invoke(cli, [*apply, "--format", "hudi"])
    assert hudi.exit_code
    assert "choose delta or iceberg" in hudi.output


def test_a_base_names_its_key(tmp_path, monkeypatch):
    """An export does not contain the key: without DynamoDB it must be given, for folds too."""
    monkeypatch.setattr(control_plane, "_ATTEMPTS", 1)
    rng, writer = random.Random(2), ExportWriter(tmp_path)
    full = writer.full([item(1, rng)])
    options = {"endpoint_url": "http://127.0.0.1:9", "deadline_seconds": 0.1}
    with pytest.raises(OptionError, match="give key"):
        ddbio.read_export_to_files(full, tmp_path / "lake", format="delta", engine="local", **options)
    with pytest.raises(OptionError, match="merge incremental exports by"):
        ddbio.read_export_to_files(writer.incremental([]), tmp_path / "lake", format="delta", key=KEY, engine="local")
    with pytest.raises(OptionError, match="give key"):
        ddbio.fold_exports_to_files(full, [], tmp_path / "lake", format="delta", engine="local", **options)


def test_an_export_overwrites_and_appends(tmp_path):
    """``overwrite`` is a new base in one version, after which changes are applied again, also of the same export."""
    rng, writer, lake = random.Random(4), ExportWriter(tmp_path), tmp_path / "lake"
    options = {"format": "delta", "key": KEY, "engine": "local"}
    full = writer.full([item(1, rng), item(2, rng)])
    change = writer.incremental([Exported(FIRST_US + 5, key(2), old=item(2, rng))])
    ddbio.read_export_to_files(full, lake, **options)
    ddbio.apply(change, lake)
    for _ in range(2):
        before = deltalake.DeltaTable(lake).version()
        ddbio.read_export_to_files(full, lake, mode="overwrite", **options)
        assert deltalake.DeltaTable(lake).version() == before + 1
        assert set(live_items(lake, "delta")) == {1, 2}
        assert ddbio.apply(change, lake).deleted == 1
        assert set(live_items(lake, "delta")) == {1}
    more = ExportWriter(tmp_path / "more").full([item(7, rng)])
    ddbio.read_export_to_files(more, lake, mode="append", **options)
    assert set(live_items(lake, "delta")) == {1, 7}


AT = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
ROWS = {
    "_sequence": [1, 2, 3, 2],
    "_event_time": [AT] * 4,
    "_op": ["INSERT", "MODIFY", "REMOVE", "INSERT"],
    "pk": ["x", "x", "y", "z"],
    "price": [Decimal("1.50"), Decimal("2.25"), None, None],
    "note": ["a", "b", "gone", None],
}


@pytest.mark.parametrize("library", ["arrow", "polars", "pandas", "stream"])
def test_rows_in_memory(library, tmp_path):
    """Tables and frames of changes are merged by sequence number; of a deleted item only the key stays."""
    table = pa.table(ROWS)
    changes = {
        "arrow": lambda: table,
        "polars": lambda: pl.DataFrame(ROWS),
        "pandas": table.to_pandas,
        "stream": table.to_reader,
    }[library]()
    report = ddbio.apply(changes, tmp_path, key=["pk"])
    assert (report.changes, report.inserted, report.deleted, report.stale) == (4, 2, 1, 1)
    rows = {row["pk"]: row for row in deltalake.DeltaTable(tmp_path).to_pyarrow_table().to_pylist()}
    assert (rows["x"]["price"], rows["x"]["note"]) == (Decimal("2.25"), "b")
    assert rows["y"]["_deleted"]
    assert rows["y"]["note"] is None
    assert ddbio.apply(table, tmp_path).stale == 4


def test_a_batch_of_rows_is_applied_once(tmp_path):
    """The number of a batch is a transaction of the table: the same number is not merged again."""
    for number, changes in ((0, 1), (1, 1), (1, 0), (0, 0)):
        rows = pa.table(
            {"_sequence": [str(number + 1)], "_event_time": [AT], "_deleted": [number == 1], "pk": ["x"], "n": [number]}
        )
        report = ddbio.apply(rows, tmp_path, key=["pk"], batch_id=number, job_id="query")
        assert report.changes == changes
    table = deltalake.DeltaTable(tmp_path)
    assert table.transaction_version("ddbio/0/rows/query") == 2
    (row,) = table.to_pyarrow_table().to_pylist()
    assert row["_deleted"]


def test_the_plan_of_an_export(tmp_path):
    """A dry run of an export counts the expected changes."""
    writer = ExportWriter(tmp_path)
    rng = random.Random(1)
    ddbio.read_export_to_files(writer.full([item(1, rng)]), tmp_path / "lake", format="delta", key=KEY, engine="local")
    home = writer.incremental([Exported(FIRST_US + 5, key(1), old=item(1, rng))])
    plan = ddbio.plan_apply(home, tmp_path / "lake")
    assert (plan.changes, plan.deleted) == (1, 1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"_sequence": None}, "no column _sequence"),
        ({"_event_time": [1, 2, 3, 4]}, "must be a timestamp"),
        ({"_op": ["put"] * 4}, "must be one of INSERT"),
        ({"_sequence": ["1", "a", "2", "3"]}, "not whole numbers"),
        ({"_sequence": [1, None, 2, 3]}, "1 rows have no value"),
        ({"pk": ["x", None, "y", "z"]}, "row 1: pk is missing"),
    ],
)
def test_rows_that_are_no_changes(changed, message, tmp_path):
    """Rows without number, time, operation or key are refused; nothing is written."""
    columns = {name: values for name, values in {**ROWS, **changed}.items() if values is not None}
    with pytest.raises(SchemaError, match=message):
        ddbio.apply(pa.table(columns), tmp_path, key=["pk"])
