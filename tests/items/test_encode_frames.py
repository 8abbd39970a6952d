"""Objects with Arrow columns as lines of DynamoDB JSON."""

from __future__ import annotations

import datetime as dt
import enum
import json
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import EncodeError, SchemaError
from ddbio.items.arrow_input import record_batch_reader

BATCH = pa.RecordBatch.from_pydict({"a": [1.5, None]})
TABLE = pa.Table.from_batches([BATCH])
LINES = b'{"a":{"N":"1.5"}}\n{}\n'


@pytest.mark.parametrize(
    "data",
    [
        BATCH,
        pa.Table.from_batches([BATCH]),
        pa.Table.from_batches([BATCH]).to_reader(),
        pd.DataFrame({"a": [1.5, None]}),
    ],
    ids=["batch", "table", "reader", "pandas"],
)
def test_all_objects_with_columns(data):
    """A batch, a table, a reader and a data frame give the same lines."""
    assert ddbio.to_dynamodb_json(data) == LINES


@pytest.mark.parametrize("data", [None, "x", [{"a": 1}], BATCH.column(0), BATCH.to_struct_array()], ids=type)
def test_objects_without_columns(data):
    """Other objects are refused. The message names their type."""
    with pytest.raises(SchemaError, match=f"^a {type(data).__name__} holds no columns"):
        ddbio.to_dynamodb_json(data)


@pytest.mark.parametrize("frame", [pd.DataFrame([[1, 2]], columns=["a", "a"])], ids=str)
def test_a_frame_that_is_no_table(frame):
    """A frame that Arrow cannot read is refused with its type."""
    with pytest.raises(SchemaError, match=r"^the DataFrame cannot be read as Arrow columns"):
        ddbio.to_dynamodb_json(frame)


def test_rows_of_a_frame_are_not_numbered():
    """Row numbers of pandas are not an attribute, in any order and part of a frame. A named index is one."""
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]})
    last = b'{"a":{"N":"2.5"},"b":{"S":"y"}}\n'
    assert ddbio.to_dynamodb_json(frame[frame.a > 2]) == last
    assert ddbio.digest(frame[frame.a > 2]) == ddbio.digest(last)
    assert ddbio.to_dynamodb_json(frame.set_index("a").tail(1)) == b'{"b":{"S":"y"},"a":{"N":"2.5"}}\n'


NOON = dt.datetime(2024, 1, 1, 12)  # noqa: DTZ001 - without a zone
EAST = dt.timezone(dt.timedelta(hours=2))
LATE = pd.Timestamp("2024-01-01 00:00:00.123456789")
OBJECTS = {
    "a time beside a date": ([NOON.date(), NOON], ["2024-01-01", "2024-01-01T12:00:00.000000"]),
    "nanoseconds": ([LATE], ["2024-01-01T00:00:00.123456789"]),
    "zones": ([NOON, NOON.replace(tzinfo=EAST)], ["2024-01-01T12:00:00.000000", "2024-01-01T10:00:00.000000Z"]),
    "zones of times of day": ([dt.time(1), dt.time(1, tzinfo=EAST)], ["01:00:00.000000", "01:00:00.000000+02:00"]),
    "text beside bytes": ([b"x", "y"], [{"B": "eA=="}, "y"]),
    "text beside bytes in lists": ([["p"], ["y", b"x"]], [{"L": [{"S": "p"}]}, {"L": [{"S": "y"}, {"B": "eA=="}]}]),
    "sets": ([{"x"}, {1, Decimal("2.5")}], [{"SS": ["x"]}, {"NS": ["1", "2.5"]}]),
    "times in mappings": (
        [{"t": LATE}, {"u": None}],
        [{"M": {"t": {"S": "2024-01-01T00:00:00.123456789"}}}, {"M": {}}],
    ),
    "arrays": ([np.array([1, 2]), [None]], [{"L": [{"N": "1"}, {"N": "2"}]}, {"L": [{"NULL": True}]}]),
    "UUID and Enum": ([uuid.UUID(int=1), enum.Enum("E", {"A": "a"}).A], [str(uuid.UUID(int=1)), "a"]),
    "long numbers": ([10**20, Decimal("1E-5"), np.int8(1)], [{"N": str(10**20)}, {"N": "0.00001"}, {"N": "1"}]),
    "what is missing": ([None, pd.NA, pd.NaT, True], [None, None, None, {"BOOL": True}]),
}


@pytest.mark.parametrize("values", OBJECTS)
@pytest.mark.parametrize(
    "other_values", [["a", "b"], [NOON.date(), NOON], [10**20, 1]], ids=["text", "times", "numbers"]
)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_objects_of_a_frame_are_what_they_are_in_dictionaries(values, other_values, library):
    """No type is inferred for a column of objects: its values stay exact, regardless of other columns."""
    values_in, expected = OBJECTS[values]
    columns = {"v": values_in, "beside": (other_values * 2)[: len(values_in)]}
    if library == "pandas":
        frame = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in columns.items()})
    else:
        frame = pl.DataFrame([pl.Series(name, column, dtype=pl.Object) for name, column in columns.items()])
    items = [json.loads(line) for line in ddbio.to_dynamodb_json(frame).splitlines()]
    assert [list(item) for item in items] == [["v", "beside"] if item else ["beside"] for item in expected]
    assert [item.get("v") for item in items] == [{"S": item} if isinstance(item, str) else item for item in expected]


def test_columns_of_one_type_are_arrow_columns():
    """Objects of one type, also in lists and mappings, have columns of that type, usable by a schema and by times."""
    values = {"t": [NOON], "l": [["x"]], "m": [{"a": [1]}], "a": [np.array(["x"], object)]}
    kinds = record_batch_reader(
        pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in values.items()})
    )
    texts = pa.list_(pa.string())
    assert kinds.schema.types == [pa.timestamp("us"), texts, pa.struct([("a", pa.list_(pa.int64()))]), texts]
    lines = ddbio.to_dynamodb_json(pd.DataFrame({"t": pd.Series([NOON], dtype=object)}), timestamps={"t": "epoch_s"})
    assert lines == b'{"t":{"N":"1704110400"}}\n'


def test_columns_without_an_encoding_are_refused():
    """A period is not a number. The message has the remedy."""
    with pytest.raises(SchemaError, match=r"v: DynamoDB has no periods: use .dt.to_timestamp"):
        ddbio.to_dynamodb_json(pd.DataFrame({"v": pd.period_range("2024-01", periods=2, freq="M")}))


def test_long_integers_of_polars():
    """Integers of 128 bits, which Arrow lacks, are numbers."""
    frame = pl.DataFrame([pl.Series("n", [2**100, None], dtype=pl.Int128), pl.Series("a", ["x", "y"])])
    assert ddbio.to_dynamodb_json(frame) == b'{"n":{"N":"%d"},"a":{"S":"x"}}\n{"a":{"S":"y"}}\n' % (2**100)


def test_a_schema_restores_types():
    """A schema restores DynamoDB's types that a file has lost, by name. Other columns are unchanged."""
    table = pa.table({"a": [["x"]], "n": [1]})
    schema = pa.schema([pa.field("b", pa.string()), pa.field("a", pa.list_(pa.string()), metadata={"ddb:type": "SS"})])
    assert ddbio.to_dynamodb_json(table, schema) == b'{"a":{"SS":["x"]},"n":{"N":"1"}}\n'


@pytest.mark.parametrize("schema", [None, pa.schema([("a", pa.large_string())])], ids=["as it is", "another type"])
def test_a_slice_of_run_ends(schema):
    """The rows of a slice keep their own values, whether a schema has another type or not."""
    batch = pa.RecordBatch.from_arrays([pa.RunEndEncodedArray.from_arrays([2, 3, 5], ["x", "y", "z"])], ["a"])
    lines = ddbio.to_dynamodb_json(batch.slice(2), schema)
    assert lines == b'{"a":{"S":"y"}}\n{"a":{"S":"z"}}\n{"a":{"S":"z"}}\n'


def test_a_column_that_differs_from_the_schema():
    """If a column cannot be converted to the schema's type, nothing is written."""
    with pytest.raises(SchemaError, match=r"^a: the column is string, the schema's int64: "):
        ddbio.to_dynamodb_json(pa.table({"a": ["x"]}), pa.schema([("a", pa.int64())]))


def test_rows_are_counted_over_batches():
    """A refused row is named by its number in all batches."""
    table = pa.table({"a": pa.chunked_array([[1.0, 2.0], [3.0, float("nan")]])})
    with pytest.raises(EncodeError, match=r"^row 3: a: 'nan'") as raised:
        ddbio.to_dynamodb_json(table)
    assert raised.value.row == 3


def test_no_rows_give_no_lines():
    """An empty table has no lines."""
    assert ddbio.to_dynamodb_json(pa.table({"a": pa.array([], pa.string())})) == b""
