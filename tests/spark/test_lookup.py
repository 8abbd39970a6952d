"""DataFrames joined with the items that have their keys."""

from __future__ import annotations

import pytest

import ddbio.spark
from ddbio.errors import OptionError

ROWS = [("c-1", 5, "x"), ("c-1", 5, "again"), ("c-2", 700, "no item"), ("c-9", 12, "y"), (None, 1, "no key")]


@pytest.fixture(scope="module")
def orders(fake):
    """Return the name of a table, and how it is reached."""
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
    """Every row has its item's attributes, or nulls; each key is asked for once, and nothing else is read."""
    joined = ddbio.spark.lookup(frame, on=["customer", "n"], schema=None, rcu_per_second=500, **orders)
    assert joined.columns == ["customer", "n", "note", "total", "_rescue"]
    found = {row["note"]: row["total"] for row in joined.collect()}
    assert {note: None if total is None else float(total) for note, total in found.items()} == {
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


def test_wrong_lookups(frame, orders):
    """What cannot be joined is refused before Spark plans anything."""
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
