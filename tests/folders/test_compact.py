from __future__ import annotations

import json
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import ddbio
from ddbio.cli.main import cli
from ddbio.commit.committer import CommitInfo, publishing
from ddbio.commit.protocol import Target
from ddbio.commit.snapshot import live_files
from ddbio.errors import NotFoundError, OptionError, TargetError
from ddbio.storage.local_store import LocalStore
from ddbio.storage.meta import is_claim
from ddbio.storage.staged import FileNaming

ROWS = 200
FIELDS = pa.schema(
    [pa.field("pk", pa.string(), metadata={b"ddb:type": b"S"}), pa.field("n", pa.int64())], metadata={b"made by": b"us"}
)


def table(number, *, wide=False):
    """Return rows that differ from those of all other numbers."""
    columns = {"pk": [f"{number}-{row}" for row in range(ROWS)], "n": list(range(ROWS))}
    rows = pa.table(columns, FIELDS)
    return rows.append_column("more", pa.array([number] * ROWS)) if wide else rows


@pytest.fixture
def folder(tmp_path):
    """Return a folder of two partitions with many small files each."""
    for number in range(20):
        partition = tmp_path / "lake" / f"day={number % 2}"
        partition.mkdir(parents=True, exist_ok=True)
        pq.write_table(table(number), partition / f"{number:02}.snappy.parquet", compression="snappy")
    return tmp_path / "lake"


def test_small_files_become_one_for_each_partition(folder):
    """Rows, digest, metadata and codec stay; readers of the folder and of its list see the same files."""
    wanted = pq.read_table(folder).sort_by("pk")
    report = ddbio.compact(folder)
    assert (report.files_before, report.files_after, report.rows) == (20, 2, 20 * ROWS)
    assert report.digest_before == report.digest_after == ddbio.digest(folder)
    files = ddbio.list_files(folder)
    assert [file.partition for file in files.files] == [{"day": "0"}, {"day": "1"}]
    assert files.rows == 20 * ROWS
    assert report.bytes_after == files.bytes < report.bytes_before
    assert pq.read_table(folder).sort_by("pk").equals(wanted)
    for path in files.paths:
        file = pq.ParquetFile(path)
        assert file.schema_arrow.equals(FIELDS, check_metadata=True)
        assert file.metadata.row_group(0).column(0).compression == "SNAPPY"
    assert sorted(map(str, folder.rglob("*.parquet"))) == files.paths
    assert (report.layout.files, report.layout.bytes, report.layout.small_file_ratio) == (2, files.bytes, 1.0)


def test_nothing_to_do_is_no_version(folder, capsys):
    """A second compaction commits nothing, and reports the recorded rows and digest; a late one does the same."""
    late = ddbio.compact(folder, max_seconds=1e-9)
    assert (late.files_before, late.files_after, late.groups_left, late.rows) == (20, 20, 2, 20 * ROWS)
    assert (late.rows_rewritten, late.digest_before, late.digest_after) == (0, None, None)
    assert not (folder / "_ddbio").exists()
    ddbio.compact(folder)
    again = ddbio.compact(folder)
    assert (again.files_before, again.files_after, again.rows, again.rows_rewritten) == (2, 2, 20 * ROWS, 0)
    assert again.digest_before == again.digest_after == ddbio.digest(folder)
    # No file is read for it.
    assert again.tasks == ddbio.plan_compact(folder).bytes_kept == 0
    cli.main(["compact", str(folder)], standalone_mode=False)
    assert "rewrote  nothing" in capsys.readouterr().out
    assert ddbio.list_files(folder).version == 1
    assert not list(folder.rglob("*.claim.json"))


def test_a_plan_changes_nothing(folder, capsys):
    """The plan, the dry run and the report list the same files."""
    planned = ddbio.plan_compact(folder, partition="day=1")
    assert (planned.files_rewritten, planned.files_after) == (10, 11)
    assert (planned.to_dict()["bytes"], planned.to_dict()["usd"]) == (planned.bytes_rewritten, 0.0)
    for words in (["plan", "compact"], ["compact", "--dry-run"]):
        cli.main([*words, str(folder), "--partition", "day=1", "--json"], standalone_mode=False)
        assert json.loads(capsys.readouterr().out) == json.loads(planned.to_json())
    cli.main(["compact", str(folder), "--dry-run"], standalone_mode=False)
    assert "about 2 files" in capsys.readouterr().out
    assert not (folder / "_ddbio").exists()
    cli.main(["compact", str(folder), "--partition", "day=1", "--json"], standalone_mode=False)
    done = json.loads(capsys.readouterr().out)
    assert (done["files_rewritten"], done["files_after"]) == (10, 11)
    cli.main(["compact", str(folder)], standalone_mode=False)
    assert "before   11 files" in capsys.readouterr().out


def test_files_are_converted(folder):
    """Another format and codec converts every file, including large ones."""
    ddbio.compact(folder, format="orc", compression="zstd", verify="rows")
    files = ddbio.list_files(folder)
    assert all(path.endswith(".zstd.orc") for path in files.paths)
    assert sum(orc.ORCFile(path).nrows for path in files.paths) == 20 * ROWS


@pytest.mark.parametrize("form", ["parquet", "orc", "avro", "csv", "json"])
def test_every_type_stays_exact_in_every_format(fake, tmp_path, form):
    """All formats of a scan are compacted, and converted to Parquet, with the digest of the items."""
    for _ in range(2):
        ddbio.scan_to_files("types", tmp_path, mode="append", format=form, endpoint_url=fake.endpoint_url, tasks=2)
    digest = ddbio.digest(tmp_path)
    report = ddbio.compact(tmp_path)
    assert (report.files_after, report.rows) == (1, 1000)
    assert report.digest_before == report.digest_after == digest == ddbio.digest(tmp_path)
    ddbio.compact(tmp_path, format="parquet", compression="snappy")
    assert [path.endswith(".snappy.parquet") for path in ddbio.list_files(tmp_path).paths] == [True]
    assert ddbio.digest(tmp_path) == digest


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_columns_of_folders_stay(fake, tmp_path, form):
    """Columns that are only in a partitioned scan's folders are read after a compaction, and after a publication."""
    options = {"format": form, "partition_by": "origin", "endpoint_url": fake.endpoint_url, "limit": 600, "tasks": 1}
    for _ in range(2):
        ddbio.scan_to_files("flights", tmp_path / "lake", mode="append", **options)
    digest = ddbio.digest(tmp_path / "lake")
    ddbio.publish(tmp_path / "lake", tmp_path / "first")
    assert ddbio.compact(tmp_path / "lake").files_rewritten > 1
    ddbio.publish(tmp_path / "lake", tmp_path / "second")
    assert {ddbio.digest(tmp_path / name) for name in ("lake", "first", "second")} == {digest}


def test_names_of_folders_still_define_columns(folder, tmp_path):
    """Names of other programs' folders define columns, before a compaction and after."""
    digest = ddbio.digest(folder)
    ddbio.compact(folder)
    ddbio.publish(folder, tmp_path / "curated")
    assert ddbio.digest(folder) == ddbio.digest(tmp_path / "curated") == digest


def test_columns_that_only_some_files_have(tmp_path):
    """A file with fewer columns gets nulls; one with more, or with another type, starts a new file."""
    pq.write_table(table(1, wide=True), tmp_path / "1.parquet")
    pq.write_table(table(2), tmp_path / "2.parquet")
    pq.write_table(table(3).set_column(1, "n", pa.array(["x"] * ROWS)), tmp_path / "3.parquet")
    pq.write_table(FIELDS.empty_table(), tmp_path / "4.parquet")
    report = ddbio.compact(tmp_path)
    assert (report.files_after, report.rows) == (2, 3 * ROWS)
    assert report.digest_before == report.digest_after


def test_files_without_rows_become_one_with_the_columns(tmp_path):
    """Readers of the folder still find its columns."""
    for number in range(3):
        pq.write_table(FIELDS.empty_table(), tmp_path / f"{number}.parquet")
    assert ddbio.compact(tmp_path).files_after == 1
    assert pq.read_table(ddbio.list_files(tmp_path).paths[0]).schema.names == ["pk", "n"]


def test_rows_are_sorted_on_request(folder):
    """The rows of each partition are in the order of the columns; the digest is independent of it."""
    report = ddbio.compact(folder, sort_by="n,pk")
    assert report.digest_before == report.digest_after
    for path in ddbio.list_files(folder).paths:
        rows = pq.ParquetFile(path).read(["n", "pk"]).to_pylist()
        assert rows == sorted(rows, key=lambda row: (row["n"], row["pk"]))
    with pytest.raises(OptionError, match="no column 'x'"):
        ddbio.compact(folder, sort_by="x", compression="zstd")


def test_statistics_of_files_are_kept(fake, tmp_path):
    """Statistics that a scan recorded for its files are recorded for the new files, too."""
    for _ in range(2):
        ddbio.scan_to_files("types", tmp_path, mode="append", endpoint_url=fake.endpoint_url, tasks=2)
    old = [file.statistics for file in live_files(LocalStore(tmp_path)).files]
    ddbio.compact(tmp_path)
    (new,) = [file.statistics for file in live_files(LocalStore(tmp_path)).files]
    assert all(old)
    assert new is not None
    assert new.keys() == old[0].keys()
    assert all(new[name]["min"] == min(file_statistics[name]["min"] for file_statistics in old) for name in new)


def test_old_files_stay_for_readers_of_older_versions(folder):
    """With keep_old an older version can be read until a vacuum; the newest version has only its own files."""
    ddbio.compact(folder, partition="day=0")
    old = ddbio.list_files(folder)
    ddbio.compact(folder, partition="day=1", keep_old=True)
    assert len(ddbio.list_files(folder).paths) == 2
    assert ddbio.list_files(folder, at_version=1).paths == old.paths
    assert all(map(pq.read_metadata, old.paths))
    gone = ddbio.vacuum(folder, older_than="0s")
    assert (gone.files_removed, gone.versions_removed) == (10, (1,))
    assert sorted(map(str, folder.rglob("*.parquet"))) == ddbio.list_files(folder).paths


def test_a_time_budget_publishes_what_is_done(folder):
    """Groups that were not started in time are unchanged, and are counted."""
    report = ddbio.compact(folder, max_seconds=1e-9, tasks=1)
    assert (report.groups_left, report.files_after) == (2, 20)
    assert ddbio.compact(folder, max_seconds=600, tasks=1).files_after == 2


def test_rows_that_are_appended_meanwhile_stay(folder):
    """A job that appends during a compaction is in the folder afterwards, for both orders of the commits."""
    store = LocalStore(folder)
    ddbio.compact(folder, partition="day=0")
    with publishing(Target(store=store, mode="append"), "appender") as publish:
        sink = store.create(FileNaming("appender", 0).path(0, "parquet"))
        pq.write_table(table(99), pa.PythonFile(sink, mode="w"))
        worker = threading.Thread(target=ddbio.compact, args=(folder,))
        worker.start()
        worker.join()
        publish([sink.finish(ROWS)], CommitInfo(created_at="", source={}, schema=""))
    assert ddbio.list_files(folder).rows == 21 * ROWS
    assert len(ddbio.list_files(folder).paths) == 3


def test_two_compactions_do_not_both_replace(folder):
    """The second is refused while the first runs, and finds nothing to do afterwards."""
    store = LocalStore(folder)
    with (
        publishing(Target(store=store, mode="replace", lease_seconds=30), "first"),
        pytest.raises(TargetError, match="is being written to by job first"),
    ):
        ddbio.compact(folder)
    assert not [entry.path for entry in store.list() if is_claim(entry.path)]
    assert ddbio.compact(folder).files_after == 2


def test_rows_and_digest_are_those_of_the_complete_folder(folder):
    """Unchanged files count, too: they are read for their digest, unless only rewritten ones are compared."""
    digest = ddbio.digest(folder)
    options = {"partition": "day=0", "tasks": 2}
    plan = ddbio.plan_compact(folder, **options)
    assert plan.bytes_kept == plan.bytes_before - plan.bytes_rewritten > 0
    assert ddbio.plan_compact(folder, verify="rewritten").bytes_kept == 0
    report = ddbio.compact(folder, **options)
    assert (report.rows, report.rows_rewritten, report.digest_before) == (20 * ROWS, 10 * ROWS, digest)
    late = ddbio.compact(folder, verify="rewritten", partition="day=1", max_seconds=1e-9)
    assert (late.rows, late.digest_after) == (20 * ROWS, None)
    late = ddbio.compact(folder, verify="rewritten")
    assert (late.rows, late.rows_rewritten, late.digest_after) == (20 * ROWS, 10 * ROWS, digest)
    assert ddbio.compact(folder, verify="rows").digest_after is None


def test_a_job_id_runs_once(folder):
    """The same job again returns its report."""
    first = ddbio.compact(folder, job_id="nightly")
    again = ddbio.compact(folder, job_id="nightly")
    assert (again.files_before, again.digest_after) == (first.files_before, first.digest_after)
    assert ddbio.list_files(folder).version == 1


def test_a_damaged_file_ends_the_job_and_changes_nothing(folder):
    """The error names the file; no file of the folder is touched, and no other remains."""
    damaged = sorted(folder.rglob("*.parquet"))[3]
    damaged.write_bytes(damaged.read_bytes()[:-20])
    before = sorted(map(str, folder.rglob("*")))
    with pytest.raises(ddbio.DecodeError, match=damaged.name):
        ddbio.compact(folder)
    assert sorted(map(str, folder.rglob("*"))) == before


def test_an_empty_folder_is_named(tmp_path):
    """A folder without files is an error."""
    with pytest.raises(NotFoundError, match="no live file"):
        ddbio.compact(tmp_path)
    with pytest.raises(OptionError, match="column=value"):
        ddbio.compact(tmp_path, partition="day")


def test_uploads_are_read_again_before_they_are_committed(s3, s3_url, bucket):
    """On S3 the uploaded bytes are compared, too, and the old objects are deleted."""
    for number in range(6):
        sink = pa.BufferOutputStream()
        pq.write_table(table(number), sink)
        s3.put_object(Bucket=bucket, Key=f"lake/day=1/{number}.parquet", Body=sink.getvalue().to_pybytes())
    report = ddbio.compact(f"s3://{bucket}/lake", s3_endpoint_url=s3_url, region="eu-west-1")
    assert (report.files_after, report.rows) == (1, 6 * ROWS)
    assert report.digest_before == report.digest_after != "0" * 32
    keys = [stored["Key"] for stored in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert len([key for key in keys if key.endswith(".parquet")]) == 1
