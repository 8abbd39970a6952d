"""Contract of items, keys, numbers and batches. Backends name their known gaps."""

from __future__ import annotations

import pytest

from tests.contract.backends import build_classes

ONE = {"pk": {"S": "one"}}


class DynamoContract:
    """Contract of items, keys, numbers and batches."""

    @pytest.mark.parametrize(
        ("text", "canonical"),
        [
            ("1e3", "1000"),
            ("+1000", "1000"),
            ("001000", "1000"),
            ("1000.0", "1000"),
            ("1.10", "1.1"),
            (".5", "0.5"),
            ("-0", "0"),
            ("1e125", "1" + "0" * 125),
            ("1e-20", "0.00000000000000000001"),
            ("-1E-130", "-0." + "0" * 129 + "1"),
            ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
        ],
    )
    def test_numbers_are_returned_as_canonical_numbers(self, client, spread, text, canonical):
        """Any notation of a number is returned as a plain decimal, also deep inside an item."""
        numbers = {"n": {"N": text}, "ns": {"NS": [text]}, "l": {"L": [{"M": {"n": {"N": text}}}]}}
        client.put_item(TableName=spread, Item={**ONE, **numbers})
        item = client.get_item(TableName=spread, Key=ONE, ConsistentRead=True)["Item"]
        assert item["n"] == {"N": canonical}
        assert item["ns"] == {"NS": [canonical]}
        assert item["l"] == {"L": [{"M": {"n": {"N": canonical}}}]}

    def test_any_spelling_of_a_number_finds_the_key(self, client, dynamo, numbered):
        """Number keys are equal by value."""
        assert client.get_item(TableName=numbered, Key=dynamo.row("p0", "1.0e1"))["Item"]["text"] == {"S": "t10"}

    @pytest.mark.parametrize(
        "number", ["1" * 39, "0." + "1" * 39, "1e126", "1e-131", " 1", "NaN", "Infinity", "0x1", "1_0", "", "1e"]
    )
    def test_other_numbers_are_refused(self, dynamo, spread, number):
        """Numbers with more than 38 digits, or of another magnitude, and other texts cannot be stored."""
        item = {**ONE, "n": {"N": number}}
        assert dynamo.refusal("put_item", TableName=spread, Item=item) == "ValidationException"

    def test_containers_may_be_empty_but_sets_not(self, client, dynamo, spread):
        """Empty strings, bytes, lists and maps are valid. An empty set is not."""
        empty = {"s": {"S": ""}, "b": {"B": b""}, "l": {"L": []}, "m": {"M": {}}}
        client.put_item(TableName=spread, Item={**ONE, **empty})
        assert client.get_item(TableName=spread, Key=ONE)["Item"] == {**ONE, **empty}
        for tag in ("SS", "NS", "BS"):
            item = {**ONE, "set": {tag: []}}
            assert dynamo.refusal("put_item", TableName=spread, Item=item) == "ValidationException"

    def test_every_type_survives(self, client, spread):
        """All ten types are returned unchanged."""
        values = {
            "s": {"S": '\u00e9\U0001f600\x00"\\'},
            "n": {"N": "-1.5"},
            "b": {"B": bytes(range(256))},
            "bool": {"BOOL": False},
            "null": {"NULL": True},
            "ss": {"SS": ["a"]},
            "ns": {"NS": ["1"]},
            "bs": {"BS": [b"\x00"]},
            "l": {"L": [{"S": "x"}, {"L": []}]},
            "m": {"M": {"deep": {"M": {"n": {"N": "1"}}}}},
        }
        client.put_item(TableName=spread, Item={**ONE, **values})
        assert client.get_item(TableName=spread, Key=ONE)["Item"] == {**ONE, **values}

    @pytest.mark.parametrize(
        "value",
        [{}, {"S": "a", "N": "1"}, {"NULL": False}, {"SS": ["a", "a"]}, {"NS": ["1", "1.0"]}],
        ids=str,
    )
    def test_malformed_values_are_refused(self, dynamo, spread, value):
        """A value has exactly one known type, and sets have no equal elements."""
        item = {**ONE, "a": value}
        assert dynamo.refusal("put_item", TableName=spread, Item=item) == "ValidationException"

    @pytest.mark.parametrize(
        "item",
        [{"sk": {"N": "1"}}, {"pk": {"S": ""}, "sk": {"N": "1"}}, {"pk": {"S": "p"}, "sk": {"S": "1"}}],
        ids=["missing", "empty", "wrong type"],
    )
    def test_keys_are_checked_on_write(self, dynamo, numbered, item):
        """An item whose key is missing, empty or of the wrong type is refused."""
        assert dynamo.refusal("put_item", TableName=numbered, Item=item) == "ValidationException"

    @pytest.mark.parametrize("operation", ["get_item", "delete_item"])
    @pytest.mark.parametrize(
        "key",
        [
            {"pk": {"S": "p"}},
            {"pk": {"S": "p"}, "sk": {"S": "1"}},
            {"pk": {"S": "p"}, "sk": {"N": "1"}, "text": {"S": "x"}},
            {"pk": {"S": "p" * 2049}, "sk": {"N": "1"}},
        ],
        ids=["incomplete", "wrong type", "extra", "too long"],
    )
    def test_keys_are_checked_on_read(self, dynamo, numbered, operation, key):
        """A key has exactly the key attributes, of the right types and sizes."""
        assert dynamo.refusal(operation, TableName=numbered, Key=key) == "ValidationException"

    def test_key_may_have_its_full_length(self, client, make_table):
        """A partition key has up to 2,048 bytes, a sort key up to 1,024, counted as raw bytes."""
        table = make_table("pk:B", "sk:S")
        key = {"pk": {"B": b"\xff" * 2048}, "sk": {"S": "\u00e9" * 512}}
        client.put_item(TableName=table, Item=key)
        assert client.get_item(TableName=table, Key=key)["Item"] == key

    def test_item_has_at_most_400_kib(self, client, dynamo, spread):
        """409,600 bytes of names and values are stored. One byte more is refused."""
        fits = {**ONE, "text": {"S": "x" * (409_600 - len("pkonetext"))}}
        client.put_item(TableName=spread, Item=fits)
        more = {**ONE, "text": {"S": fits["text"]["S"] + "x"}}
        assert dynamo.refusal("put_item", TableName=spread, Item=more) == "ValidationException"

    def test_levels_are_bounded(self, client, dynamo, spread):
        """An attribute with 30 nested maps is stored. 50 are refused."""

        def nested(levels):
            value = {"S": "x"}
            for _ in range(levels):
                value = {"M": {"m": value}}
            return {**ONE, "a": value}

        client.put_item(TableName=spread, Item=nested(30))
        assert client.get_item(TableName=spread, Key=ONE)["Item"] == nested(30)
        assert dynamo.refusal("put_item", TableName=spread, Item=nested(50)) == "ValidationException"

    def test_put_replaces_and_returns_the_old_item(self, client, spread):
        """ALL_OLD returns the previous item. Without it the reply is empty."""
        key = {"pk": {"S": "replaced"}}
        assert "Attributes" not in client.put_item(TableName=spread, Item={**key, "n": {"N": "1"}})
        old = client.put_item(TableName=spread, Item={**key, "m": {"N": "2"}}, ReturnValues="ALL_OLD")["Attributes"]
        assert old == {**key, "n": {"N": "1"}}
        gone = client.delete_item(TableName=spread, Key=key, ReturnValues="ALL_OLD")["Attributes"]
        assert gone == {**key, "m": {"N": "2"}}
        assert "Item" not in client.get_item(TableName=spread, Key=key)
        assert "Attributes" not in client.delete_item(TableName=spread, Key=key, ReturnValues="ALL_OLD")

    def test_batch_puts_and_deletes(self, client, dynamo, make_table):
        """A batch puts and deletes in one call and always returns the unprocessed items."""
        table = make_table("pk:S")
        dynamo.put_all(table, [ONE])
        requests = [{"DeleteRequest": {"Key": ONE}}, {"PutRequest": {"Item": {"pk": {"S": "two"}}}}]
        assert client.batch_write_item(RequestItems={table: requests})["UnprocessedItems"] == {}
        assert dynamo.items("scan", TableName=table) == [{"pk": {"S": "two"}}]

    def _refused_batch(self, dynamo, table, requests):
        code = dynamo.refusal("batch_write_item", RequestItems={table: requests})
        assert dynamo.items("scan", TableName=table) == []
        return code

    def test_batch_has_at_most_25_writes(self, dynamo, make_table):
        """26 writes are refused and none is executed."""
        table = make_table("pk:S")
        requests = [{"PutRequest": {"Item": {"pk": {"S": str(number)}}}} for number in range(26)]
        assert self._refused_batch(dynamo, table, requests) == "ValidationException"

    def test_one_bad_item_refuses_its_batch(self, dynamo, make_table):
        """An item without its key refuses the entire batch."""
        table = make_table("pk:S")
        requests = [{"PutRequest": {"Item": ONE}}, {"PutRequest": {"Item": {"other": {"S": "x"}}}}]
        assert self._refused_batch(dynamo, table, requests) == "ValidationException"

    @pytest.mark.parametrize("kind", ["put/put", "put/delete", "delete/delete"])
    def test_batch_names_a_key_once(self, dynamo, make_table, kind):
        """Keys are compared by value, so that 1000 and 1e3 are the same key."""
        table = make_table("pk:N")
        requests = [
            {"PutRequest": {"Item": {"pk": {"N": number}}}}
            if verb == "put"
            else {"DeleteRequest": {"Key": {"pk": {"N": number}}}}
            for verb, number in zip(kind.split("/"), ("1000", "1e3"), strict=True)
        ]
        assert self._refused_batch(dynamo, table, requests) == "ValidationException"

    def test_batches_are_not_empty(self, dynamo, spread):
        """A batch without tables, or without requests for one, is refused."""
        for asked in ({}, {spread: []}):
            assert dynamo.refusal("batch_write_item", RequestItems=asked) == "ValidationException"
        for asked in ({}, {spread: {"Keys": []}}):
            assert dynamo.refusal("batch_get_item", RequestItems=asked) == "ValidationException"

    def test_batch_get_leaves_out_what_is_absent(self, client, numbered, dynamo):
        """Missing items are left out silently. A table without results has an empty list."""
        keys = [dynamo.row("p0", 1), dynamo.row("p0", 99)]
        responses = client.batch_get_item(RequestItems={numbered: {"Keys": keys}})
        assert responses["UnprocessedKeys"] == {}
        assert [item["text"] for item in responses["Responses"][numbered]] == [{"S": "t1"}]
        none = client.batch_get_item(RequestItems={numbered: {"Keys": keys[1:]}})
        assert none["Responses"] == {numbered: []}

    def test_batch_get_refuses_duplicates_and_too_many(self, dynamo, numbered):
        """A key may occur once, and at most 100 keys are allowed."""
        for keys in ([dynamo.row("p0", 1)] * 2, [dynamo.row("p0", number) for number in range(101)]):
            asked = {numbered: {"Keys": keys}}
            assert dynamo.refusal("batch_get_item", RequestItems=asked) == "ValidationException"


TestFake, TestMoto, TestMinistack, TestEndpoint = build_classes(
    DynamoContract,
    moto={
        "numbers are stored as they are written": (
            "test_numbers_are_returned_as_canonical_numbers[1e3-1000]",
            "test_numbers_are_returned_as_canonical_numbers[+1000-1000]",
            "test_numbers_are_returned_as_canonical_numbers[001000-1000]",
            "test_numbers_are_returned_as_canonical_numbers[1000.0-1000]",
            "test_numbers_are_returned_as_canonical_numbers[1.10-1.1]",
            "test_numbers_are_returned_as_canonical_numbers[.5-0.5]",
            "test_numbers_are_returned_as_canonical_numbers[-0-0]",
            "test_numbers_are_returned_as_canonical_numbers[1e125-canonical7]",
            "test_numbers_are_returned_as_canonical_numbers[1e-20-0.00000000000000000001]",
            "test_numbers_are_returned_as_canonical_numbers[-1E-130-canonical9]",
        ),
        "numbers are parsed by Python": (
            "test_other_numbers_are_refused[111111111111111111111111111111111111111]",
            "test_other_numbers_are_refused[0.111111111111111111111111111111111111111]",
            "test_other_numbers_are_refused[1e126]",
            "test_other_numbers_are_refused[1_0]",
        ),
        "values are not checked": (
            "test_containers_may_be_empty_but_sets_not",
            "test_malformed_values_are_refused[{}]",
            "test_malformed_values_are_refused[{'S': 'a', 'N': '1'}]",
            "test_malformed_values_are_refused[{'SS': ['a', 'a']}]",
            "test_malformed_values_are_refused[{'NS': ['1', '1.0']}]",
            "test_item_has_at_most_400_kib",
            "test_levels_are_bounded",
        ),
        "keys are not checked on read": (
            "test_keys_are_checked_on_read[wrong type-get_item]",
            "test_keys_are_checked_on_read[wrong type-delete_item]",
            "test_keys_are_checked_on_read[too long-get_item]",
            "test_keys_are_checked_on_read[too long-delete_item]",
        ),
        "batches are not checked": (
            "test_batch_has_at_most_25_writes",
            "test_one_bad_item_refuses_its_batch",
            "test_batch_names_a_key_once",
            "test_batches_are_not_empty",
        ),
    },
    ministack={
        "number keys are compared as text": ("test_any_spelling_of_a_number_finds_the_key",),
        "only equal puts are duplicates": (
            "test_batch_names_a_key_once[put/delete]",
            "test_batch_names_a_key_once[delete/delete]",
        ),
    },
)
