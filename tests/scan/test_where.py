"""Reads with a condition: a Query and a Scan return the same items."""

from __future__ import annotations

import json
import random

import boto3
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import OptionError
from ddbio.testing import FakeDynamoDB

COLLECTIONS, PER_COLLECTION = "abcdefgh", 30


def items():
    """Return items with mixed attributes."""
    chosen = random.Random(7)
    for pk in COLLECTIONS:
        for sk in range(PER_COLLECTION):
            item = {"pk": {"S": pk}, "sk": {"N": str(sk)}, "total": {"N": str(chosen.randrange(50))}}
            if sk % 3:
                item["status"] = {"S": chosen.choice(["open", "shipped", "lost"])}
            if sk % 7 == 0:
                item["tags"] = {"SS": ["a", "b"][: 1 + sk % 2]}
            yield item


ITEMS = list(items())
TESTS = {
    "total > 25": lambda item: int(item["total"]["N"]) > 25,
    "total BETWEEN 10 AND 20": lambda item: 10 <= int(item["total"]["N"]) <= 20,
    "status = 'open'": lambda item: item.get("status") == {"S": "open"},
    "status IN ('lost', 'shipped')": lambda item: item.get("status") in ({"S": "lost"}, {"S": "shipped"}),
    "status IS MISSING": lambda item: "status" not in item,
    "begins_with(status, 'sh')": lambda item: item.get("status") == {"S": "shipped"},
    "contains(tags, 'b')": lambda item: "b" in item.get("tags", {}).get("SS", ()),
    "sk < 9": lambda item: int(item["sk"]["N"]) < 9,
    "pk = 'c'": lambda item: item["pk"] == {"S": "c"},
    "pk IN ('a', 'h', 'nobody')": lambda item: item["pk"]["S"] in "ah",
}


@pytest.fixture(scope="module")
def endpoint():
    """Serve a table of several collections, and an index by status."""
    with FakeDynamoDB(process=True) as fake:
        fake.load("orders", ITEMS, "pk,sk:N")
        yield fake.endpoint_url


@pytest.fixture
def read(endpoint):
    """Return a function that reads the keys of matching items."""

    def run(where, **options):
        table = ddbio.read_table("orders", where=where, endpoint_url=endpoint, **options)
        return sorted((row["pk"], int(row["sk"])) for row in table.to_pylist())

    return run


def keys(matches):
    """Return the keys of the matching items."""
    return sorted((item["pk"]["S"], int(item["sk"]["N"])) for item in ITEMS if matches(item))


@pytest.mark.parametrize("text", TESTS)
def test_one_condition(read, text):
    """Exactly the matching items are read."""
    assert read(text) == keys(TESTS[text])


@pytest.mark.parametrize("seed", range(40))
def test_combined_conditions(read, seed):
    """Joined, negated and nested conditions have the expected result for each operation."""
    chosen = random.Random(seed)

    def made(depth):
        kind = chosen.choice(["test", "AND", "OR", "NOT"]) if depth else "test"
        if kind == "test":
            text = chosen.choice(list(TESTS))
            return text, TESTS[text]
        one, matches = made(depth - 1)
        if kind == "NOT":
            return f"NOT ({one})", lambda item: not matches(item)
        other, also = made(depth - 1)
        joined = f"({one}) {kind} ({other})"
        return joined, (lambda item: matches(item) and also(item)) if kind == "AND" else (
            lambda i: matches(i) or also(i)
        )

    text, matches = made(3)
    assert read(text) == keys(matches)


def test_a_bound_partition_key_is_asked_for_by_query(endpoint):
    """The plan has the number of item collections to read, and their items alone determine the cost."""
    plan = ddbio.plan_scan("orders", where="pk IN ('a', 'b') AND sk >= 10 AND total > 25", endpoint_url=endpoint)
    assert (plan.queries, plan.where) == (2, "pk IN ('a', 'b') AND sk >= 10 AND total > 25")
    scan_plan = ddbio.plan_scan("orders", where="total > 25", endpoint_url=endpoint)
    assert scan_plan.queries == 0
    assert plan.estimated_units < scan_plan.estimated_units


def test_counts_are_kept_apart(endpoint, tmp_path):
    """Report and manifest have the number of items that were read, and of those that matched."""
    where = "pk = 'c' AND total > 25"
    report = ddbio.scan_to_files("orders", tmp_path / "out", where=where, endpoint_url=endpoint, engine="local")
    matching = keys(lambda item: item["pk"]["S"] == "c" and int(item["total"]["N"]) > 25)
    assert (report.items, report.rows, report.scanned_items) == (len(matching), len(matching), PER_COLLECTION)
    assert pq.read_table(tmp_path / "out").num_rows == len(matching)
    manifest = json.loads((tmp_path / "out" / "_ddbio" / f"{report.job_id}.json").read_text("utf-8"))
    assert manifest["source"]["where"] == where


@pytest.mark.parametrize("where", ["total > 25", "pk IN ('a', 'b', 'c') AND total > 25", "pk = 'a'"])
def test_a_limit_counts_matching_items(read, where):
    """The limit counts matching items, and only these are returned."""
    limited = read(where, limit=7)
    assert len(limited) == 7
    assert set(limited) <= set(read(where))


def test_columns_and_conditions_share_names(read):
    """An attribute may be tested without being read, and read without being tested."""
    assert read("total > 25 AND status = 'open'", columns=["pk", "sk"]) == keys(
        lambda item: int(item["total"]["N"]) > 25 and item.get("status") == {"S": "open"}
    )


def test_no_item_matches(read):
    """A result without rows is not an error."""
    assert read("pk = 'nobody'") == []
    assert read("total > 1000") == []


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("pk = 3", "the key 'pk' has type S, but the condition compares it with type N: write 'text'"),
        ("pk = 'a' AND begins_with(sk, '1')", "the key 'sk' has type N, but the condition compares it with type S"),
        ("total >", "is unexpected; expected a constant"),
    ],
)
def test_what_the_service_would_refuse_is_refused_first(read, where, words):
    """The error suggests a valid condition."""
    with pytest.raises(OptionError) as caught:
        read(where)
    assert words in str(caught.value)


def test_an_index_is_asked_for_by_its_own_keys(endpoint):
    """A condition that binds the partition key of an index becomes a Query of it; other conditions filter."""
    client = boto3.client("dynamodb", endpoint_url=endpoint, region_name="us-east-1")
    index = {
        "IndexName": "by-status",
        "KeySchema": [{"AttributeName": "status", "KeyType": "HASH"}, {"AttributeName": "total", "KeyType": "RANGE"}],
        "Projection": {"ProjectionType": "ALL"},
    }
    types = [{"AttributeName": name, "AttributeType": tag} for name, tag in (("status", "S"), ("total", "N"))]
    client.update_table(TableName="orders", AttributeDefinitions=types, GlobalSecondaryIndexUpdates=[{"Create": index}])
    client.close()
    options = {"where": "status = 'lost' AND total > 25 AND pk <> 'a'", "index": "by-status", "endpoint_url": endpoint}
    assert ddbio.plan_scan("orders", **options).queries == 1
    rows = [(row["pk"], int(row["sk"])) for row in ddbio.read_table("orders", **options).to_pylist()]
    assert sorted(rows) == keys(
        lambda item: item.get("status") == {"S": "lost"} and int(item["total"]["N"]) > 25 and item["pk"]["S"] != "a"
    )


def test_a_condition_that_no_query_supports_scans_with_a_warning(endpoint):
    """The plan warns that the whole table is read, although the condition names the partition key."""
    plan = ddbio.plan_scan("orders", where="pk = 'a' AND sk > 3 AND sk < 9", endpoint_url=endpoint)
    assert plan.queries == 0
    assert "the whole table is read and filtered" in plan.warnings[0]
