from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from ddbio.errors import OptionError
from ddbio.testing import FakeDynamoDB, Faults, MotoServer, Storm

KEY = {"pk": {"S": "a"}}
INDEX = {
    "IndexName": "byg",
    "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
}


def put(pk, kib=0, **attributes):
    """Return one put of a batch."""
    return {"PutRequest": {"Item": {"pk": {"S": pk}, "x": {"S": "x" * (1000 * kib)}, **attributes}}}


def create(client, name="tab", **members):
    """Create an on-demand table with an index."""
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": part, "AttributeType": "S"} for part in ("pk", "g")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        GlobalSecondaryIndexes=[INDEX],
        BillingMode="PAY_PER_REQUEST",
        **members,
    )


@pytest.fixture(scope="module", params=["fake", "moto"])
def endpoint(request):
    """Serve an endpoint without practical limits."""
    with FakeDynamoDB(burst_at_creation=1.0) if request.param == "fake" else MotoServer() as server:
        yield server.endpoint_url


@pytest.fixture
def serve(endpoint, connect):
    """Return a factory of proxies with a fresh table, and their clients."""
    running = []

    def make(**options):
        fake = FakeDynamoDB(proxy=endpoint, **options).start()
        running.append(fake)
        client = connect(fake.endpoint_url)
        create(client)
        return fake, client

    yield make
    for fake in running:
        connect(fake.endpoint_url).delete_table(TableName="tab")
        fake.stop()


def test_what_passes_is_stored_at_the_endpoint(serve, endpoint, connect):
    """Writes and reads through the proxy reach the endpoint."""
    _, client = serve(burst_at_creation=1.0)
    client.put_item(TableName="tab", Item={**KEY, "n": {"N": "1"}})
    values = {":n": {"N": "2"}}
    client.update_item(
        TableName="tab",
        Key=KEY,
        UpdateExpression="SET n = :n",
        ExpressionAttributeValues=values,
        ConditionExpression="n < :n",
    )
    assert connect(endpoint).get_item(TableName="tab", Key=KEY)["Item"] == {**KEY, "n": {"N": "2"}}
    assert client.get_item(TableName="tab", Key=KEY)["Item"] == {**KEY, "n": {"N": "2"}}
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        client.put_item(TableName="tab", Item=KEY, ConditionExpression="attribute_not_exists(pk)")
    client.delete_item(TableName="tab", Key=KEY)
    assert connect(endpoint).scan(TableName="tab")["Items"] == []


def test_requests_are_priced_by_their_items(serve):
    """Units come from the items sent and returned, regardless of the endpoint's consumed capacity."""
    fake, client = serve(burst_at_creation=1.0)
    asked = {"ReturnConsumedCapacity": "INDEXES"}
    batch = [put("a", 3, g={"S": "g"}), put("b", 1), {"DeleteRequest": {"Key": {"pk": {"S": "c"}}}}]
    (written,) = client.batch_write_item(RequestItems={"tab": batch}, **asked)["ConsumedCapacity"]
    assert written["Table"] == {"CapacityUnits": 3.0 + 1.0 + 1.0}
    assert written["GlobalSecondaryIndexes"] == {"byg": {"CapacityUnits": 1.0}}
    read = client.get_item(TableName="tab", Key={"pk": {"S": "a"}}, ConsistentRead=True, **asked)["ConsumedCapacity"]
    assert read["CapacityUnits"] == 1.0
    assert (
        client.get_item(TableName="tab", Key={"pk": {"S": "absent"}}, **asked)["ConsumedCapacity"]["CapacityUnits"]
        == 0.5
    )
    keys = {"tab": {"Keys": [{"pk": {"S": "a"}}, {"pk": {"S": "b"}}]}}
    (both,) = client.batch_get_item(RequestItems=keys, **asked)["ConsumedCapacity"]
    assert both["CapacityUnits"] == 1.0
    scanned = client.scan(TableName="tab", **asked)["ConsumedCapacity"]["CapacityUnits"]
    assert scanned in {0.5, 1.0}
    total = fake.consumed("tab")
    assert sum(write for _, _, write in total) == 6.0
    assert sum(read for _, read, _ in total) == 1.0 + 0.5 + 1.0 + scanned


def test_capacity_holds_back_what_is_too_much(serve):
    """A batch is admitted item by item, and the others are returned. Then writes and reads are throttled by name."""
    fake, client = serve(wcu=2, rcu=1)
    left = client.batch_write_item(RequestItems={"tab": [put(str(at), 3) for at in range(5)]})["UnprocessedItems"]
    assert len(left["tab"]) == 4
    with pytest.raises(ClientError) as caught:
        client.put_item(TableName="tab", Item=KEY)
    (reason,) = caught.value.response["ThrottlingReasons"]
    assert reason["reason"] == "TableWriteProvisionedThroughputExceeded"
    with pytest.raises(ClientError, match="ProvisionedThroughputExceeded"):
        client.batch_write_item(RequestItems={"tab": [put("x")]})
    client.batch_get_item(RequestItems={"tab": {"Keys": [{"pk": {"S": str(at)}} for at in range(99)]}})
    with pytest.raises(ClientError, match="ProvisionedThroughputExceeded"):
        client.scan(TableName="tab")
    assert fake.requests()["Scan"] == 1


def test_faults_strike_in_front_of_the_endpoint(serve, endpoint, connect):
    """After errors and resets the write is at the endpoint. Unprocessed items are not."""
    _, client = serve(burst_at_creation=1.0, faults=Faults(unprocessed_ratio=1.0))
    batch = {"tab": [put("a"), put("b")]}
    assert client.batch_write_item(RequestItems=batch)["UnprocessedItems"] == batch
    for faults, error in (
        (Faults(error_after_ratio=1.0), ClientError),
        (Faults(reset_ratio=1.0, seed=1), ConnectionClosedError),
    ):
        with FakeDynamoDB(proxy=endpoint, burst_at_creation=1.0, faults=faults) as fake:
            with pytest.raises(error):
                connect(fake.endpoint_url).put_item(TableName="tab", Item={"pk": {"S": error.__name__}})
            assert sum(fake.faulted().values()) == 1
    assert {"pk": {"S": "ClientError"}} in connect(endpoint).scan(TableName="tab")["Items"]


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        ("transact_write_items", {"TransactItems": [{"Put": {"TableName": "tab", "Item": KEY}}]}),
        ("transact_get_items", {"TransactItems": [{"Get": {"TableName": "tab", "Key": KEY}}]}),
        ("execute_statement", {"Statement": "SELECT * FROM tab"}),
        ("get_item", {"TableName": "tab", "Key": KEY}),
    ],
)
def test_storms_reach_all_reads_and_writes(serve, operation, members):
    """A storm also throttles transactions and statements, whose capacity the proxy does not know."""
    _, client = serve(faults=Faults(storms=(Storm(0, 1e6),)))
    with pytest.raises(ClientError, match="ProvisionedThroughputExceeded"):
        getattr(client, operation)(**members)


def test_the_endpoint_reports_errors(serve):
    """The endpoint refuses missing tables and malformed items, which cost nothing."""
    fake, client = serve(burst_at_creation=1.0)
    with pytest.raises(ClientError, match="ResourceNotFound"):
        client.put_item(TableName="absent", Item=KEY)
    with pytest.raises(ClientError, match="ValidationException"):
        client.put_item(TableName="tab", Item={"other": {"S": "x"}})
    assert fake.consumed() == []


def test_a_proxy_holds_no_items(serve):
    """Items must be loaded at the endpoint."""
    fake, _ = serve()
    with pytest.raises(OptionError, match="endpoint itself"):
        fake.load("tab", b"", "pk:S")


def test_an_address_that_is_none_is_refused():
    """The endpoint is a URL with a host."""
    with pytest.raises(OptionError, match="http://"):
        FakeDynamoDB(proxy="127.0.0.1:5000").start()


def test_an_endpoint_that_is_gone_resets_the_client(connect):
    """If the endpoint does not answer, the proxy does not answer either."""
    with FakeDynamoDB() as gone:
        url = gone.endpoint_url
    with FakeDynamoDB(proxy=url) as fake, pytest.raises(ConnectionClosedError):
        connect(fake.endpoint_url).list_tables()
