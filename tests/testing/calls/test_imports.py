"""Imports by the fake: objects, lines, counts and tokens as in the service."""

from __future__ import annotations

import gzip
import json

import pytest
from botocore.exceptions import ClientError

from ddbio.testing import FakeDynamoDB


def lines(*keys):
    """Return items with these keys as lines of an import."""
    return b"".join(json.dumps({"Item": {"pk": {"S": key}}}).encode() + b"\n" for key in keys)


@pytest.fixture
def importing(connect, tmp_path):
    """Return a client of a fake that imports from buckets in a folder, and the folder of one of them."""
    (tmp_path / "bucket").mkdir()
    with FakeDynamoDB(export_to=str(tmp_path)) as fake:
        yield connect(fake.endpoint_url), tmp_path / "bucket"


def imported(client, table="tab", **members):
    """Import a prefix and return the description of the finished import."""
    request = {
        "S3BucketSource": {"S3Bucket": "bucket", "S3KeyPrefix": "in/"},
        "InputFormat": "DYNAMODB_JSON",
        "TableCreationParameters": {
            "TableName": table,
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
        },
        **members,
    }
    started = client.import_table(**request)["ImportTableDescription"]
    assert (started["ImportStatus"], started["ImportedItemCount"]) == ("IN_PROGRESS", 0)
    return client.describe_import(ImportArn=started["ImportArn"])["ImportTableDescription"]


def put(bucket, name, body):
    """Write an object."""
    path = bucket / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


def test_duplicates_are_counted_and_blanks_are_not(importing):
    """Each line is one write, even of a repeated key. Empty objects and lines are ignored."""
    client, bucket = importing
    put(bucket, "in/a", lines("a", "b") + b"\n  \n" + lines("a"))
    put(bucket, "in/empty", b"")
    described = imported(client)
    assert (described["ImportStatus"], described["ImportedItemCount"], described["ErrorCount"]) == ("COMPLETED", 3, 0)
    assert client.describe_table(TableName="tab")["Table"]["ItemCount"] == 2


@pytest.mark.parametrize("bad", [b"{}", b'{"Item":{"other":{"S":"x"}}}', b'{"Item":{"pk":{"N":"1"}}}', b"{"], ids=str)
def test_a_bad_line_ends_its_object(importing, bad):
    """A bad line and everything after it in the object are one error. The table keeps the earlier items."""
    client, bucket = importing
    put(bucket, "in/a", lines("a") + bad + b"\n" + lines("b", "c"))
    put(bucket, "in/b", lines("d"))
    described = imported(client)
    assert (described["ImportStatus"], described["FailureCode"]) == ("FAILED", "ItemValidationError")
    assert (described["ProcessedItemCount"], described["ImportedItemCount"], described["ErrorCount"]) == (3, 2, 1)
    assert client.describe_table(TableName="tab")["Table"]["ItemCount"] == 2


def test_sizes_are_those_of_the_text(importing):
    """The size of a compressed object is its decompressed size. The compression comes from the request only."""
    client, bucket = importing
    put(bucket, "in/a", gzip.compress(lines("a", "b")))
    described = imported(client, InputCompressionType="GZIP")
    assert described["ProcessedSizeBytes"] == len(lines("a", "b"))
    assert imported(client, "other")["FailureCode"] == "ItemValidationError"


def test_an_empty_prefix_makes_an_empty_table(importing):
    """The import completes. A missing bucket fails it and creates no table."""
    client, _ = importing
    assert imported(client)["ImportStatus"] == "COMPLETED"
    assert client.describe_table(TableName="tab")["Table"]["ItemCount"] == 0
    described = imported(client, "none", S3BucketSource={"S3Bucket": "absent"})
    assert (described["ImportStatus"], described["FailureCode"]) == ("FAILED", "S3NoSuchBucket")
    assert client.list_tables()["TableNames"] == ["tab"]


def test_csv_makes_strings_of_all_but_keys(importing):
    """The column names come from the first line or from a list."""
    client, bucket = importing
    put(bucket, "in/a.csv", b"pk;n\na;1\n")
    imported(client, InputFormat="CSV", InputFormatOptions={"Csv": {"Delimiter": ";"}})
    assert client.get_item(TableName="tab", Key={"pk": {"S": "a"}})["Item"] == {"pk": {"S": "a"}, "n": {"S": "1"}}


def test_an_import_does_not_touch_a_table(importing):
    """An existing table is in use, before the token is checked."""
    client, bucket = importing
    put(bucket, "in/a", lines("a"))
    imported(client, ClientToken="t")
    with pytest.raises(ClientError, match="ResourceInUse"):
        imported(client, ClientToken="t")
    with pytest.raises(ClientError, match="ImportNotFound"):
        client.describe_import(ImportArn="arn:aws:dynamodb:us-east-1:000000000000:table/tab/import/0-0-0-0-0-0-0-0-0-0")


def test_a_new_table_has_vector_indexes(importing):
    """The index has the imported vectors. A malformed vector is a bad line."""
    client, bucket = importing
    index = {
        "IndexName": "by_meaning",
        "VectorAttribute": {"AttributeName": "v"},
        "Projection": {"ProjectionType": "KEYS_ONLY"},
        "Dimensions": 2,
        "DistanceFunction": "COSINE",
    }
    parameters = {
        "TableName": "tab",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
        "VectorIndexes": [index],
    }
    vectors = {"a": ["1", "2"], "b": ["1"]}
    items = [
        {"Item": {"pk": {"S": key}, "v": {"L": [{"N": text} for text in texts]}}} for key, texts in vectors.items()
    ]
    put(bucket, "in/a", b"\n".join(json.dumps(item).encode() for item in items))
    described = imported(client, TableCreationParameters=parameters)
    assert (described["ImportedItemCount"], described["ErrorCount"]) == (1, 1)
    (described_index,) = client.describe_table(TableName="tab")["Table"]["VectorIndexes"]
    assert (described_index["IndexName"], described_index["ItemCount"]) == ("by_meaning", 1)
