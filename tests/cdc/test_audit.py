"""Status and verification of a capture: positions, files against records, repeated and lost changes."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.errors import NotFoundError
from tests.cdc.test_capture import client, fake, make_table  # noqa: F401 - fixtures


@pytest.fixture
def log(fake, client, make_table, tmp_path):  # noqa: F811 - the fixtures
    """Return the folder of a log of two batches, with old images and unordered sets."""
    table = make_table()
    run = {"available_now": True, "old_image": True, "endpoint_url": fake.endpoint_url}
    for number in range(3):
        for pk in ("a", "b"):
            image = {"pk": {"S": pk}, "n": {"N": str(number)}, "tags": {"SS": ["x", "y", str(number)]}}
            client.put_item(TableName=table, Item=image)
        if number == 1:
            ddbio.capture(table, tmp_path, **run)
    client.delete_item(TableName=table, Key={"pk": {"S": "a"}})
    client.put_item(TableName=table, Item={"pk": {"S": "a"}, "n": {"S": "text"}})
    client.put_item(TableName=table, Item={"pk": {"S": "a"}, "n": {"N": "5"}})
    ddbio.capture(table, tmp_path, **run)
    return tmp_path


def files_of(folder):
    """Return the files of a log in order."""
    return sorted(folder.glob("year=*/**/*.parquet"))


def test_a_complete_log_is_verified(log):
    """Nothing is missing, also after a compaction. The position of the open shard is reported."""
    report = ddbio.verify_capture(log)
    assert report.is_whole, report
    assert (report.batches, report.records, report.rows, report.lost, report.repeated) == (2, 9, 9, 0, 0)
    assert ddbio.compact(log).files_rewritten == 2
    assert ddbio.verify_capture(log).is_whole
    (status,) = ddbio.capture_status(log, offline=True)
    assert (status.lag_seconds, status.lost_shards) == (None, ())
    assert (status.batches, status.unfinished, status.running) == (2, 0, False)
    assert status.open_shards == len(status.positions) > 0
    printed = CliRunner().invoke(cli, ["capture", "status", str(log), "--offline", "--json"]).stdout
    assert json.loads(printed)["captures"][0]["stream"] == status.stream
    printed = CliRunner().invoke(cli, ["capture", "verify", str(log), "--json"])
    assert (printed.exit_code, json.loads(printed.stdout)["is_whole"]) == (0, True)


def test_a_status_reports_lag_and_loss(fake, client, make_table, tmp_path):  # noqa: F811 - the fixtures
    """The first uncaptured change determines the lag. Trimmed changes are reported as lost."""
    table, run = make_table(), {"endpoint_url": fake.endpoint_url}
    client.put_item(TableName=table, Item={"pk": {"S": "a"}})
    ddbio.capture(table, tmp_path, available_now=True, **run)
    (status,) = ddbio.capture_status(tmp_path, **run)
    assert (status.lag_seconds, status.lost_shards) == (0.0, ())
    client.put_item(TableName=table, Item={"pk": {"S": "a"}, "n": {"N": "1"}})
    (status,) = ddbio.capture_status(tmp_path, **run)
    assert status.lag_seconds >= 0
    fake.trim_stream(table)
    client.put_item(TableName=table, Item={"pk": {"S": "a"}, "n": {"N": "2"}})
    (status,) = ddbio.capture_status(tmp_path, **run)
    assert len(status.lost_shards) == 1


def test_processes_that_share_a_stream_have_separate_status(fake, client, make_table, tmp_path):  # noqa: F811 - the fixtures
    """Each part of a stream has a separate status without the lag of the others. The log is complete as one."""
    table, run = make_table(), {"endpoint_url": fake.endpoint_url}
    for number in range(20):
        client.put_item(TableName=table, Item={"pk": {"S": str(number)}})
    ddbio.capture(table, tmp_path, available_now=True, old_image=True, leases=2, **run)
    actual = ddbio.capture_status(tmp_path, **run)
    assert len(actual) == 2
    assert {status.lag_seconds for status in actual} == {0.0}
    assert len(ddbio.capture_status(tmp_path, job_id=actual[0].job_id, **run)) == 1
    report = ddbio.verify_capture(tmp_path)
    assert (report.is_whole, report.records) == (True, 20)


def test_lost_and_repeated_changes_are_counted(log):
    """A missing row breaks the chain of its item. A repeated row is reported with its number."""
    first, last = files_of(log)
    rows = pq.ParquetFile(last).read()
    chosen = pc.and_(pc.equal(rows.column("pk"), "b"), pc.equal(rows.column("_op"), "MODIFY"))
    pq.write_table(pa.concat_tables([rows.slice(0, 1), rows]), last)
    report = ddbio.verify_capture(log)
    assert (report.is_whole, report.repeated, len(report.wrong)) == (False, 1, 1)
    pq.write_table(rows, last)
    rows = pq.ParquetFile(first).read()
    pq.write_table(rows.filter(pc.invert(pc.equal(rows.column("_op"), "MODIFY"))), first)
    report = ddbio.verify_capture(log)
    assert (report.lost, report.repeated) == (2, 0)
    assert any(value.startswith("{'pk': 'a'} at ") for value in report.examples)
    assert ddbio.verify_capture(log, images=False).lost is None
    assert pc.sum(chosen).as_py() == 1
    assert CliRunner().invoke(cli, ["capture", "verify", str(log)]).exit_code == 1


def test_files_are_compared_with_records(log):
    """A missing file, a file without a batch, and a missing record are reported. Foreign files are not."""
    first, last = files_of(log)
    last.rename(last.with_name(last.name.replace("000000000002", "000000000009")))
    (log / "other.parquet").write_bytes(first.read_bytes())
    report = ddbio.verify_capture(log, images=False)
    assert (len(report.missing), len(report.unknown), report.is_whole) == (1, 1, False)
    next(log.glob("_ddbio/*.capture/000000000001.json")).unlink()
    assert "batch 1 is missing" in ddbio.verify_capture(log, images=False).jumps[0]


def test_a_folder_without_a_capture_is_an_error(tmp_path):
    """Status and verification are errors in a folder without a capture."""
    with pytest.raises(NotFoundError, match="has no capture"):
        ddbio.capture_status(tmp_path)
    with pytest.raises(NotFoundError, match="is not a log of changes"):
        ddbio.verify_capture(tmp_path, job_id="x")
