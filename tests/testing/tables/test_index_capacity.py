from __future__ import annotations

import pytest

from ddbio.testing.calls.writes import batch_write_item, delete_item, put_item, update_item
from ddbio.testing.refusal import Refusal
from ddbio.testing.tables.definition import Defaults

ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/tab/index/byg"


def index(projection="ALL", **members):
    """Return the definition of a global index on ``g``."""
    return {
        "IndexName": "byg",
        "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": projection},
        **members,
    }


def provisioned(write):
    """Return the throughput of an index."""
    return {"ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": write}}


def item(pk, g=None, kib=0):
    """Return an item, in the index if it has a ``g``."""
    member = {} if g is None else {"g": {"S": g}}
    return {"pk": {"S": pk}, **member, "x": {"S": "x" * (1000 * kib)}}


def refusal(held, operation, **members):
    """Return the throttling reason of a refused call."""
    with pytest.raises(Refusal) as caught:
        held.call(operation, **members)
    (reason,) = caught.value.body["ThrottlingReasons"]
    return reason["reason"], reason["resource"]


@pytest.fixture
def weak(hold):
    """Return a database at second 1, whose index has 1 % of its table's units, one of them available."""
    held = hold()
    held.create(units=(200, 100), more=["g:S"], GlobalSecondaryIndexes=[index(**provisioned(1))])
    held.now = 1.0
    return held


def test_an_exhausted_index_leaves_items_of_a_batch_unprocessed(weak):
    """Items that the index cannot take are returned. The others in the same batch are written."""
    sent = [{"PutRequest": {"Item": item(str(at), "g" if at % 2 else None)}} for at in range(10)]
    left = weak.call(batch_write_item, RequestItems={"tab": sent})["UnprocessedItems"]["tab"]
    assert left == sent[5::2]
    assert weak.database.tables["tab"].store.count == 10 - len(left)


def test_a_batch_that_only_the_index_refuses_names_the_index(weak):
    """A batch without an admitted item because of an index is throttled with the index as the reason."""
    weak.call(put_item, TableName="tab", Item=item("a", "g", 5))
    reason = refusal(weak, batch_write_item, RequestItems={"tab": [{"PutRequest": {"Item": item("b", "g")}}]})
    assert reason == ("IndexWriteProvisionedThroughputExceeded", ARN)


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        (
            update_item,
            {
                "Key": {"pk": {"S": "a"}},
                "UpdateExpression": "SET g = :g",
                "ExpressionAttributeValues": {":g": {"S": "new"}},
            },
        ),
        (update_item, {"Key": {"pk": {"S": "a"}}, "UpdateExpression": "REMOVE g"}),
        (delete_item, {"Key": {"pk": {"S": "a"}}}),
        (put_item, {"Item": item("a")}),
    ],
    ids=["move", "remove", "delete", "replace"],
)
def test_changes_of_an_entry_wait_for_the_index(weak, operation, members):
    """An index without units delays updates, deletes and puts of its items, and only these."""
    weak.call(put_item, TableName="tab", Item=item("a", "g", 5))
    weak.call(put_item, TableName="tab", Item=item("b"))
    before = weak.database.tables["tab"].store.get(weak.database.tables["tab"].keys.key_of({"pk": {"S": "a"}}))
    assert refusal(weak, operation, TableName="tab", **members)[0] == "IndexWriteProvisionedThroughputExceeded"
    assert weak.database.tables["tab"].store.count == 2
    after = weak.database.tables["tab"].store.get(weak.database.tables["tab"].keys.key_of({"pk": {"S": "a"}}))
    assert before == after
    weak.now = 10.0
    weak.call(operation, TableName="tab", **members)


def test_a_hot_key_of_an_index_is_named(hold):
    """Items spread over the table may share one partition of the index, which takes 1,000 units per second."""
    held = hold()
    held.create(more=["g:S"], GlobalSecondaryIndexes=[index()])
    held.now = 1.0
    for at in range(1001):
        held.call(put_item, TableName="tab", Item=item(str(at), "hot"))
    reason = refusal(held, put_item, TableName="tab", Item=item("last", "hot"))
    assert reason == ("IndexWriteKeyRangeThroughputExceeded", ARN)


def test_an_on_demand_index_has_its_own_maximum(hold):
    """The error names the maximum of the on-demand index."""
    held = hold(Defaults())
    most = {"OnDemandThroughput": {"MaxReadRequestUnits": -1, "MaxWriteRequestUnits": 1}}
    held.create(more=["g:S"], GlobalSecondaryIndexes=[index(**most)])
    held.call(put_item, TableName="tab", Item=item("a", "g", 3))
    held.now = 1.0
    assert refusal(held, put_item, TableName="tab", Item=item("b", "g")) == (
        "IndexWriteMaxOnDemandThroughputExceeded",
        ARN,
    )


def test_consumption_is_shown_by_index(weak):
    """INDEXES shows the consumption of the table and each index for a batch, rounded by their own item sizes."""
    weak.now = 100.0
    sent = [{"PutRequest": {"Item": item(str(at), "g", at)}} for at in range(3)]
    reply = weak.call(batch_write_item, RequestItems={"tab": sent}, ReturnConsumedCapacity="INDEXES")
    assert reply["ConsumedCapacity"] == [
        {
            "TableName": "tab",
            "CapacityUnits": 8.0,
            "Table": {"CapacityUnits": 4.0},
            "GlobalSecondaryIndexes": {"byg": {"CapacityUnits": 4.0}},
        }
    ]
