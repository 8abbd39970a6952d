"""Items whose keys fit no column of their log: every verb over the log identifies them like others."""

from __future__ import annotations

import gzip
import json

import boto3
import deltalake
import duckdb
import pytest

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.testing import FakeDynamoDB, MotoServer
from tests.cdc.tables import create_table

# The key attributes, a key that determines the columns, and later keys that do not fit them.
TABLES = {
    "fractions": (
        ["dev:S", "at:N"],
        ({"dev": {"S": "d"}, "at": {"N": number}} for number in ("1", "1.5", "2.5", "-1")),
    ),
    "large": (["id:N"], ({"id": {"N": number}} for number in ("1", "9" * 38, str(2**63), "0." + "0" * 20 + "1"))),
    "both": (
        ["a.b:N", "c d:N"],
        (
            {"a.b": {"N": one}, "c d": {"N": two}}
            for one, two in (("1", "1"), ("1.5", "1.5"), ("1", "2.5"), ("1.5", "1"))
        ),
    ),
    "names of columns": (
        ["_op:N", "digest:N"],
        (
            {"_op": {"N": one}, "digest": {"N": two}}
            for one, two in (("1", "1"), ("1.5", "1.5"), ("1", "2.5"), ("1.5", "1"))
        ),
    ),
}
TABLES = {what: (names, list(keys)) for what, (names, keys) in TABLES.items()}


@pytest.fixture(scope="module")
def fake():
    """Serve a fake that exports to an S3."""
    with MotoServer() as server:
        ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3").create_bucket(Bucket="exports")
        with FakeDynamoDB(partitions=2, burst_at_creation=1.0, export_to=server.endpoint_url) as served:
            served.where = {
                "endpoint_url": served.endpoint_url,
                "s3_endpoint_url": server.endpoint_url,
                "region": "us-east-1",
            }
            yield served


def make(fake, client, keys, stream=True):
    """Create a table with these key attributes, and return its name."""
    table = create_table(client, keys=keys, view="NEW_AND_OLD_IMAGES" if stream else None)
    recovery = {"PointInTimeRecoveryEnabled": True}
    client.update_continuous_backups(TableName=table, PointInTimeRecoverySpecification=recovery)
    fake.pass_time(1800)
    return table


@pytest.mark.parametrize(
    "what", ["fractions", "large", "names of columns", pytest.param("both", marks=pytest.mark.nightly)]
)
def test_a_log_is_verified_healed_applied_and_shown(fake, tmp_path, what):
    """A gap with such items is healed, and the lake table, the history and the views have them all."""
    names, (first, *later) = TABLES[what]
    client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name="us-east-1")
    table, log, lake = make(fake, client, names), tmp_path / "log", tmp_path / "lake"
    run = {"available_now": True, "old_image": True, **fake.where}

    def put(key, value):
        client.put_item(
            TableName=table, Item={**key, "v": {"N": str(value)}, "m": {"S": "x"} if value % 2 else {"N": "1"}}
        )

    put(first, 1)
    ddbio.capture(table, log, **run)
    for key in later:
        put(key, 1)
    ddbio.capture(table, log, **run)
    assert ddbio.verify_capture(log).is_whole
    assert ddbio.apply(log, lake, format="delta").inserted == 4
    fake.pass_time(100)
    put(later[0], 2)
    client.delete_item(TableName=table, Key=later[1])
    put(first, 2)
    fake.trim_stream(table)
    fake.pass_time(1000)
    put(later[0], 3)
    put(later[2], 2)
    ddbio.capture(table, log, on_gap="continue", **run)
    report = ddbio.verify_capture(log)
    assert (report.lost, report.repeated) == (1, 0)
    number = later[0][names[-1].partition(":")[0]]["N"]
    assert number in report.examples[0]
    report = ddbio.heal_capture(table, log, export_to="s3://exports/heal", poll_seconds=0.1, **fake.where)
    assert report.rows == 2
    assert ddbio.verify_capture(log).is_whole
    key = json.dumps({name: next(iter(value.values())) for name, value in later[0].items()})
    assert ddbio.history(log, key=key).column("operation").to_pylist() == ["INSERT", "MODIFY"]
    with duckdb.connect() as connection:
        rows = connection.execute(ddbio.history_view_sql(log, dialect="duckdb")).fetchall()
        assert (len(rows), sum(row[-2] is None for row in rows)) == (8, 4)
        connection.register("base", deltalake.DeltaTable(lake).to_pyarrow_table())
        shown = connection.execute(ddbio.latest_view_sql(log, lake, lake_relation="base", dialect="duckdb")).fetchall()
        assert len(shown) == 3
    ddbio.apply(log, lake, format="delta")
    assert ddbio.verify(table, lake, **fake.where).equal


@pytest.mark.parametrize("newer_by", [None, "v"])
@pytest.mark.parametrize("what", TABLES)
def test_a_replay_puts_and_deletes_each_item(fake, tmp_path, what, newer_by):
    """The last change of each item is applied to a table."""
    names, keys = TABLES[what]
    client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name="us-east-1")
    table, last = make(fake, client, names, stream=False), keys[1]
    client.put_item(TableName=table, Item={**last, "v": {"N": "1"}})
    for number, objects in enumerate([keys, keys, [last]]):
        lines = []
        for index, key in enumerate(objects):
            image = {**key, "v": {"N": f"{number + 2}.5" if index else str(number + 2)}}
            gone = number == 2
            images = {"OldImage": image} if gone else {"NewImage": image}
            change = {"ApproximateCreationDateTime": 1_793_491_203, "Keys": key, **images}
            change["SequenceNumber"] = str(100 * number + index)
            name = "REMOVE" if gone else "MODIFY"
            lines.append(json.dumps({"eventID": change["SequenceNumber"], "eventName": name, "dynamodb": change}))
        (tmp_path / f"{number}.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    ddbio.replay(tmp_path, table=table, newer_by=newer_by, state=str(tmp_path / "state"), **fake.where)
    rows = client.scan(TableName=table)["Items"]
    assert len(rows) == 3
    assert all(row["v"]["N"].startswith("3") for row in rows)
    assert not any(all(row[name] == value for name, value in last.items()) for row in rows)
