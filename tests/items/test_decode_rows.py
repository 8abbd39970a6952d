"""Decoding of columns of DynamoDB JSON, row by row."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from item_strategies import tables

from ddbio.errors import DecodeError
from ddbio.items import decode
from ddbio.items.decode import Decoder, RowDecoder
from ddbio.items.schema.item_schema import ItemSchema

SCHEMA = pa.schema([("a", pa.string()), ("n", pa.int64())])
GOOD = '{"a":{"S":"x"}}'
FRAMED = '{"Item":{"a":{"S":"y"}}}'

# Texts that begin and end like an item but are not one, or look like one only next to other texts.
BAD = ["", "[]", '{"a":{"S":"}', '{"}}', "{}{}", f"{GOOD}\n{GOOD}", '{"a":{"X":"y"}}', "{", "}", "null"]


NOTHING = {"a": None, "n": None, "_rescue": None}


def alone(text):
    """Return the row of a text as the only line of a body, or None if it is not one item."""
    if text is None:
        return NOTHING
    try:
        rows = Decoder(SCHEMA).decode(text.encode(), "export" if text == FRAMED else "items").to_pylist()
    except DecodeError:
        return None
    return rows[0] if len(rows) == 1 else None


TEXTS = st.lists(st.sampled_from([GOOD, GOOD, FRAMED, None, f" {GOOD}\n", '{"n":{"N":"7"}}', '{"b":{"S":"é"}}', *BAD]))


@example([GOOD, "{}{}", '{"}}'], pa.string(), 0)
@given(TEXTS, st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.binary()]), st.integers(0, 2))
def test_each_row_is_what_it_is_alone(texts, arrow_type, start):
    """A row does not depend on other rows. A malformed one is a row of nulls."""
    column = pa.array([text if text is None else text.encode() for text in texts], pa.binary())
    rows = column.cast(arrow_type).slice(start)
    wanted = [alone(text) or NOTHING for text in texts][start:]
    assert RowDecoder(SCHEMA).decode(rows, strict=False).to_pylist() == wanted


@given(TEXTS)
def test_the_first_malformed_row_is_named(texts):
    """Where malformed rows are errors, the message begins with the number of the first."""
    bad = [row for row, text in enumerate(texts) if alone(text) is None]
    if not bad:
        assert RowDecoder(SCHEMA).decode(pa.array(texts, pa.string())).num_rows == len(texts)
        return
    with pytest.raises(DecodeError, match=rf"^row {bad[0]}: "):
        RowDecoder(SCHEMA).decode(pa.array(texts, pa.string()))


@given(tables(), st.booleans(), st.integers(1, 200))
def test_a_column_is_its_lines(items, framed, slice_bytes):
    """A column of items gives the same batch as its rows as lines, for any number of pieces."""
    schema = ItemSchema.of_items(items).to_arrow()
    texts = [json.dumps({"Item": item} if framed else item) for item in items]
    wanted = Decoder(schema).decode("\n".join(texts).encode(), "export" if framed else "items")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "SLICE_BYTES", slice_bytes)
        assert RowDecoder(schema).decode(pa.array(texts, pa.string())).equals(wanted)


def test_text_that_is_not_utf8_is_malformed():
    """A column with bytes that are not UTF-8, which Spark can produce, is examined row by row."""
    offsets, data = np.array([0, 2, 5, 7], np.int32), b"{}{\xff}{}"
    column = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets.data), pa.py_buffer(data)])
    assert RowDecoder(SCHEMA).decode(column, strict=False).num_rows == 3
    with pytest.raises(DecodeError, match=r"^row 1: .*UTF-8"):
        RowDecoder(SCHEMA).decode(column)


def test_nulls_can_be_kept():
    """With nulls=keep NULL differs from a missing attribute."""
    texts = pa.array(['{"a":{"NULL":true}}', "{}"])
    rescued = [RowDecoder(SCHEMA, nulls=nulls).decode(texts)["_rescue"].to_pylist() for nulls in ("merge", "keep")]
    assert rescued == [[None, None], ['{"a":{"NULL":true}}', None]]
