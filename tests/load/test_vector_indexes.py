"""Loads and copies into tables with vector indexes: planned bytes, and rows with malformed vectors."""

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.cli.plans import format_copy_plan, format_load_plan
from ddbio.load.copy import plan_copy
from ddbio.load.options import CopyOptions
from ddbio.testing import FakeDynamoDB

KEYS_ONLY = {
    "IndexName": "keys",
    "VectorAttribute": {"AttributeName": "embedding"},
    "SearchSchema": [
        {"AttributeName": "tenant", "SearchSchemaElementType": "HASH"},
        {"AttributeName": "kind", "SearchSchemaElementType": "INLINE_FILTER"},
    ],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
    "Dimensions": 300,
    "DistanceFunction": "COSINE",
}
ALL = {
    "IndexName": "all",
    "VectorAttribute": {"AttributeName": "embedding"},
    "Projection": {"ProjectionType": "ALL"},
    "Dimensions": 300,
    "DistanceFunction": "DOT_PRODUCT",
}
SMALL = {
    "IndexName": "small",
    "VectorAttribute": {"AttributeName": "icon"},
    "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["title"]},
    "Dimensions": 2,
    "DistanceFunction": "EUCLIDEAN",
}
ROWS = [
    {
        "id": f"item{number}",
        "tenant": None if number % 5 == 0 else "t",
        "kind": "k" * number,
        "title": "title" * number,
        "embedding": None if number % 4 == 0 else [number + 0.5] * 300,
        "icon": [1.0, -2.5],
    }
    for number in range(20)
]


def create(client, name="documents"):
    """Create a table with three vector indexes."""
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": text, "AttributeType": "S"} for text in ("id", "tenant", "kind")],
        BillingMode="PAY_PER_REQUEST",
        VectorIndexes=[KEYS_ONLY, ALL, SMALL],
    )


@pytest.fixture
def server():
    """Serve a table with vector indexes."""
    with FakeDynamoDB() as running:
        create(client_of(running))
        yield running


def client_of(server):
    """Return boto3's client of a server."""
    return boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="us-east-1")


def consumed_bytes(client, table, source="documents"):
    """Return the bytes that the fake counts for writing all items of a table to another one."""
    total = {}
    for item in client.scan(TableName=source)["Items"]:
        reply = client.put_item(TableName=table, Item=item, ReturnConsumedCapacity="INDEXES")
        for name, capacity in reply["ConsumedCapacity"].get("VectorIndexes", {}).items():
            total[name] = total.get(name, 0) + capacity["VectorWriteRequestBytes"]
    return total


def test_plans_have_the_bytes_that_the_writes_consume(server, tmp_path):
    """The bytes of a load's plan and of a copy's plan are those of the service, for items in and out of the index."""
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    at = {"endpoint_url": server.endpoint_url}
    plan = ddbio.plan_load(tmp_path / "rows.parquet", "documents", **at)
    assert plan.cost.usd > 0
    ddbio.load_files(tmp_path / "rows.parquet", "documents", **at)
    client = client_of(server)
    create(client, "again")
    expected = consumed_bytes(client, "again")
    assert set(expected) == {"keys", "all", "small"}
    assert plan.vector_write_bytes == pytest.approx(expected)
    assert "written to vector indexes, without a price" in format_load_plan(plan)
    half = plan.without_finished(units=1, size_bytes=1, finished_rows=10)
    assert half.vector_write_bytes == pytest.approx({name: size / 2 for name, size in expected.items()})
    options = CopyOptions(source="documents", target="target", create_target=True, **at)
    copied = plan_copy(options)
    assert copied.vector_write_bytes == pytest.approx(expected)
    assert "written to vector indexes, without a price" in format_copy_plan(copied)
    assert copied.to_dict()["vector_write_bytes"] == copied.vector_write_bytes


def test_a_table_without_vector_indexes_has_no_such_bytes(tmp_path):
    """The plan's field is empty, and its text has no line about vectors."""
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    with FakeDynamoDB() as server:
        server.load("plain", b"", "id:S")
        plan = ddbio.plan_load(tmp_path / "rows.parquet", "plain", endpoint_url=server.endpoint_url)
    assert plan.vector_write_bytes == {}
    assert "vectors " not in format_load_plan(plan)


BAD = {
    "short": [1.0],
    "long": [1.0, 2.0, 3.0],
    "too large": [1.0, 1e39],
}


def test_rows_with_malformed_vectors_are_rejected(server, tmp_path):
    """The service refuses the batch; the load halves it, writes the other rows, and rejects those rows alone."""
    rows = [{"id": f"good{number}", "icon": [1.0, 2.0]} for number in range(60)]
    rows[7:7] = [{"id": name, "icon": vector} for name, vector in BAD.items()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    report = ddbio.load_files(
        tmp_path / "rows.parquet", "documents", reject_to=tmp_path / "rejects", endpoint_url=server.endpoint_url
    )
    assert (report.written, report.rejected) == (60, 3)
    assert client_of(server).describe_table(TableName="documents")["Table"]["ItemCount"] == 60


def test_the_hash_attribute_is_checked_before_a_request(server):
    """An empty HASH attribute of a search schema is a refused row, like an empty key of an index."""
    rows = pa.Table.from_pylist([{"id": "a", "tenant": "", "embedding": [1.0] * 300}])
    with pytest.raises(ddbio.PartialWriteError, match="the key of index 'keys' is empty"):
        ddbio.write_table(rows, "documents", endpoint_url=server.endpoint_url)
    assert server.requests().get("BatchWriteItem", 0) == 0
