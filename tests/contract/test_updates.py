"""Contract of updates, transactions and statements. Backends name their known gaps."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.contract.backends import build_classes

KEY = {"pk": {"S": "one"}}
ITEM = {
    **KEY,
    "n": {"N": "10"},
    "tags": {"SS": ["a", "b"]},
    "l": {"L": [{"N": "0"}, {"N": "1"}, {"N": "2"}]},
    "m": {"M": {"x": {"N": "1"}}},
}
VALUES = {":n": {"N": "2.5"}, ":l": {"L": [{"N": "9"}]}, ":t": {"SS": ["b", "c"]}, ":s": {"S": "s"}}


class DynamoContract:
    """Contract of updates, transactions and statements."""

    @staticmethod
    def _item(client, table, key=KEY):
        return client.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")

    @staticmethod
    def _update(expression):
        used = {name: value for name, value in VALUES.items() if name in expression}
        return {"UpdateExpression": expression, **({"ExpressionAttributeValues": used} if used else {})}

    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("SET n = n + :n", {"n": {"N": "12.5"}}),
            ("SET n = if_not_exists(n, :n), o = if_not_exists(o, :n)", {"o": {"N": "2.5"}}),
            ("SET a = n, n = :n", {"a": {"N": "10"}, "n": {"N": "2.5"}}),
            ("SET l = list_append(:l, l)", {"l": {"L": [{"N": "9"}, *ITEM["l"]["L"]]}}),
            ("SET m.x = m.x - :n, m.y = :s", {"m": {"M": {"x": {"N": "-1.5"}, "y": {"S": "s"}}}}),
            ("SET l[7] = :s", {"l": {"L": [*ITEM["l"]["L"], {"S": "s"}]}}),
            ("REMOVE l[0], l[1]", {"l": {"L": [{"N": "2"}]}}),
            ("ADD n :n, o :n", {"n": {"N": "12.5"}, "o": {"N": "2.5"}}),
            ("DELETE tags :t", {"tags": {"SS": ["a"]}}),
        ],
    )
    def test_updates_change_the_named_attributes(self, client, make_table, expression, expected):
        """Arithmetic, functions, paths, ADD and DELETE change the attributes that they name."""
        table = make_table("pk:S")
        client.put_item(TableName=table, Item=ITEM)
        client.update_item(TableName=table, Key=KEY, **self._update(expression))
        assert self._item(client, table) == {**ITEM, **expected}

    @pytest.mark.parametrize(
        "expression",
        [
            "SET a = absent",
            "SET absent.x = :n",
            "SET n = n + :s",
            "ADD n :s",
            "ADD tags :n",
            "DELETE n :t",
            "SET m = :s, m.x = :n",
            "SET status = :s",
        ],
    )
    def test_what_cannot_be_updated_is_refused(self, client, dynamo, make_table, expression):
        """Types, paths and reserved words are checked, and nothing is changed."""
        table = make_table("pk:S")
        client.put_item(TableName=table, Item=ITEM)
        assert (
            dynamo.refusal("update_item", TableName=table, Key=KEY, **self._update(expression)) == "ValidationException"
        )
        assert self._item(client, table) == ITEM

    def test_a_transaction_is_all_or_nothing(self, client, make_table):
        """One false condition cancels every write, and each write has its reason."""
        table = make_table("pk:S")
        client.put_item(TableName=table, Item=ITEM)
        absent = {"ConditionExpression": "attribute_not_exists(pk)"}
        puts = [{"Put": {"TableName": table, "Item": item, **absent}} for item in ({"pk": {"S": "new"}}, KEY)]
        with pytest.raises(ClientError) as caught:
            client.transact_write_items(TransactItems=puts)
        reasons = caught.value.response["CancellationReasons"]
        assert [reason["Code"] for reason in reasons] == ["None", "ConditionalCheckFailed"]
        assert self._item(client, table, {"pk": {"S": "new"}}) is None
        client.transact_write_items(TransactItems=puts[:1])
        gets = [{"Get": {"TableName": table, "Key": {"pk": {"S": name}}}} for name in ("new", "absent")]
        assert client.transact_get_items(TransactItems=gets)["Responses"] == [{"Item": {"pk": {"S": "new"}}}, {}]

    def test_a_token_makes_a_transaction_happen_once(self, client, make_table):
        """A transaction that is repeated with its token is not executed again."""
        table = make_table("pk:S")
        client.put_item(TableName=table, Item=ITEM)
        update = {"Update": {"TableName": table, "Key": KEY, **self._update("ADD n :n")}}
        for _ in range(2):
            client.transact_write_items(TransactItems=[update], ClientRequestToken=table[-36:])
        assert self._item(client, table)["n"] == {"N": "12.5"}

    def test_an_item_has_one_write_in_a_transaction(self, dynamo, make_table):
        """Two writes of one item are refused."""
        table = make_table("pk:S")
        items = [{"Put": {"TableName": table, "Item": ITEM}}, {"Delete": {"TableName": table, "Key": KEY}}]
        assert dynamo.refusal("transact_write_items", TransactItems=items) == "ValidationException"

    def test_statements_read_and_write(self, client, dynamo, make_table):
        """INSERT creates, UPDATE changes and DELETE removes the items that SELECT returns. A duplicate is refused."""
        table = make_table("pk:S")
        insert = {"Statement": f"INSERT INTO \"{table}\" VALUE {{'pk': 'one', 'n': ?}}", "Parameters": [{"N": "1"}]}
        client.execute_statement(**insert)
        assert dynamo.refusal("execute_statement", **insert) == "DuplicateItemException"
        client.execute_statement(Statement=f"UPDATE \"{table}\" SET n = 2 WHERE pk = 'one'")
        select = {"Statement": f"SELECT n FROM \"{table}\" WHERE pk = 'one' AND n > 1"}
        assert client.execute_statement(**select)["Items"] == [{"n": {"N": "2"}}]
        client.execute_statement(Statement=f"DELETE FROM \"{table}\" WHERE pk = 'one'")
        assert client.execute_statement(**select)["Items"] == []


TestFake, TestMoto, TestMinistack, TestEndpoint = build_classes(
    DynamoContract,
    moto={
        "tokens are ignored": ("test_a_token_makes_a_transaction_happen_once",),
        "statements with parameters are faults of the server": ("test_statements_read_and_write",),
    },
    ministack={
        "elements are removed one after the other": (
            "test_updates_change_the_named_attributes[REMOVE l[0], l[1]-expected6]",
        ),
        "a sum of a number and a text is accepted": ("test_what_cannot_be_updated_is_refused[SET n = n + :s]",),
    },
)
