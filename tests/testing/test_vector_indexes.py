"""Vector indexes of the fake: definitions, refused vectors, consumed bytes and searches."""

from __future__ import annotations

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from ddbio.testing import FakeDynamoDB

INDEX = {
    "IndexName": "by_meaning",
    "VectorAttribute": {"AttributeName": "embedding"},
    "SearchSchema": [
        {"AttributeName": "tenant", "SearchSchemaElementType": "HASH"},
        {"AttributeName": "kind", "SearchSchemaElementType": "INLINE_FILTER"},
    ],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
    "Dimensions": 3,
    "DistanceFunction": "COSINE",
}
PLAIN = {name: INDEX[name] for name in INDEX if name != "SearchSchema"}
# Required members that a client would check itself.
UNCHECKED = Config(parameter_validation=False)


def attributes(*names: str) -> list[dict[str, str]]:
    """Return definitions of attributes of type S."""
    return [{"AttributeName": name, "AttributeType": "S"} for name in names]


def definition(*indexes: dict, names: tuple[str, ...] = ("id",), **members: object) -> dict[str, object]:
    """Return the parameters of a table with vector indexes."""
    return {
        "TableName": "documents",
        "AttributeDefinitions": attributes(*names),
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        "BillingMode": "PAY_PER_REQUEST",
        "VectorIndexes": list(indexes),
        **members,
    }


def vector(*numbers: float | str) -> dict[str, list[dict[str, str]]]:
    """Return a vector as a list of numbers."""
    return {"L": [{"N": str(number)} for number in numbers]}


def item(name: str, *numbers: float, **texts: str) -> dict[str, dict]:
    """Return an item with a vector."""
    return {"id": {"S": name}, "embedding": vector(*numbers), **{key: {"S": text} for key, text in texts.items()}}


@pytest.fixture
def client():
    """Return a client of an empty fake."""
    with FakeDynamoDB() as fake:
        yield boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name="us-east-1", config=UNCHECKED)


def test_a_table_describes_its_vector_indexes(client):
    """DescribeTable returns the definition, the ARN, and exact counts and sizes."""
    client.create_table(**definition(INDEX, names=("id", "tenant", "kind")))
    client.put_item(TableName="documents", Item=item("a", 1, 0, 0, tenant="t"))
    client.put_item(TableName="documents", Item={"id": {"S": "without a vector"}, "tenant": {"S": "t"}})
    client.put_item(TableName="documents", Item=item("without the HASH attribute", 1, 0, 0))
    (described,) = client.describe_table(TableName="documents")["Table"]["VectorIndexes"]
    assert described.items() >= INDEX.items()
    assert described["IndexArn"].endswith(":table/documents/index/by_meaning")
    assert (described["IndexStatus"], described["ItemCount"]) == ("ACTIVE", 1)
    assert described["IndexSizeBytes"] == 4 * 3 + len("embedding") + len("ida") + len("tenantt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Dimensions": 0}, "vectorIndexes.1.member.dimensions"),
        ({"Dimensions": 4097}, "vectorIndexes.1.member.dimensions"),
        ({"DistanceFunction": "cosine"}, "vectorIndexes.1.member.distanceFunction"),
        ({"DistanceFunction": None}, "vectorIndexes.1.member.distanceFunction"),
        ({"Projection": {}}, "projection.projectionType"),
        ({"IndexName": "xy"}, "vectorIndexes.1.member.indexName"),
        ({"VectorAttribute": {"AttributeName": "id"}}, "VectorAttribute id"),
        ({"SearchSchema": INDEX["SearchSchema"]}, "SearchSchema is not defined in attribute definitions"),
    ],
)
def test_a_bad_definition_is_refused(client, change, message):
    """Each member is checked in CreateTable and in UpdateTable."""
    index = {name: value for name, value in {**PLAIN, **change}.items() if value is not None}
    with pytest.raises(ClientError, match="ValidationException") as caught:
        client.create_table(**definition(index))
    assert message in str(caught.value)
    client.create_table(**definition())
    with pytest.raises(ClientError, match="ValidationException"):
        client.update_table(TableName="documents", VectorIndexUpdates=[{"Create": index}])


def test_the_indexes_of_a_table_fit_together(client):
    """Names are unique, an attribute has one length, five indexes are the maximum, and billing is on-demand."""
    named = [{**PLAIN, "IndexName": f"index{number}"} for number in range(6)]
    refused = {
        "Duplicate index name": definition(PLAIN, PLAIN),
        "has Dimensions 3 in another index and 4": definition(PLAIN, {**named[0], "Dimensions": 4}),
        "limit of 5": definition(*named),
        "PAY_PER_REQUEST": definition(
            PLAIN,
            BillingMode="PROVISIONED",
            ProvisionedThroughput={"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
        ),
    }
    for message, members in refused.items():
        with pytest.raises(ClientError, match=message):
            client.create_table(**members)
    client.create_table(**definition(*named[:5]))
    with pytest.raises(ClientError, match="PAY_PER_REQUEST"):
        client.update_table(
            TableName="documents",
            BillingMode="PROVISIONED",
            ProvisionedThroughput={"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
        )


def test_an_index_is_added_and_deleted(client):
    """A new index contains the existing items, except those with other vectors. One index changes per request."""
    client.create_table(**definition())
    client.put_item(TableName="documents", Item=item("a", 1, 0, 0))
    client.put_item(TableName="documents", Item=item("short", 1, 0))
    with pytest.raises(ClientError, match="LimitExceededException"):
        client.update_table(
            TableName="documents", VectorIndexUpdates=[{"Create": PLAIN}, {"Delete": {"IndexName": "none"}}]
        )
    client.update_table(TableName="documents", VectorIndexUpdates=[{"Create": PLAIN}])
    (described,) = client.describe_table(TableName="documents")["Table"]["VectorIndexes"]
    assert described["ItemCount"] == 1
    client.delete_item(TableName="documents", Key={"id": {"S": "short"}})
    client.update_table(TableName="documents", VectorIndexUpdates=[{"Delete": {"IndexName": "by_meaning"}}])
    assert "VectorIndexes" not in client.describe_table(TableName="documents")["Table"]
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        client.update_table(TableName="documents", VectorIndexUpdates=[{"Delete": {"IndexName": "by_meaning"}}])


BAD = {
    "Invalid type for parameter embedding, Expected: L, Actual: S": {"S": "text"},
    "Invalid type for parameter embedding, Expected: L, Actual: NS": {"NS": ["1", "2", "3"]},
    "Invalid size for parameter embedding, Expected: 3, Actual: 2": vector(1, 2),
    "Invalid type for parameter embedding[1], Expected: N, Actual: S": {"L": [{"N": "1"}, {"S": "a"}, {"N": "1"}]},
    "Invalid value for parameter embedding[1], Value: 3.5E+38 is outside valid range": vector(0, "3.5E38", 0),
}


@pytest.mark.parametrize("message", BAD)
def test_a_malformed_vector_is_refused(client, message):
    """PutItem, UpdateItem, transactions and the whole batch are refused."""
    client.create_table(**definition(PLAIN))
    bad = {"id": {"S": "bad"}, "embedding": BAD[message]}
    put = {"TableName": "documents", "Item": bad}
    batch = [{"PutRequest": {"Item": item("good", 1, 2, 3)}}, {"PutRequest": {"Item": bad}}]
    writes = (
        lambda: client.put_item(**put),
        lambda: client.batch_write_item(RequestItems={"documents": batch}),
        lambda: client.transact_write_items(TransactItems=[{"Put": put}]),
        lambda: client.update_item(
            TableName="documents",
            Key={"id": bad["id"]},
            UpdateExpression="SET embedding = :v",
            ExpressionAttributeValues={":v": bad["embedding"]},
        ),
    )
    for write in writes:
        with pytest.raises(ClientError) as caught:
            write()
        reply = caught.value.response
        texts = [reply["Error"]["Message"], *(reason["Message"] for reason in reply.get("CancellationReasons", ()))]
        assert any(message in text and text.endswith("IndexName: by_meaning") for text in texts)
    assert client.scan(TableName="documents")["Count"] == 0


def test_the_hash_attribute_of_a_search_is_checked(client):
    """Its value has the defined type and is not empty."""
    client.create_table(**definition(INDEX, names=("id", "tenant", "kind")))
    for tenant in ({"N": "1"}, {"S": ""}):
        with pytest.raises(ClientError, match="ValidationException"):
            client.put_item(TableName="documents", Item={**item("a", 1, 0, 0), "tenant": tenant})


def test_writes_report_their_bytes(client):
    """Bytes are 4 per dimension, the vector's name and the projected attributes; at least 1 KiB; with INDEXES only."""
    wide = {**PLAIN, "Dimensions": 1024, "IndexName": "wide"}
    client.create_table(**definition(wide))
    put = {"TableName": "documents", "Item": item("abc", *[1] * 1024)}
    consumed = client.put_item(**put, ReturnConsumedCapacity="INDEXES")["ConsumedCapacity"]
    assert consumed["VectorIndexes"] == {"wide": {"VectorWriteRequestBytes": 4096 + len("embedding") + len("idabc")}}
    assert consumed["CapacityUnits"] == consumed["Table"]["CapacityUnits"]
    assert "VectorIndexes" not in client.put_item(**put, ReturnConsumedCapacity="INDEXES")["ConsumedCapacity"]
    transact = client.transact_write_items(
        TransactItems=[{"Put": {"TableName": "documents", "Item": item("b", *[1] * 1024)}}],
        ReturnConsumedCapacity="INDEXES",
    )
    assert transact["ConsumedCapacity"][0]["VectorIndexes"]["wide"]["VectorWriteRequestBytes"] == 4096 + 9 + 3
    total = client.delete_item(TableName="documents", Key={"id": {"S": "abc"}}, ReturnConsumedCapacity="TOTAL")
    assert "VectorIndexes" not in total["ConsumedCapacity"]
    client.update_table(TableName="documents", VectorIndexUpdates=[{"Delete": {"IndexName": "wide"}}])
    client.update_table(TableName="documents", VectorIndexUpdates=[{"Create": PLAIN}])
    small = client.put_item(TableName="documents", Item=item("c", 1, 2, 3), ReturnConsumedCapacity="INDEXES")
    assert small["ConsumedCapacity"]["VectorIndexes"] == {"by_meaning": {"VectorWriteRequestBytes": 1024}}


def test_a_vector_index_cannot_be_read_as_a_table(client):
    """Scan and Query are refused with the service's texts."""
    client.create_table(**definition(PLAIN))
    read = {"TableName": "documents", "IndexName": "by_meaning"}
    with pytest.raises(ClientError, match="Scan operation not supported on this index type"):
        client.scan(**read)
    with pytest.raises(ClientError, match="Query operation not supported on this index type"):
        client.query(**read, KeyConditionExpression="id = :i", ExpressionAttributeValues={":i": {"S": "a"}})


def search(client, *numbers: float, **members: object) -> list[tuple[str, float]]:
    """Return keys and scores of a search."""
    reply = client.search_vectors(
        TableName="documents",
        SearchVector=vector(*numbers)["L"],
        **{"IndexName": "by_meaning", "TopK": 2, **members},
    )
    return [(result["Item"]["id"]["S"], result["Score"]) for result in reply["SearchResults"]]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("COSINE", [("far", 0), ("near", pytest.approx(1 - 2**-0.5))]),
        ("EUCLIDEAN", [("near", 1), ("far", 9)]),
        ("DOT_PRODUCT", [("far", 10), ("near", 1)]),
    ],
)
def test_a_search_orders_by_similarity(client, function, expected):
    """The result has the TopK most similar items, the most similar first."""
    client.create_table(**definition({**PLAIN, "DistanceFunction": function}))
    for written in (item("far", 10, 0, 0), item("near", 1, 1, 0), item("opposite", -20, 0, 0)):
        client.put_item(TableName="documents", Item=written)
    assert search(client, 1, 0, 0) == expected
    client.delete_item(TableName="documents", Key={"id": {"S": expected[0][0]}})
    assert search(client, 1, 0, 0, TopK=1) == expected[1:]


def test_a_search_is_limited_by_its_schema(client):
    """The HASH attribute is required; filters are optional; other attributes and operators are refused."""
    client.create_table(**definition(INDEX, names=("id", "tenant", "kind")))
    for name, tenant, kind in (("a", "t", "x"), ("b", "t", "y"), ("c", "u", "x")):
        client.put_item(TableName="documents", Item=item(name, 1, 0, 0, tenant=tenant, kind=kind))
    values = {":t": {"S": "t"}, ":k": {"S": "y"}}
    condition = {"SearchConditionExpression": "tenant = :t AND kind = :k", "ExpressionAttributeValues": values}
    assert search(client, 1, 0, 0, **condition) == [("b", 0)]
    refused = {
        "must be provided when SearchSchema has a HASH key": {},
        "Invalid comparator": {**condition, "SearchConditionExpression": "tenant > :t AND kind = :k"},
        "Invalid attribute: id": {**condition, "SearchConditionExpression": "tenant = :t AND id = :k"},
        "TopK value '101'": {**condition, "TopK": 101},
    }
    for message, members in refused.items():
        with pytest.raises(ClientError, match=message):
            search(client, 1, 0, 0, **members)


def test_a_search_vector_has_the_dimensions_of_the_index(client):
    """Another length and values that are not 32-bit floats are refused. Vectors are returned as 32-bit floats."""
    client.create_table(**definition(PLAIN))
    with pytest.raises(ClientError, match="dimension 2 does not match vector index dimension 3"):
        search(client, 1, 0)
    with pytest.raises(ClientError, match="invalid values"):
        search(client, 1, "1e39", 0)
    with pytest.raises(ClientError, match="does not have the specified index: absent"):
        search(client, 1, 0, 0, IndexName="absent")
    client.put_item(TableName="documents", Item=item("a", 0.1234567891234, 0, 0))
    reply = client.search_vectors(
        TableName="documents",
        IndexName="by_meaning",
        SearchVector=vector(1, 0, 0)["L"],
        TopK=1,
        ProjectionExpression="embedding",
        ReturnConsumedCapacity="TOTAL",
    )
    assert reply["SearchResults"][0]["Item"] == {"embedding": vector("0.12345679", 0, 0)}
    assert reply["ConsumedCapacity"]["VectorSearchRequestBytes"] > 0


def test_a_restored_table_has_the_indexes(client):
    """A backup keeps the definition, and its restored table has the entries."""
    client.create_table(**definition(PLAIN))
    client.put_item(TableName="documents", Item=item("a", 1, 0, 0))
    arn = client.create_backup(TableName="documents", BackupName="saved")["BackupDetails"]["BackupArn"]
    client.restore_table_from_backup(TargetTableName="restored", BackupArn=arn)
    (described,) = client.describe_table(TableName="restored")["Table"]["VectorIndexes"]
    assert (described["IndexName"], described["ItemCount"]) == ("by_meaning", 1)
    assert ":table/restored/index/" in described["IndexArn"]
