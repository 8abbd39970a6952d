"""Contract of conditional writes and updates. Backends name their known gaps."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.contract.backends import build_classes

KEY = {"pk": {"S": "one"}}
NEWER = {
    "ConditionExpression": "attribute_not_exists(#pk) OR #a < :a",
    "ExpressionAttributeNames": {"#pk": "pk", "#a": "at"},
}
ABSENT = {"ConditionExpression": "attribute_not_exists(#pk)", "ExpressionAttributeNames": {"#pk": "pk"}}


def at(number, **attributes):
    """Return the item of a version."""
    return {**KEY, "at": {"N": str(number)}, **attributes}


def newer(number):
    """Return the condition that only a missing or older item satisfies."""
    return {**NEWER, "ExpressionAttributeValues": {":a": {"N": str(number)}}}


class DynamoContract:
    """Contract of conditional writes and updates."""

    @staticmethod
    def _failure(client, operation, **members):
        with pytest.raises(ClientError) as caught:
            getattr(client, operation)(**members)
        error = caught.value.response
        assert error["ResponseMetadata"]["HTTPStatusCode"] == 400
        assert error["Error"] == {
            "Code": "ConditionalCheckFailedException",
            "Message": "The conditional request failed",
        }
        return error

    @staticmethod
    def _item(client, table):
        return client.get_item(TableName=table, Key=KEY, ConsistentRead=True).get("Item")

    def test_create_writes_only_what_is_absent(self, client, make_table):
        """The first put succeeds, a second one fails and changes nothing."""
        table = make_table("pk:S")
        client.put_item(TableName=table, Item=at(1), **ABSENT)
        self._failure(client, "put_item", TableName=table, Item=at(2), **ABSENT)
        assert self._item(client, table) == at(1)

    def test_only_a_newer_item_replaces(self, client, make_table):
        """An older and an equally old put fail, a newer one succeeds. Numbers are compared by value."""
        table = make_table("pk:S")
        client.put_item(TableName=table, Item=at(9), **newer(9))
        for number in (8, 9):
            self._failure(client, "put_item", TableName=table, Item=at(number), **newer(number))
        client.put_item(TableName=table, Item=at(10), **newer(10))
        assert self._item(client, table) == at(10)

    def test_an_item_without_the_attribute_is_not_older(self, client, make_table):
        """A comparison with an attribute that is missing, or of another type, is false."""
        table = make_table("pk:S")
        for item in (KEY, {**KEY, "at": {"S": "1"}}):
            client.put_item(TableName=table, Item=item)
            self._failure(client, "put_item", TableName=table, Item=at(5), **newer(5))

    def test_delete_spares_a_newer_item(self, client, make_table):
        """A conditional delete removes an older item, succeeds for a missing one and fails for a newer one."""
        table = make_table("pk:S")
        client.delete_item(TableName=table, Key=KEY, **newer(5))
        client.put_item(TableName=table, Item=at(5))
        self._failure(client, "delete_item", TableName=table, Key=KEY, **newer(5))
        assert client.delete_item(TableName=table, Key=KEY, ReturnValues="ALL_OLD", **newer(6))["Attributes"] == at(5)
        assert self._item(client, table) is None

    @pytest.mark.parametrize("operation", ["put_item", "delete_item", "update_item"])
    def test_a_failure_shows_the_item_when_asked(self, client, make_table, operation):
        """The error has the item that failed the condition only on request."""
        table = make_table("pk:S")
        client.put_item(TableName=table, Item=at(5))
        request = {"Item": at(1)} if operation == "put_item" else {"Key": KEY}
        members = {"TableName": table, **request, **ABSENT}
        assert "Item" not in self._failure(client, operation, **members)
        shown = self._failure(client, operation, ReturnValuesOnConditionCheckFailure="ALL_OLD", **members)
        assert shown["Item"] == at(5)

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("attribute_exists(pk) AND n = :five", True),
            ("attribute_exists(absent)", False),
            ("n <> :five", False),
            ("absent <> :five", True),
            ("absent = :five", False),
            ("n >= :five AND n <= :five", True),
            ("n > :five OR NOT n = :five", False),
            (":five = n", True),
            ("(absent = :five OR n = :five) AND attribute_not_exists(absent)", True),
            ("absent = :five AND absent = :five OR n = :five", True),
            ("s < :five", False),
        ],
    )
    def test_conditions_control_puts(self, client, make_table, condition, expected):
        """Existence, comparisons, AND before OR, NOT and parentheses control a put."""
        table = make_table("pk:S")
        item = {**KEY, "n": {"N": "5"}, "s": {"S": "4"}}
        client.put_item(TableName=table, Item=item)
        members = {"TableName": table, "Item": item, "ConditionExpression": condition}
        if ":five" in condition:
            members["ExpressionAttributeValues"] = {":five": {"N": "5.0"}}
        if expected:
            client.put_item(**members)
        else:
            self._failure(client, "put_item", **members)

    @pytest.mark.parametrize(
        ("condition", "values"),
        [
            ("", None),
            ("attribute_exists(pk", None),
            ("attribute_exists(pk, pk)", None),
            ("no_function(pk)", None),
            ("pk = :absent", None),
            ("pk = :a", {":a": {"S": "a"}, ":unused": {"S": "a"}}),
            ("pk < :a", {":a": {"BOOL": True}}),
            ("pk : :a", {":a": {"S": "a"}}),
            ("pk = :a pk", {":a": {"S": "a"}}),
        ],
    )
    def test_malformed_conditions_are_refused(self, dynamo, spread, condition, values):
        """Syntax, functions, operands and placeholders are checked before anything is written."""
        members = {"ConditionExpression": condition}
        if values is not None:
            members["ExpressionAttributeValues"] = values
        assert dynamo.refusal("put_item", TableName=spread, Item=KEY, **members) == "ValidationException"

    def test_update_touches_only_what_it_names(self, client, make_table):
        """SET creates and replaces, REMOVE deletes, and everything else stays."""
        table = make_table("pk:S")
        client.put_item(TableName=table, Item=at(1, keep={"S": "k"}, drop={"S": "d"}))
        client.update_item(
            TableName=table,
            Key=KEY,
            UpdateExpression="SET #a = :a, fresh = :f REMOVE dropped, #d",
            ExpressionAttributeNames={"#a": "at", "#d": "drop"},
            ExpressionAttributeValues={":a": {"N": "2"}, ":f": {"L": []}},
        )
        assert self._item(client, table) == at(2, keep={"S": "k"}, fresh={"L": []})

    @pytest.mark.parametrize(
        ("returned", "attributes"),
        [
            ("NONE", None),
            ("ALL_OLD", at(1, drop={"S": "d"})),
            ("ALL_NEW", at(2)),
            ("UPDATED_OLD", {"at": {"N": "1"}, "drop": {"S": "d"}}),
            ("UPDATED_NEW", {"at": {"N": "2"}}),
        ],
    )
    def test_update_returns_what_is_asked(self, client, make_table, returned, attributes):
        """The complete item or its changed attributes are returned, before or after the update."""
        table = make_table("pk:S")
        client.put_item(TableName=table, Item=at(1, drop={"S": "d"}))
        reply = client.update_item(
            TableName=table,
            Key=KEY,
            UpdateExpression="SET #a = :a REMOVE #d",
            ExpressionAttributeNames={"#a": "at", "#d": "drop"},
            ExpressionAttributeValues={":a": {"N": "2"}},
            ReturnValues=returned,
        )
        assert reply.get("Attributes") == attributes

    def test_update_makes_an_item_unless_it_only_removes(self, client, make_table):
        """SET, or no expression at all, creates a missing item. REMOVE alone does not."""
        table = make_table("pk:S")
        client.update_item(TableName=table, Key=KEY, UpdateExpression="REMOVE a")
        assert self._item(client, table) is None
        client.update_item(TableName=table, Key=KEY)
        assert self._item(client, table) == KEY

    def test_update_obeys_its_condition(self, client, make_table):
        """An update of a missing item fails if the item must exist, and creates nothing."""
        table = make_table("pk:S")
        members = {
            "UpdateExpression": "SET a = :a",
            "ExpressionAttributeValues": {":a": {"S": "a"}},
            "ConditionExpression": "attribute_exists(pk)",
        }
        self._failure(client, "update_item", TableName=table, Key=KEY, **members)
        assert self._item(client, table) is None
        client.put_item(TableName=table, Item=KEY)
        client.update_item(TableName=table, Key=KEY, **members)
        assert self._item(client, table) == {**KEY, "a": {"S": "a"}}

    @pytest.mark.parametrize(
        "expression",
        ["", "SET pk = :a", "REMOVE pk", "SET a = :a, a = :a", "SET a = :a REMOVE a", "SET a = :a SET b = :a", "SET a"],
    )
    def test_malformed_updates_are_refused(self, dynamo, spread, expression):
        """Keys cannot be updated, and an attribute or a section can only occur once."""
        members = {"UpdateExpression": expression}
        if ":a" in expression:
            members["ExpressionAttributeValues"] = {":a": {"S": "a"}}
        assert dynamo.refusal("update_item", TableName=spread, Key=KEY, **members) == "ValidationException"

    def test_an_update_costs_the_complete_item(self, client, make_table):
        """An update is billed by the larger of the item before and after it, not by its changes."""
        table = make_table("pk:S")
        for expression, values, units in (
            ("SET x = :x", {":x": {"S": "x" * 1500}}, 2.0),
            ("SET y = :y", {":y": {"S": "y"}}, 2.0),
            ("REMOVE x", None, 2.0),
            ("REMOVE y", None, 1.0),
        ):
            request = {} if values is None else {"ExpressionAttributeValues": values}
            reply = client.update_item(
                TableName=table, Key=KEY, UpdateExpression=expression, ReturnConsumedCapacity="TOTAL", **request
            )
            assert reply["ConsumedCapacity"]["CapacityUnits"] == units

    def test_an_update_moves_entries_of_indexes(self, client, make_table):
        """An update of an index key costs the index a delete and a put.

        An update of another attribute costs nothing.
        """
        index = {
            "IndexName": "byg",
            "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
        table = make_table("pk:S", more=["g:S"], GlobalSecondaryIndexes=[index])

        def units(expression, value=None):
            request = {} if value is None else {"ExpressionAttributeValues": {":v": {"S": value}}}
            reply = client.update_item(
                TableName=table, Key=KEY, UpdateExpression=expression, ReturnConsumedCapacity="INDEXES", **request
            )["ConsumedCapacity"]
            paid = reply.get("GlobalSecondaryIndexes", {}).get("byg", {"CapacityUnits": 0.0})["CapacityUnits"]
            assert reply["CapacityUnits"] == reply["Table"]["CapacityUnits"] + paid
            return paid

        assert units("SET g = :v", "a") == 1.0
        assert units("SET extra = :v", "a") == 0.0
        assert units("SET g = :v", "a") == 0.0
        assert units("SET g = :v", "b") == 2.0
        assert units("REMOVE g") == 1.0
        entries = client.scan(TableName=table, IndexName="byg", Select="COUNT")
        assert entries["Count"] == 0


TestFake, TestMoto, TestMinistack, TestEndpoint = build_classes(
    DynamoContract,
    moto={
        "values of different types are compared by Python": (
            "test_an_item_without_the_attribute_is_not_older",
            "test_conditions_control_puts[s < :five-False]",
        ),
        "malformed conditions are accepted, or are faults of the server": ("test_malformed_conditions_are_refused",),
        "REMOVE makes an item": ("test_update_makes_an_item_unless_it_only_removes",),
        "consumption is constant": (
            "test_an_update_costs_the_complete_item",
            "test_an_update_moves_entries_of_indexes",
        ),
    },
    ministack={
        "some malformed expressions are accepted": (
            "test_malformed_conditions_are_refused[no_function(pk)-None]",
            "test_malformed_conditions_are_refused[pk < :a-values6]",
            "test_malformed_conditions_are_refused[pk : :a-values7]",
            "test_malformed_updates_are_refused[SET a = :a, a = :a]",
            "test_malformed_updates_are_refused[SET a = :a REMOVE a]",
            "test_malformed_updates_are_refused[SET a = :a SET b = :a]",
            "test_malformed_updates_are_refused[SET a]",
        ),
        "REMOVE makes an item": ("test_update_makes_an_item_unless_it_only_removes",),
    },
)
