"""Shapes of samples, and refused samples."""

from __future__ import annotations

import pytest

from ddbio.errors import DecodeError
from ddbio.items.attribute import check_item
from ddbio.items.schema.shape import infer_shape

BROKEN = [
    5, "text", [], None, {}, {"S": "x", "N": "1"}, {"X": "x"}, {"S": 5}, {"S": "\ud800"}, {"N": 5}, {"N": ["1"]},
    {"N": ""}, {"N": "\u0661"}, {"N": "1_0"}, {"NS": "12"}, {"NS": [1]}, {"L": {"S": "x"}}, {"L": ["x"]}, {"M": ["x"]},
    {"M": {"x": 5}}, {"M": {"\ud800": {"S": "x"}}}, {"SS": "xy"}, {"B": "?"}, {"BOOL": 1}, {"NULL": False},
]  # fmt: skip


@pytest.mark.parametrize("value", BROKEN, ids=repr)
def test_a_broken_value_is_refused_with_its_path(value):
    """A value that the reference refuses is refused with the same message, next to and below valid values."""
    for item in (
        {"good": {"S": "x"}, "bad": value},
        {"list": {"L": [{"N": "1"}, value]}},
        {"map": {"M": {"bad": value}}},
    ):
        with pytest.raises(DecodeError) as expected:
            check_item(item)
        with pytest.raises(DecodeError) as actual:
            infer_shape([{"good": {"S": "x"}}, item])
        assert str(actual.value) == str(expected.value)


@pytest.mark.parametrize("item", [5, None, [], "text"])
def test_only_objects_are_items(item):
    """An item is an object."""
    with pytest.raises(DecodeError, match="expected an object"):
        infer_shape([item])
