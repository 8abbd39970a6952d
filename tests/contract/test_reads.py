"""Contract of reads. Each backend inherits the tests and names its known gaps."""

from __future__ import annotations

import itertools
import re
import zlib

import pytest

from ddbio.items.capacity import item_size_bytes
from tests.contract.backends import build_classes

MEBIBYTE = 1 << 20
P0 = {"pk": {"S": "p0"}}


class DynamoContract:
    """Contract of reads."""

    def test_scan_by_limit_is_complete(self, dynamo, spread):
        """Pages of a limited Scan have at most the limit, and all items once."""
        scanned = dynamo.pages("scan", TableName=spread, Limit=7)
        assert all(page["Count"] == page["ScannedCount"] == len(page["Items"]) <= 7 for page in scanned)
        keys = [item["pk"]["S"] for page in scanned for item in page["Items"]]
        assert sorted(keys) == sorted(f"key {number}" for number in range(200))

    @pytest.mark.parametrize("total", [1, 2, 17])
    def test_segments_are_disjoint_and_complete(self, dynamo, spread, total):
        """Segments have no common item and miss none."""
        segments = [
            {item["pk"]["S"] for item in dynamo.items("scan", TableName=spread, Segment=part, TotalSegments=total)}
            for part in range(total)
        ]
        assert sum(map(len, segments)) == 200 == len(set().union(*segments))

    def test_segment_and_total_must_fit(self, dynamo, spread):
        """A segment outside its total, or without one, is refused."""
        for members in ({"Segment": 2, "TotalSegments": 2}, {"Segment": 0}, {"TotalSegments": 2}):
            assert dynamo.refusal("scan", TableName=spread, **members) == "ValidationException"
        members = {"Segment": 0, "TotalSegments": 1_000_001}
        assert dynamo.refusal("scan", TableName=spread, **members) == "ValidationException"

    def test_start_key_belongs_to_its_segment(self, dynamo, client, spread):
        """A start key of another segment is refused."""
        other = client.scan(TableName=spread, Segment=1, TotalSegments=2, Limit=1)["LastEvaluatedKey"]
        members = {"Segment": 0, "TotalSegments": 2, "ExclusiveStartKey": other}
        assert dynamo.refusal("scan", TableName=spread, **members) == "ValidationException"

    def test_page_stops_after_reaching_a_mebibyte(self, dynamo, make_table):
        """A page is the fewest items that reach 1 MiB of item size. Only the last page is smaller."""
        table = make_table("pk:S")
        dynamo.put_all(table, [{"pk": {"S": f"{number}"}, "text": {"S": "x" * 30_000}} for number in range(80)])
        scanned = [[item_size_bytes(item) for item in page["Items"]] for page in dynamo.pages("scan", TableName=table)]
        full = [sizes for sizes in scanned[:-1] if sizes]
        assert len(full) >= 2
        assert all(sum(sizes) >= MEBIBYTE > sum(sizes[:-1]) for sizes in full)

    def test_projection_does_not_make_pages_larger(self, dynamo, make_table):
        """A page is measured by the read bytes, not by the returned ones."""
        table = make_table("pk:S", "sk:N")
        dynamo.put_all(table, [dynamo.row("one", sk, text={"S": "x" * 40_000}) for sk in range(40)])
        members = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "one"}}}
        queried = dynamo.pages("query", TableName=table, ProjectionExpression="sk", **members)
        assert len(queried) == 2
        assert [item["sk"]["N"] for page in queried for item in page["Items"]] == [str(sk) for sk in range(40)]

    def test_page_may_be_empty_and_not_the_last(self, client, numbered):
        """A filter can make a page empty, whose LastEvaluatedKey shows that it is not the last."""
        members = {"FilterExpression": "sk > :n", "ExpressionAttributeValues": {":n": {"N": "100"}}}
        first = client.scan(TableName=numbered, Limit=5, **members)
        assert (first["Count"], first["ScannedCount"], first["Items"]) == (0, 5, [])
        assert "LastEvaluatedKey" in first

    @pytest.mark.parametrize(
        ("text", "is_selected"),
        [
            ("sk > :three AND sk < :seven", "456"),
            ("sk BETWEEN :three AND :seven", "34567"),
            ("sk IN (:three, :seven, :t)", "37"),
            ("NOT sk <> :three OR begins_with(t, :seventh)", "37"),
            ("begins_with(#n.m[1].#n, :b)", "2468"),
            ("contains(tags, :b) AND attribute_exists(t)", "369"),
            ("contains(#n.m, :three)", ""),
            ("contains(t, :e3)", "3"),
            ("size(t) = :three", "0123456789"),
            ("size(tags) > :one", "369"),
            ("attribute_type(tags, :ss)", "0369"),
            ("attribute_not_exists(tags)", "124578"),
            ("(sk = :three OR sk = :seven) AND NOT attribute_exists(tags)", "7"),
        ],
    )
    def test_filters(self, dynamo, client, make_table, text, is_selected):
        """A filter selects among the read items, by paths, operators and functions."""
        table = make_table("pk:S", "sk:N")
        rows = [dynamo.row("one", sk, t={"S": f"te{sk}"}) for sk in range(10)]
        for sk in range(0, 10, 3):
            rows[sk]["tags"] = {"SS": ["a", "b"][: 1 + (sk > 0)]}
        for sk in range(2, 10, 2):
            rows[sk]["n"] = {"M": {"m": {"L": [{"N": "1"}, {"M": {"n": {"S": "bc"}}}]}}}
        dynamo.put_all(table, rows)
        values = {
            ":one": {"N": "1"},
            ":three": {"N": "3"},
            ":seven": {"N": "7"},
            ":t": {"S": "3"},
            ":b": {"S": "b"},
            ":seventh": {"S": "te7"},
            ":e3": {"S": "e3"},
            ":ss": {"S": "SS"},
        }
        members = {
            **({"ExpressionAttributeNames": {"#n": "n"}} if "#n" in text else {}),
            **(
                {"ExpressionAttributeValues": {name: values[name] for name in re.findall(r":\w+", text)}}
                if ":" in text
                else {}
            ),
        }
        page = client.scan(TableName=table, FilterExpression=text, **members)
        assert sorted(item["sk"]["N"] for item in page["Items"]) == list(is_selected)
        assert (page["Count"], page["ScannedCount"]) == (len(is_selected), 10)

    def test_the_filter_of_a_query_names_no_key(self, dynamo, numbered):
        """A Query can test its keys only in its key condition."""
        members = {"KeyConditionExpression": "pk = :p", "FilterExpression": "sk > :p"}
        values = {":p": {"S": "one"}}
        refusal = dynamo.refusal("query", TableName=numbered, **members, ExpressionAttributeValues=values)
        assert refusal == "ValidationException"

    @pytest.mark.parametrize("total", [1, 3])
    def test_items_of_a_partition_are_adjacent_and_sorted(self, dynamo, numbered, total):
        """A Scan yields a partition's items together, with numbers sorted by value."""
        scanned = [
            item
            for part in range(total)
            for item in dynamo.items("scan", TableName=numbered, Segment=part, TotalSegments=total, Limit=5)
        ]
        groups = [(pk, [int(i["sk"]["N"]) for i in group]) for pk, group in itertools.groupby(scanned, _partition)]
        assert sorted(groups) == [(f"p{p}", list(range(1, 13))) for p in range(3)]

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("sk = :a", [3]),
            (":a = sk", [3]),
            ("sk < :a", [1, 2]),
            ("sk <= :a", [1, 2, 3]),
            ("sk > :b", [11, 12]),
            (":b <= sk", [10, 11, 12]),
            ("sk BETWEEN :a AND :b", list(range(3, 11))),
        ],
    )
    @pytest.mark.parametrize("forward", [True, False])
    def test_key_conditions(self, dynamo, numbered, condition, expected, forward):
        """Every comparison selects the right sort keys, in either direction and by pages."""
        values = {":p": {"S": "p1"}, ":a": {"N": "3.0"}, ":b": {"N": "1e1"}}
        used = {name: value for name, value in values.items() if name == ":p" or name in condition}
        items = dynamo.items(
            "query",
            TableName=numbered,
            KeyConditionExpression=f"pk = :p AND {condition}",
            ExpressionAttributeValues=used,
            ScanIndexForward=forward,
            Limit=4,
        )
        assert [int(item["sk"]["N"]) for item in items] == (expected if forward else expected[::-1])

    def test_begins_with_on_text_and_bytes(self, dynamo, make_table):
        """A prefix selects entire strings or bytes that start with it, including the highest byte."""
        for tag, prefix, others in (("S", "ab", ["a", "b"]), ("B", b"\xff", [b"\xfe\xff"])):
            table = make_table("pk:S", f"sk:{tag}")
            inside = [prefix, prefix + prefix]
            dynamo.put_all(table, [{"pk": {"S": "p"}, "sk": {tag: sk}} for sk in [*others, *inside]])
            items = dynamo.items(
                "query",
                TableName=table,
                KeyConditionExpression="pk = :p AND begins_with(sk, :x)",
                ExpressionAttributeValues={":p": {"S": "p"}, ":x": {tag: prefix}},
            )
            assert [item["sk"][tag] for item in items] == inside

    @pytest.mark.parametrize(
        "condition",
        [
            "pk = :p OR sk = :n",
            "NOT pk = :p AND sk = :n",
            "pk = :p AND sk <> :n",
            "pk = :p AND sk IN (:n)",
            "pk = :p AND begins_with(sk, :n)",
            "pk = :p AND text = :n",
            "sk = :n",
            "pk < :p AND sk = :n",
            "pk = :p AND sk = :n AND sk = :n",
            "pk = :p AND sk = :unknown",
            "pk = :p AND sk = :n extra",
            "",
        ],
    )
    def test_conditions_on_anything_but_keys_are_refused(self, dynamo, numbered, condition):
        """A key condition is one comparison per key attribute, with equality on the partition key."""
        values = {name: value for name, value in {":p": {"S": "p"}, ":n": {"N": "1"}}.items() if name in condition}
        members = {"KeyConditionExpression": condition, "ExpressionAttributeValues": values or {":p": {"S": "p"}}}
        assert dynamo.refusal("query", TableName=numbered, **members) == "ValidationException"

    def test_query_ends_with_its_last_item(self, dynamo, numbered):
        """A limited Query has as many pages as items, and no empty page after them."""
        members = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "p0"}}}
        assert [page["Count"] for page in dynamo.pages("query", TableName=numbered, Limit=1, **members)] == [1] * 12

    def test_start_key_may_be_invented(self, dynamo, client, numbered):
        """A start key need not exist."""
        members = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "p0"}}}
        items = client.query(TableName=numbered, ExclusiveStartKey=dynamo.row("p0", "6.5"), **members)["Items"]
        assert [item["sk"]["N"] for item in items] == ["7", "8", "9", "10", "11", "12"]

    @pytest.mark.parametrize("key", [P0, P0 | {"sk": {"N": "1"}, "text": {"S": "x"}}, P0 | {"sk": {"S": "1"}}])
    def test_start_key_is_exactly_a_key(self, dynamo, numbered, key):
        """A start key with a missing or extra part, or of the wrong type, is refused."""
        assert dynamo.refusal("scan", TableName=numbered, ExclusiveStartKey=key) == "ValidationException"

    def test_start_key_must_be_in_the_queried_partition(self, dynamo, numbered):
        """A Query refuses a start key of another partition."""
        members = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "p0"}}}
        key = dynamo.row("p1", 1)
        assert dynamo.refusal("query", TableName=numbered, ExclusiveStartKey=key, **members) == "ValidationException"

    def test_projection_reaches_into_items(self, dynamo, client, make_table):
        """Paths select members and elements. Missing ones are left out, including their names."""
        table = make_table("pk:S")
        dynamo.put_all(
            table,
            [
                {
                    "pk": {"S": "full"},
                    "m": {"M": {"a": {"N": "1"}, "b": {"N": "2"}}},
                    "l": {"L": [{"S": "0"}, {"S": "1"}, {"S": "2"}]},
                },
                {"pk": {"S": "bare"}},
            ],
        )
        members = {"ProjectionExpression": "#m.a, l[2], l[0], l[9], absent", "ExpressionAttributeNames": {"#m": "m"}}
        full = {"m": {"M": {"a": {"N": "1"}}}, "l": {"L": [{"S": "0"}, {"S": "2"}]}}
        assert client.get_item(TableName=table, Key={"pk": {"S": "full"}}, **members)["Item"] == full
        items = dynamo.items("scan", TableName=table, **members)
        assert sorted(items, key=len) == [{}, full]

    @pytest.mark.parametrize("paths", ["a, a", "a, a.b", "a.b, a[0]", "a,", "a..b", "a[x]", "", "#unknown"])
    def test_projection_paths_must_be_apart(self, dynamo, spread, paths):
        """Overlapping, conflicting and malformed paths are refused by their text alone."""
        assert dynamo.refusal("scan", TableName=spread, ProjectionExpression=paths) == "ValidationException"

    def test_unused_names_are_refused(self, dynamo, spread):
        """Every expression attribute name must be used."""
        members = {"ProjectionExpression": "#a", "ExpressionAttributeNames": {"#a": "a", "#b": "b"}}
        assert dynamo.refusal("scan", TableName=spread, **members) == "ValidationException"

    def test_select_count_has_no_items(self, client, spread):
        """A count has no Items member."""
        page = client.scan(TableName=spread, Select="COUNT")
        assert page["Count"] == 200
        assert "Items" not in page

    @pytest.mark.parametrize(
        "members",
        [
            {"Select": "count"},
            {"Select": "SPECIFIC_ATTRIBUTES"},
            {"Select": "ALL_PROJECTED_ATTRIBUTES"},
            {"Select": "COUNT", "ProjectionExpression": "pk"},
            {"AttributesToGet": []},
            {"AttributesToGet": ["pk", "pk"]},
            {"Limit": 0},
        ],
        ids=str,
    )
    def test_contradictory_scans_are_refused(self, dynamo, spread, members):
        """Select must match the other parameters, and a limit is at least one."""
        assert dynamo.refusal("scan", TableName=spread, **members) == "ValidationException"

    def test_errors_have_their_codes(self, dynamo, client, spread):
        """Missing tables, missing indexes, bad names and repeated creation each have their own code."""
        assert dynamo.refusal("scan", TableName="ddbio-contract-absent") == "ResourceNotFoundException"
        assert dynamo.refusal("describe_table", TableName="ddbio-contract-absent") == "ResourceNotFoundException"
        assert dynamo.refusal("scan", TableName=spread, IndexName="absent") == "ValidationException"
        assert dynamo.refusal("scan", TableName="a?") == "ValidationException"
        described = client.describe_table(TableName=spread)["Table"]
        again = {name: described[name] for name in ("TableName", "KeySchema", "AttributeDefinitions")}
        assert dynamo.refusal("create_table", **again, BillingMode="PAY_PER_REQUEST") == "ResourceInUseException"

    def test_table_describes_itself(self, dynamo, client, make_table):
        """A description has the exact count and size of the written items."""
        table = make_table("pk:S")
        written = [{"pk": {"S": f"{number}"}, "n": {"N": "12"}, "text": {"S": "é" * number}} for number in range(30)]
        dynamo.put_all(table, written)
        described = client.describe_table(TableName=table)["Table"]
        assert described["TableStatus"] == "ACTIVE"
        assert described["ItemCount"] == 30
        assert described["TableSizeBytes"] == sum(map(item_size_bytes, written))

    def test_tables_are_listed(self, client, spread):
        """Listing by pages returns a table."""
        paginator = client.get_paginator("list_tables")
        names = [name for page in paginator.paginate(PaginationConfig={"PageSize": 1}) for name in page["TableNames"]]
        assert spread in names

    def test_replies_carry_their_checksum(self, dynamo, client, spread):
        """The x-amz-crc32 of a reply matches its bytes, including errors."""
        seen = []

        def check(response_dict, **_):
            seen.append(response_dict["headers"]["x-amz-crc32"] == str(zlib.crc32(response_dict["body"])))

        client.meta.events.register("before-parse.dynamodb", check)
        try:
            client.scan(TableName=spread)
            dynamo.refusal("scan", TableName="ddbio-contract-absent")
        finally:
            client.meta.events.unregister("before-parse.dynamodb", check)
        assert seen == [True, True]


def _partition(item):
    return item["pk"]["S"]


TestFake, TestMoto, TestMinistack, TestEndpoint = build_classes(
    DynamoContract,
    moto={
        "the filter of a Query may name keys": ("test_the_filter_of_a_query_names_no_key",),
        "the size of what is missing is an error": ("test_filters[size(tags) > :one-369]",),
        "segments and start keys are not checked": (
            "test_segment_and_total_must_fit",
            "test_start_key_belongs_to_its_segment",
            "test_start_key_is_exactly_a_key",
            "test_start_key_must_be_in_the_queried_partition",
        ),
        "a page stops before the item that reaches 1 MiB": ("test_page_stops_after_reaching_a_mebibyte",),
        "a constant stands only on the right side": (
            "test_key_conditions[True-:a = sk-expected1]",
            "test_key_conditions[True-:b <= sk-expected5]",
            "test_key_conditions[False-:a = sk-expected1]",
            "test_key_conditions[False-:b <= sk-expected5]",
        ),
        "key conditions are parsed loosely": (
            "test_conditions_on_anything_but_keys_are_refused[pk = :p OR sk = :n]",
            "test_conditions_on_anything_but_keys_are_refused[NOT pk = :p AND sk = :n]",
            "test_conditions_on_anything_but_keys_are_refused[pk = :p AND sk <> :n]",
            "test_conditions_on_anything_but_keys_are_refused[pk = :p AND sk IN (:n)]",
            "test_conditions_on_anything_but_keys_are_refused[pk = :p AND begins_with(sk, :n)]",
            "test_conditions_on_anything_but_keys_are_refused[pk = :p AND sk = :n AND sk = :n]",
            "test_conditions_on_anything_but_keys_are_refused[pk = :p AND sk = :n extra]",
        ),
        "elements of one list are not gathered": ("test_projection_reaches_into_items",),
        "projection paths are parsed loosely": (
            "test_projection_paths_must_be_apart[a, a.b]",
            "test_projection_paths_must_be_apart[a.b, a[0]]",
            "test_projection_paths_must_be_apart[a,]",
            "test_projection_paths_must_be_apart[a..b]",
            "test_projection_paths_must_be_apart[a[x]]",
            "test_projection_paths_must_be_apart[#unknown]",
        ),
        "limits and legacy parameters are not checked": (
            "test_contradictory_scans_are_refused[{'AttributesToGet': []}]",
            "test_contradictory_scans_are_refused[{'AttributesToGet': ['pk', 'pk']}]",
            "test_contradictory_scans_are_refused[{'Limit': 0}]",
        ),
        "an absent index is ResourceNotFoundException": ("test_errors_have_their_codes",),
        "TableSizeBytes is always 0": ("test_table_describes_itself",),
    },
    ministack={
        "the filter of a Query may name keys": ("test_the_filter_of_a_query_names_no_key",),
        "start keys are not checked": (
            "test_start_key_belongs_to_its_segment",
            "test_start_key_is_exactly_a_key[key1]",
            "test_start_key_is_exactly_a_key[key2]",
        ),
        "a page stops before the item that reaches 1 MiB": ("test_page_stops_after_reaching_a_mebibyte",),
        "a Scan orders numbers as text": ("test_items_of_a_partition_are_adjacent_and_sorted",),
        "key conditions are parsed loosely": (
            "test_conditions_on_anything_but_keys_are_refused[pk = :p OR sk = :n]",
            "test_conditions_on_anything_but_keys_are_refused[NOT pk = :p AND sk = :n]",
            "test_conditions_on_anything_but_keys_are_refused[pk = :p AND sk <> :n]",
        ),
        "a limited Query ends with an empty page": ("test_query_ends_with_its_last_item",),
        "projection paths are parsed loosely": (
            "test_projection_paths_must_be_apart[a.b, a[0]]",
            "test_projection_paths_must_be_apart[a,]",
            "test_projection_paths_must_be_apart[a..b]",
            "test_projection_paths_must_be_apart[a[x]]",
            "test_projection_paths_must_be_apart[]",
        ),
        "Select and legacy parameters are not checked": (
            "test_contradictory_scans_are_refused[{'Select': 'count'}]",
            "test_contradictory_scans_are_refused[{'AttributesToGet': []}]",
            "test_contradictory_scans_are_refused[{'AttributesToGet': ['pk', 'pk']}]",
        ),
        "TableSizeBytes is 200 an item": ("test_table_describes_itself",),
    },
)
