"""DynamoDB JSON in Spark columns, to structs and back."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import dataset
from pyspark.errors import PythonException
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

import ddbio
from ddbio.errors import OptionError
from ddbio.items.digest import item_hash
from ddbio.spark.functions import decode_column, encode_column, from_dynamodb_json, to_dynamodb_json

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
ROWS = [f'{{"Item":{text}}}' if index % 2 else text for index, text in enumerate(BARE)] + [None]


@pytest.fixture(scope="module")
def schema():
    """Return the schema of the items."""
    return ddbio.infer_schema("\n".join(BARE).encode())


@pytest.fixture
def rows(spark):
    """Return a function that makes a DataFrame of texts."""
    return lambda texts: spark.createDataFrame([(text,) for text in texts], "json string").coalesce(1)


def by_column(frame, schema, **mode):
    """Return the structs of a column of texts, from the column function."""
    return frame.select(from_dynamodb_json("json", schema, **mode).alias("item"))


def by_frame(frame, schema, **mode):
    """Return the same, from the frame function."""
    return decode_column(frame, "json", schema, **mode).withColumnRenamed("json", "item")


def back_by_column(typed, **mode):
    """Return structs and their texts, from the column function."""
    return typed.select("item", to_dynamodb_json("item", typed.schema["item"].dataType, **mode).alias("json"))


def back_by_frame(typed, **mode):
    """Return the same, from the frame function."""
    return encode_column(typed.select("item", sql.col("item").alias("json")), "json", **mode)


WAYS = pytest.mark.parametrize(("there", "back"), [(by_column, back_by_column), (by_frame, back_by_frame)])


@WAYS
def test_there_and_back(rows, schema, there, back):
    """Framed and bare rows become structs of exact values, and those become the same items. Null stays null."""
    typed = there(rows(ROWS), schema)
    back = back(typed).collect()
    assert [None if row.json is None else item_hash(json.loads(row.json)) for row in back] == [
        *map(item_hash, ITEMS), None,
    ]  # fmt: skip
    first, last = back[0]["item"], back[-1]["item"]
    assert (first.n, first.price, first.tags, first.raw) == (2**62, Decimal("0.25"), ["a", "b"], b"\0\1\2")
    assert first.map.y == "z"
    assert last is None


@WAYS
def test_a_malformed_row_is_named(rows, schema, there, back):
    """FAILFAST, the default, fails with the number of the row."""
    with pytest.raises(PythonException, match="DecodeError: row 1: "):
        there(rows([BARE[0], '{"pk":{"S":"open"}', BARE[1]]), schema).collect()


@WAYS
def test_a_malformed_row_can_be_null(rows, schema, there, back):
    """PERMISSIVE makes only the columns of a malformed row null."""
    structs = there(rows(['{"pk":{"X":"a"}}', BARE[0], "", "[]"]), schema, mode="PERMISSIVE").collect()
    assert [row["item"].pk for row in structs] == [None, "key-0 é\n", None, None]


@WAYS
def test_an_item_that_dynamodb_refuses(spark, there, back):
    """FAILFAST names the row and the attribute. PERMISSIVE makes only that text null."""
    typed = spark.createDataFrame([((1.5,),), ((float("nan"),),)], "item struct<d double>").coalesce(1)
    with pytest.raises(PythonException, match="EncodeError: row 1: d: 'nan' is not a DynamoDB number"):
        back(typed).collect()
    assert [row.json for row in back(typed, mode="PERMISSIVE").collect()] == ['{"d":{"N":"1.5"}}', None]


@pytest.mark.parametrize("back", [back_by_column, back_by_frame])
def test_times_are_written_as_texts(spark, back):
    """Timestamps, dates, durations and nested ones are ISO texts, regardless of the session's time zone."""
    frame = spark.sql("""
        SELECT struct(
            timestamp'2024-02-29 12:30:00.000001+02:00' AS at, timestamp'0001-01-01 00:00:00Z' AS first,
            timestamp_ntz'2024-03-31 02:30:00.25' AS local, date'9999-12-31' AS day, CAST(NULL AS date) AS none,
            array(timestamp'1969-12-31 23:59:59.5Z', NULL) AS list, map('k', date'1969-12-31') AS map,
            interval '-1 00:00:00.5' DAY TO SECOND AS took, array(interval '1' HOUR) AS hours
        ) AS item
    """)
    wanted = {
        "at": {"S": "2024-02-29T10:30:00.000001Z"},
        "first": {"S": "0001-01-01T00:00:00.000000Z"},
        "local": {"S": "2024-03-31T02:30:00.250000"},
        "day": {"S": "9999-12-31"},
        "list": {"L": [{"S": "1969-12-31T23:59:59.500000Z"}, {"NULL": True}]},
        "map": {"M": {"k": {"S": "1969-12-31"}}},
        "took": {"S": "PT-86400.500000S"},
        "hours": {"L": [{"S": "PT3600.000000S"}]},
    }
    assert json.loads(back(frame).select("json").first().json) == wanted


def test_other_columns_go_along(spark, schema):
    """The frame function does not change other columns: values, types and metadata, with any names."""
    frame = spark.createDataFrame([(bytearray(BARE[1].encode()), 7)], "`a.b` binary, n bigint").select(
        sql.col("`a.b`"),
        sql.array(sql.lit(1), sql.lit(2)).alias("x`y"),
        sql.lit(1).alias("one", metadata={"of": {"any": "kind"}}),
        sql.to_timestamp(sql.lit("2024-02-29 12:30:00")).alias("at"),
        sql.struct(sql.col("n").alias("n", metadata={"deep": "inside"})).alias("s"),
    )
    typed = frame.transform(decode_column, "a.b", schema)
    again = typed.transform(encode_column, "a.b")
    assert again.collect()[0][1:] == frame.collect()[0][1:]
    assert item_hash(json.loads(again.collect()[0][0])) == item_hash(ITEMS[1])
    kept = [(field.name, field.metadata) for field in frame.schema.fields]
    assert [(field.name, field.metadata) for field in again.schema.fields] == kept
    assert again.schema["s"].dataType.fields[0].metadata == {"deep": "inside"}
    assert typed.schema["a.b"].dataType["tags"].metadata == {"ddb:type": "SS"}


def test_columns_need_no_names(rows, schema):
    """Spark names the results of column functions if the caller does not."""
    typed = rows(BARE[:1]).select(from_dynamodb_json("json", schema)).toDF("item")
    (row,) = typed.select(to_dynamodb_json("item", typed.schema["item"].dataType)).collect()
    assert item_hash(json.loads(row[0])) == item_hash(ITEMS[0])


def test_columns_that_are_not_there_are_refused(rows, schema):
    """A missing column, or one without structs, is refused before anything runs."""
    frame = rows(BARE)
    with pytest.raises(OptionError, match=r"^other: the frame has 0 such columns: it has \['json'\]"):
        decode_column(frame, "other", schema)
    with pytest.raises(OptionError, match=r"^json: it holds string: name a column of structs"):
        encode_column(frame, "json")


EVERY_TYPE = [
    {
        "s": {"S": "é\0\n"},
        "n": {"N": "-7"},
        "d": {"N": "1.25"},
        "w": {"N": "-" + "9" * 38},
        "e": {"N": "0." + "0" * 129 + "1"},
        "b": {"B": "YQ=="},
        "t": {"BOOL": False},
        "ss": {"SS": ["b", "a"]},
        "ns": {"NS": ["2", "1"]},
        "bs": {"BS": ["YQ==", "YWI="]},
        "l": {"L": [{"M": {"x": {"N": "1"}}}, {"NULL": True}]},
        "m": {"M": {"x": {"S": ""}, "y": {"M": {"z": {"N": "5"}}}}},
        "j": {"L": [{"S": "a"}, {"N": "1"}]},
        "z": {"NULL": True},
    },
    {"z": {"NULL": True}, "s": {"NULL": True}},
    {"s": {"N": "1"}, "l": {"L": []}},
]


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_items_survive_data_frames_and_files(rows, tmp_path, file_format):
    """Every type, with NULL and missing distinct, is returned from files of Spark, and from those columns in Arrow."""
    texts = [json.dumps(item) for item in EVERY_TYPE]
    schema = ddbio.infer_schema("\n".join(texts).encode())
    typed = decode_column(rows(texts), "json", schema, nulls="keep").select("json.*")
    typed.write.format(file_format).save(str(tmp_path / "items"))
    read = typed.sparkSession.read.format(file_format).load(str(tmp_path / "items"))
    declared = None if file_format == "parquet" else schema
    again = encode_column(read.select(sql.struct("*").alias("item")), "item", declared)
    wanted = sorted(map(item_hash, EVERY_TYPE))
    assert sorted(item_hash(json.loads(row.item)) for row in again.collect()) == wanted
    lines = ddbio.to_dynamodb_json(dataset.dataset(tmp_path / "items", format=file_format).to_table(), schema)
    assert sorted(item_hash(json.loads(line)) for line in lines.splitlines()) == wanted
    if hasattr(read, "toArrow"):
        assert sorted(ddbio.to_dynamodb_json(read.toArrow(), schema).splitlines()) == sorted(lines.splitlines())


def test_a_schema_of_spark_serves(rows):
    """A Spark schema can also name the columns. Other attributes are in the rescue column."""
    schema = StructType().add("pk", "string").add("n", "long")
    (row,) = rows(BARE[:1]).select(from_dynamodb_json("json", schema).alias("item")).collect()
    assert (row["item"].pk, row["item"].n) == ("key-0 é\n", 2**62)
    assert json.loads(row["item"]["_rescue"]).keys() == ITEMS[0].keys() - {"pk", "n"}


@WAYS
def test_integers_in_columns_with_nulls_are_exact(spark, there, back):
    """A bigint keeps all its digits if other rows are null, also inside maps and arrays."""
    fields = "n: bigint, m: map<string,bigint>, l: array<bigint>, d: double"
    data = [((2**62 + 1, {"a": 2**62 + 3}, [2**62 + 5, None], 0.1),), ((None, None, None, None),)]
    frame = spark.createDataFrame(data, f"item struct<{fields}>").coalesce(1)
    texts = [json.loads(row.json) for row in back(frame).collect()]
    assert texts == [
        {
            "n": {"N": str(2**62 + 1)},
            "m": {"M": {"a": {"N": str(2**62 + 3)}}},
            "l": {"L": [{"N": str(2**62 + 5)}, {"NULL": True}]},
            "d": {"N": "0.1"},
        },
        {},
    ]


@WAYS
def test_every_value_of_spark_becomes_an_item(spark, there, back):
    """Values at the limits of Spark's types, nulls in lists and maps, and any text are written exactly."""
    values = {
        "s": '"\\\u2028\0é\ud83d\ude00'.encode("utf-16", "surrogatepass").decode("utf-16"),
        "y": 127,
        "e": Decimal("1E-38"),
        "w": Decimal("9" * 38),
        "f": 0.1,
        "d": 9.9e125,
        "o": False,
        "r": b"\xff\0",
        "l": [None, {"x": None, "y": {}}, {"x": 0.0, "y": {'"': None, "a\n": [True, None]}}],
    }
    inside = "struct<x: double, y: map<string, array<boolean>>>"
    fields = "s: string, y: tinyint, e: decimal(38,38), w: decimal(38,0), f: float, d: double, o: boolean, r: binary"
    typed = spark.createDataFrame([(values,), (dict.fromkeys(values),)], f"item struct<{fields}, l: array<{inside}>>")
    null = {"NULL": True}
    assert [json.loads(row.json) for row in back(typed.coalesce(1)).collect()] == [
        {
            "s": {"S": values["s"]},
            "y": {"N": "127"},
            "e": {"N": "0." + "0" * 37 + "1"},
            "w": {"N": "9" * 38},
            "f": {"N": "0.10000000149011612"},
            "d": {"N": "99" + "0" * 124},
            "o": {"BOOL": False},
            "r": {"B": "/wA="},
            "l": {
                "L": [
                    null,
                    {"M": {"y": {"M": {}}}},
                    {
                        "M": {
                            "x": {"N": "0"},
                            "y": {"M": {'"': null, "a\n": {"L": [{"BOOL": True}, null]}}},
                        }
                    },
                ]
            },
        },
        {},
    ]


def test_columns_of_nulls(spark):
    """A null of no type is missing at the top and in structs, NULL in lists and maps, and array() stays empty."""
    values = "null as n, array() as a, array(null) as l, map('k', null) as m, struct(null as x, 1 as y) as s"
    typed = spark.sql(f"select struct({values}) as item")
    wanted = b'{"a":{"L":[]},"l":{"L":[{"NULL":true}]},"m":{"M":{"k":{"NULL":true}}},"s":{"M":{"y":{"N":"1"}}}}'
    by_columns = typed.select(to_dynamodb_json("item", typed.schema["item"].dataType).alias("item"))
    for text in (by_columns, encode_column(typed, "item")):
        assert [row.item for row in text.collect()] == [wanted.decode()]
    assert ddbio.digest(typed.select("item.*")) == ddbio.digest(wanted)


NESTED = ["array<array<array<int>>>", "map<string,map<string,int>>", "array<struct<x: map<string,array<string>>>>"]


@WAYS
def test_lists_of_lists_that_no_row_has(spark, there, back):
    """Lists and maps in a column that is null in an entire batch, without offsets from Spark's JVM, are missing."""
    fields = ", ".join(f"deep{number}: {spark_type}" for number, spark_type in enumerate(NESTED))
    rows = [((number, *[None] * len(NESTED)),) for number in (1, 2)]
    typed = spark.createDataFrame(rows, f"item struct<n: int, {fields}>").coalesce(1)
    assert [row.json for row in back(typed).collect()] == ['{"n":{"N":"1"}}', '{"n":{"N":"2"}}']
    assert ddbio.digest(typed.select("item.*")) == ddbio.digest(b'{"n":{"N":"1"}}\n{"n":{"N":"2"}}')


@WAYS
def test_text_that_is_not_utf8_is_refused(spark, there, back):
    """A row with a string that Spark made of invalid bytes is refused, and not written with changes."""
    frame = spark.sql("select struct(cast(x'61ff' as string) as s) as item")
    with pytest.raises(PythonException, match="EncodeError: row 0: s: the text is not UTF-8"):
        back(frame).collect()
    assert [row.json for row in back(frame, mode="PERMISSIVE").collect()] == [None]


def test_an_unknown_mode_is_refused():
    """A mode of Spark's from_json that does not exist here is an error that lists the modes."""
    with pytest.raises(OptionError, match="choose one of FAILFAST, PERMISSIVE"):
        from_dynamodb_json("json", pa.schema([("a", pa.string())]), mode="DROPMALFORMED")


def test_columns_are_named_as_spark_s_own(rows, schema):
    """The column of a function is named like those of Spark's functions.

    For an expression, its name is the function's.
    """
    frame = rows(ROWS)
    typed = frame.select(from_dynamodb_json("json", schema))
    assert typed.columns == ["from_dynamodb_json(json)"]
    structs = by_column(frame, schema)
    kind = structs.schema["item"].dataType
    assert structs.select(to_dynamodb_json("item", kind)).columns == ["to_dynamodb_json(item)"]
    assert structs.select(to_dynamodb_json(sql.col("item"), kind)).columns == ["to_dynamodb_json"]
