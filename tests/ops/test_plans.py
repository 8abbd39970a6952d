"""Plans beside what jobs take: units, seconds, bytes and USD, on the fake."""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import ddbio
import ddbio.ops.job.report
from ddbio.cli.main import cli
from ddbio.errors import OptionError
from ddbio.testing import FakeDynamoDB

ITEMS = [{"pk": str(number), "text": "x" * (number % 3000)} for number in range(2000)]
DESCRIBED = {
    "Table": {
        "TableName": "planned",
        "TableArn": "arn:aws:dynamodb:us-east-1:1:table/planned",
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
        "ItemCount": 10**10,
        "TableSizeBytes": 4 * 10**12,
    },
    "AverageItemSizeBytes": 400,
}


@pytest.fixture(scope="module")
def server():
    """Serve a table of 3 MB, and empty ones."""
    with FakeDynamoDB() as running:
        running.load("full", ddbio.to_dynamodb_json(pa.Table.from_pylist(ITEMS)), "pk:S")
        for name in ("written", "loaded", "copied"):
            running.load(name, b"", "pk:S")
        yield running


@pytest.fixture
def connection(server):
    """Return the options that reach the server."""
    return {"endpoint_url": server.endpoint_url, "region": "us-east-1"}


@pytest.fixture
def described(tmp_path):
    """Return a file that describes a table of 4 TB, which is not there."""
    path = tmp_path / "stats.json"
    path.write_text(json.dumps(DESCRIBED), "utf-8")
    return path


def test_a_scan_reports_what_was_planned(connection, tmp_path, caplog):
    """The plan and what it took lie side by side in the report and in the log; the manifest keeps both."""
    with caplog.at_level(logging.INFO, "ddbio.scan"):
        report = ddbio.scan_to_files("full", tmp_path, **connection)
    assert report.planned is not None
    assert report.actual is not None
    assert report.actual.units == report.rcu_consumed
    assert report.actual.usd == pytest.approx(report.rcu_consumed * 0.125e-6)
    assert report.planned.bytes == pytest.approx(report.wire_bytes, rel=0.05)
    assert "planned: " in caplog.text
    again = ddbio.ops.job.report.ScanReport.from_dict(json.loads(report.to_json()))
    assert (again.planned, again.actual) == (report.planned, report.actual)


def test_writes_report_what_was_planned(connection, tmp_path):
    """Loads and copies have both; rows in memory have no plan, and a price."""
    (tmp_path / "rows.jsonl").write_bytes(ddbio.to_dynamodb_json(pa.Table.from_pylist(ITEMS)))
    loaded = ddbio.load_files(tmp_path / "rows.jsonl", "loaded", **connection)
    assert loaded.planned is not None
    assert loaded.actual is not None
    assert (loaded.planned.bytes, loaded.actual.units) == (loaded.actual.bytes, loaded.wcu_consumed)
    copied = ddbio.copy_table("full", "copied", **connection)
    assert copied.planned is not None
    assert copied.actual is not None
    assert copied.actual.usd == pytest.approx(copied.rcu_consumed * 0.125e-6 + copied.wcu_consumed * 0.625e-6)
    written = ddbio.write_table(ITEMS[:10], "written", **connection)
    assert written.planned is None
    assert written.actual is not None
    assert written.actual.usd == pytest.approx(written.wcu_consumed * 0.625e-6)


def test_the_terminal_prints_both_on_one_line(connection, tmp_path):
    """What was planned, and what it took."""
    reach = ["--endpoint-url", connection["endpoint_url"], "--region", "us-east-1"]
    done = CliRunner().invoke(cli, ["scan", "full", str(tmp_path), *reach], catch_exceptions=False)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("planned")]
    assert "units" in line
    assert "; it took " in line


def test_a_plan_for_a_table_that_is_not_there(described, tmp_path):
    """Scans, loads and copies are planned from DescribeTable's answer in a file; no endpoint is called."""
    nowhere = {"endpoint_url": "http://127.0.0.1:1", "region": "us-east-1"}
    scan = ddbio.plan_scan("planned", "s3://bucket/out", from_file=described, compute="glue:G.1X*10", **nowhere)
    assert scan.estimated_units == pytest.approx(4e12 / 8192, rel=0.01)
    assert [line["what"] for line in scan.to_dict()["lines"]] == [
        "reads",
        "S3 writes",
        "S3 storage for a month",
        "Glue",
    ]
    pa.parquet.write_table(pa.table({"pk": ["a", "b"]}), tmp_path / "rows.parquet")
    load = ddbio.plan_load(tmp_path / "rows.parquet", "planned", from_file=described, **nowhere)
    assert load.estimated_units == 2
    copy = ddbio.plan_copy("planned", "other", from_file=described, **nowhere)
    assert copy.write_units == 10**10
    words = ["plan", "scan", "planned", "--from-file", str(described), "--json"]
    plan = json.loads(CliRunner().invoke(cli, words, catch_exceptions=False).stdout)
    assert {"units", "requests", "bytes", "seconds", "usd", "lines"} <= plan.keys()


def test_a_file_that_describes_no_table_is_refused(tmp_path):
    """The message says what it should be."""
    (tmp_path / "stats.json").write_text("[]", "utf-8")
    with pytest.raises(OptionError, match="give the answer of DescribeTable"):
        ddbio.plan_scan("t", from_file=tmp_path / "stats.json")
    with pytest.raises(OptionError, match="cannot be read"):
        ddbio.plan_scan("t", from_file=tmp_path / "none.json")
