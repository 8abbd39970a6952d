"""Reads of items by their keys, by BatchGetItem or by Query: each requested item is read once."""

from __future__ import annotations

import json
import logging
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.errors import OptionError
from ddbio.testing import FakeDynamoDB, Faults

TAGS = {"SS": ["]}", '"Items":[']}
ITEMS = [
    {"pk": {"S": pk}, "sk": {"N": str(sk)}, "total": {"N": str(sk * 7)}, **({} if sk % 5 else {"tags": TAGS})}
    for pk in ("a", 'b"', "ç")
    for sk in range(150)
]  # fmt: skip
LARGE = [{"id": {"N": str(number)}, "text": {"S": "x" * 390_000}} for number in range(60)]


@pytest.fixture(scope="module")
def fake():
    """Serve a table of collections, with an index, and one of large items."""
    with FakeDynamoDB(process=True) as fake:
        fake.load("orders", ITEMS, "pk,sk:N")
        fake.load("large", LARGE, "id:N")
        yield fake


@pytest.fixture
def read(fake):
    """Return a function that reads keys."""

    def run(keys, table="orders", **options):
        return ddbio.read_table(table, keys=keys, endpoint_url=fake.endpoint_url, region="eu-west-1", **options)

    return run


def keys_of(table):
    """Return the keys of a table's rows."""
    return sorted((row["pk"], int(row["sk"])) for row in table.to_pylist())


FORMS = {
    "tuples": lambda keys: keys,
    "dictionaries": lambda keys: [{"sk": sk, "pk": pk} for pk, sk in keys],
    "decimals": lambda keys: [(pk, Decimal(sk).scaleb(3).scaleb(-3)) for pk, sk in keys],
    "JSON": json.dumps,
    "Arrow": lambda keys: pa.table(
        {"pk": [pk for pk, _ in keys], "sk": [sk for _, sk in keys], "note": [0] * len(keys)}
    ),
    "decimal Arrow": lambda keys: pa.table(
        {"pk": [pk for pk, _ in keys], "sk": pa.array([sk for _, sk in keys], pa.decimal128(20, 3))}
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_complete_keys(read, form):
    """Items of the given keys are read once, for all input formats and with duplicates."""
    keys = [(item["pk"]["S"], int(item["sk"]["N"])) for item in ITEMS[::2]]
    table = read(FORMS[form]([*keys, *keys[:50]]))
    assert keys_of(table) == sorted(keys)
    row = next(row for row in table.to_pylist() if row["sk"] == 10)
    assert sorted(row["tags"]) == ['"Items":[', "]}"]
    assert int(row["total"]) == 70


def test_missing_keys_are_reported(read, caplog):
    """Keys without an item are no rows; they are counted and named in the log."""
    with caplog.at_level(logging.WARNING, "ddbio.scan"):
        table = read([("a", 1), ("a", 1000), ("nobody", 2)])
    assert keys_of(table) == [("a", 1)]
    (message,) = [record.getMessage() for record in caplog.records if "no items" in record.getMessage()]
    assert "2 keys" in message
    assert '{"pk":{"S":"a"},"sk":{"N":"1000"}}' in message


def test_partition_keys_are_queried(read, caplog):
    """Partition keys alone read their item collections; a condition may filter other attributes."""
    assert keys_of(read(["a", "ç", "a"])) == sorted((pk, sk) for pk in "aç" for sk in range(150))
    assert keys_of(read(["ç"], where="total > 1000")) == [("ç", sk) for sk in range(143, 150)]
    with caplog.at_level(logging.WARNING, "ddbio.scan"):
        assert read(["nobody", "a"], columns=["total"]).num_rows == 150
    assert '{"pk":{"S":"nobody"}}' in caplog.text


def test_limits_and_columns(read):
    """A lookup supports a limit and columns like other reads."""
    keys = [(item["pk"]["S"], int(item["sk"]["N"])) for item in ITEMS]
    assert read(keys, limit=123).num_rows == 123
    assert read(keys[:5], columns=["total"]).column_names == ["total", "_rescue"]


def test_answers_that_are_full(read):
    """Answers end at 16 MiB; the remaining keys are requested again."""
    table = read(list(range(len(LARGE))), table="large")
    assert sorted(int(number) for number in table["id"].to_pylist()) == list(range(60))


def test_throttled_keys_are_requested_again():
    """Unprocessed keys are read later, and each item is read once."""
    with FakeDynamoDB(faults=Faults(unprocessed_ratio=0.3, error_before_ratio=0.1, reset_ratio=0.1, seed=3)) as slow:
        slow.load("slow", [{"id": {"N": str(number)}} for number in range(400)], "id:N")
        table = ddbio.read_table(
            "slow", keys=list(range(400)), endpoint_url=slow.endpoint_url, region="eu-west-1", sample_items=10
        )
    assert sorted(int(number) for number in table["id"].to_pylist()) == list(range(400))


@pytest.mark.parametrize(
    ("keys", "options", "message"),
    [
        ([], {}, "nothing to look up"),
        (["a", ("b", 1)], {}, "has no 'sk'"),
        ([1], {}, "is not text"),
        ([("a", "1")], {}, "is not a number"),
        ([("a", 1, 2)], {}, "more values"),
        ("pk=a", {}, "JSON list"),
        (7, {}, "give a list"),
        ([("a", 1)], {"where": "total > 1"}, "takes no condition"),
        (["a"], {"where": "sk > 1"}, "both test the keys"),
        (pa.table({"sk": [1]}), {}, "the partition key"),
        (pa.table({"pk": ["a"], "sk": ["1"]}), {}, "sk"),
        (pa.table({"pk": ["a", None]}), {}, "key 1"),
    ],
    ids=str,
)
def test_wrong_keys(read, keys, options, message):
    """Keys that do not match the table are refused before anything is read."""
    with pytest.raises(OptionError, match=message):
        read(keys, **options)


def test_index(fake):
    """Keys of an index are read by Query, since BatchGetItem does not support indexes."""
    at = {"endpoint_url": fake.endpoint_url, "region": "eu-west-1"}
    ddbio.create_table("states", key="id:S", gsi="by_state=state:S", **at)
    rows = pa.table({"id": [str(n) for n in range(90)], "state": ["open", "paid", "sent"] * 30})
    ddbio.write_table(rows, "states", **at)
    table = ddbio.read_table("states", keys=["open", "lost"], index="by_state", **at)
    assert sorted(table["id"].to_pylist(), key=int) == [str(n) for n in range(0, 90, 3)]


def run(*words):
    """Return the output of a command."""
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_plan_and_report(fake, tmp_path):
    """The plan has the numbers of keys, requests and units; the report counts keys without an item."""
    (tmp_path / "keys.jsonl").write_text('["a", 1]\n["a", 2]\n["zz", 1]\n')
    pq.write_table(pa.table({"pk": ["a"] * 120, "sk": list(range(120))}), tmp_path / "keys.parquet")
    at = ["--endpoint-url", fake.endpoint_url, "--region", "eu-west-1", "--json"]
    plan = run("plan", "scan", "orders", "--keys", str(tmp_path / "keys.parquet"), *at)
    assert (plan["keys"], plan["requests"], plan["estimated_units"], plan["queries"]) == (120, 2, 60, 0)
    report = run("scan", "orders", str(tmp_path / "out"), "--keys", str(tmp_path / "keys.jsonl"), *at)
    assert (report["items"], report["missing_keys"], report["scanned_items"]) == (2, 1, 3)
    assert report["missing_examples"] == ['{"pk":{"S":"zz"},"sk":{"N":"1"}}']
    assert int(run("read", "orders", "--keys", '[["a", 149]]', *at[:-1])["sk"]) == 149


def test_one_budget(fake, tmp_path):
    """The consumed units of the requests are equal to those that the service charges."""
    report = ddbio.scan_to_files(
        "orders", tmp_path / "out", keys=[("a", sk) for sk in range(100)], endpoint_url=fake.endpoint_url,
        region="eu-west-1", rcu_per_second=1000, sample_items=10, consistent=True, engine="local",
    )  # fmt: skip
    # One unit per item, and ten for the sample.
    assert report.rcu_consumed == 110
    assert report.items == 100
