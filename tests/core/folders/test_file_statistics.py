from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa

from ddbio.core.folders.file_statistics import FileStatistics


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
