"""Whatever holds Arrow columns, as lines of DynamoDB JSON."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import EncodeError, SchemaError

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
def test_whatever_holds_columns(data):
    """A batch, a table, a reader and a data frame give the same lines."""
    assert ddbio.to_dynamodb_json(data) == LINES


@pytest.mark.parametrize("data", [None, "x", [{"a": 1}], BATCH.column(0), BATCH.to_struct_array()], ids=type)
def test_what_holds_no_columns(data):
    """Whatever is no table is refused by its kind."""
    with pytest.raises(SchemaError, match=f"^a {type(data).__name__} holds no columns"):
        ddbio.to_dynamodb_json(data)


@pytest.mark.parametrize("frame", [pd.DataFrame([[1, 2]], columns=["a", "a"])], ids=str)
def test_a_frame_that_is_no_table(frame):
    """A frame that Arrow cannot read is refused as one."""
    with pytest.raises(SchemaError, match=r"^the DataFrame cannot be read as Arrow columns"):
        ddbio.to_dynamodb_json(frame)


def test_rows_of_a_frame_are_not_numbered():
    """What pandas numbers rows with is no attribute, in no order and no part of a frame; a named index is one."""
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]})
    last = b'{"a":{"N":"2.5"},"b":{"S":"y"}}\n'
    assert ddbio.to_dynamodb_json(frame[frame.a > 2]) == last
    assert ddbio.digest(frame[frame.a > 2]) == ddbio.digest(last)
    assert ddbio.to_dynamodb_json(frame.set_index("a").tail(1)) == b'{"b":{"S":"y"},"a":{"N":"2.5"}}\n'


def test_a_schema_restores_types():
    """What a file has lost of DynamoDB's types a schema gives back, by name; other columns stay as they are."""
    table = pa.table({"a": [["x"]], "n": [1]})
    schema = pa.schema([pa.field("b", pa.string()), pa.field("a", pa.list_(pa.string()), metadata={"ddb:type": "SS"})])
    assert ddbio.to_dynamodb_json(table, schema) == b'{"a":{"SS":["x"]},"n":{"N":"1"}}\n'


@pytest.mark.parametrize("schema", [None, pa.schema([("a", pa.large_string())])], ids=["as it is", "another type"])
def test_a_slice_of_run_ends(schema):
    """The rows of a slice keep their own values, whether a schema asks for another type or not."""
    batch = pa.RecordBatch.from_arrays([pa.RunEndEncodedArray.from_arrays([2, 3, 5], ["x", "y", "z"])], ["a"])
    lines = ddbio.to_dynamodb_json(batch.slice(2), schema)
    assert lines == b'{"a":{"S":"y"}}\n{"a":{"S":"z"}}\n{"a":{"S":"z"}}\n'


def test_a_column_that_is_not_what_the_schema_says():
    """Where a column cannot become what the schema says, nothing is written."""
    with pytest.raises(SchemaError, match=r"^a: the column is string, the schema's int64: "):
        ddbio.to_dynamodb_json(pa.table({"a": ["x"]}), pa.schema([("a", pa.int64())]))


def test_rows_are_counted_over_batches():
    """A refused row is named by its number in the whole."""
    table = pa.table({"a": pa.chunked_array([[1.0, 2.0], [3.0, float("nan")]])})
    with pytest.raises(EncodeError, match=r"^row 3: a: 'nan'") as raised:
        ddbio.to_dynamodb_json(table)
    assert raised.value.row == 3


def test_no_rows_give_no_lines():
    """An empty table has no lines."""
    assert ddbio.to_dynamodb_json(pa.table({"a": pa.array([], pa.string())})) == b""
