"""DynamoDB JSON in Spark columns, to structs and back."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

import ddbio
from ddbio.core.digest import canonical_text
from ddbio.errors import OptionError
from ddbio.spark.functions import from_dynamodb_json, to_dynamodb_json

ITEMS = [
    {
        "pk": {"S": f"key-{n} é\n"},
        "n": {"N": str(2**62 + n)},
        "price": {"N": f"{n}.25"},
        "flag": {"BOOL": n % 2 == 0},
        "raw": {"B": "AAEC"},
        "tags": {"SS": ["a", "b"]},
        "list": {"L": [{"N": "1"}, {"M": {"x": {"N": "2"}}}]} if n == 3 else {"L": [{"N": str(n)}]},
        "map": {"M": {"x": {"N": "1"}, "y": {"S": "z"}}},
    }
    for n in range(8)
] + [{"pk": {"S": "alone"}}]
BARE = [json.dumps(item) for item in ITEMS]
ROWS = [f'{{"Item":{text}}}' if place % 2 else text for place, text in enumerate(BARE)] + [None]


@pytest.fixture(scope="module")
def schema():
    """Return the schema of the items."""
    return ddbio.infer_schema("\n".join(BARE).encode())


@pytest.fixture
def rows(spark):
    """Return a function that makes a DataFrame of texts."""
    return lambda texts: spark.createDataFrame([(text,) for text in texts], "json string").coalesce(1)


def test_there_and_back(rows, schema):
    """Framed and bare rows become structs of exact values, and those become the same items; null stays null."""
    typed = rows(ROWS).select(from_dynamodb_json("json", schema).alias("item"))
    back = typed.select("item", to_dynamodb_json("item", typed.schema["item"].dataType).alias("json")).collect()
    assert [None if row.json is None else canonical_text(json.loads(row.json)) for row in back] == [
        *map(canonical_text, ITEMS), None,
    ]  # fmt: skip
    first, last = back[0]["item"], back[-1]["item"]
    assert (first.n, first.price, first.tags, first.raw) == (2**62, Decimal("0.25"), ["a", "b"], b"\0\1\2")
    assert first.map.y == "z"
    assert last is None


def test_a_malformed_row_is_named(rows, schema):
    """FAILFAST, the default, fails with the number of the row."""
    with pytest.raises(PythonException, match="DecodeError: row 1: "):
        rows([BARE[0], '{"pk":{"S":"open"}', BARE[1]]).select(from_dynamodb_json("json", schema)).collect()


def test_a_malformed_row_can_be_null(rows, schema):
    """PERMISSIVE makes the columns of a malformed row null, and no other's."""
    column = from_dynamodb_json(sql.col("json"), schema, mode="PERMISSIVE").alias("item")
    found = rows(['{"pk":{"X":"a"}}', BARE[0], "", "[]"]).select(column).collect()
    assert [row["item"].pk for row in found] == [None, "key-0 é\n", None, None]


def test_a_schema_of_spark_serves(rows):
    """A Spark schema names the columns as well; what it lacks is in the rescue column."""
    typed = rows(BARE[:1]).select(from_dynamodb_json("json", StructType.fromDDL("pk string, n bigint")).alias("item"))
    (row,) = typed.collect()
    assert (row["item"].pk, row["item"].n) == ("key-0 é\n", 2**62)
    assert json.loads(row["item"]["_rescue"]).keys() == ITEMS[0].keys() - {"pk", "n"}


def test_integers_beside_nulls_are_exact(spark):
    """A bigint keeps all its digits where other rows have none, also inside maps and arrays."""
    fields = "n bigint, m map<string,bigint>, l array<bigint>, d double"
    struct = StructType.fromDDL(fields)
    data = [((2**62 + 1, {"a": 2**62 + 3}, [2**62 + 5, None], 0.1),), ((None, None, None, None),)]
    found = spark.createDataFrame(data, f"s struct<{struct.simpleString()[7:-1]}>").coalesce(1)
    texts = [json.loads(row.json) for row in found.select(to_dynamodb_json("s", struct).alias("json")).collect()]
    assert texts == [
        {
            "n": {"N": str(2**62 + 1)},
            "m": {"M": {"a": {"N": str(2**62 + 3)}}},
            "l": {"L": [{"N": str(2**62 + 5)}, {"NULL": True}]},
            "d": {"N": "0.1"},
        },
        {},
    ]


def test_an_unknown_mode_is_refused():
    """A mode that Spark's from_json has and this has not is an error that lists the modes."""
    with pytest.raises(OptionError, match="choose one of FAILFAST, PERMISSIVE"):
        from_dynamodb_json("json", pa.schema([("a", pa.string())]), mode="DROPMALFORMED")
