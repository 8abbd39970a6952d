"""The fake refuses requests with the texts of the service, in its order."""

from __future__ import annotations

import pytest

from ddbio.testing.calls.control import create_table, update_table
from ddbio.testing.calls.reads import query, scan
from ddbio.testing.calls.transactions import transact_write_items
from ddbio.testing.calls.writes import batch_write_item, delete_item, put_item, update_item
from ddbio.testing.refusal import Refusal
from ddbio.testing.request import Request
from ddbio.testing.validation import validated

ITEM = {"pk": {"S": "a"}, "n": {"N": "5"}, "s": {"S": "hello"}}
OPERATIONS = {
    "BatchWriteItem": batch_write_item,
    "CreateTable": create_table,
    "DeleteItem": delete_item,
    "PutItem": put_item,
    "Query": query,
    "Scan": scan,
    "TransactWriteItems": transact_write_items,
    "UpdateItem": update_item,
    "UpdateTable": update_table,
}
SCHEMA = {
    "TableName": "new",
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "BillingMode": "PAY_PER_REQUEST",
}


@pytest.fixture
def held(hold):
    """Return a database with a table of one item."""
    made = hold()
    made.create()
    made.now = 10.0
    made.call(put_item, TableName="tab", Item=ITEM)
    return made


def run(held, operation, **members):
    """Answer a request as the server does."""
    return OPERATIONS[operation](held.database, validated(operation, Request(members)))


def refusal(held, operation, **members):
    """Return the text of a refused request."""
    with pytest.raises(Refusal) as caught:
        run(held, operation, **members)
    return caught.value.body["message"]


@pytest.mark.parametrize(
    ("operation", "members", "expected"),
    [
        ("PutItem", {}, "Value null at 'tableName' failed to satisfy constraint: Member must not be null"),
        ("CreateTable", {}, "The parameter 'TableName' is required but was not present in the request"),
        (
            "PutItem",
            {"TableName": "", "ReturnValues": "ALL"},
            (
                "1 validation error detected: Value '' at 'tableName' failed to satisfy constraint: "
                "Member must have length greater than or equal to 1"
            ),
        ),
        ("Scan", {"TableName": "a b"}, "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+"),
        ("CreateTable", {**SCHEMA, "TableName": "ab"}, "Member must have length greater than or equal to 3"),
        (
            "UpdateItem",
            {"TableName": "absent", "Key": {}, "ReturnValues": "ALL", "ReturnConsumedCapacity": "X"},
            (
                "2 validation errors detected: Value 'X' at 'returnConsumedCapacity' failed to satisfy constraint: "
                "Member must satisfy enum value set: [INDEXES, TOTAL, NONE]; Value 'ALL' at 'returnValues' failed to "
                "satisfy constraint: Member must satisfy enum value set: [ALL_NEW, UPDATED_OLD, ALL_OLD, NONE, "
                "UPDATED_NEW]"
            ),
        ),
        ("Scan", {"TableName": "tab", "Limit": 0}, "Value '0' at 'limit' failed to satisfy constraint"),
        ("Query", {"TableName": "tab", "Limit": 0}, "error detected: Value at 'Limit' failed to satisfy constraint"),
        (
            "CreateTable",
            {**SCHEMA, "KeySchema": [{"AttributeName": "pk", "KeyType": "BOTH"}]},
            (
                "Value 'BOTH' at 'keySchema.1.member.keyType' failed to satisfy constraint: "
                "Member must satisfy enum value set: [HASH, RANGE]"
            ),
        ),
        (
            "CreateTable",
            {**SCHEMA, "KeySchema": [{"AttributeName": "a", "KeyType": "HASH"}] * 3},
            (
                "Value '[KeySchemaElement(attributeName=a, keyType=HASH), "
                "KeySchemaElement(attributeName=a, keyType=HASH), KeySchemaElement(attributeName=a, keyType=HASH)]' "
                "at 'keySchema' failed to satisfy constraint: Member must have length less than or equal to 2"
            ),
        ),
        ("BatchWriteItem", {"RequestItems": {}}, "The requestItems parameter is required for BatchWriteItem"),
        (
            "BatchWriteItem",
            {"RequestItems": {"tab": []}},
            "Map value must satisfy constraint: [Member must have length",
        ),
        (
            "PutItem",
            {"TableName": "absent", "Item": ITEM, "Expected": {}, "ConditionExpression": "pk = :a"},
            (
                "Can not use both expression and non-expression parameters in the same request: "
                "Non-expression parameters: {Expected} Expression parameters: {ConditionExpression}"
            ),
        ),
        (
            "PutItem",
            {"TableName": "absent", "Item": ITEM, "ExpressionAttributeValues": {":a": {"S": "a"}}},
            "ExpressionAttributeValues can only be specified when using expressions: ConditionExpression is null",
        ),
        (
            "UpdateItem",
            {"TableName": "absent", "Key": {}, "ExpressionAttributeValues": {":a": {"S": "a"}}},
            "when using expressions: UpdateExpression and ConditionExpression are null",
        ),
        (
            "Scan",
            {"TableName": "tab", "FilterExpression": "!! a"},
            'Invalid FilterExpression: Syntax error; token: "!", near: "!!"',
        ),
        (
            "Scan",
            {"TableName": "tab", "ProjectionExpression": "pk, name"},
            "Invalid ProjectionExpression: Attribute name is a reserved keyword; reserved keyword: name",
        ),
        (
            "TransactWriteItems",
            {"TransactItems": [{"Update": {"TableName": "tab", "Key": {"pk": {"S": "a"}}}}]},
            "Value null at 'transactItems.1.member.update.updateExpression' failed to satisfy constraint",
        ),
        ("PutItem", {"TableName": "tab", "Item": {"pk": {"BS": []}}}, "Binary sets should not be empty"),
    ],
)
def test_constraints_are_named_as_the_service_names_them(held, operation, members, expected):
    """The table's name comes first, then all constraints together, then expressions. The missing table comes last."""
    assert expected in refusal(held, operation, **members)


def test_a_local_index_needs_a_sort_key_of_the_table(held):
    """A table without a sort key has no local index."""
    index = {
        "IndexName": "local",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "b", "KeyType": "RANGE"}],
        "Projection": {"ProjectionType": "ALL"},
    }
    definitions = [*SCHEMA["AttributeDefinitions"], {"AttributeName": "b", "AttributeType": "S"}]
    asked = {**SCHEMA, "AttributeDefinitions": definitions, "LocalSecondaryIndexes": [index]}
    assert "Table KeySchema does not have a range key" in refusal(held, "CreateTable", **asked)


def test_numbers_that_stay_are_refused(hold):
    """UpdateTable refuses the current throughput of a provisioned table."""
    held = hold()
    held.create(units=(5, 6))
    numbers = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 6}
    assert "will not change" in refusal(held, "UpdateTable", TableName="tab", ProvisionedThroughput=numbers)
    run(held, "UpdateTable", TableName="tab", ProvisionedThroughput={**numbers, "WriteCapacityUnits": 7})


def condition(operator, *values):
    """Return a legacy condition."""
    return {"ComparisonOperator": operator, **({"AttributeValueList": list(values)} if values else {})}


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        ({"n": condition("EQ", {"N": "5.0"})}, 1),
        ({"n": condition("NE", {"N": "5"})}, 0),
        ({"n": condition("LE", {"N": "4"})}, 0),
        ({"n": condition("GE", {"N": "5"})}, 1),
        ({"n": condition("BETWEEN", {"N": "4"}, {"N": "6"})}, 1),
        ({"n": condition("IN", {"N": "4"}, {"N": "5"})}, 1),
        ({"n": condition("NULL")}, 0),
        ({"n": condition("NOT_NULL"), "s": condition("CONTAINS", {"S": "ell"})}, 1),
        ({"s": condition("NOT_CONTAINS", {"S": "ell"})}, 0),
        ({"s": condition("BEGINS_WITH", {"S": "he"}), "n": condition("LT", {"N": "5"})}, 0),
    ],
)
def test_legacy_filters_equal_expressions(held, conditions, count):
    """Each operator of ScanFilter, QueryFilter and Expected selects the right items."""
    assert b'"Count":%d' % count in b"".join(run(held, "Scan", TableName="tab", ScanFilter=conditions))
    keys = {"pk": condition("EQ", {"S": "a"})}
    reply = run(held, "Query", TableName="tab", KeyConditions=keys, QueryFilter=conditions)
    assert b'"Count":%d' % count in b"".join(reply)
    if count:
        run(held, "DeleteItem", TableName="tab", Key={"pk": {"S": "a"}}, Expected=conditions)
    else:
        put = {"TableName": "tab", "Item": ITEM, "Expected": conditions}
        assert refusal(held, "PutItem", **put) == "The conditional request failed"


def test_legacy_conditions_can_be_alternatives(held):
    """ConditionalOperator joins the conditions of a filter, or of Expected."""
    conditions = {"n": condition("EQ", {"N": "1"}), "s": condition("EQ", {"S": "hello"})}
    put = {"TableName": "tab", "Item": ITEM, "Expected": conditions}
    assert refusal(held, "PutItem", **put) == "The conditional request failed"
    run(held, "PutItem", **put, ConditionalOperator="OR")


def test_legacy_expectations_check_existence(held):
    """Exists false refuses an existing attribute. A value without Exists must be equal."""
    key = {"pk": {"S": "a"}}
    failed = "The conditional request failed"
    assert refusal(held, "DeleteItem", TableName="tab", Key=key, Expected={"n": {"Exists": False}}) == failed
    assert refusal(held, "DeleteItem", TableName="tab", Key=key, Expected={"n": {"Value": {"N": "6"}}}) == failed
    run(held, "DeleteItem", TableName="tab", Key=key, Expected={"n": {"Value": {"N": "5"}}, "x": {"Exists": False}})


def test_legacy_updates_can_be_longer_than_expressions(held):
    """The limit of 4 KB only applies to a client's expressions."""
    named = {"TableName": "tab", "Key": {"pk": {"S": "a"}}}
    updates = {f"a{number}": {"Value": {"N": "1"}} for number in range(400)}
    reply = run(held, "UpdateItem", **named, AttributeUpdates=updates, ReturnValues="UPDATED_NEW")
    assert len(reply["Attributes"]) == 400
    text = refusal(held, "UpdateItem", **named, UpdateExpression=f"REMOVE {'a' * 4096}")
    assert "Expression size has exceeded" in text


def test_legacy_updates_put_add_and_delete(held):
    """The actions of AttributeUpdates equal the sections of an UpdateExpression."""
    updates = {
        "s": {"Value": {"S": "new"}},
        "n": {"Action": "ADD", "Value": {"N": "2"}},
        "x": {"Action": "DELETE"},
        "t": {"Action": "ADD", "Value": {"SS": ["b", "a"]}},
    }
    key = {"pk": {"S": "a"}}
    reply = run(held, "UpdateItem", TableName="tab", Key=key, AttributeUpdates=updates, ReturnValues="ALL_NEW")
    assert reply["Attributes"] == {**key, "s": {"S": "new"}, "n": {"N": "7"}, "t": {"SS": ["b", "a"]}}
    taken = {"t": {"Action": "DELETE", "Value": {"SS": ["b"]}}}
    reply = run(held, "UpdateItem", TableName="tab", Key=key, AttributeUpdates=taken, ReturnValues="UPDATED_NEW")
    assert reply["Attributes"] == {"t": {"SS": ["a"]}}


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"n": condition("EQ")}, "Invalid number of argument(s) for the EQ ComparisonOperator"),
        ({"n": condition("NULL", {"N": "1"})}, "Invalid number of argument(s) for the NULL ComparisonOperator"),
        ({"n": condition("LIKE", {"N": "1"})}, "Value 'LIKE' at 'comparisonOperator' failed to satisfy constraint"),
        ({"n": {"Exists": True}}, "Value must be provided when Exists is true for Attribute: n"),
        ({"n": {"Exists": False, "Value": {"N": "1"}}}, "Value cannot be used when Exists is set to false"),
    ],
)
def test_legacy_conditions_are_checked(held, conditions, message):
    """The number of values and the operator are checked."""
    assert message in refusal(held, "PutItem", TableName="tab", Item=ITEM, Expected=conditions)


def test_collections_have_a_size_if_there_is_a_local_index(hold):
    """ItemCollectionMetrics are in replies to writes of tables with a local index, if they are requested."""
    held = hold()
    index = {
        "IndexName": "local",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "b", "KeyType": "RANGE"}],
        "Projection": {"ProjectionType": "ALL"},
    }
    held.create("tab", ("pk:S", "sk:S"), more=["b:S"], LocalSecondaryIndexes=[index])
    held.create("plain", ("pk:S", "sk:S"))
    item = {"pk": {"S": "a"}, "sk": {"S": "b"}}
    expected = {"ItemCollectionKey": {"pk": {"S": "a"}}, "SizeEstimateRangeGB": [0.0, 1.0]}
    asked = {"Item": item, "ReturnItemCollectionMetrics": "SIZE"}
    assert run(held, "PutItem", TableName="tab", **asked)["ItemCollectionMetrics"] == expected
    assert "ItemCollectionMetrics" not in run(held, "PutItem", TableName="tab", Item=item)
    assert "ItemCollectionMetrics" not in run(held, "PutItem", TableName="plain", **asked)
    batch = {"tab": [{"DeleteRequest": {"Key": item}}], "plain": [{"PutRequest": {"Item": item}}]}
    reply = run(held, "BatchWriteItem", RequestItems=batch, ReturnItemCollectionMetrics="SIZE")
    assert reply["ItemCollectionMetrics"] == {"tab": [expected]}
