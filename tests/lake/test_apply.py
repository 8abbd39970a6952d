"""Captured and applied changes of a served table: for readers of other projects, the lake table equals the table."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from decimal import Decimal

import boto3
import deltalake
import polars as pl
import pytest

import ddbio
from ddbio.errors import NotFoundError, OptionError
from ddbio.testing import FakeDynamoDB

OWN = {"_key", "_b", "_ver", "_ts_us", "_op", "_deleted"}


@pytest.fixture(scope="module")
def fake():
    """Serve one fake for all tests of this module."""
    with FakeDynamoDB(partitions=2, burst_at_creation=1.0) as served:
        yield served


@pytest.fixture(scope="module")
def resource(fake):
    """Return boto3's resource of the fake."""
    connected = boto3.resource("dynamodb", endpoint_url=fake.endpoint_url)
    yield connected
    connected.meta.client.close()


@pytest.fixture
def table(resource):
    """Return a new table with a stream, whose keys are a text and a number."""
    return resource.create_table(
        TableName=f"tab-{uuid.uuid4().hex}",
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "N"},
        ],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )


@pytest.fixture
def capture(fake, table, tmp_path):
    """Return a function that captures all available changes, and returns the folder of the log."""

    def run(**options):
        log = tmp_path / "log"
        ddbio.capture(table.name, log, endpoint_url=fake.endpoint_url, available_now=True, **options)
        return log

    return run


def live(path, **options):
    """Return the items of a Delta table without tombstones, read by deltalake and sorted by key."""
    rows = deltalake.DeltaTable(path, **options).to_pyarrow_table().to_pylist()
    items = [{name: value for name, value in row.items() if name not in OWN} for row in rows if not row["_deleted"]]
    return sorted(items, key=lambda item: (item["pk"], item["sk"]))


def test_a_delta_table_equals_the_table(table, capture, tmp_path):
    """Inserted, changed and deleted items are equal to the table; polars reads the same rows as deltalake."""
    lake = tmp_path / "lake"
    for number in range(40):
        table.put_item(Item={"pk": f"p|{number % 5}", "sk": number, "n": Decimal("1.5"), "tags": {"a", "b"}})
    first = ddbio.apply(capture(), lake)
    assert (first.changes, first.inserted, first.updated, first.deleted, first.stale) == (40, 40, 0, 0, 0)
    for number in range(0, 40, 4):
        table.delete_item(Key={"pk": f"p|{number % 5}", "sk": number})
    for number in range(1, 40, 4):
        table.put_item(Item={"pk": f"p|{number % 5}", "sk": number, "n": 7, "new": "x"})
    table.put_item(Item={"pk": "p|9", "sk": Decimal("0.5"), "n": "text"})
    second = ddbio.apply(capture(), lake)
    assert (second.changes, second.inserted, second.updated, second.deleted, second.stale) == (21, 1, 10, 10, 0)
    rows_found = live(lake)
    want = sorted(table.scan()["Items"], key=lambda item: (item["pk"], item["sk"]))
    assert [(row["pk"], Decimal(str(row["sk"]))) for row in rows_found if row["sk"] is not None] == [
        (item["pk"], item["sk"]) for item in want if item["sk"] == int(item["sk"])
    ]
    assert {row["new"] for row in rows_found} == {None, "x"}
    rows = pl.read_delta(str(lake))
    assert rows.filter(~pl.col("_deleted")).height == len(want) == 31
    assert rows.filter(pl.col("_deleted")).height == 10
    rescued = [json.loads(text) for text in rows["_rescue"].drop_nulls()]
    assert {"n": {"S": "text"}}.items() <= rescued[0].items()


def test_the_report_has_these_keys(table, capture, tmp_path):
    """``--json`` prints eight keys; a second run has no changes, and keeps the version of the table."""
    table.put_item(Item={"pk": "a", "sk": 1})
    log = capture()
    command = [sys.executable, "-m", "ddbio", "apply", str(log), str(tmp_path / "lake"), "--format", "delta", "--json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert list(report) == ["changes", "inserted", "updated", "deleted", "stale", "version", "seconds", "cpu_seconds"]
    assert report["changes"] == report["inserted"] == 1
    again = ddbio.apply(log, tmp_path / "lake")
    assert (again.changes, again.version) == (0, report["version"])


def test_a_plan_writes_nothing(table, capture, tmp_path):
    """A dry run counts the expected changes in rows, files and bytes, and keeps the version of the table."""
    lake = tmp_path / "lake"
    for number in range(10):
        table.put_item(Item={"pk": "a", "sk": number})
    log = capture()
    with pytest.raises(NotFoundError, match="no delta table"):
        ddbio.plan_apply(log, lake)
    version = ddbio.apply(log, lake, buckets=2).version
    table.put_item(Item={"pk": "a", "sk": 1, "more": True})
    table.delete_item(Key={"pk": "a", "sk": 2})
    plan = ddbio.plan_apply(capture(), lake)
    assert (plan.changes, plan.inserted, plan.updated, plan.deleted, plan.stale) == (2, 0, 1, 1, 0)
    assert plan.new_columns == ("more",)
    assert plan.rewritten_files <= plan.read_files <= 2
    assert plan.rewritten_bytes > 0
    assert deltalake.DeltaTable(lake).version() == version


def test_a_table_of_others_is_refused(table, capture, tmp_path):
    """A Delta table without our columns and properties is not changed."""
    deltalake.write_deltalake(tmp_path / "lake", pl.DataFrame({"a": [1]}))
    table.put_item(Item={"pk": "a", "sk": 1})
    with pytest.raises(OptionError, match="did not create"):
        ddbio.apply(capture(), tmp_path / "lake")
