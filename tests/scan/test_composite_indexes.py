"""Reads of an index whose key has several attributes, against the fake."""

from __future__ import annotations

from decimal import Decimal
from itertools import product

import boto3
import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import OptionError
from ddbio.testing import FakeDynamoDB

ITEMS = [
    {"id": f"{country}{year}{month}{city}", "country": country, "year": year, "month": month, "city": city}
    for country, year, month, city in product("ab", (2025, 2026), (2, 10), ("x", "y"))
]
INDEX = "by_place"


@pytest.fixture(scope="module")
def endpoint():
    """Return the endpoint of a fake with a table that ``--gsi`` defines."""
    with FakeDynamoDB() as fake:
        ddbio.create_table(
            "scores", key="id", gsi=[f"{INDEX}=country+year:N,month:N+city"], endpoint_url=fake.endpoint_url
        )
        table = boto3.resource("dynamodb", endpoint_url=fake.endpoint_url).Table("scores")
        with table.batch_writer() as batch:
            for item in ITEMS:
                batch.put_item(Item=item)
        yield fake.endpoint_url


def ids(endpoint: str, **options: object) -> list[str]:
    """Return the ids of the items that a read of the index returns."""
    return sorted(ddbio.read_table("scores", index=INDEX, endpoint_url=endpoint, **options)["id"].to_pylist())


@pytest.mark.parametrize(
    ("where", "queries", "matches"),
    [
        ("country = 'a' AND year = 2026", 1, lambda item: (item["country"], item["year"]) == ("a", 2026)),
        (
            "country = 'a' AND year IN (2025, 2026) AND month > 2",
            2,
            lambda item: item["country"] == "a" and item["month"] > 2,
        ),
        (
            "country = 'b' AND year = 2025 AND month = 10 AND city >= 'y'",
            1,
            lambda item: (item["country"], item["year"], item["month"], item["city"]) == ("b", 2025, 10, "y"),
        ),
        ("country = 'a'", 0, lambda item: item["country"] == "a"),
        ("country = 'a' AND year > 2025", 0, lambda item: item["country"] == "a" and item["year"] > 2025),
        ("country = 'a' AND year = 2025 AND city = 'x'", 0, lambda item: item["id"] in {"a20252x", "a202510x"}),
    ],
)
def test_conditions_become_queries_or_filters(endpoint, where, queries, matches):
    """A condition that binds the whole partition key makes Queries; others filter a Scan."""
    assert ids(endpoint, where=where) == sorted(item["id"] for item in ITEMS if matches(item))
    plan = ddbio.plan_scan("scores", index=INDEX, where=where, endpoint_url=endpoint)
    assert plan.queries == queries


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([("a", 2025)], ["a202510x", "a202510y", "a20252x", "a20252y"]),
        ([("a", 2025, 2), ("b", 2026, 10)], ["a20252x", "a20252y", "b202610x", "b202610y"]),
        ([{"country": "a", "year": Decimal(2026), "month": 2, "city": "y"}], ["a20262y"]),
    ],
)
def test_keys_read_items_of_the_index(endpoint, keys, expected):
    """Keys contain the whole partition key, and any number of sort attributes from the left."""
    assert ids(endpoint, keys=keys) == expected


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            pa.table({"country": ["a", "a"], "year": [2025, 2025], "month": [2, None], "city": ["x", "x"]}),
            "key 1 has no 'month'",
        ),
        ([("a", 2025, 2, "x" * 2049)], "2049|2,049|2048|2,048"),
        ([{"country": "a"}], "no 'year', of the partition key"),
        ([{"country": "a", "year": 2025, "city": "x"}], "no 'month', which precedes 'city'"),
    ],
)
def test_incomplete_keys_are_refused(endpoint, keys, message):
    """Keys without a partition attribute, or with a gap in the sort attributes, are refused."""
    with pytest.raises(OptionError, match=message):
        ids(endpoint, keys=keys)
