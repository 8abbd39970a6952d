"""Healed gaps of a log, against a served fake that exports: state, marks, repeated and killed runs."""

from __future__ import annotations

import json
from datetime import timedelta

import boto3
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.cdc.log_order import in_order, last_of_each
from ddbio.cli.main import cli
from ddbio.errors import ExportIncompleteError, GapError, OptionError
from ddbio.testing import FakeDynamoDB, MotoServer
from tests.cdc.gapped_log import AFTER, BEFORE, make_gap, state_of
from tests.cdc.tables import create_table
from tests.jobs.killing import WHOLE, killing

RECOVERY = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
STREAM = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


@pytest.fixture(scope="module")
def s3_url():
    """Serve an S3 with a bucket for exports."""
    with MotoServer() as server:
        ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3").create_bucket(Bucket="exports")
        yield server.endpoint_url


@pytest.fixture(scope="module")
def fake(s3_url):
    """Serve one fake that exports, for all tests of this module."""
    with FakeDynamoDB(partitions=2, burst_at_creation=1.0, export_to=s3_url) as served:
        yield served


@pytest.fixture(scope="module")
def client(fake):
    """Return a client of the fake."""
    connected = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
    yield connected
    connected.close()


def put(client, table, pk, n):
    """Put an item."""
    client.put_item(TableName=table, Item={"pk": {"S": pk}, "n": {"N": str(n)}})


@pytest.fixture
def gap(fake, client, tmp_path):
    """Return the table and the arguments of a log with a gap, in which items were put, changed and deleted."""
    table = create_table(client)
    client.update_continuous_backups(TableName=table, **RECOVERY)
    fake.pass_time(1800)
    run = {"available_now": True, "old_image": True, "endpoint_url": fake.endpoint_url}
    for pk in "abcdz":
        put(client, table, pk, 1)
    ddbio.capture(table, tmp_path, **run)
    fake.pass_time(100)
    put(client, table, "a", 2)
    client.delete_item(TableName=table, Key={"pk": {"S": "b"}})
    client.delete_item(TableName=table, Key={"pk": {"S": "z"}})
    put(client, table, "c", 2)
    put(client, table, "e", 1)
    fake.trim_stream(table)
    fake.pass_time(1000)
    put(client, table, "c", 3)
    with pytest.raises(GapError, match="capture heal"):
        ddbio.capture(table, tmp_path, **run)
    report = ddbio.capture(table, tmp_path, on_gap="continue", **run)
    assert report.gaps
    return table, tmp_path, run


def state(folder):
    """Return the items that result from the log: the last row of each item wins."""
    rows = ds.dataset(folder, exclude_invalid_files=False, ignore_prefixes=["_"])
    fragments = [pq.ParquetFile(file).read() for file in rows.files]
    last = last_of_each(in_order(pa.concat_tables(fragments, promote_options="permissive")), ["pk"]).to_pylist()
    return {row["pk"]: row["n"] for row in last if row["_op"] != "REMOVE"}


@pytest.fixture
def where(fake, s3_url):
    """Return the options for the fake and its S3."""
    return {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": s3_url, "region": "us-east-1"}


def test_a_gap_is_healed_by_an_export(fake, client, gap, where):
    """A gap is planned with its price, exported, healed and verified.

    A second run changes nothing. Later changes are newer.
    """
    table, dest, run = gap
    before = ddbio.verify_capture(dest)
    assert (before.is_whole, len(before.gaps) > 0, before.healed_gaps, before.lost) == (False, True, 0, 1)
    assert before.jumps == ()
    flags = ["--endpoint-url", fake.endpoint_url, "--region", "us-east-1", "--json"]
    printed = CliRunner().invoke(cli, ["capture", "heal", table, str(dest), "--dry-run", *flags])
    assert printed.exit_code == 0, printed.exception
    plan = json.loads(printed.stdout)
    assert (len(plan["gaps"]), plan["exports"], plan["usd"] > 0) == (1, 1, True)
    assert state(dest) == {"a": 1, "b": 1, "c": 3, "d": 1, "z": 1}
    with pytest.raises(OptionError, match="export_to is missing"):
        ddbio.heal_capture(table, dest, **where)
    report = ddbio.heal_capture(table, dest, export_to="s3://exports/heal", poll_seconds=0.2, **where)
    assert state(dest) == {"a": 2, "c": 3, "d": 1, "e": 1}
    assert (report.gaps, len(report.exports), report.rows) == (1, 1, 4)
    assert report.actual.usd > 0
    after = ddbio.verify_capture(dest)
    assert after.is_whole, after
    assert (after.gaps, after.healed_gaps, after.lost, after.healed > 0) == ((), 1, 0, True)
    files = sorted(dest.rglob("*"))
    again = ddbio.heal_capture(table, dest, export_to="s3://exports/heal", **where)
    assert (again.gaps, again.rows, sorted(dest.rglob("*"))) == (0, 0, files)
    put(client, table, "a", 7)
    client.delete_item(TableName=table, Key={"pk": {"S": "e"}})
    ddbio.capture(table, dest, **run)
    assert state(dest) == {"a": 7, "c": 3, "d": 1}
    assert ddbio.verify_capture(dest).is_whole
    assert [value.batches for value in ddbio.capture_status(dest, offline=True)] == [3]
    ddbio.compact(dest)
    assert state(dest) == {"a": 7, "c": 3, "d": 1}
    assert ddbio.verify_capture(dest).is_whole


def heal(table, dest, where):
    """Heal the gaps of a log, with options as JSON."""
    ddbio.heal_capture(table, dest, export_to="s3://exports/killed", poll_seconds=0.2, **json.loads(where))


def test_a_heal_that_is_killed_asks_for_no_second_export(client, gap, where):
    """A run that died after the service had accepted its request, and before storing it, resumes with that export."""
    table, dest, _ = gap
    with killing(heal) as kill:
        assert kill("export-0", [dest], table, dest, json.dumps(where)) != WHOLE
    report = ddbio.heal_capture(table, dest, export_to="s3://exports/killed", poll_seconds=0.2, **where)
    arn = client.describe_table(TableName=table)["Table"]["TableArn"]
    assert len(client.list_exports(TableArn=arn)["ExportSummaries"]) == len(report.exports) == 1
    assert state(dest) == {"a": 2, "c": 3, "d": 1, "e": 1}


def test_existing_exports_are_used(fake, gap, where):
    """An export that covers the gap is read. Otherwise the error has the windows."""
    table, dest, _ = gap
    (window,) = ddbio.plan_heal_capture(table, dest, **where).windows
    fake.pass_time(2)
    times = {"from_time": window.start, "to_time": window.end}
    uri = ddbio.wait_export(ddbio.start_export(table, "s3://exports/own", **times, **where).arn, **where).uri
    short = ddbio.start_export(
        table, "s3://exports/own", **(times | {"from_time": window.end - timedelta(minutes=15)}), **where
    )
    with pytest.raises(ExportIncompleteError, match="ddbio export start"):
        ddbio.heal_capture(table, dest, from_export=[ddbio.wait_export(short.arn, **where).uri], **where)
    assert ddbio.verify_capture(dest).gaps
    report = ddbio.heal_capture(table, dest, from_export=[uri], **where)
    assert (report.gaps, report.rows) == (1, 4)
    assert state(dest) == {"a": 2, "c": 3, "d": 1, "e": 1}
    assert ddbio.verify_capture(dest).is_whole


def test_without_recovery_nothing_can_heal(fake, client, gap, where):
    """The error has the reason, and the alternative."""
    table, dest, _ = gap
    off = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": False}}
    client.update_continuous_backups(TableName=table, **off)
    with pytest.raises(OptionError, match=r"recovery of table .* is off.*new base"):
        ddbio.heal_capture(table, dest, export_to="s3://exports/none", **where)
    client.update_continuous_backups(TableName=table, **RECOVERY)
    with pytest.raises(OptionError, match="reaches only back to"):
        ddbio.plan_heal_capture(table, dest, **where)
    fake.load("other", [{"pk": {"S": "1"}}], "pk:S")
    with pytest.raises(OptionError, match="is the log of table"):
        ddbio.heal_capture("other", dest, from_export=["/nowhere"], **where)


def test_a_log_of_kinesis_is_healed(fake, tmp_path, where):
    """Kinesis expires records without an error. They are healed from two windows, and later changes are newer."""
    table, run = make_gap(fake, tmp_path)
    assert state_of(tmp_path) == BEFORE
    before = ddbio.verify_capture(tmp_path)
    assert (before.is_whole, len(before.gaps) > 0, before.repeated) == (False, True, 0)
    report = ddbio.heal_capture(table, tmp_path, export_to="s3://exports/kinesis", poll_seconds=0.2, **where)
    assert (report.gaps, len(report.exports), state_of(tmp_path)) == (1, 2, AFTER)
    after = ddbio.verify_capture(tmp_path)
    assert (after.is_whole, after.gaps, after.healed_gaps, after.repeated) == (True, (), 1, 0), after
    fake.load(table, [{"pk": {"S": "e"}, "n": {"N": "9"}}], "pk:S")
    ddbio.capture(table, tmp_path, **run)
    assert state_of(tmp_path) == AFTER | {"e": 9}
    again = ddbio.heal_capture(table, tmp_path, export_to="s3://exports/kinesis", **where)
    assert (again.gaps, again.rows) == (0, 0)
    ddbio.compact(tmp_path)
    assert state_of(tmp_path) == AFTER | {"e": 9}
    assert ddbio.verify_capture(tmp_path).is_whole
