"""Contract of consumed capacity and of indexes. Backends name their known gaps."""

from __future__ import annotations

import pytest

from tests.contract.backends import build_classes

ONE = {"pk": {"S": "one"}}


def sized(pk, size_bytes):
    """Return an item of exactly this size."""
    return {"pk": {"S": pk}, "text": {"S": "x" * (size_bytes - len("pk") - len(pk) - len("text"))}}


class DynamoContract:
    """Contract of consumed capacity and of indexes."""

    def test_a_read_unit_is_4096_bytes(self, client, dynamo, make_table):
        """4,096 bytes cost one unit, one byte more costs two; half if eventually consistent.

        A missing item costs one.
        """
        table = make_table("pk:S")
        dynamo.put_all(table, [sized("a", 4096), sized("b", 4097)])
        for pk, units in (("a", 1.0), ("b", 2.0), ("absent", 1.0)):
            for consistent, ratio in ((True, 1.0), (False, 0.5)):
                reply = client.get_item(
                    TableName=table,
                    Key={"pk": {"S": pk}},
                    ConsistentRead=consistent,
                    ProjectionExpression="pk",
                    ReturnConsumedCapacity="TOTAL",
                )
                assert reply["ConsumedCapacity"] == {"TableName": table, "CapacityUnits": units * ratio}

    def test_a_write_unit_is_1024_bytes(self, client, make_table):
        """A write costs the larger of the old and the new item. A delete of a missing item costs one."""
        table = make_table("pk:S")
        writes = [
            ("put_item", {"Item": sized("a", 1024)}, 1.0),
            ("put_item", {"Item": sized("a", 1025)}, 2.0),
            ("put_item", {"Item": sized("a", 100)}, 2.0),
            ("delete_item", {"Key": {"pk": {"S": "a"}}}, 1.0),
            ("delete_item", {"Key": {"pk": {"S": "a"}}}, 1.0),
        ]
        for operation, members, units in writes:
            reply = getattr(client, operation)(TableName=table, ReturnConsumedCapacity="INDEXES", **members)
            assert reply["ConsumedCapacity"]["CapacityUnits"] == units
            assert reply["ConsumedCapacity"]["Table"] == {"CapacityUnits": units}

    def test_a_batch_rounds_each_item(self, client, make_table):
        """Each item of a batch is rounded separately. Consumption is a list with one entry per table."""
        table = make_table("pk:S", "sk:N")
        items = [{"pk": {"S": "same"}, "sk": {"N": str(number)}} for number in range(10)]
        written = client.batch_write_item(
            RequestItems={table: [{"PutRequest": {"Item": item}} for item in items]}, ReturnConsumedCapacity="TOTAL"
        )
        assert written["ConsumedCapacity"] == [{"TableName": table, "CapacityUnits": 10.0}]
        read = client.batch_get_item(
            RequestItems={table: {"Keys": items, "ConsistentRead": True}}, ReturnConsumedCapacity="TOTAL"
        )
        assert read["ConsumedCapacity"] == [{"TableName": table, "CapacityUnits": 10.0}]

    def test_a_scan_pays_for_each_partition(self, client, dynamo, make_table):
        """A tiny Scan of a new on-demand table costs two units, four if consistent; a Query 0.5 and one."""
        table = make_table("pk:S")
        dynamo.put_all(table, [ONE])
        query = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "one"}}}
        for operation, members, units in (("scan", {}, 2.0), ("query", query, 0.5)):
            for consistent, ratio in ((False, 1.0), (True, 2.0)):
                reply = getattr(client, operation)(
                    TableName=table, ConsistentRead=consistent, ReturnConsumedCapacity="TOTAL", **members
                )
                assert reply["ConsumedCapacity"]["CapacityUnits"] == units * ratio

    def test_a_page_is_rounded_once_per_partition(self, client, dynamo, make_table):
        """A page of one partition costs its bytes in units of 4,096, and items are not rounded separately."""
        table = make_table("pk:S", "sk:N")
        text = {"S": "x" * (1042 - len("pkonesktext") - 2)}
        dynamo.put_all(table, [{**ONE, "sk": {"N": str(sk)}, "text": text} for sk in range(1, 10)])
        members = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "one"}}}
        reply = client.query(TableName=table, ReturnConsumedCapacity="TOTAL", **members)
        assert reply["ConsumedCapacity"]["CapacityUnits"] == 1.5

    def test_index_holds_only_items_with_its_key(self, client, dynamo, indexed):
        """Items without an index key are in the table but not in the index."""
        assert len(dynamo.items("scan", TableName=indexed)) == 8
        for index in ("everything", "keys", "some"):
            items = dynamo.items("scan", TableName=indexed, IndexName=index, Limit=3)
            assert sorted(item["pk"]["S"] for item in items) == [f"i{number}" for number in range(6)]
        counted = client.scan(TableName=indexed, IndexName="keys", Select="COUNT")
        assert counted["Count"] == 6

    def test_index_projects_what_it_was_made_for(self, dynamo, indexed):
        """ALL, KEYS_ONLY and INCLUDE project their attributes, always with both keys."""
        names = {
            index: set().union(*dynamo.items("scan", TableName=indexed, IndexName=index))
            for index in ("everything", "keys", "some")
        }
        assert names == {
            "everything": {"pk", "group", "rank", "text", "more"},
            "keys": {"pk", "group", "rank"},
            "some": {"pk", "group", "text"},
        }

    @pytest.mark.parametrize("forward", [True, False])
    def test_index_is_queried_in_its_order(self, dynamo, indexed, forward):
        """A Query of an index returns pages in its sort order."""
        items = dynamo.items(
            "query",
            TableName=indexed,
            IndexName="everything",
            KeyConditionExpression="#g = :g AND #r BETWEEN :low AND :high",
            ExpressionAttributeNames={"#g": "group", "#r": "rank"},
            ExpressionAttributeValues={":g": {"S": "g"}, ":low": {"N": "-4"}, ":high": {"N": "-1"}},
            ScanIndexForward=forward,
            Limit=1,
        )
        ranks = [int(item["rank"]["N"]) for item in items]
        assert ranks == ([-4, -3, -2, -1] if forward else [-1, -2, -3, -4])

    def test_index_pages_by_both_keys(self, client, indexed):
        """The LastEvaluatedKey of an index has the table's and the index's key."""
        page = client.scan(TableName=indexed, IndexName="keys", Limit=1)
        assert set(page["LastEvaluatedKey"]) == {"pk", "group", "rank"}

    @pytest.mark.parametrize(
        "members",
        [
            {"ConsistentRead": True},
            {"Select": "ALL_ATTRIBUTES"},
            {"ProjectionExpression": "more"},
            {"ExclusiveStartKey": {"pk": {"S": "i1"}}},
        ],
        ids=str,
    )
    def test_global_index_refuses_unsupported_reads(self, dynamo, indexed, members):
        """Consistent reads, unprojected attributes and an incomplete start key are refused."""
        assert dynamo.refusal("scan", TableName=indexed, IndexName="some", **members) == "ValidationException"

    @pytest.mark.parametrize(
        "value", [{"N": "1"}, {"S": ""}, {"NULL": True}, {"S": "x" * 2049}], ids=lambda v: str(v)[:12]
    )
    def test_bad_index_key_refuses_the_write(self, dynamo, indexed, value):
        """An index key that is of the wrong type, empty or too long refuses the item, and its entire batch."""
        bad = {"pk": {"S": "bad"}, "group": value}
        assert dynamo.refusal("put_item", TableName=indexed, Item=bad) == "ValidationException"
        batch = [{"PutRequest": {"Item": item}} for item in ({"pk": {"S": "good"}}, bad)]
        assert dynamo.refusal("batch_write_item", RequestItems={indexed: batch}) == "ValidationException"
        assert len(dynamo.items("scan", TableName=indexed)) == 8

    def test_indexes_cost_what_they_change(self, client, make_table):
        """A write pays for each index whose entry it creates, moves or changes, and for no other."""
        table = make_table("pk:S", more=["g:S"], GlobalSecondaryIndexes=[_index("byg", "KEYS_ONLY", "g")])

        def units(**attributes):
            item = {**ONE, **attributes}
            reply = client.put_item(TableName=table, Item=item, ReturnConsumedCapacity="INDEXES")["ConsumedCapacity"]
            consumed = reply.get("GlobalSecondaryIndexes", {}).get("byg", {"CapacityUnits": 0.0})["CapacityUnits"]
            assert reply["CapacityUnits"] == reply["Table"]["CapacityUnits"] + consumed
            return consumed

        assert units() == 0.0
        assert units(g={"S": "a"}) == 1.0
        assert units(g={"S": "a"}, other={"S": "x"}) == 0.0
        assert units(g={"S": "b"}) == 2.0
        assert units() == 1.0

    def test_local_index_fetches_from_its_table(self, dynamo, make_table):
        """A local index re-sorts a partition, and returns its projection, and other attributes on request."""
        table = make_table(
            "pk:S",
            "sk:N",
            more=["at:N"],
            LocalSecondaryIndexes=[_index("byat", "KEYS_ONLY", "pk", "at")],
        )
        rows = [dynamo.row("p", sk, at={"N": str(-sk)}, text={"S": f"t{sk}"}) for sk in range(4)]
        dynamo.put_all(table, [*rows, dynamo.row("p", 9)])
        query = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "p"}}}
        kept = dynamo.items("query", TableName=table, IndexName="byat", ConsistentRead=True, **query)
        assert [(set(item), item["sk"]["N"]) for item in kept] == [({"pk", "sk", "at"}, str(sk)) for sk in (3, 2, 1, 0)]
        full = dynamo.items("query", TableName=table, IndexName="byat", Select="ALL_ATTRIBUTES", **query)
        assert full == rows[::-1]


def _index(name, projection, *key, **members):
    return {
        "IndexName": name,
        "KeySchema": [
            {"AttributeName": part, "KeyType": kind} for part, kind in zip(key, ("HASH", "RANGE"), strict=False)
        ],
        "Projection": {"ProjectionType": projection, **members},
    }


@pytest.fixture(scope="class")
def indexed(dynamo, make_table):
    """Return a table of 8 items, 6 of them with the keys of its three global indexes."""
    table = make_table(
        "pk:S",
        more=["group:S", "rank:N"],
        GlobalSecondaryIndexes=[
            _index("everything", "ALL", "group", "rank"),
            _index("keys", "KEYS_ONLY", "group", "rank"),
            _index("some", "INCLUDE", "group", NonKeyAttributes=["text"]),
        ],
    )
    keyed = [
        {
            "pk": {"S": f"i{number}"},
            "group": {"S": "g" if number < 5 else "other"},
            "rank": {"N": str(-number)},
            "text": {"S": "t"},
            "more": {"S": "m"},
        }
        for number in range(6)
    ]
    dynamo.put_all(table, [*keyed, {"pk": {"S": "bare"}}, {"pk": {"S": "half"}, "rank": {"N": "1"}}])
    return table


TestFake, TestMoto, TestMinistack, TestEndpoint = build_classes(
    DynamoContract,
    moto={
        "consumption is constant": (
            "test_a_read_unit_is_4096_bytes",
            "test_a_write_unit_is_1024_bytes",
            "test_a_batch_rounds_each_item",
            "test_a_scan_pays_for_each_partition",
            "test_a_page_is_rounded_once_per_partition",
            "test_indexes_cost_what_they_change",
        ),
        "reads of an index are not checked": (
            "test_global_index_refuses_unsupported_reads[{'ProjectionExpression': 'more'}]",
            "test_global_index_refuses_unsupported_reads[{'ExclusiveStartKey': {'pk': {'S': 'i1'}}}]",
        ),
        "index keys are not checked on write": ("test_bad_index_key_refuses_the_write",),
        "a local index does not fetch from its table": ("test_local_index_fetches_from_its_table",),
    },
    ministack={
        "consumption is constant": (
            "test_a_read_unit_is_4096_bytes",
            "test_a_batch_rounds_each_item",
            "test_a_scan_pays_for_each_partition",
            "test_a_page_is_rounded_once_per_partition",
        ),
        "reads of an index are not checked": (
            "test_global_index_refuses_unsupported_reads[{'Select': 'ALL_ATTRIBUTES'}]",
            "test_global_index_refuses_unsupported_reads[{'ProjectionExpression': 'more'}]",
        ),
        "the length of index keys is not checked": ("test_bad_index_key_refuses_the_write[{'S': 'xxxxx]",),
        "a local index does not fetch from its table": ("test_local_index_fetches_from_its_table",),
    },
)
