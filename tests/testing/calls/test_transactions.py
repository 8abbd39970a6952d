from __future__ import annotations

import json

import pytest

from ddbio.testing.calls.control import delete_table
from ddbio.testing.calls.reads import get_item
from ddbio.testing.calls.transactions import MAX_TRANSACTION_BYTES, transact_get_items, transact_write_items
from ddbio.testing.calls.writes import put_item
from ddbio.testing.faults import Faults, Storm
from ddbio.testing.refusal import Refusal
from ddbio.testing.request import Request
from ddbio.testing.tables.database import Database


@pytest.fixture
def held(hold):
    """Return a database with two tables of one item each."""
    made = hold()
    made.create("tab")
    made.create("other")
    made.now = 100.0
    for table in ("tab", "other"):
        made.call(put_item, TableName=table, Item={"pk": {"S": "old"}, "n": {"N": "1"}})
    made.now = 200.0
    return made


def at(pk, table="tab"):
    """Return the members that name an item."""
    return {"TableName": table, "Key": {"pk": {"S": pk}}}


def put(pk, table="tab", **members):
    """Return the put of an item."""
    return {"Put": {"TableName": table, "Item": {"pk": {"S": pk}}, **members}}


def write(held, *items, **members):
    """Run a transaction of writes."""
    return held.call(transact_write_items, TransactItems=list(items), **members)


def refused(held, *items, operation=transact_write_items, **members):
    """Return the error body of a refused transaction."""
    with pytest.raises(Refusal) as caught:
        held.call(operation, TransactItems=list(items), **members)
    return caught.value.body


def item(held, pk, table="tab"):
    """Return an item, or None."""
    return json.loads(b"".join(held.call(get_item, **at(pk, table)))).get("Item")


ABSENT = {"ConditionExpression": "attribute_not_exists(pk)"}
ADD = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}


def test_all_actions_are_executed_together(held):
    """Puts, updates, deletes and conditions on several tables succeed together, for twice the units."""
    check = {"ConditionCheck": {**at("old", "other"), "ConditionExpression": "attribute_exists(pk)"}}
    reply = write(held, put("new", **ABSENT), {"Update": {**at("old"), **ADD}}, check, ReturnConsumedCapacity="TOTAL")
    assert item(held, "new") == {"pk": {"S": "new"}}
    assert item(held, "old") == {"pk": {"S": "old"}, "n": {"N": "2"}}
    units = {
        part["TableName"]: (part["CapacityUnits"], part["WriteCapacityUnits"]) for part in reply["ConsumedCapacity"]
    }
    assert units == {"tab": (4.0, 4.0), "other": (2.0, 2.0)}
    write(held, {"Delete": at("old")})
    assert item(held, "old") is None


def test_one_failure_cancels_all(held):
    """Each item has its reason, in order, and nothing is written."""
    shown = {**ABSENT, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    body = refused(held, put("new"), put("old", **shown), put("old", "other", **ABSENT))
    failed = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
    old = {"pk": {"S": "old"}, "n": {"N": "1"}}
    assert body["__type"].endswith("#TransactionCanceledException")
    assert body["CancellationReasons"] == [{"Code": "None"}, {**failed, "Item": old}, failed]
    assert body["message"].endswith("specific reasons [None, ConditionalCheckFailed, ConditionalCheckFailed]")
    assert item(held, "new") is None


def test_an_action_that_cannot_be_done_is_a_reason(held):
    """An error that depends on the table or item cancels the transaction. Any other error refuses the request."""
    update = {"Update": {**at("old"), "UpdateExpression": "SET n = absent"}}
    reasons = refused(held, put("new"), update)["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ValidationError"]
    assert "does not exist in the item" in reasons[1]["Message"]
    assert "Syntax error" in refused(held, put("new", ConditionExpression="!"))["message"]
    assert refused(held, put("new", "absent"))["__type"].endswith("#ResourceNotFoundException")
    assert item(held, "new") is None


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([put("a"), {"Delete": at("a")}], "Transaction request cannot include multiple operations on one item"),
        ([{**put("a"), "Delete": at("b")}], "TransactItems can only contain one of Check, Put, Update or Delete"),
        ([{"Get": at("a")}], "TransactItems can only contain one of Check, Put, Update or Delete"),
    ],
)
def test_transactions_are_checked(held, items, message):
    """An item occurs once and has one action."""
    assert refused(held, *items)["message"] == message


def test_a_transaction_has_at_most_4_mib(held):
    """Eleven items of 390 KB are too much, ten are not."""
    puts = [{"Put": {"TableName": "tab", "Item": {"pk": {"S": str(n)}, "x": {"S": "x" * 390_000}}}} for n in range(11)]
    assert MAX_TRANSACTION_BYTES == 4 << 20
    assert "cannot exceed 4 MB" in refused(held, *puts)["message"]
    write(held, *puts[:10])


def test_a_token_is_used_once(held):
    """The same transaction with the same token is executed once, and read afterwards. Another one is refused."""
    token = {"ClientRequestToken": "t", "ReturnConsumedCapacity": "TOTAL"}
    update = {"Update": {**at("old"), **ADD}}
    (first,) = write(held, update, **token)["ConsumedCapacity"]
    (again,) = write(held, update, **token)["ConsumedCapacity"]
    assert (first["WriteCapacityUnits"], again["ReadCapacityUnits"]) == (2.0, 2.0)
    assert item(held, "old")["n"] == {"N": "2"}
    assert refused(held, put("new"), **token)["__type"].endswith("#IdempotentParameterMismatchException")
    held.database.wall_clock.advance(601)
    write(held, update, **token)
    assert item(held, "old")["n"] == {"N": "3"}


def test_a_token_of_a_deleted_table_is_refused(held):
    """A repeated request cannot read a deleted table."""
    write(held, put("new"), ClientRequestToken="t")
    held.call(delete_table, TableName="tab")
    assert refused(held, put("new"), ClientRequestToken="t")["__type"].endswith("#ResourceNotFoundException")
    held.create("tab", units=(1, 1))
    held.now = 300.0
    assert write(held, put("new"), ClientRequestToken="t") == {}
    assert item(held, "new") is None


def test_a_failed_transaction_can_be_repeated_with_its_token(held):
    """A token is only used up by a successful transaction."""
    token = {"ClientRequestToken": "t"}
    refused(held, put("old", **ABSENT), **token)
    write(held, {"Delete": at("old")}, ClientRequestToken="u")
    write(held, put("old", **ABSENT), **token)


def test_without_capacity_nothing_is_written(hold):
    """A transaction without enough capacity is canceled as throttled, and consumes none."""
    held = hold()
    held.create("tab", units=(1, 1))
    held.create("other")
    held.now = 1.0
    write(held, put("a"), put("b"))
    body = refused(held, put("c", "other"), put("c"))
    assert [reason["Code"] for reason in body["CancellationReasons"]] == ["None", "ProvisionedThroughputExceeded"]
    assert held.database.consumption.consumed("other") == []
    assert item(held, "c", "other") is None


@pytest.mark.parametrize(("operation", "kind"), [("TransactWriteItems", "Write"), ("TransactGetItems", "Read")])
def test_storms_reach_transactions(operation, kind):
    """A storm throttles transactions as it throttles other reads and writes."""
    database = Database(faults=Faults(storms=(Storm(0, 1000),)))
    with pytest.raises(Refusal) as caught:
        database.check_storms(operation, Request({"TransactItems": [{"Get": at("a")}]}))
    (reason,) = caught.value.body["ThrottlingReasons"]
    assert reason == {"reason": f"Table{kind}ProvisionedThroughputExceeded", "resource": "tab"}


@pytest.mark.parametrize(
    "members",
    [{"TransactItems": [{"Put": {"TableName": {}}}]}, {"TableName": {}}, {"RequestItems": 5}, {"TransactItems": 5}],
)
def test_storms_reach_requests_without_a_table(members):
    """A storm also throttles a request without a table name."""
    database = Database(faults=Faults(storms=(Storm(0, 1000),)))
    with pytest.raises(Refusal, match="Throughput"):
        database.check_storms("TransactWriteItems", Request(members))


@pytest.mark.parametrize("operation", [transact_get_items, transact_write_items])
def test_items_are_a_list(held, operation):
    """A member of another type is a client error."""
    with pytest.raises(Refusal):
        held.call(operation, TransactItems=5)


def test_gets_are_one_read_of_all(held):
    """TransactGetItems returns the items in order, missing ones empty, for twice the units of consistent reads."""
    gets = [{"Get": at("absent")}, {"Get": {**at("old"), "ProjectionExpression": "n"}}, {"Get": at("old", "other")}]
    reply = json.loads(b"".join(held.call(transact_get_items, TransactItems=gets, ReturnConsumedCapacity="TOTAL")))
    old = {"pk": {"S": "old"}, "n": {"N": "1"}}
    assert reply["Responses"] == [{}, {"Item": {"n": {"N": "1"}}}, {"Item": old}]
    units = {part["TableName"]: part["ReadCapacityUnits"] for part in reply["ConsumedCapacity"]}
    assert units == {"tab": 4.0, "other": 2.0}


def test_gets_are_checked(held):
    """A key that does not fit its table cancels. An item occurs once."""
    bad = {"Get": {"TableName": "tab", "Key": {}}}
    body = refused(held, {"Get": at("old")}, bad, operation=transact_get_items)
    assert [reason["Code"] for reason in body["CancellationReasons"]] == ["None", "ValidationError"]
    body = refused(held, {"Get": at("old")}, {"Get": at("old")}, operation=transact_get_items)
    assert body["message"] == "Transaction request cannot include multiple operations on one item"
    assert refused(held, put("a"), operation=transact_get_items)["message"] == "TransactItems can only contain Get"
