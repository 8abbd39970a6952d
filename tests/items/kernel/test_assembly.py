"""Record batches made of a message equal those of the reference, for all column types."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.reference import RowBuilder
from ddbio.items.rescue import MisfitLog

ITEMS = [
    {
        "s": {"S": "é"},
        "n": {"N": "7"},
        "l": {"L": [{"N": "1.5"}, {"NULL": True}]},
        "m": {"M": {"a": {"N": "0.1"}, "b": {"S": ""}}},
        "p": {"M": {"x": {"N": "3"}, "y": {"N": "4"}}},
        "ss": {"SS": ["a", "b"]},
        "b": {"B": "AA=="},
        "z": {"NULL": True},
        "o": {"BOOL": True},
    },
    {},
    {"s": {"S": "x"}, "m": {"M": {}}, "l": {"L": []}, "p": {"M": {}}, "o": {"BOOL": False}, "rest": {"S": "y"}},
]
PLAIN = {
    "s": pa.string(),
    "n": pa.int64(),
    "l": pa.list_(pa.decimal128(5, 2)),
    "m": pa.struct([("a", pa.decimal128(3, 1)), ("b", pa.string())]),
    "p": pa.map_(pa.string(), pa.int64()),
    "b": pa.binary(),
    "o": pa.bool_(),
}
CAST = {
    "s": pa.large_string(),
    "n": pa.int16(),
    "l": pa.large_list(pa.float32()),
    "m": pa.struct([("a", pa.float64()), ("b", pa.large_string())]),
    "p": pa.map_(pa.large_string(), pa.int8()),
    "ss": pa.large_list(pa.large_string()),
    "b": pa.large_binary(),
    "z": pa.null(),
    "o": pa.bool_(),
}


@pytest.mark.parametrize("columns", [PLAIN, CAST, {"m": CAST["m"], "s": PLAIN["s"]}, {"o": pa.bool_()}, {}])
@pytest.mark.parametrize("count", [0, 1, 3, 700])
def test_batches_are_those_of_the_reference(columns, count):
    """Columns of the loops, columns that are cast, both, and none are right, including metadata."""
    schema = pa.schema(list(columns.items()), metadata={"other": "dropped"})
    items = [ITEMS[row % len(ITEMS)] for row in range(count)]
    decoder = KernelDecoder(schema)
    for _ in range(2):
        batch = decoder.decode(b"".join(json.dumps(item).encode() + b"\n" for item in items), "items")
        batch.validate(full=True)
        expected = RowBuilder(decoder.schema, keep_nulls=False).batch(items, MisfitLog())
        assert batch.equals(expected)
        assert batch.schema.equals(decoder.schema, check_metadata=True)


def test_a_batch_outlives_the_next():
    """The columns of a batch are not overwritten by later decoding."""
    decoder = KernelDecoder(pa.schema([("s", pa.string())]))
    first = decoder.decode(b'{"s":{"S":"one"}}', "items")
    decoder.decode(b'{"s":{"S":"two"}}\n{}', "items")
    assert first.column("s").to_pylist() == ["one"]
