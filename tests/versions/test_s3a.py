"""Hudi tables on S3: ddbio reads them by its store, and Hudi's writer on Spark by s3a, in one folder."""

from __future__ import annotations

import json
import sys
import uuid
from datetime import timedelta
from pathlib import Path

import boto3
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.testing import FakeDynamoDB, MotoServer

# Only the first environment has moto.
PYTHON = Path(__file__).parents[2] / ".venv/bin/python"


@pytest.fixture
def s3(need):
    """Return the session, which can reach a local S3, and the URL of the server."""
    need("hudi")
    session = need("s3a")
    with MotoServer(str(PYTHON) if PYTHON.exists() else sys.executable) as server:
        client = boto3.client("s3", endpoint_url=server.endpoint_url, region_name="us-east-1")
        client.create_bucket(Bucket="lake")
        client.close()
        session.sparkContext._jsc.hadoopConfiguration().set("fs.s3a.endpoint", server.endpoint_url)
        yield session, server.endpoint_url


def invoked(*words):
    """Return the exit code of a command, and its output."""
    done = CliRunner().invoke(cli, [*map(str, words), "--json"])
    assert done.stdout, (done.output, done.exception)
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.timeout(900)
def test_a_hudi_table_on_s3(s3, fake):
    """Base, changes, verification and maintenance of a table whose log and folder are on S3."""
    session, s3_url = s3
    client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name="us-east-1")
    name, lake = f"tab-{uuid.uuid4().hex}", "s3://lake/orders"
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    for n in range(5):
        client.put_item(TableName=name, Item={"pk": {"S": f"k{n}"}, "n": {"N": str(n)}})
    options = ("--endpoint-url", fake.endpoint_url, "--s3-endpoint-url", s3_url, "--region", "us-east-1")
    on_spark = ("--format", "hudi", "--engine", "spark", *options)
    named = ("--catalog", "glue://shop.orders", "--glue-endpoint-url", s3_url)
    command = ("bootstrap", name, lake, "--log", "s3://lake/log", "--buckets", 1, *named, *on_spark)
    assert invoked(*command)[1]["base_rows"] == 5
    client.delete_item(TableName=name, Key={"pk": {"S": "k0"}})
    client.put_item(TableName=name, Item={"pk": {"S": "k1"}, "n": {"N": "-1"}})
    _, applied = invoked(*command)
    assert (applied["updated"] > 0, applied["deleted"]) == (True, 1)
    code, verified = invoked("verify", name, lake, *options)
    assert (code, verified["equal"], verified["tombstones"]) == (0, True, 1)
    _, done = invoked("maintain", lake, "--sort-by", "n", *on_spark)
    assert (done["rewritten_files"], done["written_files"]) == (1, 1)
    code, verified = invoked("verify", name, lake, *options)
    assert (code, verified["equal"], verified["version"]) == (0, True, done["version"])
    rows = session.read.format("hudi").load("s3a://lake/orders").where("not _deleted").select("pk", "n").collect()
    assert {row["pk"]: int(row["n"]) for row in rows} == {"k1": -1, "k2": 2, "k3": 3, "k4": 4}
    client.close()
    glue = boto3.client("glue", endpoint_url=s3_url, region_name="us-east-1")
    table = glue.get_table(DatabaseName="shop", Name="orders")["Table"]
    assert table["StorageDescriptor"]["Location"] == lake
    assert table["StorageDescriptor"]["InputFormat"] == "org.apache.hudi.hadoop.HoodieParquetInputFormat"
    assert table["Parameters"]["spark.sql.sources.provider"] == "hudi"
    assert [column["Name"] for column in table["PartitionKeys"]] == ["_b"]
    assert {"_hoodie_commit_time", "_key", "_deleted", "pk", "n"} <= {
        column["Name"] for column in table["StorageDescriptor"]["Columns"]
    }
    (partition,) = glue.get_partitions(DatabaseName="shop", TableName="orders")["Partitions"]
    assert (partition["Values"], partition["StorageDescriptor"]["Location"]) == (["0"], f"{lake}/_b=0")
    glue.close()


@pytest.mark.timeout(900)
def test_lost_changes_of_a_log_reach_a_hudi_table(s3, tmp_path):
    """``reconcile`` applies the log's missing changes from an export to the table, which is then equal."""
    _, s3_url = s3
    log, lake = tmp_path / "log", tmp_path / "lake"
    with FakeDynamoDB(partitions=2, burst_at_creation=1.0, export_to=s3_url) as fake:
        client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name="us-east-1")
        client.create_table(
            TableName="lossy",
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        recovery = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
        client.update_continuous_backups(TableName="lossy", **recovery)
        fake.pass_time(1800)
        for key in "abcdef":
            client.put_item(TableName="lossy", Item={"pk": {"S": key}, "n": {"N": "1"}})
        options = {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": s3_url, "region": "us-east-1"}
        on_spark = {"format": "hudi", "engine": "spark"}
        ddbio.bootstrap("lossy", lake, log=str(log), buckets=2, **on_spark, **options)
        client.put_item(TableName="lossy", Item={"pk": {"S": "a"}, "n": {"N": "2"}})
        client.delete_item(TableName="lossy", Key={"pk": {"S": "b"}})
        client.put_item(TableName="lossy", Item={"pk": {"S": "new"}, "n": {"N": "1"}})
        ddbio.capture("lossy", log, available_now=True, endpoint_url=fake.endpoint_url)
        newest = max(log.glob("year=*/**/*.parquet"), key=lambda path: path.name)
        rows = pq.ParquetFile(newest).read()
        assert rows.num_rows == 3
        pq.write_table(rows.slice(0, 0), newest)
        ddbio.apply(log, lake, **on_spark)
        assert not ddbio.verify("lossy", lake, **options).equal
        began = rows["_event_time"].to_pylist()[0] - timedelta(seconds=30)
        fake.pass_time(1200)
        asked = {"export_to": "s3://lake/windows", "poll_seconds": 0.2, "since": began, **options}
        asked["until"] = began + timedelta(seconds=900)
        # The format is that of the table.
        report = ddbio.reconcile("lossy", log, target=str(lake), engine="spark", **asked)
        assert (len(report.windows), report.lost) == (1, 3), report
        assert (report.applied.inserted, report.applied.updated, report.applied.deleted) == (1, 1, 1)
        assert ddbio.verify("lossy", lake, **options).equal
        again = ddbio.reconcile("lossy", log, target=str(lake), engine="spark", **asked)
        assert (again.windows, again.lost, again.applied.changes) == ((), 0, 0)
        client.close()
