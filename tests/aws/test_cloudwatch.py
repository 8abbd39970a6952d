"""Metrics of CloudWatch, answered by moto."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import boto3
import pytest

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.aws.cloudwatch import read_metrics
from ddbio.errors import NotFoundError
from ddbio.options import Credentials
from ddbio.testing import FakeDynamoDB, MotoServer

NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
KEYS = Credentials("key", "secret")


@pytest.fixture(scope="module")
def endpoint():
    """Serve CloudWatch with a day of metrics of a table and of an index."""
    # In a separate process, because moto's import adds a handler to every client of its process.
    with MotoServer() as server:
        put_metrics(server.endpoint_url)
        yield server.endpoint_url


def put_metrics(url):
    """Put a day of metrics of a table and of an index."""
    client = boto3.client(
        "cloudwatch", endpoint_url=url, region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret"
    )
    table = [{"Name": "TableName", "Value": "flights"}]
    index = [*table, {"Name": "GlobalSecondaryIndexName", "Value": "by-date"}]
    for hour in range(1, 25):
        data = [
            {"MetricName": metric, "Dimensions": dimensions, "Timestamp": NOW - timedelta(hours=hour), "Value": value}
            for metric, dimensions, value in (
                ("ConsumedWriteCapacityUnits", table, 3600.0 * hour),
                ("ProvisionedWriteCapacityUnits", table, 100.0),
                ("ConsumedWriteCapacityUnits", index, 7.0),
            )
        ]
        client.put_metric_data(Namespace="AWS/DynamoDB", MetricData=data)


def test_metrics_of_a_table_and_an_index(endpoint):
    """Consumption is summed and provisioned capacity averaged, each by time. Metrics without data are empty."""
    spec = ClientSpec(endpoint_url=endpoint, region="us-east-1", credentials=KEYS)
    window = (NOW - timedelta(days=2), NOW)
    wanted = ["ConsumedWriteCapacityUnits", "ProvisionedWriteCapacityUnits", "ReadThrottleEvents"]
    metrics = read_metrics(spec, "flights", None, wanted, window, 3600)
    assert metrics["ConsumedWriteCapacityUnits"][NOW - timedelta(hours=3)] == 3 * 3600.0
    assert set(metrics["ProvisionedWriteCapacityUnits"].values()) == {100.0}
    assert metrics["ReadThrottleEvents"] == {}
    index = read_metrics(spec, "flights", "by-date", wanted[:1], window, 3600)
    assert sum(index["ConsumedWriteCapacityUnits"].values()) == 24 * 7.0


def test_advice_counts_changes_by_consumed_units(endpoint, tmp_path):
    """The rate is the write units of 14 days divided by the cost of writing the mean item."""
    with FakeDynamoDB() as fake:
        fake.load("flights", b'{"pk":{"S":"a"}}\n', "pk:S")
        options = {"endpoint_url": fake.endpoint_url, "cloudwatch_endpoint_url": endpoint, "credentials": KEYS}
        advice = ddbio.advise("flights", region="us-east-1", item_bytes=2000, **options)
    assert advice.workload.changes_per_second == pytest.approx(sum(range(1, 25)) * 3600 / 2 / (14 * 86_400))


def test_capacity_of_a_table_by_its_metrics(endpoint):
    """Hourly metrics of a table and its index make a plan. Without metrics there is none."""
    with FakeDynamoDB() as fake:
        at = {"endpoint_url": fake.endpoint_url, "cloudwatch_endpoint_url": endpoint}
        options = {**at, "region": "us-east-1", "credentials": KEYS}
        client = ClientSpec(endpoint_url=fake.endpoint_url, credentials=KEYS).client("dynamodb")
        client.create_table(
            TableName="flights",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "date")],
            ProvisionedThroughput={"ReadCapacityUnits": 5, "WriteCapacityUnits": 100},
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "by-date",
                    "KeySchema": [{"AttributeName": "date", "KeyType": "HASH"}],
                    "Projection": {"ProjectionType": "ALL"},
                    "ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 9},
                }
            ],
        )
        plan = ddbio.plan_capacity("flights", days=70, **options)
        fake.load("others", b'{"pk":{"S":"a"}}\n', "pk:S")
        with pytest.raises(NotFoundError, match="counted nothing"):
            ddbio.plan_capacity("others", **options)
    needs = {(need.name, need.what): need for need in plan.needs}
    writes = needs["table", "writes"]
    assert (plan.period_seconds, writes.peak, writes.provisioned, writes.headroom) == (3600, 24, 100, 0.76)
    assert needs["by-date", "writes"].peak == pytest.approx(7 / 3600, abs=1e-3)
    assert needs["by-date", "writes"].provisioned == 9
