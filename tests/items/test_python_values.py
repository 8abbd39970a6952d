"""Attribute values of all kinds of Python values."""

import collections
import datetime as dt
import enum
import typing
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from boto3.dynamodb.types import Binary

from ddbio.errors import SchemaError
from ddbio.items.python_rows import attribute_value, is_missing, python_columns, python_rows
from ddbio.items.reference import items_of
from ddbio.items.schema.times import parse_format

BERLIN = dt.timezone(dt.timedelta(hours=2))
Color = enum.Enum("Color", {"RED": "red", "ONE": 1})


class Point(typing.NamedTuple):
    x: int
    y: int


NOON = dt.datetime(2024, 1, 1, 12)  # noqa: DTZ001 - without a zone
ID = uuid.UUID(int=1)

VALUES = [
    ("x", {"S": "x"}),
    (np.str_("x"), {"S": "x"}),
    (ID, {"S": str(ID)}),
    (Color.RED, {"S": "red"}),
    (enum.IntEnum("Size", {"BIG": 7}).BIG, {"N": "7"}),
    (True, {"BOOL": True}),
    (np.bool_(False), {"BOOL": False}),
    (10**37, {"N": "1" + "0" * 37}),
    (np.int64(-5), {"N": "-5"}),
    (np.uint64(2**64 - 1), {"N": str(2**64 - 1)}),
    (0.1, {"N": "0.1"}),
    (np.float64(0.1), {"N": "0.1"}),
    (np.float32(0.5), {"N": "0.5"}),
    (Decimal("1E+3"), {"N": "1000"}),
    (b"\x01", {"B": "AQ=="}),
    (bytearray(b"\x01"), {"B": "AQ=="}),
    (memoryview(b"\x01"), {"B": "AQ=="}),
    (Binary(b"\x01"), {"B": "AQ=="}),
    (dt.date(2024, 1, 1), {"S": "2024-01-01"}),
    (NOON, {"S": "2024-01-01T12:00:00.000000"}),
    (NOON.replace(tzinfo=BERLIN), {"S": "2024-01-01T10:00:00.000000Z"}),
    (pd.Timestamp(NOON), {"S": "2024-01-01T12:00:00.000000"}),
    (pd.Timestamp("2024-01-01 00:00:00.123456789"), {"S": "2024-01-01T00:00:00.123456789"}),
    (pd.Timestamp("2024-01-01 00:00:00.123456789+02:00"), {"S": "2023-12-31T22:00:00.123456789Z"}),
    (np.datetime64("2024-01-01"), {"S": "2024-01-01"}),
    (np.datetime64("2024-01-01T00:00:01"), {"S": "2024-01-01T00:00:01.000000"}),
    (np.datetime64("2024-01-01T00:00:00.000000001"), {"S": "2024-01-01T00:00:00.000000001"}),
    (dt.time(1, 2), {"S": "01:02:00.000000"}),
    (dt.time(1, 2, tzinfo=BERLIN), {"S": "01:02:00.000000+02:00"}),
    (dt.timedelta(seconds=-1, microseconds=-500), {"S": "PT-1.000500S"}),
    (pd.Timedelta(1, "ns"), {"S": "PT0.000000001S"}),
    (np.timedelta64(1, "s"), {"S": "PT1.000000S"}),
    ({"b", "a"}, {"SS": ["a", "b"]}),
    (frozenset({1, Decimal("0.5")}), {"NS": ["0.5", "1"]}),
    ({b"x", Binary(b"y")}, {"BS": ["eA==", "eQ=="]}),
    ([1, "x", None, pd.NA], {"L": [{"N": "1"}, {"S": "x"}, {"NULL": True}, {"NULL": True}]}),
    ((1, [True]), {"L": [{"N": "1"}, {"L": [{"BOOL": True}]}]}),
    (Point(1, 2), {"L": [{"N": "1"}, {"N": "2"}]}),
    (np.array([1.5, 2]), {"L": [{"N": "1.5"}, {"N": "2.0"}]}),
    (pl.Series([1]).to_numpy(), {"L": [{"N": "1"}]}),
    ({"a": {"b": (b"x",)}, "none": None}, {"M": {"a": {"M": {"b": {"L": [{"B": "eA=="}]}}}}}),
    (collections.OrderedDict(a={1}), {"M": {"a": {"NS": ["1"]}}}),
    (pa.scalar("x"), {"S": "x"}),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=lambda value: f"{type(value).__name__}")
def test_a_value_has_one_attribute_value(value, expected):
    """It is the same alone, after values of other types, and as a column of lists."""
    assert attribute_value(value) == expected
    for others in ([], ["text"], [1], [b"x"], [dt.date(2024, 1, 1)]):
        [item] = list(items_of(batch(python_columns({"v": [*others, value]}))))[len(others) :]
        assert attribute_value_of(item) == attribute_value_of({"v": expected})


def batch(table):
    """Return the rows as one batch."""
    [only] = table.combine_chunks().to_batches()
    return only


def attribute_value_of(item):
    """Return the value, with numbers by value."""
    ((tag, content),) = item["v"].items()
    return (tag, Decimal(content)) if tag == "N" else (tag, content)


@pytest.mark.parametrize(
    "value", [None, pd.NA, pd.NaT, np.datetime64("NaT", "s"), np.timedelta64("NaT", "s")], ids=repr
)
def test_what_is_missing(value):
    """The null values of pandas and numpy are missing next to values of any type."""
    assert is_missing(value)
    for other in ("x", 1, pd.Timestamp(NOON)):
        assert "v" not in list(items_of(batch(python_columns({"v": [other, value]}))))[1]


@pytest.mark.parametrize(
    "value", [object(), 1j, {b"x", "y"}, {1: 2}, 10**200, pd.Period("2024"), np.longdouble("0.1"), [[object()]], range]
)
def test_a_value_without_a_type_is_refused(value):
    """Unknown types are refused without guessing."""
    with pytest.raises(SchemaError):
        attribute_value(value)


def test_declared_times_have_their_format_next_to_other_values():
    """A format applies value by value. Other values become invalid numbers."""
    forms = {"v": parse_format("epoch_s")}
    zoned = dt.datetime(1970, 1, 2, tzinfo=dt.UTC)
    times = [zoned.replace(tzinfo=None), zoned, pd.Timestamp(86_400, unit="s"), None]
    rows = [{"pk": "a", "v": value} for value in times]
    table = python_rows(rows, forms)
    assert [item.get("v") for item in items_of(batch(table))] == [*[{"N": "86400"}] * 3, None]
    assert batch(python_rows([{"v": "soon"}], forms)).column("v").to_pylist() == ["str 'soon' is no time"]
    assert list(items_of(batch(python_columns({"v": times[:1]}, forms)))) == [{"v": {"N": "86400"}}]
