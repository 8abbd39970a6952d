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
    """Return rows that no other number has."""
    columns = {"pk": [f"{number}-{row}" for row in range(ROWS)], "n": list(range(ROWS))}
    found = pa.table(columns, FIELDS)
    return found.append_column("more", pa.array([number] * ROWS)) if wide else found


@pytest.fixture
def folder(tmp_path):
    """Return a folder of two partitions with many small files each."""
    for number in range(20):
        place = tmp_path / "lake" / f"day={number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(table(number), place / f"{number:02}.snappy.parquet", compression="snappy")
    return tmp_path / "lake"


def test_small_files_become_one_for_each_partition(folder):
    """Rows, digest, metadata and codec stay; readers of the folder and of its list see the same files."""
    wanted = pq.read_table(folder).sort_by("pk")
    report = ddbio.compact(folder)
    assert (report.files_before, report.files_after, report.rows) == (20, 2, 20 * ROWS)
    assert report.digest_before == report.digest_after == ddbio.digest(folder)
    files = ddbio.list_files(folder)
    assert [each.partition for each in files.files] == [{"day": "0"}, {"day": "1"}]
    assert files.rows == 20 * ROWS
    assert report.bytes_after == files.bytes < report.bytes_before
    assert pq.read_table(folder).sort_by("pk").equals(wanted)
    for path in files.paths:
        found = pq.ParquetFile(path)
        assert found.schema_arrow.equals(FIELDS, check_metadata=True)
        assert found.metadata.row_group(0).column(0).compression == "SNAPPY"
    assert sorted(map(str, folder.rglob("*.parquet"))) == files.paths
    assert (report.layout.files, report.layout.bytes, report.layout.small_file_ratio) == (2, files.bytes, 1.0)


def test_nothing_to_do_is_no_version(folder, capsys):
    """A second compaction commits nothing, and tells rows and digest as they are noted; nor does a late one."""
    late = ddbio.compact(folder, max_seconds=1e-9)
    assert (late.files_before, late.files_after, late.groups_left, late.rows) == (20, 20, 2, 20 * ROWS)
    assert (late.rows_rewritten, late.digest_before, late.digest_after) == (0, None, None)
    assert not (folder / "_ddbio").exists()
    ddbio.compact(folder)
    again = ddbio.compact(folder)
    assert (again.files_before, again.files_after, again.rows, again.rows_rewritten) == (2, 2, 20 * ROWS, 0)
    assert again.digest_before == again.digest_after == ddbio.digest(folder)
    # No file is looked at for it.
    assert again.tasks == ddbio.plan_compact(folder).bytes_kept == 0
    cli.main(["compact", str(folder)], standalone_mode=False)
    assert "rewrote  nothing" in capsys.readouterr().out
    assert ddbio.list_files(folder).version == 1
    assert not list(folder.rglob("*.claim.json"))


def test_a_plan_changes_nothing(folder, capsys):
    """The plan, the dry run and the report agree on what is rewritten."""
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
    """Another format and codec takes every file, large ones too."""
    ddbio.compact(folder, format="orc", compression="zstd", verify="rows")
    files = ddbio.list_files(folder)
    assert all(path.endswith(".zstd.orc") for path in files.paths)
    assert sum(orc.ORCFile(path).nrows for path in files.paths) == 20 * ROWS


@pytest.mark.parametrize("form", ["parquet", "orc", "avro", "csv", "json"])
def test_every_type_stays_exact_in_every_format(fake, tmp_path, form):
    """Whatever a scan writes is compacted, and converted to Parquet, with the digest that the items have."""
    for _ in range(2):
        ddbio.scan_to_files("types", tmp_path, mode="append", format=form, endpoint_url=fake.endpoint_url, tasks=2)
    whole = ddbio.digest(tmp_path)
    report = ddbio.compact(tmp_path)
    assert (report.files_after, report.rows) == (1, 1000)
    assert report.digest_before == report.digest_after == whole == ddbio.digest(tmp_path)
    ddbio.compact(tmp_path, format="parquet", compression="snappy")
    assert [path.endswith(".snappy.parquet") for path in ddbio.list_files(tmp_path).paths] == [True]
    assert ddbio.digest(tmp_path) == whole


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_columns_of_folders_stay(fake, tmp_path, form):
    """What only the folders of a partitioned scan say is still read after a compaction, and after a publication."""
    options = {"format": form, "partition_by": "origin", "endpoint_url": fake.endpoint_url, "limit": 600, "tasks": 1}
    for _ in range(2):
        ddbio.scan_to_files("flights", tmp_path / "lake", mode="append", **options)
    whole = ddbio.digest(tmp_path / "lake")
    ddbio.publish(tmp_path / "lake", tmp_path / "first")
    assert ddbio.compact(tmp_path / "lake").files_rewritten > 1
    ddbio.publish(tmp_path / "lake", tmp_path / "second")
    assert {ddbio.digest(tmp_path / name) for name in ("lake", "first", "second")} == {whole}


def test_names_of_folders_still_tell_their_columns(folder, tmp_path):
    """Folders of other programs say their columns by their names, before a compaction and after."""
    whole = ddbio.digest(folder)
    ddbio.compact(folder)
    ddbio.publish(folder, tmp_path / "curated")
    assert ddbio.digest(folder) == ddbio.digest(tmp_path / "curated") == whole


def test_columns_that_only_some_files_have(tmp_path):
    """A file with fewer columns gets nulls; one with more, or with another type, begins a file of its own."""
    pq.write_table(table(1, wide=True), tmp_path / "1.parquet")
    pq.write_table(table(2), tmp_path / "2.parquet")
    pq.write_table(table(3).set_column(1, "n", pa.array(["x"] * ROWS)), tmp_path / "3.parquet")
    pq.write_table(FIELDS.empty_table(), tmp_path / "4.parquet")
    report = ddbio.compact(tmp_path)
    assert (report.files_after, report.rows) == (2, 3 * ROWS)
    assert report.digest_before == report.digest_after


def test_files_without_rows_become_one_that_tells_the_columns(tmp_path):
    """Readers of the folder still find its columns."""
    for number in range(3):
        pq.write_table(FIELDS.empty_table(), tmp_path / f"{number}.parquet")
    assert ddbio.compact(tmp_path).files_after == 1
    assert pq.read_table(ddbio.list_files(tmp_path).paths[0]).schema.names == ["pk", "n"]


def test_rows_are_sorted_on_request(folder):
    """The rows of each partition come in the order of the columns; the digest does not mind."""
    report = ddbio.compact(folder, sort_by="n,pk")
    assert report.digest_before == report.digest_after
    for path in ddbio.list_files(folder).paths:
        rows = pq.ParquetFile(path).read(["n", "pk"]).to_pylist()
        assert rows == sorted(rows, key=lambda row: (row["n"], row["pk"]))
    with pytest.raises(OptionError, match="no column 'x'"):
        ddbio.compact(folder, sort_by="x", compression="zstd")


def test_statistics_of_files_are_kept(fake, tmp_path):
    """What is noted of the files of a scan is noted of the new ones, too."""
    for _ in range(2):
        ddbio.scan_to_files("types", tmp_path, mode="append", endpoint_url=fake.endpoint_url, tasks=2)
    old = [each.statistics for each in live_files(LocalStore(tmp_path)).files]
    ddbio.compact(tmp_path)
    (new,) = [each.statistics for each in live_files(LocalStore(tmp_path)).files]
    assert all(old)
    assert new is not None
    assert new.keys() == old[0].keys()
    assert all(new[name]["min"] == min(each[name]["min"] for each in old) for name in new)


def test_old_files_stay_for_readers_of_older_versions(folder):
    """With keep_old an older version can still be read, until a vacuum; the newest is a version of its own."""
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
    """Groups that were not begun in time stay as they are, and are counted."""
    report = ddbio.compact(folder, max_seconds=1e-9, tasks=1)
    assert (report.groups_left, report.files_after) == (2, 20)
    assert ddbio.compact(folder, max_seconds=600, tasks=1).files_after == 2


def test_rows_that_are_appended_meanwhile_stay(folder):
    """A job that appends while a compaction runs is in the folder afterwards, whoever commits first."""
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
    assert not [each.path for each in store.list() if is_claim(each.path)]
    assert ddbio.compact(folder).files_after == 2


def test_rows_and_digest_are_those_of_the_whole_folder(folder):
    """Files that stay count, too: read for their digest, unless only rewritten ones are compared."""
    whole = ddbio.digest(folder)
    options = {"partition": "day=0", "tasks": 2}
    plan = ddbio.plan_compact(folder, **options)
    assert plan.bytes_kept == plan.bytes_before - plan.bytes_rewritten > 0
    assert ddbio.plan_compact(folder, verify="rewritten").bytes_kept == 0
    report = ddbio.compact(folder, **options)
    assert (report.rows, report.rows_rewritten, report.digest_before) == (20 * ROWS, 10 * ROWS, whole)
    rest = ddbio.compact(folder, verify="rewritten", partition="day=1", max_seconds=1e-9)
    assert (rest.rows, rest.digest_after) == (20 * ROWS, None)
    rest = ddbio.compact(folder, verify="rewritten")
    assert (rest.rows, rest.rows_rewritten, rest.digest_after) == (20 * ROWS, 10 * ROWS, whole)
    assert ddbio.compact(folder, verify="rows").digest_after is None


def test_a_job_id_runs_once(folder):
    """The same job again returns its report."""
    first = ddbio.compact(folder, job_id="nightly")
    again = ddbio.compact(folder, job_id="nightly")
    assert (again.files_before, again.digest_after) == (first.files_before, first.digest_after)
    assert ddbio.list_files(folder).version == 1


def test_a_damaged_file_ends_the_job_and_changes_nothing(folder):
    """The error names the file; no file of the folder is touched, and nothing is left behind."""
    damaged = sorted(folder.rglob("*.parquet"))[3]
    damaged.write_bytes(damaged.read_bytes()[:-20])
    before = sorted(map(str, folder.rglob("*")))
    with pytest.raises(ddbio.DecodeError, match=damaged.name):
        ddbio.compact(folder)
    assert sorted(map(str, folder.rglob("*"))) == before


def test_an_empty_folder_is_named(tmp_path):
    """There is nothing to compact where no file is."""
    with pytest.raises(NotFoundError, match="no live file"):
        ddbio.compact(tmp_path)
    with pytest.raises(OptionError, match="column=value"):
        ddbio.compact(tmp_path, partition="day")


def test_uploads_are_read_again_before_they_are_committed(s3, s3_url, bucket):
    """On S3 the bytes that were uploaded are compared, too, and the old objects go."""
    for number in range(6):
        sink = pa.BufferOutputStream()
        pq.write_table(table(number), sink)
        s3.put_object(Bucket=bucket, Key=f"lake/day=1/{number}.parquet", Body=sink.getvalue().to_pybytes())
    report = ddbio.compact(f"s3://{bucket}/lake", s3_endpoint_url=s3_url, region="eu-west-1")
    assert (report.files_after, report.rows) == (1, 6 * ROWS)
    assert report.digest_before == report.digest_after != "0" * 32
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert len([key for key in keys if key.endswith(".parquet")]) == 1
