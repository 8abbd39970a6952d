from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.cli.main import cli
from ddbio.commit.committer import publishing
from ddbio.commit.protocol import Target
from ddbio.errors import NotFoundError, OptionError, TargetError
from ddbio.storage.local_store import LocalStore


def write(folder, number, rows=10):
    """Write a file with its own rows in a partition."""
    partition = Path(folder) / f"day={number}"
    partition.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"pk": [f"{number}-{row}" for row in range(rows)]}), partition / f"{number}.parquet")


@pytest.fixture
def folders(tmp_path):
    """Return a staging folder of two files, and the folder to which it is published."""
    write(tmp_path / "staging", 1)
    write(tmp_path / "staging", 2)
    return tmp_path / "staging", tmp_path / "curated"


def linked(curated):
    """Return the files that the symlink manifest names."""
    return (curated / "_symlink_format_manifest" / "manifest").read_text("utf-8").splitlines()


def rows_of(paths):
    """Return the keys in files."""
    return sorted(key for path in paths for key in pq.ParquetFile(path).read()["pk"].to_pylist())


def test_readers_see_the_newest_version(folders):
    """Each publication replaces the live files, keeps the older files, and moves the symlink manifest."""
    staging, curated = folders
    first = ddbio.publish(staging, curated)
    assert (first.version, first.version_before, first.changed, first.files) == (1, 0, True, 2)
    assert [file.partition for file in ddbio.list_files(curated).files] == [{"day": "1"}, {"day": "2"}]
    old = ddbio.list_files(curated).paths
    assert rows_of(old) == rows_of(ddbio.list_files(staging).paths)
    write(staging, 3)
    second = ddbio.publish(staging, curated)
    assert (second.version, second.files, second.layout.files, second.layout.bytes) == (2, 3, 3, second.bytes)
    assert ddbio.list_files(curated).paths == linked(curated)
    assert not set(old) & set(linked(curated))
    assert ddbio.list_files(curated, at_version=1).paths == old
    assert rows_of(old) == rows_of([staging / "day=1/1.parquet", staging / "day=2/2.parquet"])


def test_readers_meanwhile_see_old_or_new(folders):
    """Readers during publications and rollbacks see all rows of one version, never of two or none."""
    staging, curated = folders
    ddbio.publish(staging, curated)
    versions, over = [rows_of(ddbio.list_files(curated).paths)], threading.Event()

    def read():
        seen = []
        while not over.is_set():
            seen.append(rows_of(ddbio.list_files(curated).paths))
        return seen

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        for number in range(3, 8):
            write(staging, number)
            ddbio.publish(staging, curated)
            versions.append(rows_of(ddbio.list_files(curated).paths))
        ddbio.rollback(curated)
        over.set()
        seen = reader.result()
    assert all(path in versions for path in seen)


def test_publishing_the_same_again_changes_nothing(folders):
    """The same files are no new version; a missing symlink manifest is written."""
    staging, curated = folders
    first = ddbio.publish(staging, curated, job_id="nightly")
    (curated / "_symlink_format_manifest" / "manifest").unlink()
    for again in (ddbio.publish(staging, curated), ddbio.publish(staging, curated, job_id="nightly")):
        assert (again.changed, again.version, again.job_id) == (False, 1, first.job_id)
        assert len(linked(curated)) == 2


def test_a_copy_on_this_machine_is_a_link(folders):
    """No bytes are copied within one file system, and the copies remain after the staged files are deleted."""
    staging, curated = folders
    ddbio.publish(staging, curated)
    assert {Path(path).stat().st_nlink for path in linked(curated)} == {2}
    for path in staging.rglob("*.parquet"):
        path.unlink()
    assert len(rows_of(linked(curated))) == 20


def test_only_what_is_expected_is_published(folders):
    """Wrong counts, wrong digests and a check that raises leave the target unchanged."""
    staging, curated = folders
    digest = ddbio.digest(staging)
    with pytest.raises(TargetError, match="20 rows, not 21"):
        ddbio.publish(staging, curated, expect_rows=21)
    with pytest.raises(TargetError, match="digest"):
        ddbio.publish(staging, curated, expect_digest="0" * 32)

    def refuse(paths):
        assert len(paths) == 2
        raise ValueError("not good enough")

    with pytest.raises(ValueError, match="good enough"):
        ddbio.publish(staging, curated, check=refuse)
    assert not curated.exists()
    assert ddbio.publish(staging, curated, expect_rows=20, expect_digest=digest).changed
    with pytest.raises(NotFoundError, match="no live file"):
        ddbio.publish(curated / "nothing", curated)


def test_rows_that_break_a_rule_are_not_published(folders, tmp_path, capsys):
    """The message names the rule, and the number of rows; rows that satisfy all rules are published."""
    staging, curated = folders
    rules = tmp_path / "rules.yaml"
    rules.write_text("columns: {pk: {regex: '1-.*', unique: true}}\nrow_count: {min: 20}", "utf-8")
    with pytest.raises(TargetError, match=r"breaks 1 of 3 rules \(regex: 1-\.\* of pk: 10 rows, such as .*2-0"):
        ddbio.publish(staging, curated, rules=str(rules))
    assert not curated.exists()
    rules.write_text("columns: {pk: {unique: true}}\nrow_count: {min: 20, max: 20}", "utf-8")
    assert ddbio.plan_publish(staging, curated, rules=str(rules)).reads_files
    cli(["publish", str(staging), str(curated), "--rules", str(rules), "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["changed"]


def test_only_what_is_published_is_compared(folders):
    """Rows that another program wrote next to the live files are not copied, and do not count."""
    staging, curated = folders
    write(staging, 1, rows=20)
    ddbio.compact(staging, format="orc")
    digest = ddbio.digest(staging)
    write(staging, 3)
    with pytest.raises(TargetError, match="digest"):
        ddbio.publish(staging, curated, expect_digest=ddbio.digest(staging))
    assert ddbio.publish(staging, curated, expect_rows=30, expect_digest=digest).files == 2


def test_a_rollback_is_a_new_version_of_old_files(folders):
    """It restores the previous or the named version, also a newer one; the history has all of them."""
    staging, curated = folders
    ddbio.publish(staging, curated)
    old = linked(curated)
    write(staging, 3)
    ddbio.publish(staging, curated)
    new = linked(curated)
    back = ddbio.rollback(curated)
    assert (back.version, linked(curated)) == (3, old)
    assert ddbio.rollback(curated, to_version=2).version == 4
    assert linked(curated) == new == ddbio.list_files(curated).paths


def test_a_rollback_needs_the_files(folders):
    """A version that a vacuum removed, or whose files are gone, is refused by name."""
    staging, curated = folders
    with pytest.raises(NotFoundError, match="no version before its newest"):
        ddbio.rollback(curated)
    ddbio.publish(staging, curated)
    old = linked(curated)
    write(staging, 3)
    ddbio.publish(staging, curated)
    Path(old[0]).unlink()
    with pytest.raises(NotFoundError, match="1 files of version 1"):
        ddbio.rollback(curated)
    ddbio.vacuum(curated, older_than="0s")
    with pytest.raises(NotFoundError, match="has no version 1; it has 2"):
        ddbio.rollback(curated, to_version=1)
    assert len(rows_of(linked(curated))) == 30


def test_a_vacuum_removes_what_no_version_names(folders):
    """Young versions, files of other programs and of running jobs stay; a dry run deletes nothing."""
    staging, curated = folders
    ddbio.publish(staging, curated)
    write(staging, 3)
    ddbio.publish(staging, curated)
    (curated / "readme.txt").write_text("mine", "utf-8")
    orphan = curated / "part-20250101T000000Z_0-00000-0-0000.parquet"
    orphan.write_bytes(b"left by a job that was killed")
    assert ddbio.vacuum(curated).files_removed == 0
    before = sorted(curated.rglob("*"))
    planned = ddbio.vacuum(curated, older_than="0s", dry_run=True)
    assert sorted(curated.rglob("*")) == before
    with publishing(Target(store=LocalStore(curated), mode="append"), "running"):
        running = curated / "part-running-00000-0-0000.parquet"
        running.write_bytes(b"about to be committed")
        done = ddbio.vacuum(curated, older_than="0s")
        assert running.exists()
        running.unlink()
    assert done.paths == planned.paths
    assert (done.files_removed, done.versions_removed, done.version) == (3, (1,), 2)
    assert (curated / "readme.txt").exists()
    assert not orphan.exists()
    assert len(rows_of(linked(curated))) == 30


def test_the_commands(folders, capsys):
    """Publish, roll back and vacuum print their reports; wrong arguments are errors."""
    staging, curated = folders

    def run(*words):
        cli.main([str(word) for word in words], standalone_mode=False)
        return capsys.readouterr().out

    assert json.loads(run("publish", staging, curated, "--expect-rows", 20, "--json"))["version"] == 1
    write(staging, 3)
    assert "version" in run("publish", staging, curated)
    assert json.loads(run("publish", curated, "--rollback", "--json"))["version"] == 3
    assert json.loads(run("publish", curated, "--rollback", "--to-version", 2, "--json"))["files"] == 3
    assert json.loads(run("vacuum", curated, "--dry-run", "--json"))["files_removed"] == 0
    assert "dry_run" in run("vacuum", curated, "--dry-run")
    for words in (["publish", staging], ["publish", staging, curated, "--to-version", "1"]):
        with pytest.raises(Exception, match=r"CURATED|--rollback"):
            run(*words)
    with pytest.raises(OptionError, match="older_than"):
        ddbio.vacuum(curated, older_than="a week")


def test_s3_copies_by_itself(folders, s3, s3_url, bucket):
    """From S3 to S3 no byte passes this machine; from a folder to S3 the bytes are uploaded."""
    staging, _ = folders
    options = {"s3_endpoint_url": s3_url, "region": "eu-west-1"}
    up = ddbio.publish(staging, f"s3://{bucket}/first", **options)
    over = ddbio.publish(f"s3://{bucket}/first", f"s3://{bucket}/second", **options)
    assert (up.bytes, up.rows) == (over.bytes, over.rows)
    text = s3.get_object(Bucket=bucket, Key="second/_symlink_format_manifest/manifest")["Body"].read().decode()
    bodies = [s3.get_object(Bucket=bucket, Key=line.split("/", 3)[3])["Body"].read() for line in text.splitlines()]
    assert sorted(bodies) == sorted(path.read_bytes() for path in staging.rglob("*.parquet"))
    assert s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
