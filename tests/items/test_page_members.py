from __future__ import annotations

import pytest

from ddbio.errors import DecodeError
from ddbio.items.page import items_of_page, split_page, units_in


@pytest.mark.parametrize(
    ("consumed", "units"),
    [
        (None, None),
        ({}, None),
        ([], None),
        ({"TableName": "t"}, None),
        ({"CapacityUnits": 0.5}, 0.5),
        ({"CapacityUnits": 3}, 3.0),
        ([{"CapacityUnits": 1.5}, {"CapacityUnits": 2}], 3.5),
    ],
)
def test_units_of_a_response(consumed, units):
    """The units are those of one table or several. A response need not have any."""
    assert units_in(consumed) == units


@pytest.mark.parametrize(
    "consumed", [1e999, float("nan"), 1e308, -1, -0.5, True, "5", [5], {"a": 1}, 10**400, 1e10, float("-inf")]
)
def test_what_is_no_count_of_units_is_refused(consumed):
    """Otherwise a budget would fail with another error, or wait forever."""
    with pytest.raises(DecodeError, match="capacity units"):
        units_in({"CapacityUnits": consumed})
    with pytest.raises(DecodeError, match="capacity units"):
        units_in([{"CapacityUnits": 1}, {"CapacityUnits": consumed}])


@pytest.mark.parametrize("units", ["1e999", "NaN", "1e308", "-1", "[]", '"5"'])
def test_a_page_with_invalid_units_is_refused(units):
    """Invalid units are refused anywhere in the body."""
    consumed = f'"ConsumedCapacity":{{"TableName":"t","CapacityUnits":{units}}}'
    for body in (
        f'{{"Items":[],"Count":0,"ScannedCount":0,{consumed}}}',
        f'{{{consumed},"Count":0,"ScannedCount":0,"Items":[]}}',
    ):
        with pytest.raises(DecodeError):
            split_page(body.encode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"Items":[{"a":{"S":"\\ud800"}}],"":5}',
        b'{"Items":[{"\\udca2":{"S":""}}],"x":{"y":1}}',
        b'{"":{"":""},"Items":[{"a":["\\udfff"]}]}',
    ],
)
def test_half_of_a_surrogate_pair_is_refused(body):
    """It is also refused in items that have to be printed again instead of cut out of the body."""
    with pytest.raises(DecodeError, match="surrogate"):
        items_of_page(body)


def test_members_that_are_nested_deeply_are_refused():
    """They do not cause another error."""
    deep = b"[" * 100_000 + b"]" * 100_000
    for body in (b'{"Items":[],"ConsumedCapacity":' + deep + b"}", b'{"ConsumedCapacity":' + deep + b',"Items":[]}'):
        with pytest.raises(DecodeError):
            split_page(body)
