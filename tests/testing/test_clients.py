"""Uses of the fake by third-party clients."""

from __future__ import annotations

import warnings

import boto3
import pytest
from boto3.dynamodb.conditions import Key

ITEMS = [{"pk": {"S": f"k{at % 20}"}, "sk": {"N": str(at)}} for at in range(100)]


@pytest.fixture
def loaded(fake):
    """Serve a table with 100 items."""
    fake.load("tab", ITEMS, "pk:S,sk:N")
    return fake


@pytest.fixture
def session():
    """Return a boto3 session with dummy credentials."""
    return boto3.Session(aws_access_key_id="any", aws_secret_access_key="any", region_name="us-east-1")


def test_boto3_paginators_and_waiters(fake, connect):
    """boto3's own loops wait for, scan, query and delete tables."""
    client = connect(fake.endpoint_url)
    client.create_table(
        TableName="made",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.get_waiter("table_exists").wait(TableName="made")
    for at in range(10):
        client.put_item(TableName="made", Item={"pk": {"S": str(at)}})
    config = {"PageSize": 3}
    pages = client.get_paginator("scan").paginate(TableName="made", PaginationConfig=config)
    assert sorted(pages.build_full_result()["Items"], key=str) == [{"pk": {"S": str(at)}} for at in range(10)]
    client.delete_table(TableName="made")
    client.get_waiter("table_not_exists").wait(TableName="made")


def test_boto3_resource(loaded, session):
    """The resource interface queries by conditions and writes with its batch writer."""
    resource = session.resource("dynamodb", endpoint_url=loaded.endpoint_url)
    table = resource.Table("tab")
    assert table.item_count == 100
    reply = table.query(KeyConditionExpression=Key("pk").eq("k3") & Key("sk").between(20, 70), ScanIndexForward=False)
    assert [int(item["sk"]) for item in reply["Items"]] == [63, 43, 23]
    with table.batch_writer() as writer:
        for at in range(60):
            writer.put_item(Item={"pk": "new", "sk": at})
    assert table.query(KeyConditionExpression=Key("pk").eq("new"), Select="COUNT")["Count"] == 60
    resource.meta.client.close()


def test_awswrangler_reads_items(loaded, session, monkeypatch):
    """The library awswrangler scans, queries and gets items into data frames."""
    wr = pytest.importorskip("awswrangler", reason="awswrangler is not installed: pip install awswrangler")
    monkeypatch.setattr(wr.config, "dynamodb_endpoint_url", loaded.endpoint_url)
    with warnings.catch_warnings():
        # awswrangler warns about every full scan.
        warnings.simplefilter("ignore")
        frame = wr.dynamodb.read_items("tab", allow_full_scan=True, boto3_session=session)
        some = wr.dynamodb.read_items("tab", key_condition_expression=Key("pk").eq("k3"), boto3_session=session)
        two = wr.dynamodb.read_items("tab", partition_values=["k1", "k2"], sort_values=[1, 2], boto3_session=session)
    assert (len(frame), len(some), len(two)) == (100, 5, 2)
