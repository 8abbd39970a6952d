"""Global indexes of the fake whose keys have several attributes."""

from __future__ import annotations

from decimal import Decimal
from itertools import product

import boto3
import pytest
from botocore.exceptions import ClientError

from ddbio.testing import FakeDynamoDB

INDEX = "by_place_and_time"
KEYS = [("country", "HASH"), ("year", "HASH"), ("month", "RANGE"), ("city", "RANGE"), ("score", "RANGE")]
TYPES = {"id": "S", "country": "S", "year": "N", "month": "N", "city": "S", "score": "N"}
ITEMS = [
    {
        "id": f"{country}{year}{month}{city}{score}",
        "country": country,
        "year": year,
        "month": month,
        "city": city,
        "score": score,
    }
    for country, year, month, city, score in product(
        "ab", (2025, 2026), (2, 10), ("x", "xy", "z"), (Decimal("-1.5"), 7)
    )
]


def definition(keys: list[tuple[str, str]], **members: object) -> dict[str, object]:
    """Return the parameters of a table with one global index."""
    names = {"id", *(name for name, _ in keys)}
    schema = [{"AttributeName": name, "KeyType": kind} for name, kind in keys]
    return {
        "TableName": "scores",
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": TYPES.get(name, "S")} for name in sorted(names)
        ],
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        "BillingMode": "PAY_PER_REQUEST",
        "GlobalSecondaryIndexes": [{"IndexName": INDEX, "KeySchema": schema, "Projection": {"ProjectionType": "ALL"}}],
        **members,
    }


@pytest.fixture(scope="module")
def table():
    """Return a table of boto3 whose index has two partition attributes and three sort attributes."""
    with FakeDynamoDB() as fake:
        resource = boto3.resource("dynamodb", endpoint_url=fake.endpoint_url)
        table = resource.create_table(**definition(KEYS))
        with table.batch_writer() as batch:
            for item in ITEMS:
                batch.put_item(Item=item)
            batch.put_item(Item={"id": "sparse", "country": "a", "year": 2025, "month": 2, "city": "x"})
        yield table


CONDITIONS = [
    ("", {}, lambda item: True),
    ("AND #m = :m", {":m": 10}, lambda item: item["month"] == 10),
    ("AND #m < :m", {":m": 10}, lambda item: item["month"] < 10),
    ("AND #m >= :m", {":m": 10}, lambda item: item["month"] >= 10),
    ("AND #m = :m AND city > :c", {":m": 2, ":c": "x"}, lambda item: item["month"] == 2 and item["city"] > "x"),
    ("AND #m = :m AND city <= :c", {":m": 2, ":c": "xy"}, lambda item: item["month"] == 2 and item["city"] <= "xy"),
    (
        "AND #m = :m AND begins_with(city, :c)",
        {":m": 10, ":c": "x"},
        lambda item: item["month"] == 10 and item["city"].startswith("x"),
    ),
    (
        "AND city = :c AND #m = :m AND score BETWEEN :low AND :high",
        {":m": 10, ":c": "xy", ":low": -2, ":high": 0},
        lambda item: item["month"] == 10 and item["city"] == "xy" and -2 <= item["score"] <= 0,
    ),
]


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize(("condition", "values", "matches"), CONDITIONS)
def test_query_returns_matching_items_in_order(table, condition, values, matches, forward):
    """A Query reads the items of all partition attributes, in the order of the sort attributes, over many pages."""
    items, start = [], {}
    while True:
        page = table.query(
            IndexName=INDEX,
            KeyConditionExpression=f"country = :p AND #y = :y {condition}",
            ExpressionAttributeNames={"#y": "year", **({"#m": "month"} if "#m" in condition else {})},
            ExpressionAttributeValues={":p": "a", ":y": 2026, **values},
            ScanIndexForward=forward,
            Limit=2,
            **start,
        )
        items += page["Items"]
        if "LastEvaluatedKey" not in page:
            break
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    expected = [item for item in ITEMS if item["country"] == "a" and item["year"] == 2026 and matches(item)]
    expected.sort(key=lambda item: (item["month"], item["city"], item["score"]), reverse=not forward)
    assert items == expected
    assert expected


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("country = :v", "missed key schema element: year"),
        ("country > :v AND #y = :n", "not supported"),
        ("country = :v AND #y = :n AND city = :v", "missed key schema element: month"),
        ("country = :v AND #y = :n AND #m > :n AND city = :v", "not supported"),
        ("country = :v AND #y = :n AND id = :v", "missed key schema element: month"),
    ],
)
def test_query_needs_all_partition_attributes_and_a_prefix_of_the_sort_attributes(table, condition, message):
    """A Query is refused if it omits an attribute, or has a range before the last condition."""
    names = {alias: name for alias, name in (("#y", "year"), ("#m", "month")) if alias in condition}
    values = {alias: value for alias, value in ((":v", "a"), (":n", 2025)) if alias in condition}
    with pytest.raises(ClientError, match=message):
        table.query(
            IndexName=INDEX,
            KeyConditionExpression=condition,
            ExpressionAttributeValues=values,
            **({"ExpressionAttributeNames": names} if names else {}),
        )


def test_index_omits_items_without_a_key_attribute(table):
    """An item that lacks one attribute of the index key is not in the index."""
    assert {item["id"] for item in table.scan(IndexName=INDEX)["Items"]} == {item["id"] for item in ITEMS}


def test_write_with_a_wrong_type_is_refused(table):
    """A write is refused if any attribute of the index key has the wrong type."""
    with pytest.raises(ClientError, match="Type mismatch for Index Key score"):
        table.put_item(Item={**ITEMS[0], "score": "seven"})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([("a", "RANGE"), ("b", "HASH")], "first KeySchemaElement is not a HASH"),
        ([("a", "HASH"), ("b", "RANGE"), ("c", "HASH")], "must precede"),
        ([(name, "HASH") for name in "abcde"], "at most 4"),
        ([("a", "HASH"), *((name, "RANGE") for name in "bcdef")], "at most 4"),
    ],
)
def test_invalid_schemas_are_refused(keys, message):
    """An index has one to four HASH attributes, followed by at most four RANGE attributes."""
    with FakeDynamoDB() as fake:
        client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
        with pytest.raises(ClientError, match=message):
            client.create_table(**definition(keys))


def test_tables_and_local_indexes_have_one_attribute_of_either_kind():
    """Only global indexes can have several HASH or RANGE attributes."""
    with FakeDynamoDB() as fake:
        client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
        base = [("id", "HASH"), ("month", "RANGE"), ("city", "RANGE")]
        schema = [{"AttributeName": name, "KeyType": kind} for name, kind in base]
        with pytest.raises(ClientError, match="less than or equal to 2"):
            client.create_table(**definition([("city", "HASH"), ("month", "RANGE")], KeySchema=schema))
