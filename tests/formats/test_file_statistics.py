from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from ddbio.formats.rolling_writer import FileStatistics


def statistics(*tables):
    """Return the statistics of all columns of some tables."""
    file_statistics = FileStatistics(tables[0].schema, tables[0].column_names)
    for table in tables:
        file_statistics.add(table)
    return json.loads(json.dumps(file_statistics.to_dict()))


def test_bounds_and_nulls_of_all_row_groups_count():
    """Minimum, maximum and nulls are those of all added tables."""
    first = pa.table({"pk": ["b", None, "é"], "n": [3, 1, None]})
    second = pa.table({"pk": ["a", "c", None], "n": pa.array([None, None, None], pa.int64())})
    assert statistics(first, second) == {
        "pk": {"nulls": 2, "min": "a", "max": "é"},
        "n": {"nulls": 4, "min": 1, "max": 3},
    }


def test_every_type_is_json():
    """Decimals are exact text, times ISO 8601, bytes base64; values without an order or JSON have no bounds."""
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


def test_numbers_as_text_have_no_bounds():
    """Text has not the order of numbers; and the name is that of the attribute, regardless of the column's name."""
    field = pa.field("Pk_2", pa.string(), metadata={b"ddb:type": b"N", b"ddb:name": b"PK"})
    table = pa.table([pa.array(["9", "10"])], schema=pa.schema([field]))
    file_statistics = FileStatistics(table.schema, ["PK"])
    file_statistics.add(table)
    assert file_statistics.to_dict() == {"PK": {"nulls": 0, "min": None, "max": None}}


@pytest.mark.parametrize("tail", ["", "x", "é" * 300, "\U0010ffff", "\U0010ffff" * 300, "\U0010ffff" * 300 + "a"])
def test_bounds_of_long_texts_of_columns_are_cut(tail):
    """The lower bound is at most, and the upper bound at least, every text, in the order of their bytes."""
    texts = [f"{'k' * 127}{tail}", f"{'k' * 128}{tail}", tail * 2, "k"]
    file_statistics = FileStatistics(pa.schema([("_key", pa.string())]), columns=["_key"])
    file_statistics.add(pa.table({"_key": texts}))
    (bounds,) = file_statistics.to_dict().values()
    assert bounds["min"].encode() <= min(text.encode() for text in texts)
    assert bounds["max"].encode() >= max(text.encode() for text in texts)
    assert len(bounds["min"]) <= 128


def test_columns_differ_from_attributes_of_their_names():
    """Statistics of a column differ from those of the attribute with its name, and those of the rescue column."""
    tags = {"_ts_us_c5669644": "_ts_us", "_rescue__x": "_rescue"}
    fields = [pa.field("_ts_us", pa.int64()), *(pa.field(name, pa.string(), metadata={b"ddb:name": of.encode()}) for name, of in tags.items())]  # fmt: skip # noqa: E501
    table = pa.table([[5], ["2024"], ["key"], ["{}"]], schema=pa.schema([*fields, pa.field("_rescue", pa.string())]))
    for options, expected in (
        ({"columns": ["_ts_us"]}, {"_ts_us": 5}),
        ({"attributes": ["_rescue"]}, {"_rescue": "key"}),
    ):
        file_statistics = FileStatistics(table.schema, **options)
        file_statistics.add(table)
        assert {name: bounds["max"] for name, bounds in file_statistics.to_dict().items()} == expected
