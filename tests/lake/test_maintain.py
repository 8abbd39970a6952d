"""Maintenance of lake tables: sorting, clustering, vacuum; readers of recent versions keep their files."""

from __future__ import annotations

import contextlib
import json
import os
import time
from datetime import UTC, datetime, timedelta

import deltalake
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake.exceptions import DeltaError
from pyiceberg.table import StaticTable

import ddbio
from ddbio.cli.main import cli
from ddbio.errors import DecodeError, OptionError
from ddbio.lake.maintain import open_maintainer
from ddbio.lake.options import MaintainOptions
from ddbio.lake_formats import bucket_files
from ddbio.lake_formats.items import open_items
from ddbio.lake_formats.table import Commit, ConflictError
from ddbio.storage.local_store import LocalStore
from tests.lake.test_schedules import expected, items_of
from tests.lake.virtual_log import Change, VirtualLog, Writer

DAY = 86_400


@pytest.fixture(params=["delta", "iceberg"])
def lake(request, tmp_path):
    """Return a lake table of several versions, its format, and its log."""
    log, writer = VirtualLog(LocalStore(tmp_path / "log")), Writer(7)
    for _ in range(6):
        log.append(writer.batch())
        ddbio.apply(tmp_path / "log", tmp_path / "lake", format=request.param, buckets=2)
    return tmp_path / "lake", request.param, log


def aged(folder, days):
    """Make all files of a folder older."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - days * DAY,) * 2)


def data_files(folder):
    """Return the data files of a table."""
    return {str(path.relative_to(folder)) for path in folder.glob("_b=*/*.parquet")}


def holds(folder, kind, log):
    """Return whether the newest version has the items of the log."""
    items = open_items(str(folder), MaintainOptions(table=str(folder)), kind)
    rows = [row for batch in items.rows() for row in batch.to_pylist()]
    return items_of(rows, {name: name for name in items.state.schema.names}) == expected(log.model())


def test_files_of_old_versions_go(lake):
    """Files of versions of the last week stay, and so do recent files of no version; others are deleted once."""
    folder, kind, log = lake
    aged(folder, 30)
    (folder / "_b=0").mkdir(exist_ok=True)
    for name, days in (("orphan", 20), ("staged", 0)):
        (folder / f"_b=0/{name}.parquet").write_bytes(b"x")
        os.utime(folder / f"_b=0/{name}.parquet", (time.time() - days * DAY,) * 2)
    before = data_files(folder)
    version = ddbio.maintain(folder, format=kind).version
    plan = ddbio.plan_maintain(folder, format=kind, vacuum_older_than="7d")
    assert plan.deleted_files > 1
    report = ddbio.maintain(folder, format=kind, vacuum_older_than="7d")
    gone = before - data_files(folder)
    assert (report.deleted_files, len(gone)) == (plan.deleted_files, plan.deleted_files)
    assert "_b=0/orphan.parquet" in gone
    assert "_b=0/staged.parquet" not in gone
    assert holds(folder, kind, log)
    # The version before the rewriting was the newest a week ago: its readers keep their files.
    assert report.since_version is not None
    for number in range(report.since_version, version + 1):
        if kind == "delta":
            deltalake.DeltaTable(folder, version=number).to_pyarrow_table()
    assert ddbio.maintain(folder, format=kind, vacuum_older_than="7d").deleted_files == 0


def log_files(folder):
    """Return the files of a table's own log."""
    return {str(path.relative_to(folder)) for name in ("_delta_log", "metadata") for path in folder.glob(f"{name}/*.*")}


def readable(folder, kind, last):
    """Return the versions that the library of the format can read."""
    versions = []
    for number in range(last + 1):
        with contextlib.suppress(DeltaError, FileNotFoundError):
            if kind == "delta":
                deltalake.DeltaTable(folder, version=number).to_pyarrow_table()
            else:
                StaticTable.from_metadata(str(folder / f"metadata/v{number}.metadata.json")).scan().to_arrow()
            versions.append(number)
    return versions


def test_old_versions_are_forgotten(lake):
    """The log of the table keeps the versions since a week ago, all of them readable; a second run changes nothing."""
    folder, kind, log = lake
    aged(folder, 30)
    old = open_items(str(folder), MaintainOptions(table=str(folder)), kind).state.version
    for seed in (11, 12):
        log.append(Writer(seed).batch())
        ddbio.apply(folder.parent / "log", folder, format=kind)
    before = log_files(folder)
    plan = ddbio.plan_maintain(folder, format=kind, expire_snapshots_older_than="7d")
    assert (log_files(folder), plan.since_version) == (before, old)
    report = ddbio.maintain(folder, format=kind, expire_snapshots_older_than="7d")
    gone = before - log_files(folder)
    assert len(gone) == report.deleted_log_files == plan.deleted_log_files > old - 1
    assert report.deleted_log_bytes == plan.deleted_log_bytes > 0
    assert report.since_version == old
    assert readable(folder, kind, report.version) == list(range(old, report.version + 1))
    assert holds(folder, kind, log)
    # Positions are kept, so nothing is applied twice.
    assert ddbio.apply(folder.parent / "log", folder, format=kind).changes == 0
    again = ddbio.maintain(folder, format=kind, expire_snapshots_older_than="7d")
    assert (again.deleted_log_files, again.version, again.since_version) == (0, report.version, old)
    log.append(Writer(13).batch())
    ddbio.apply(folder.parent / "log", folder, format=kind)
    assert holds(folder, kind, log)


def test_a_name_keeps_a_snapshot(lake):
    """An Iceberg snapshot with a tag stays, including its manifests."""
    folder, kind, log = lake
    if kind == "delta":
        # Delta has no tags.
        return
    table = open_items(str(folder), MaintainOptions(table=str(folder)), kind).table
    state = table.load()
    first = state.handle.snapshots()[0].snapshot_id
    state.handle.manage_snapshots().create_tag(first, "audit").commit()
    aged(folder, 30)
    ddbio.maintain(folder, format=kind, expire_snapshots_older_than="7d")
    handle = table.load().handle
    assert first in {snapshot.snapshot_id for snapshot in handle.snapshots()}
    # Its successors have expired, except for the newest version of that time, and later commits of maintenance.
    assert state.handle.snapshots()[1].snapshot_id not in {snapshot.snapshot_id for snapshot in handle.snapshots()}
    handle.scan(snapshot_id=first).to_arrow()
    assert holds(folder, kind, log)


def test_a_decision_from_an_expired_version_is_not_committed(lake):
    """The number after an expired version is free again: a writer that was suspended meanwhile gets a conflict."""
    folder, kind, log = lake
    table = open_items(str(folder), MaintainOptions(table=str(folder)), kind).table
    sleeper = table.load(2)
    aged(folder, 30)
    assert ddbio.maintain(folder, format=kind, expire_snapshots_older_than="7d").deleted_log_files > 0
    with pytest.raises(ConflictError):
        table.commit(sleeper, Commit(positions={"late": 1}))
    assert holds(folder, kind, log)


def test_ages_that_would_hurt(tmp_path):
    """Versions are kept at least as long as files that only they need, and at least a day."""
    with pytest.raises(OptionError, match="at least 24h"):
        ddbio.maintain(tmp_path, expire_snapshots_older_than="1h")
    with pytest.raises(OptionError, match="at least vacuum_older_than"):
        ddbio.maintain(tmp_path, expire_snapshots_older_than="7d", vacuum_older_than="8d")


def test_rows_are_sorted_once(lake):
    """The rows of each file are sorted, the items are the same, and a second run changes nothing."""
    folder, kind, log = lake
    report = ddbio.maintain(folder, format=kind, sort_by="n")
    assert report.rewritten_files > 0
    assert holds(folder, kind, log)
    again = ddbio.maintain(folder, format=kind, sort_by="n")
    assert (again.rewritten_files, again.version) == (0, report.version)
    with pytest.raises(OptionError, match="no attribute 'other'"):
        ddbio.maintain(folder, format=kind, sort_by="other")


@pytest.fixture(params=["delta", "iceberg"])
def two_buckets(request, tmp_path):
    """Return a lake table with two small files in each of two buckets, its format, and its log."""
    log = VirtualLog(LocalStore(tmp_path / "log"))
    for first in (0, 40):
        numbers = range(first, first + 40)
        log.append([Change(n + 1, f"k|{n}", {"pk": f"k|{n}", "n": 99 - n}) for n in numbers])
        ddbio.apply(tmp_path / "log", tmp_path / "lake", format=request.param, buckets=2)
    return tmp_path / "lake", request.param, log


def test_buckets_are_rewritten_in_one_version(two_buckets):
    """One commit rewrites all buckets, unless a bucket has as many bytes to rewrite as one file."""
    folder, kind, log = two_buckets
    version = open_items(str(folder), MaintainOptions(table=str(folder)), kind).state.version
    report = ddbio.maintain(folder, format=kind)
    assert (report.version, report.rewritten_files, report.written_files) == (version + 1, 4, 2)
    assert holds(folder, kind, log)
    job = open_maintainer(MaintainOptions(table=str(folder), format=kind, sort_by=("n",)))
    job.target_bytes = 1
    assert (job.run(None).version, job.rewritten) == (version + 3, 2)
    assert holds(folder, kind, log)


def test_a_writer_who_was_slower_goes_bucket_by_bucket(two_buckets, monkeypatch):
    """After a conflict with another writer, a new conflict repeats less work."""
    folder, kind, log = two_buckets
    job = open_maintainer(MaintainOptions(table=str(folder), format=kind))
    table, commits = job.table, list[set[int]]()

    def commit(state, asked, commit=table.commit):
        commits.append({file.bucket for file in asked.removed})
        if len(commits) == 1:
            raise ConflictError
        return commit(state, asked)

    monkeypatch.setattr(table, "commit", commit)
    job.run(None)
    assert commits == [{0, 1}, {0}, {1}]
    assert (job.rewritten, job.written) == (4, 2)
    assert holds(folder, kind, log)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_damaged_page_is_not_rewritten(two_buckets, monkeypatch, is_whole):
    """A page with a wrong checksum is an error, and the table is unchanged."""
    folder, kind, _ = two_buckets
    monkeypatch.setattr(bucket_files, "_MAX_SINGLE_READ_BYTES", (1 << 20) * is_whole)
    state = open_items(str(folder), MaintainOptions(table=str(folder)), kind).state
    path = folder / state.files[0].path
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    data = bytearray(path.read_bytes())
    # The last byte of the column's last page.
    data[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DecodeError, match="damaged"):
        ddbio.maintain(folder, format=kind)
    assert open_items(str(folder), MaintainOptions(table=str(folder)), kind).state.version == state.version


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_one_file_that_is_not_sorted_is_sorted(kind, tmp_path):
    """A bucket with a single file is rewritten only to sort its rows."""
    log, lake = VirtualLog(LocalStore(tmp_path / "log")), tmp_path / "lake"
    log.append([Change(n + 1, f"k|{n}", {"pk": f"k|{n}", "n": 9 - n}) for n in range(9)])
    ddbio.apply(tmp_path / "log", lake, format=kind, buckets=1)
    report = ddbio.maintain(lake, format=kind, sort_by="n")
    assert (report.rewritten_files, report.written_files) == (1, 1)
    (file,) = open_items(str(lake), MaintainOptions(table=str(lake))).state.files
    assert pq.read_table(lake / file.path, columns=["n"]).column("n").to_pylist() == list(range(1, 10))


def test_rows_are_clustered(lake):
    """Delta tables are clustered by deltalake, and changes can be applied to them; Iceberg tables are refused."""
    folder, kind, log = lake
    if kind == "iceberg":
        with pytest.raises(OptionError, match="sort_by"):
            ddbio.maintain(folder, format=kind, z_order_by="n,pk")
        return
    ddbio.maintain(folder, z_order_by="n,pk")
    assert holds(folder, kind, log)
    log.append(Writer(9).batch())
    ddbio.apply(folder.parent / "log", folder)
    assert holds(folder, kind, log)


def test_one_file_has_the_policies_of_tables(lake, tmp_path):
    """Each table's options override the defaults; a dry run writes nothing, and an error names its table."""
    folder, kind, log = lake
    policy = tmp_path / "policy.toml"
    own = f'[[tables]]\ntable = "{folder}"\nformat = "{kind}"\nsort_by = "n"\n'
    policy.write_text(f'[defaults]\nvacuum_older_than = "7d"\n{own}')
    before = sorted(folder.rglob("*"))
    shown = CliRunner().invoke(cli, ["maintain", "--policy", str(policy), "--dry-run", "--json"])
    assert json.loads(shown.stdout)["tables"][0]["rewritten_files"] > 0, shown
    assert sorted(folder.rglob("*")) == before
    done = CliRunner().invoke(cli, ["maintain", "--policy", str(policy), "--json"])
    assert json.loads(done.stdout)["tables"][0]["since_version"] is not None
    assert holds(folder, kind, log)
    policy = tmp_path / "policy.yaml"
    policy.write_text(f'tables:\n- table: "{folder}"\n  vacuum_older_than: 1h\n')
    with pytest.raises(OptionError, match=r"lake in the policy .*at least 24h"):
        ddbio.maintain_by_policy(policy)


@pytest.mark.parametrize(
    ("age", "days", "is_gone"),
    [(None, 6, False), (None, 8, True), ("24h", 0, False), ("24h", 2, True), ("2w", 8, False), ("2w", 15, True)],
)
@pytest.mark.parametrize("verb", ["apply", "maintain"])
def test_what_killed_jobs_staged_goes(verb, age, days, is_gone, tmp_path):
    """Apply deletes staged files after a week, and a vacuum those older than its age."""
    log, lake = VirtualLog(LocalStore(tmp_path / "log")), tmp_path / "lake"
    log.append([Change(1, "a", {"n": 1})])
    ddbio.apply(tmp_path / "log", lake)
    began = datetime.now(UTC) - timedelta(days=days, minutes=1)
    staged = lake / f"_ddbio/staging/{began:%Y%m%dT%H%M%SZ}_deadbeef"
    (staged / "_b=1").mkdir(parents=True)
    (staged / "_b=1/x.parquet").write_bytes(b"x")
    if verb == "apply":
        ddbio.apply(tmp_path / "log", lake)
        is_gone = days > 7
    else:
        ddbio.maintain(lake, **({} if age is None else {"vacuum_older_than": age}))
    assert staged.exists() != is_gone
