"""Use the fake by clients that nobody here wrote."""

from __future__ import annotations

import warnings

import boto3
import pytest
from boto3.dynamodb.conditions import Key

ITEMS = [{"pk": {"S": f"k{at % 20}"}, "sk": {"N": str(at)}} for at in range(100)]


@pytest.fixture
def loaded(fake):
    """Serve a table of 100 items."""
    fake.load("tab", ITEMS, "pk:S,sk:N")
    return fake


@pytest.fixture
def session():
    """Return a boto3 session with any credentials."""
    return boto3.Session(aws_access_key_id="any", aws_secret_access_key="any", region_name="us-east-1")


def test_boto3_paginators_and_waiters(fake, connect):
    """Tables are awaited, scanned, queried and deleted by boto3's own loops."""
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
    """The resource interface queries by conditions and writes by its batch writer."""
    resource = session.resource("dynamodb", endpoint_url=loaded.endpoint_url)
    table = resource.Table("tab")
    assert table.item_count == 100
    found = table.query(KeyConditionExpression=Key("pk").eq("k3") & Key("sk").between(20, 70), ScanIndexForward=False)
    assert [int(item["sk"]) for item in found["Items"]] == [63, 43, 23]
    with table.batch_writer() as writer:
        for at in range(60):
            writer.put_item(Item={"pk": "new", "sk": at})
    assert table.query(KeyConditionExpression=Key("pk").eq("new"), Select="COUNT")["Count"] == 60
    resource.meta.client.close()


def test_awswrangler_reads_items(loaded, session, monkeypatch):
    """Items are scanned, queried and got into data frames by awswrangler."""
    wr = pytest.importorskip("awswrangler", reason="awswrangler is not installed: pip install awswrangler")
    monkeypatch.setattr(wr.config, "dynamodb_endpoint_url", loaded.endpoint_url)
    with warnings.catch_warnings():
        # It warns of every full scan.
        warnings.simplefilter("ignore")
        whole = wr.dynamodb.read_items("tab", allow_full_scan=True, boto3_session=session)
        some = wr.dynamodb.read_items("tab", key_condition_expression=Key("pk").eq("k3"), boto3_session=session)
        two = wr.dynamodb.read_items("tab", partition_values=["k1", "k2"], sort_values=[1, 2], boto3_session=session)
    assert (len(whole), len(some), len(two)) == (100, 5, 2)
