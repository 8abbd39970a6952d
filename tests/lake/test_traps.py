"""Silent behaviour of table format libraries, with tests that fail when it changes; and our own behaviour."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import StaticTable

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.aws.s3_store import S3Store
from ddbio.errors import OptionError, SchemaError
from ddbio.lake_formats.bucket_files import require_equal
from ddbio.lake_formats.delta import DeltaLakeTable
from ddbio.lake_formats.iceberg import IcebergLakeTable
from ddbio.lake_formats.table import Commit, ConflictError
from ddbio.storage.local_store import LocalStore
from ddbio.testing import MotoServer
from tests.lake.virtual_log import Change, VirtualLog, columns

LONGS = pa.table({"k": ["a"], "n": pa.array([1], pa.int64())})


def merge(folder, rows, **options):
    """Merge rows with deltalake itself."""
    merger = DeltaTable(folder).merge(rows, "t.k = s.k", source_alias="s", target_alias="t", **options)
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    return DeltaTable(folder).to_pyarrow_table().to_pylist()


def test_deltalake_truncates_numbers(tmp_path):
    """Trap 1: 9.9 becomes 9 in an integer column; we refuse rows whose columns differ from the table's."""
    write_deltalake(tmp_path, LONGS)
    write_deltalake(tmp_path, pa.table({"k": ["b"], "n": [9.9]}), mode="append")
    assert {row["n"] for row in DeltaTable(tmp_path).to_pyarrow_table().to_pylist()} == {1, 9}
    with pytest.raises(SchemaError, match="n is double in the rows and int64 in the table"):
        require_equal(pa.schema([("k", pa.string()), ("n", pa.float64())]), LONGS.schema)


def test_deltalake_writes_null_for_what_does_not_fit(tmp_path):
    """Trap 2: a merge that ignores type errors writes null; we store such a value in the rescue column."""
    write_deltalake(tmp_path, LONGS)
    rows = merge(tmp_path, pa.table({"k": ["a"], "n": ["text"]}), error_on_type_mismatch=False)
    assert rows == [{"k": "a", "n": None}]


def test_deltalake_leaves_new_columns_out(tmp_path):
    """Trap 3: a merge silently drops a new column; we refuse rows with a column that the table lacks."""
    write_deltalake(tmp_path, LONGS)
    rows = merge(tmp_path, pa.table({"k": ["a"], "n": [2], "new": ["x"]}))
    assert rows == [{"k": "a", "n": 2}]
    with pytest.raises(SchemaError, match="new is string in the rows and no column in the table"):
        require_equal(pa.schema([*LONGS.schema, pa.field("new", pa.string())]), LONGS.schema)


def test_names_that_differ_by_case_get_separate_columns(tmp_path):
    """Trap 4: Delta ignores case; the second column name gets a checksum, and its metadata the attribute name."""
    log = VirtualLog(LocalStore(tmp_path / "log"), schema=columns("id", "Id", "a b", "_ver"))
    log.append([Change(1, "x", {"pk": "x", "id": "1", "Id": "2", "a b": "3", "_ver": "4"})])
    for kind in ("delta", "iceberg"):
        ddbio.apply(tmp_path / "log", tmp_path / kind, format=kind)
    table = DeltaTable(tmp_path / "delta")
    (row,) = table.to_pyarrow_table().to_pylist()
    arrow_schema = table.schema().to_arrow()
    names = {
        (field.metadata or {}).get(b"ddb:name", field.name.encode()).decode(): field.name
        for field in pa.schema(arrow_schema)
    }
    assert [row[names[name]] for name in ("id", "Id", "a b")] == ["1", "2", "3"]
    assert names["id"] == "id"
    assert names["Id"].startswith("Id_")
    assert len({name.lower() for name in row}) == len(row)


def test_names_that_iceberg_keeps_for_itself_are_in_no_schema(tmp_path):
    """Engines refuse columns with names of Iceberg's metadata: tombstones use another one, attributes are renamed."""
    names = ("_pos", "_partition", "_is_deleted", "_deleted")
    log = VirtualLog(LocalStore(tmp_path / "log"), schema=columns(*names))
    log.append([Change(1, "x", {"pk": "x", **{name: f"of {name}" for name in names}}), Change(2, "y", None)])
    ddbio.apply(tmp_path / "log", tmp_path / "lake", format="iceberg", buckets=1)
    table = StaticTable.from_metadata(str(tmp_path / "lake/metadata/v2.metadata.json"))
    assert not {"_deleted", "_pos", "_partition"} & set(table.schema().column_names)
    rows = {row["pk"]: row for row in table.scan().to_arrow().to_pylist()}
    assert {key: row["_is_deleted"] for key, row in rows.items()} == {"x": False, "y": True}
    assert {f"of {name}" for name in names} < set(rows["x"].values())


def test_a_transaction_of_delta_is_a_fence_and_no_counter(tmp_path):
    """Trap 5: a fresh handle may commit an older number; one of two stale handles fails; empty merges have none."""
    write_deltalake(tmp_path, LONGS)
    numbered = [CommitProperties(app_transactions=[Transaction("app", number)]) for number in (5, 3)]
    write_deltalake(DeltaTable(tmp_path), LONGS, mode="append", commit_properties=numbered[0])
    first, second = DeltaTable(tmp_path), DeltaTable(tmp_path)
    write_deltalake(first, LONGS, mode="append", commit_properties=numbered[1])
    assert DeltaTable(tmp_path).transaction_version("app") == 3
    with pytest.raises(CommitFailedError, match="Concurrent transaction"):
        write_deltalake(second, LONGS, mode="append", commit_properties=numbered[1])


def test_a_merge_that_changes_nothing_is_noted_next_to_the_table(tmp_path):
    """Trap 5 again: stale changes create no version, but are not read again."""
    log = VirtualLog(LocalStore(tmp_path / "log"))
    log.append([Change(2, "x", {"pk": "x", "n": 2})])
    version = ddbio.apply(tmp_path / "log", tmp_path / "lake").version
    log.append([Change(1, "x", {"pk": "x", "n": 1}), Change(2, "x", {"pk": "x", "n": 2})])
    report = ddbio.apply(tmp_path / "log", tmp_path / "lake")
    assert (report.changes, report.stale, report.version) == (2, 2, version)
    assert ddbio.apply(tmp_path / "log", tmp_path / "lake").changes == 0


@pytest.mark.parametrize("kind", [DeltaLakeTable, IcebergLakeTable])
def test_of_two_writers_one_fails(kind, tmp_path):
    """Trap 6: nothing is retried with an old state; a commit adds and removes files in one snapshot."""
    table = kind(LocalStore(tmp_path))
    schema = pa.schema(
        [("_key", pa.string()), pa.field("_b", pa.int32()), ("_ver", pa.string()), ("_ts_us", pa.int64())]
    )
    schema = pa.schema([*schema, ("_op", pa.string()), ("_deleted", pa.bool_()), ("_rescue", pa.string())])
    table.create(schema, {})
    states = [table.load(), table.load()]
    table.commit(states[0], Commit(positions={"log": 1}))
    with pytest.raises(ConflictError):
        table.commit(states[1], Commit(positions={"log": 1}))
    with pytest.raises(ConflictError):
        table.create(schema, {})


def test_a_replacement_by_pyiceberg_is_two_snapshots(tmp_path):
    """Trap 6 again: between pyiceberg's delete and append there is a snapshot without the rows; we write one."""
    catalog = InMemoryCatalog("memory", warehouse=str(tmp_path / "warehouse"))
    catalog.create_namespace("a")
    table = catalog.create_table("a.b", LONGS.schema)
    table.append(LONGS)
    table.overwrite(LONGS, overwrite_filter="k = 'a'")
    first, between, last = [
        table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows for snapshot in table.snapshots()
    ]
    assert (first, between, last) == (1, 0, 1)
    log = VirtualLog(LocalStore(tmp_path / "log"))
    for number in range(2):
        log.append([Change(number + 1, "x", {"pk": "x", "n": number})])
        ddbio.apply(tmp_path / "log", tmp_path / "lake", format="iceberg")
    ours = IcebergLakeTable(LocalStore(tmp_path / "lake")).load().handle
    assert [ours.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows for snapshot in ours.snapshots()] == [1, 1]
    catalog.close()


def test_tombstones_go_only_below_the_floor(tmp_path):
    """A change older than the floor, whose key has no row, is stale, so that deleted items do not come back."""
    log = VirtualLog(LocalStore(tmp_path / "log"))
    day = 86_400_000_000
    born, gone, later = (
        Change(n, "x", item, {}, day * n) for n, item in ((1, {"pk": "x", "n": 1}), (2, None), (9, None))
    )
    log.append([born, gone, Change(9, "y", {"pk": "y", "n": 2}, {}, day * 9)])
    for kind in ("delta", "iceberg"):
        lake = tmp_path / kind
        ddbio.apply(tmp_path / "log", lake, format=kind, buckets=1)
        with pytest.raises(OptionError, match="at least 48h"):
            ddbio.maintain(lake, format=kind, tombstones_older_than="47h")
        assert ddbio.maintain(lake, format=kind, tombstones_older_than="8d").tombstones == 0
        report = ddbio.maintain(lake, format=kind, tombstones_older_than="3d")
        assert (report.tombstones, report.gc_floor_us) == (1, 6 * day)
    log.append([born])
    for kind in ("delta", "iceberg"):
        assert ddbio.apply(tmp_path / "log", tmp_path / kind, format=kind).stale == 1
    assert later.item is None


def test_the_table_has_no_other_files(tmp_path):
    """There are only data files of the table: none is staged, and none is unknown."""
    log = VirtualLog(LocalStore(tmp_path / "log"))
    for number in range(3):
        log.append([Change(number + 1, "x", {"pk": "x", "n": number})])
        ddbio.apply(tmp_path / "log", tmp_path / "lake")
    table = DeltaTable(tmp_path / "lake")
    history = [entry for entry in table.history() if "ddbio" in entry]
    assert [json.loads(entry["ddbio"])["changes"] for entry in history] == [1, 1, 1]
    assert len(table.file_uris()) == 1
    assert not list(Path(tmp_path / "lake/_ddbio").glob("staging/*"))
    assert deltalake.__version__


def test_expiry_of_iceberg_removes_no_files(tmp_path):
    """Trap 7: pyiceberg's expiry of snapshots changes only the metadata and leaves their files."""
    log = VirtualLog(LocalStore(tmp_path / "log"))
    for number in range(2):
        log.append([Change(number + 1, "x", {"pk": "x", "n": number})])
        ddbio.apply(tmp_path / "log", tmp_path / "lake", format="iceberg")
    table = IcebergLakeTable(LocalStore(tmp_path / "lake")).load().handle
    before = sorted((tmp_path / "lake").rglob("*.parquet"))
    older, _ = [snapshot.snapshot_id for snapshot in table.snapshots()][-2:]
    table.maintenance.expire_snapshots().by_id(older).commit()
    assert older not in {snapshot.snapshot_id for snapshot in table.snapshots()}
    assert sorted((tmp_path / "lake").rglob("*.parquet")) == before


def test_a_process_that_would_abort_at_its_end_has_done_its_work(tmp_path):
    """Trap 8: libraries loaded with deltalake may abort an ending process; ours has printed its report before."""
    log = VirtualLog(LocalStore(tmp_path / "log"))
    log.append([Change(1, "x", {"pk": "x", "n": 1})])
    # The C library calls it when a process exits, like the destructors of libraries.
    aborting = "import ctypes; c = ctypes.CDLL(None); c.__cxa_atexit(c.abort, None, None)"
    words = ["apply", str(tmp_path / "log"), str(tmp_path / "lake"), "--json"]
    for entry, status, inserted in (
        ("from ddbio.__main__ import main; main()", 0, 1),
        ("from ddbio.cli.main import cli; cli()", -signal.SIGABRT, 0),
    ):
        command = [sys.executable, "-c", f"{aborting}; {entry}", *words]
        done = subprocess.run(command, check=False, capture_output=True, cwd=tmp_path)
        assert (done.returncode, json.loads(done.stdout)["inserted"]) == (status, inserted)


def test_conditional_writes_lose_nothing(tmp_path):
    """Trap 9: S3 refuses all but one of several writers of an object, and so does moto: four writers lose no rows."""
    with MotoServer() as server:
        ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3").create_bucket(Bucket="lake")
        options = {
            "AWS_ENDPOINT_URL": server.endpoint_url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_ALLOW_HTTP": "true",
            "aws_conditional_put": "etag",
        }
        write_deltalake("s3://lake/t", LONGS, storage_options=options)

        def append(number):
            for _ in range(3):
                rows = pa.table({"k": [f"w{number}"], "n": pa.array([number], pa.int64())})
                write_deltalake("s3://lake/t", rows, mode="append", storage_options=options)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(append, range(4)))
        table = DeltaTable("s3://lake/t", storage_options=options)
        assert (table.version(), table.to_pyarrow_table().num_rows) == (12, 13)
        # The same holds for Iceberg's log, which we write ourselves.
        store = S3Store(ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1"), "s3://lake/t")
        with ThreadPoolExecutor(4) as threads:
            won = list(threads.map(lambda number: store.put_if_absent("v1", b"%d" % number), range(4)))
        assert sorted(won) == [False, False, False, True]
        assert store.read("v1") == b"%d" % won.index(True)


def test_deletion_vectors_are_left_to_their_writer(tmp_path):
    """Trap 10: if Spark has enabled deletion vectors, none is written, and files are copied."""
    log = VirtualLog(LocalStore(tmp_path / "log"))
    for number in range(2):
        log.append([Change(number + 1, "x", {"pk": "x", "n": number})])
        ddbio.apply(tmp_path / "log", tmp_path / "lake")
        if not number:
            table = DeltaTable(tmp_path / "lake")
            table.alter.set_table_properties({"delta.enableDeletionVectors": "true"}, raise_if_not_exists=False)
    (path,) = DeltaTable(tmp_path / "lake").file_uris()
    assert pq.ParquetFile(path).read().column("n").to_pylist() == [1]
