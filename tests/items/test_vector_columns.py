"""Columns of embeddings: lists of N of one length as fixed-size lists of 32-bit floats."""

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ddbio
from ddbio.errors import SchemaError
from ddbio.items.decode import Decoder
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.vector_columns import vectors_of
from ddbio.testing import FakeDynamoDB

TYPE = "fixed_size_list<float>[3]"
STORED = pa.list_(pa.field("element", pa.string()))


def lines(*values):
    """Return lines of items whose attribute ``v`` has these values, or is missing for None."""
    items = [
        {"id": {"S": str(number)}, **({} if value is None else {"v": value})} for number, value in enumerate(values)
    ]
    return b"\n".join(json.dumps(item).encode() for item in items)


def numbers(*texts):
    """Return a list of numbers as an attribute value."""
    return {"L": [{"N": text} for text in texts]}


def decoded(*values, **options):
    """Return the rows of items with these values."""
    return ddbio.from_dynamodb_json(lines(*values), types={"v": TYPE}, **options)


def test_lists_of_one_length_are_vectors():
    """The column is Arrow's fixed-size list of float32, with null for a missing attribute."""
    rows = decoded(numbers("1", "-2.5", "1E+3"), None, numbers("0.1", "1E-50", "3.4028234663852886E+38"))
    assert rows.schema.field("v").type.equals(pa.list_(pa.field("element", pa.float32()), 3))
    assert rows.schema.field("v").metadata == {b"ddb:type": b"L"}
    largest = float(np.finfo(np.float32).max)
    assert rows.column("v").to_pylist() == [[1.0, -2.5, 1000.0], None, [float(np.float32(0.1)), 0.0, largest]]
    assert rows.column("_rescue").null_count == 3


MISFITS = {
    "short": numbers("1", "0.12345678901234567890"),
    "long": numbers("1", "2", "3", "4"),
    "empty": {"L": []},
    "text among numbers": {"L": [{"N": "1"}, {"S": "2"}, {"N": "3"}]},
    "null among numbers": {"L": [{"N": "1"}, {"NULL": True}, {"N": "3"}]},
    "above float32": numbers("1", "3.5E+38", "3"),
    "text": {"S": "1"},
    "number": {"N": "1"},
    "set": {"NS": ["1", "2", "3"]},
    "a list within": {"L": [numbers("1"), {"N": "2"}, {"N": "3"}]},
}


@pytest.mark.parametrize("name", MISFITS)
def test_other_values_are_rescued_unchanged(name):
    """The column is null, the rescue column has the exact value, and encoding returns the item."""
    rows = decoded(numbers("1", "2", "3"), MISFITS[name], numbers("4", "5", "6"))
    assert rows.column("v").to_pylist() == [[1, 2, 3], None, [4, 5, 6]]
    rescued = [text and json.loads(text) for text in rows.column("_rescue").to_pylist()]
    assert [rescued[0], rescued[2]] == [None, None]
    back = [json.loads(line) for line in ddbio.to_dynamodb_json(rows).splitlines()]
    expected = json.loads(lines(MISFITS[name], MISFITS[name]).splitlines()[1])["v"]
    assert canonical(back[1]["v"]) == canonical(rescued[1]["v"]) == canonical(expected)


def canonical(value):
    """Return a value with numbers as decimals."""
    if isinstance(value, dict):
        return {tag: Decimal(content) if tag == "N" else canonical(content) for tag, content in value.items()}
    return [canonical(element) for element in value] if isinstance(value, list) else value


def test_a_misfit_is_an_error_or_dropped_on_request():
    """``on_misfit`` of other columns holds for vectors."""
    schema = pa.schema([("id", pa.string()), ("v", pa.list_(pa.float32(), 3))])
    assert Decoder(schema, drop=["v"]).decode(lines(numbers("1")), "items").column("_rescue").null_count == 1
    strict = Decoder(schema, on_misfit="fail")
    with pytest.raises(SchemaError, match="v: does not fit the column"):
        strict.decode(lines(numbers("1")), "items")


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(st.none() | st.lists(FLOATS, min_size=3, max_size=3), max_size=20))
def test_vectors_survive_a_round_trip(vectors):
    """Vectors that are encoded and decoded are the same 32-bit floats."""
    schema = pa.schema([("id", pa.string()), ("v", pa.list_(pa.float32(), 3))])
    rows = pa.RecordBatch.from_pydict({"id": list(map(str, range(len(vectors)))), "v": vectors}, schema=schema)
    back = ddbio.from_dynamodb_json(ddbio.to_dynamodb_json(rows), schema=schema)
    assert back.column("v").to_pylist() == vectors


TEXTS = st.sampled_from(["0", "1", "-2.5", "1E+39", "0.1", None])


@given(st.lists(st.none() | st.lists(TEXTS, max_size=3), max_size=20), st.data())
def test_a_slice_has_the_vectors_of_its_rows(lists, data):
    """Rows fit if they have two finite numbers, in any part of a larger array."""
    start = data.draw(st.integers(0, len(lists)))
    stored = pa.array(lists, STORED).slice(start)
    vectors, rows, values = vectors_of(stored, pa.list_(pa.float32(), 2))
    vectors.validate(full=True)
    fits = [texts is not None and len(texts) == 2 and not {None, "1E+39"} & set(texts) for texts in lists[start:]]
    assert vectors.is_valid().to_pylist() == fits
    assert vectors.to_pylist() == [
        [float(np.float32(text)) for text in texts] if fit else None
        for texts, fit in zip(lists[start:], fits, strict=True)
    ]
    assert rows == [row for row, texts in enumerate(lists[start:]) if texts is not None and not fits[row]]
    assert [len(value["L"]) for value in values] == [len(lists[start + row]) for row in rows]


def test_a_schema_file_has_the_type():
    """The declared type is written, read, merged and compared."""
    schema = ddbio.infer_schema(lines(numbers("1", "2", "3")))
    declared = schema.merge(ddbio.ItemSchema.from_arrow(normalize_schema(decoded(numbers("1", "2", "3")).schema)))
    text = declared.to_json()
    assert json.loads(text)["attributes"][1]["column"] == f"L {TYPE}"
    again = ddbio.ItemSchema.from_json(text)
    assert again.to_json() == text
    assert again.to_arrow().field("v").type == pa.list_(pa.field("element", pa.float32()), 3)
    assert f"L list -> L {TYPE}" in str(schema.diff(declared))


@pytest.mark.parametrize("text", ["fixed_size_list<double>[3]", "fixed_size_list<float>[0]", "fixed_size_list<float>"])
def test_other_fixed_sizes_are_no_types(text):
    """Only 32-bit floats, and at least one, make a vector."""
    with pytest.raises(SchemaError, match="is no type of a column"):
        ddbio.from_dynamodb_json(lines(numbers("1")), types={"v": text})


def test_a_vector_is_an_attribute_of_the_item():
    """Vectors in maps and lists are refused."""
    nested = pa.schema([pa.field("m", pa.struct([pa.field("v", pa.list_(pa.float32(), 3))]))])
    with pytest.raises(SchemaError, match=r"m\.v: only an attribute of the item itself"):
        normalize_schema(nested)


@pytest.fixture
def server():
    """Serve a table of items with vectors."""
    with FakeDynamoDB() as running:
        values = [numbers(str(number), "0.5", "-2.5") for number in range(20)]
        running.load("documents", lines(*values, None, numbers("1")), "id:S")
        yield running


@pytest.mark.parametrize("format_name", ["parquet", "orc", "avro", "csv", "json", "dynamodb-json", "delta", "iceberg"])
def test_files_of_a_table_with_vectors(server, tmp_path, format_name):
    """Every format has vectors as lists of floats, with nulls. Loading the files gives the items of the table."""
    at = {"endpoint_url": server.endpoint_url}
    ddbio.scan_to_files("documents", tmp_path / "rows", types={"v": TYPE}, format=format_name, engine="local", **at)
    server.load("again", b"", "id:S")
    assert ddbio.load_files(tmp_path / "rows", "again", **at).written == 22
    assert ddbio.digest("again", **at) == ddbio.digest("documents", **at) == ddbio.digest(tmp_path / "rows")
