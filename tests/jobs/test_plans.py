"""Plans compared with jobs: units, seconds, bytes and USD, on the fake."""

from __future__ import annotations

import json
import logging

import boto3
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import ddbio
import ddbio.jobs.report
from ddbio.cli.main import cli
from ddbio.errors import LimitError, OptionError
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


INDEXES = [
    ("all", "kind", {"ProjectionType": "ALL"}),
    ("keys", "kind", {"ProjectionType": "KEYS_ONLY"}),
    ("some", "rare", {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["text"]}),
]


def create_indexed(running, name):
    """Create an empty table with indexes of each projection. Not every item is in the last one."""
    client = boto3.client(
        "dynamodb",
        endpoint_url=running.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": attribute, "AttributeType": "S"} for attribute in ("pk", "kind", "rare")
        ],
        GlobalSecondaryIndexes=[
            {"IndexName": index, "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}], "Projection": projection}
            for index, key, projection in INDEXES
        ],
    )


@pytest.fixture(scope="module")
def server():
    """Serve a table of 3 MB, and empty ones."""
    with FakeDynamoDB() as running:
        for name in ("indexed", "copied-indexed"):
            create_indexed(running, name)
        running.load("full", ddbio.to_dynamodb_json(pa.Table.from_pylist(ITEMS)), "pk:S")
        for name in ("written", "loaded", "copied"):
            running.load(name, b"", "pk:S")
        yield running


@pytest.fixture
def connection(server):
    """Return the options to connect to the server."""
    return {"endpoint_url": server.endpoint_url, "region": "us-east-1"}


@pytest.fixture
def described(tmp_path):
    """Return a file that describes a table of 4 TB, which does not exist."""
    path = tmp_path / "stats.json"
    path.write_text(json.dumps(DESCRIBED), "utf-8")
    return path


def test_a_scan_reports_what_was_planned(connection, tmp_path, caplog):
    """The planned and actual figures are next to each other in the report and in the log. The manifest has both."""
    with caplog.at_level(logging.INFO, "ddbio.scan"):
        report = ddbio.scan_to_files("full", tmp_path, **connection)
    assert report.planned is not None
    assert report.actual is not None
    assert report.actual.units == report.rcu_consumed
    assert report.actual.usd == pytest.approx(report.rcu_consumed * 0.125e-6)
    assert report.planned.bytes == pytest.approx(report.wire_bytes, rel=0.05)
    assert "planned: " in caplog.text
    again = ddbio.jobs.report.ScanReport.from_dict(json.loads(report.to_json()))
    assert (again.planned, again.actual) == (report.planned, report.actual)


def test_writes_report_what_was_planned(connection, tmp_path):
    """Loads and copies have both. Rows in memory have no plan, but a price."""
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


def rows_of_indexes(count):
    """Return rows of 0 to 3 KB, of which every third is in the last index."""
    rare = ["r" if number % 3 == 0 else None for number in range(count)]
    return pa.table(
        {
            "pk": [str(number) for number in range(count)],
            "kind": [f"kind-{number % 7}" for number in range(count)],
            "rare": pa.array(rare, pa.string()),
            "text": ["x" * (number * 37 % 3000) for number in range(count)],
            "more": ["y" * (number * 11 % 2000) for number in range(count)],
        }
    )


def test_planned_writes_are_those_that_are_billed(connection, tmp_path):
    """New items, also with indexes of every projection, use exactly the billed units, for load and copy."""
    pa.parquet.write_table(rows_of_indexes(900), tmp_path / "rows.parquet")
    loaded = ddbio.load_files(tmp_path / "rows.parquet", "indexed", **connection)
    assert loaded.planned is not None
    assert loaded.planned.units == pytest.approx(loaded.wcu_consumed, rel=1e-9)
    plan = ddbio.plan_copy("indexed", "copied-indexed", **connection)
    copied = ddbio.copy_table("indexed", "copied-indexed", **connection)
    assert plan.write_units == pytest.approx(copied.wcu_consumed, rel=1e-9)
    assert copied.wcu_consumed == loaded.wcu_consumed


@pytest.mark.nightly
def test_planned_scans_are_those_that_are_billed(tmp_path):
    """For 110 MB, units are within 0.5 % of the fake's bill, and seconds within 15 % of a run with a budget."""
    with FakeDynamoDB() as running:
        texts = ("x" * (45_000 + number * 37 % 20_000) for number in range(2000))
        running.load("large", ({"pk": {"S": str(at)}, "text": {"S": text}} for at, text in enumerate(texts)), "pk:S")
        options = {"endpoint_url": running.endpoint_url, "region": "us-east-1", "rcu_per_second": 2500.0}
        report = ddbio.scan_to_files("large", tmp_path, **options, sample_items=50)
    assert report.planned is not None
    assert report.wire_bytes > 100e6
    assert report.planned.units == pytest.approx(report.rcu_consumed, rel=0.005)
    assert report.planned.seconds == pytest.approx(report.rcu_consumed / 2500, rel=0.15)


def test_the_terminal_prints_both_on_one_line(connection, tmp_path):
    """The line has the planned and the actual figures."""
    reach = ["--endpoint-url", connection["endpoint_url"], "--region", "us-east-1"]
    done = CliRunner().invoke(cli, ["scan", "full", str(tmp_path), *reach], catch_exceptions=False)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("planned")]
    assert "units" in line
    assert "; it took " in line


def test_a_plan_for_a_table_that_does_not_exist(described, tmp_path):
    """Scans, loads and copies are planned from a response of DescribeTable in a file. No endpoint is called."""
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


def test_service_jobs_are_planned_from_a_file(described):
    """Exports and backups of a table that does not exist, with the reads of a digest, need no endpoint."""
    nowhere = {"endpoint_url": "http://127.0.0.1:1", "region": "us-east-1", "from_file": described}
    export = ddbio.plan_export("planned", "s3://bucket/out", **nowhere)
    assert export.to_dict()["lines"][0]["usd"] == pytest.approx(4e12 / 2**30 * 0.10)
    backup = ddbio.plan_backup("planned", **nowhere).to_dict()
    digested = ddbio.plan_backup("planned", digest=True, **nowhere).to_dict()
    assert (backup["units"], digested["units"]) == (0.0, pytest.approx(4e12 / 4096, rel=0.01))
    assert digested["usd"] - backup["usd"] == pytest.approx(digested["units"] * 0.125e-6)
    words = ["plan", "backup", "planned", "--from-file", str(described), "--json"]
    assert json.loads(CliRunner().invoke(cli, words, catch_exceptions=False).stdout)["usd"] == backup["usd"]


def test_limits_of_service_jobs(described):
    """A plan of an export or a backup above a limit is refused, in Python and on the command line."""
    nowhere = {"endpoint_url": "http://127.0.0.1:1", "region": "us-east-1", "from_file": described}
    with pytest.raises(LimitError, match=r"600\.0 s, more than max_seconds 60"):
        ddbio.plan_export("planned", "s3://bucket/out", max_seconds=60, **nowhere)
    with pytest.raises(LimitError, match="max_units"):
        ddbio.plan_backup("planned", digest=True, max_units=1000, **nowhere)
    words = ["plan", "backup", "planned", "--from-file", str(described), "--max-usd", "1"]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, LimitError)


def test_verification_is_planned_and_counted(connection):
    """A verified copy reads its target once more, in the plan and in the actual figures."""
    ddbio.create_table("verified", key="pk:S", **connection)
    copied = ddbio.copy_table("full", "verified", verify=True, **connection)
    assert copied.planned is not None
    assert copied.actual is not None
    assert copied.actual.units > copied.rcu_consumed + copied.wcu_consumed + 490
    assert copied.planned.units == pytest.approx(copied.actual.units, rel=0.02)


def test_a_file_that_describes_no_table_is_refused(tmp_path):
    """The message describes the correct file."""
    (tmp_path / "stats.json").write_text("[]", "utf-8")
    with pytest.raises(OptionError, match="give the response of DescribeTable"):
        ddbio.plan_scan("t", from_file=tmp_path / "stats.json")
    with pytest.raises(OptionError, match="cannot be read"):
        ddbio.plan_scan("t", from_file=tmp_path / "none.json")


def test_a_plan_of_writes_depends_on_the_slowest_index_and_a_copy_names_its_writes(server, connection, tmp_path):
    """A load of a table of 1,000 units/s takes as long as its index of 5 units/s does. A copy's plan has both sides."""
    reached = {"endpoint_url": server.endpoint_url, "region_name": "us-east-1"}
    client = boto3.client("dynamodb", **reached, aws_access_key_id="x", aws_secret_access_key="x")
    client.create_table(
        TableName="slow-index",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": attribute, "AttributeType": "S"} for attribute in ("pk", "text")],
        ProvisionedThroughput={"ReadCapacityUnits": 1000, "WriteCapacityUnits": 1000},
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by-text",
                "KeySchema": [{"AttributeName": "text", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
                "ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5},
            }
        ],
    )
    rows = [{"pk": str(number), "text": str(number)} for number in range(3000)]
    (tmp_path / "rows.jsonl").write_bytes(ddbio.to_dynamodb_json(pa.Table.from_pylist(rows)))
    plan = ddbio.plan_load(tmp_path / "rows.jsonl", "slow-index", write_ratio=1.0, **connection)
    # The unused capacity of an index over 300 s can be used immediately: 1,500 of 3,000 units.
    assert plan.seconds >= 1500 / 5
    copy = ddbio.plan_copy("full", "copied", **connection).to_dict()
    assert {"reads", "writes"} <= {line["what"] for line in copy["lines"]}
