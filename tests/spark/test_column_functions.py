"""Functions of Arrow arrays on columns of a Spark before 4.1, and the state of its worker afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as sql
from pyspark.sql.pandas.serializers import ArrowStreamPandasUDFSerializer

from ddbio.errors import OptionError
from ddbio.spark.column_functions import map_series
from ddbio.spark.functions import from_dynamodb_json, to_dynamodb_json

pytestmark = pytest.mark.skipif(hasattr(sql, "arrow_udf"), reason="Spark has Arrow functions")

# The serializer as Spark creates it: time zone, safe casts, columns by name, a frame for a struct.
SPARK = ArrowStreamPandasUDFSerializer("UTC", True, True, True)
STRUCTS = pa.chunked_array([pa.array([{"a": 1}, None, {"a": None}])])


def handed():
    """Yield a batch as Spark's worker passes it."""
    yield SPARK.arrow_to_pandas(STRUCTS)


def test_the_function_gets_arrays_without_a_copy():
    """An array is passed and returned without a copy, including nulls. Each value is alone in a list."""
    got = []
    (series,) = map_series(lambda array: got.append(array) or array, handed())
    assert got[0].equals(STRUCTS.chunk(0))
    assert got[0].field(0).buffers()[1].address == STRUCTS.chunk(0).field(0).buffers()[1].address
    batch = SPARK._create_batch([(series, pa.list_(STRUCTS.type))])
    assert batch.column(0).to_pylist() == [[{"a": 1}], [None], [{"a": None}]]


def test_spark_has_its_own_way_back():
    """After the last batch, after an error and after an early end, Spark makes objects as before."""

    def fail(_):
        raise ValueError("refused")

    assert len(list(map_series(lambda array: array, handed()))) == 1
    assert isinstance(next(handed()), pd.DataFrame)
    with pytest.raises(ValueError, match="refused"):
        next(map_series(fail, handed()))
    assert isinstance(next(handed()), pd.DataFrame)
    running = map_series(lambda array: array, handed())
    next(running)
    running.close()
    assert isinstance(next(handed()), pd.DataFrame)


@pytest.mark.parametrize("objects", [pd.Series(["{}"]), pd.DataFrame({"array": [1]}), pd.DataFrame({"a": [1]})])
def test_objects_are_refused(objects):
    """If another Spark passes objects nevertheless, the message names the alternative."""
    with pytest.raises(OptionError, match="use decode_column or encode_column"):
        next(map_series(lambda array: array, iter([objects])))


def test_other_functions_get_objects(spark):
    """In one query with ours, another pandas function gets a frame for the same struct, and ours occur repeatedly."""

    def kind(part):
        return pd.Series([type(part).__name__] * len(part))

    kind.__annotations__ = {"part": pd.DataFrame, "return": pd.Series}
    schema = pa.schema([("n", pa.int64())])
    frame = spark.range(7).select(sql.struct(sql.col("id").alias("n")).alias("item")).coalesce(1)
    text = to_dynamodb_json("item", frame.schema["item"].dataType)
    rows = frame.select(
        sql.pandas_udf(kind, "string")("item").alias("kind"),
        text.alias("text"),
        from_dynamodb_json(text, schema)["n"].alias("n"),
        sql.when(sql.col("item.n") > 3, text).alias("some"),
    ).collect()
    assert {row.kind for row in rows} == {"DataFrame"}
    assert [row.n for row in rows] == list(range(7))
    assert [row.text for row in rows] == [f'{{"n":{{"N":"{n}"}}}}' for n in range(7)]
    assert [row.some for row in rows] == [None] * 4 + [row.text for row in rows[4:]]


@pytest.mark.parametrize("spark_type", ["string", "binary"])
def test_functions_of_functions_of_others(spark, spark_type):
    """A text from another function of iterators is also accepted, and that function gets objects."""

    def checked(batches):
        for batch in batches:
            assert not isinstance(batch.iloc[0], pa.Scalar)
            yield batch.map(lambda text: text + type(text)())

    checked.__annotations__ = {"batches": Iterator[pd.Series], "return": Iterator[pd.Series]}
    schema = pa.schema([("n", pa.int64())])
    frame = spark.createDataFrame([('{"n":{"N":"1"}}',), ('{"n":{"N":"2"}}',)], "text string").coalesce(1)
    other = sql.pandas_udf(checked, spark_type)(sql.col("text").cast(spark_type))
    text = to_dynamodb_json(from_dynamodb_json(other, schema), schema)
    again = sql.pandas_udf(checked, "string")(text)
    rows = frame.select("text", from_dynamodb_json(other, schema)["n"].alias("n"), again.alias("again")).collect()
    assert [row.n for row in rows] == [1, 2]
    assert [row.again for row in rows] == [row.text for row in rows]
