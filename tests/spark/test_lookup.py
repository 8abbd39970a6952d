"""DataFrames joined with the items that have their keys."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import functions, types

import ddbio.spark
from ddbio.errors import OptionError

ROWS = [("c-1", 5, "x"), ("c-1", 5, "again"), ("c-2", 700, "no item"), ("c-9", 12, "y"), (None, 1, "no key")]


@pytest.fixture(scope="module")
def orders(fake):
    """Return the name of a table, and its endpoint options."""
    items = [
        {"customer": {"S": f"c-{c}"}, "number": {"N": str(n)}, "total": {"N": f"{n}.5"}}
        for c in range(10)
        for n in range(30)
    ]  # fmt: skip
    fake.load("lookup_orders", items, "customer,number:N")
    return {"table": "lookup_orders", "endpoint_url": fake.endpoint_url, "region": "eu-west-1"}


@pytest.fixture
def frame(spark):
    """Return rows with keys: one twice, one without an item, one with a null."""
    return spark.createDataFrame(ROWS, "customer string, n long, note string")


def test_join_by_whole_keys(frame, orders, fake):
    """Every row has its item's attributes, or nulls. Each key is read once, and nothing else is read."""
    joined = ddbio.spark.lookup(frame, on=["customer", "n"], schema=None, rcu_per_second=500, **orders)
    assert joined.columns == ["customer", "n", "note", "total", "_rescue"]
    totals = {row["note"]: row["total"] for row in joined.collect()}
    assert {note: None if total is None else float(total) for note, total in totals.items()} == {
        "x": 5.5, "again": 5.5, "y": 12.5, "no item": None, "no key": None,
    }  # fmt: skip
    inner = ddbio.spark.lookup(frame, on=["customer", "n"], how="inner", into="item", **orders)
    assert sorted((row["note"], float(row["item"]["total"])) for row in inner.collect()) == [
        ("again", 5.5), ("x", 5.5), ("y", 12.5),
    ]  # fmt: skip


def test_join_by_partition_keys(frame, orders):
    """The partition key alone joins a row with every item of its collection, by Query."""
    joined = ddbio.spark.lookup(frame.select("customer", "note"), how="inner", columns="total,number", **orders)
    assert joined.where("note = 'y'").count() == 30
    assert joined.count() == 4 * 30


def test_many_rows_of_a_key(spark, fake):
    """A key with more rows than a task's chunk is read once, like others, and so is its collection."""
    items = [{"pk": {"S": f"p-{p}"}, "sk": {"N": str(n)}, "text": {"S": "x" * 1200}} for p in range(40) for n in (1, 2)]
    fake.load("lookup_hot", items, "pk,sk:N")
    at = {"endpoint_url": fake.endpoint_url, "region": "eu-west-1"}
    at["schema"] = pa.schema({"pk": pa.string(), "sk": pa.int64(), "text": pa.string()})
    hot = spark.range(60_000).selectExpr("'p-3' as pk", "1 as sk", "id")
    others = spark.range(100).selectExpr("concat('p-', id % 50) as pk", "1 as sk", "id")
    frame = hot.union(others)
    joined = ddbio.spark.lookup(frame, "lookup_hot", into="item", **at)
    before = _units(fake)
    assert _counts(joined) == (60_100, 60_080, 1200)
    # 40 items, and 10 keys without one.
    assert _units(fake) - before == 50 * 0.5
    collections = ddbio.spark.lookup(frame.drop("sk"), "lookup_hot", on="pk", into="item", **at)
    before = _units(fake)
    assert _counts(collections) == (2 * 60_080 + 20, 2 * 60_080, 1200)
    assert _units(fake) - before == 50 * 0.5


def _units(fake):
    return sum(read for _, read, _ in fake.consumed("lookup_hot"))


def _counts(joined):
    length = functions.max(functions.length("item.text"))
    return tuple(joined.agg(functions.count("*"), functions.count("item"), length).first())


ODD = [
    "named_struct('a', array(1, null), 'b', map('k', 1.5)) as `a.b`", "id as `select`", "id + 1 as `select`",
    "timestamp'2024-02-29 12:00:00' as at", "cast(null as void) as nothing", "date'2024-02-29' as `da\u00fft`",
]  # fmt: skip
MONTHS = "make_ym_interval(1, id % 7) as months"


@pytest.mark.parametrize("extra", [[], [MONTHS]], ids=["carried", "joined"])
def test_columns_stay_unchanged(spark, orders, extra):
    """Columns of any name and type stay unchanged, also those that Arrow cannot represent, and rows without a key."""
    keys = ["if(id % 4 = 0, null, concat('c-', id % 12)) as customer", "cast(7 as decimal(5, 2)) as n"]
    frame = spark.range(40, numPartitions=3).selectExpr(*keys, *ODD, *extra)
    joined = ddbio.spark.lookup(frame, on=["customer", "n"], columns="total", **orders)
    assert joined.columns == [*frame.columns, "total", "_rescue"]
    assert joined.schema.fields[: len(frame.columns)] == frame.schema.fields
    assert _texts(joined, len(frame.columns)) == _texts(frame, len(frame.columns))
    pairs = joined.select("customer", "total").collect()
    totals = [(row["customer"] not in {None, "c-10", "c-11"}, row["total"]) for row in pairs]
    assert sorted({(has_item, None if total is None else float(total)) for has_item, total in totals}) == [
        (False, None), (True, 7.5),
    ]  # fmt: skip
    inner = ddbio.spark.lookup(frame, on=["customer", "n"], how="inner", into="item", columns="total", **orders)
    assert inner.count() == sum(has_item for has_item, _ in totals)


@pytest.mark.parametrize("extra", [[], [MONTHS]], ids=["carried", "joined"])
def test_keys_match_by_their_bytes(spark, fake, extra):
    """Texts that are equal by Spark's collation are two keys, as in DynamoDB."""
    if not hasattr(types.StringType(), "collation"):
        pytest.skip("Spark has collations from 4.0 on")
    fake.load("lookup_cases", [{"pk": {"S": key}, "own": {"S": key}} for key in ("a", "A", "\u00e9")], "pk")
    at = {"endpoint_url": fake.endpoint_url, "region": "eu-west-1"}
    keys = ["a", "A", "a", "\u00e9", "\u00c9"]
    frame = spark.createDataFrame([(number, key) for number, key in enumerate(keys)], "id int, pk string")
    frame = frame.selectExpr("id", "collate(pk, 'UTF8_LCASE') as pk", *extra)
    joined = ddbio.spark.lookup(frame, "lookup_cases", columns="own", **at)
    assert joined.schema["pk"].dataType == frame.schema["pk"].dataType
    assert dict(joined.select("id", "own").collect()) == {0: "a", 1: "A", 2: "a", 3: "\u00e9", 4: None}


def _texts(frame, count):
    numbered = frame.toDF(*(f"_{number}" for number in range(len(frame.columns))))
    texts = [f"cast(_{number} as string)" for number in range(count)]
    return sorted(str(tuple(row)) for row in numbered.selectExpr(*texts).collect())


def test_wrong_lookups(frame, orders):
    """An invalid lookup is refused before Spark plans anything."""
    lookup = ddbio.spark.lookup
    with pytest.raises(OptionError, match="no column 'nothing'"):
        lookup(frame, on="nothing", **orders)
    with pytest.raises(OptionError, match="cast it"):
        lookup(frame, on=["customer", "note"], **orders)
    with pytest.raises(OptionError, match="both have a column 'total'"):
        lookup(frame.withColumnRenamed("note", "total"), on=["customer", "n"], **orders)
    with pytest.raises(OptionError, match="takes no option 'limit'"):
        lookup(frame, on=["customer", "n"], limit=3, **orders)
    with pytest.raises(OptionError, match="neither 'left' nor"):
        lookup(frame, how="outer", **orders)
    with pytest.raises(OptionError, match="in this order"):
        lookup(frame.drop("customer"), **orders)
    with pytest.raises(OptionError, match="several columns 'customer'"):
        lookup(frame.withColumnRenamed("note", "customer"), on="customer", **orders)
