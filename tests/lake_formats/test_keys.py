"""Keys as text: equal for all columns with equal values, and different for different keys."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ddbio.errors import SchemaError
from ddbio.lake_formats.keys import buckets_of, key_texts, keys_and_buckets

TYPES = {"S": pa.string(), "N": pa.int64(), "B": pa.binary()}


def rows(types, columns, rescue=None):
    """Return rows of key attributes ``p``, ``s`` with these types."""
    names = ["p", "s"][: len(types)]
    fields = [pa.field(name, TYPES[tag], metadata={"ddb:type": tag}) for name, tag in zip(names, types, strict=True)]
    arrays = [pa.array(values, TYPES[tag]) for values, tag in zip(columns, types, strict=True)]
    if rescue is not None:
        fields.append(pa.field("_rescue", pa.string()))
        arrays.append(pa.array(rescue, pa.string()))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


@pytest.mark.parametrize(
    ("types", "columns", "expected"),
    [
        ("S", [["a|b", "c\\d"]], ["S:a|b", "S:c\\d"]),
        ("SS", [["a|b", "a", ""], ["c", "b|c", ""]], ["S:a\\|b|S:c", "S:a|S:b\\|c", "S:|S:"]),
        ("SN", [["c\\d", "e"], [1, -2]], ["S:c\\\\d|N:1", "S:e|N:-2"]),
        ("BS", [[b"\x01\xff", b""], ["", "x"]], ["B:01ff|S:", "B:|S:x"]),
    ],
)
def test_a_key_is_its_types_and_values(types, columns, expected):
    """Two attributes are separated by a bar, which is escaped by a backslash in texts; slices have the same result."""
    made, keys = rows(types, columns), ["p", "s"][: len(types)]
    assert key_texts(made, keys).to_pylist() == expected
    assert key_texts(made.slice(1), keys).to_pylist() == expected[1:]
    assert key_texts(made.slice(0, 0), keys).to_pylist() == []


@pytest.mark.parametrize("types", ["S", "N", "B", "SS", "SN", "NB"])
def test_keys_and_buckets_are_the_same_by_the_loop(types):
    """The compiled loop and Arrow with zlib return the same keys and buckets, for batches, slices and empty batches."""
    values = {
        "S": ["", "a|b", "\\", "日本 é", "x" * 70, *(f"user#{number}" for number in range(300))],
        "N": [0, -1, 2**60, 7, 7, *range(300)],
        "B": [b"", b"\0", b"|", b"\xff" * 40, b"a", *(bytes([number % 256, 1]) for number in range(300))],
    }
    names = ["p", "s"][: len(types)]
    made = rows(types, [values[tag][:: -1 if index else 1] for index, tag in enumerate(types)])
    for batch in (made, made.slice(7, 50), made.slice(0, 0)):
        texts, buckets = keys_and_buckets(batch, names, 16)
        texts.validate(full=True)
        assert texts.equals(key_texts(batch, names))
        assert buckets.equals(buckets_of(texts, 16))


def test_a_key_that_no_column_holds_is_in_the_rescue_column():
    """A rescued value has the same text as one in a column; a row without the key is refused."""
    made = rows("BS", [[b"\x01", None], ["x", "y|"]], [None, '{"p":{"B":"AQI="}}'])
    assert key_texts(made, ["p", "s"]).to_pylist() == ["B:01|S:x", "B:0102|S:y\\|"]
    texts, buckets = keys_and_buckets(made, ["p", "s"], 4)
    assert (texts, buckets) == (key_texts(made, ["p", "s"]), buckets_of(texts, 4))
    with pytest.raises(SchemaError, match="row 1: p is missing"):
        key_texts(rows("S", [["a", None]]), ["p"])
