from __future__ import annotations

import pytest

from ddbio.testing.calls.control import describe_table, update_table
from ddbio.testing.calls.writes import put_item
from ddbio.testing.refusal import Refusal

INDEX = {
    "IndexName": "byg",
    "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
    "Projection": {"ProjectionType": "ALL"},
}


def numbers(write):
    """Return the throughput of a table or index."""
    return {"ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": write}}


@pytest.fixture
def held(hold):
    """Return a database with a provisioned table and its index."""
    made = hold()
    made.create(units=(1, 1), more=["g:S"], GlobalSecondaryIndexes=[{**INDEX, **numbers(1)}])
    return made


def spend(held, writes, **attributes):
    """Return the number of puts that are admitted immediately."""
    for count in range(writes):
        try:
            held.call(put_item, TableName="tab", Item={"pk": {"S": str(count)}, **attributes})
        except Refusal:
            return count
    return writes


def test_new_throughput_throttles(held):
    """The throughput that UpdateTable sets throttles a table's writes."""
    held.call(update_table, TableName="tab", **numbers(5))
    held.now = 1.0
    assert spend(held, 10) == 6


def test_an_index_is_rebilled_by_itself(held):
    """An index keeps its own throughput and entries while they are changed."""
    held.call(update_table, TableName="tab", **numbers(50))
    update = {"Update": {"IndexName": "byg", **numbers(3)}}
    held.call(update_table, TableName="tab", GlobalSecondaryIndexUpdates=[update])
    held.now = 1.0
    assert spend(held, 10, g={"S": "g"}) == 4
    (index,) = held.call(describe_table, TableName="tab")["Table"]["GlobalSecondaryIndexes"]
    assert index["ProvisionedThroughput"]["WriteCapacityUnits"] == 3
    assert index["ItemCount"] == 4


def test_on_demand_frees_table_and_index(held):
    """A table that becomes on-demand is limited only by its partitions, and so are its indexes."""
    held.call(update_table, TableName="tab", BillingMode="PAY_PER_REQUEST")
    held.now = 1.0
    assert spend(held, 200, g={"S": "g"}) == 200


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({}, "ValidationException"),
        ({"GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": "none"}}]}, "ResourceNotFoundException"),
        (
            {**numbers(5), "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}},
            "LimitExceededException",
        ),
        ({"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "OTHER"}}, "ValidationException"),
        ({"StreamSpecification": {"StreamEnabled": False}}, "ValidationException"),
        ({"GlobalSecondaryIndexUpdates": [{"Create": {**INDEX, **numbers(1)}}]}, "ValidationException"),
        ({"GlobalSecondaryIndexUpdates": ["Create"]}, "SerializationException"),
    ],
    ids=str,
)
def test_wrong_changes_are_refused(held, members, code):
    """A call makes one kind of change, to an existing index or of a new one."""
    with pytest.raises(Refusal) as caught:
        held.call(update_table, TableName="tab", **members)
    assert caught.value.body["__type"].endswith("#" + code)
