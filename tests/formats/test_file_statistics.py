from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from ddbio.formats.rolling_writer import FileStatistics


def statistics(*tables):
    """Return the statistics of all columns of some tables."""
    found = FileStatistics(tables[0].schema, tables[0].column_names)
    for table in tables:
        found.add(table)
    return json.loads(json.dumps(found.to_dict()))


def test_ends_and_nulls_of_all_row_groups_count():
    """The least and the greatest value, and the nulls, are those of every table that was added."""
    first = pa.table({"pk": ["b", None, "é"], "n": [3, 1, None]})
    second = pa.table({"pk": ["a", "c", None], "n": pa.array([None, None, None], pa.int64())})
    assert statistics(first, second) == {
        "pk": {"nulls": 2, "min": "a", "max": "é"},
        "n": {"nulls": 4, "min": 1, "max": 3},
    }


def test_every_type_is_json():
    """Decimals are text without loss, times ISO 8601, bytes base64; what has no order or no JSON has no ends."""
    table = pa.table(
        {
            "d": pa.array([Decimal("1.10"), Decimal("-3.00")]),
            "t": pa.array([-86_400_000_000, 0], pa.timestamp("us")),
            "b": [b"\xff", b"\x00"],
            "f": [1.5, float("inf")],
            "l": [[1], [2]],
            "long": ["a", "x" * 1000],
            "none": pa.array([None, None], pa.string()),
        }
    )
    unknown = {"nulls": 0, "min": None, "max": None}
    assert statistics(table) == {
        "d": {"nulls": 0, "min": "-3.00", "max": "1.10"},
        "t": {"nulls": 0, "min": "1969-12-31T00:00:00", "max": "1970-01-01T00:00:00"},
        "b": {"nulls": 0, "min": "AA==", "max": "/w=="},
        "f": unknown,
        "l": unknown,
        "long": unknown,
        "none": {**unknown, "nulls": 2},
    }


def test_numbers_as_text_have_no_ends():
    """The order of text is not that of numbers; and the name is the attribute's, whatever the column is called."""
    field = pa.field("Pk_2", pa.string(), metadata={b"ddb:type": b"N", b"ddb:name": b"PK"})
    table = pa.table([pa.array(["9", "10"])], schema=pa.schema([field]))
    found = FileStatistics(table.schema, ["PK"])
    found.add(table)
    assert found.to_dict() == {"PK": {"nulls": 0, "min": None, "max": None}}


@pytest.mark.parametrize("tail", ["", "x", "é" * 300, "\U0010ffff", "\U0010ffff" * 300, "\U0010ffff" * 300 + "a"])
def test_bounds_of_long_texts_of_columns_are_cut(tail):
    """The lower bound is not greater and the upper one not less than any text, in the order of their bytes."""
    texts = [f"{'k' * 127}{tail}", f"{'k' * 128}{tail}", tail * 2, "k"]
    found = FileStatistics(pa.schema([("_key", pa.string())]), columns=["_key"])
    found.add(pa.table({"_key": texts}))
    (each,) = found.to_dict().values()
    assert each["min"].encode() <= min(text.encode() for text in texts)
    assert each["max"].encode() >= max(text.encode() for text in texts)
    assert len(each["min"]) <= 128


def test_columns_are_told_from_attributes_of_their_names():
    """Statistics of a column are not those of the attribute that is called so, nor those of the rescue column."""
    tags = {"_ts_us_c5669644": "_ts_us", "_rescue__x": "_rescue"}
    fields = [pa.field("_ts_us", pa.int64()), *(pa.field(name, pa.string(), metadata={b"ddb:name": of.encode()}) for name, of in tags.items())]  # fmt: skip # noqa: E501
    table = pa.table([[5], ["2024"], ["key"], ["{}"]], schema=pa.schema([*fields, pa.field("_rescue", pa.string())]))
    for given, expected in (
        ({"columns": ["_ts_us"]}, {"_ts_us": 5}),
        ({"attributes": ["_rescue"]}, {"_rescue": "key"}),
    ):
        found = FileStatistics(table.schema, **given)
        found.add(table)
        assert {name: each["max"] for name, each in found.to_dict().items()} == expected
