"""Items printed as Ion together, compared with the reference that writes them one by one."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from item_strategies import ITEMS

from ddbio.items.digest import item_hash
from ddbio.items.ion import OPENING, to_ion_lines
from ddbio.items.ion_values import ion_to_json_lines
from ddbio.items.json_text import compact_json

TAGS = ["S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "L", "M"]
LEAVES = st.sampled_from(
    [{"S": 'a{"S":"'}, {"S": "}]\\"}, {"S": ""}, {"N": "1"}, {"BOOL": True}, {"NULL": True}, {"B": ""}, {"SS": ["]}"]}]
)
# Members named like types, at any depth.
CONFUSING = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda values: {"L": values}),
        st.dictionaries(st.sampled_from(TAGS), inner, max_size=3).map(lambda members: {"M": members}),
    ),
    max_leaves=12,
)


def printed(items):
    """Return items as the encoder prints them for Ion."""
    return b"".join(OPENING + compact_json(item).encode() + b"}\n" for item in items)


@given(st.lists(st.one_of(ITEMS, st.dictionaries(st.sampled_from(TAGS), CONFUSING, max_size=3)), max_size=3))
@example([{"N": {"S": "1"}}, {"M": {"M": {}}}, {"L": {"L": []}}, {"M": {"M": {"M": {"M": {"S": {"S": "x"}}}}}}])
@example([{"a": {"M": {"BOOL": {"NULL": True}, "NULL": {"BOOL": True}, "B": {"S": "a"}}}}])
def test_any_items_come_back(items):
    """Any items, with any names of members, survive a round trip through Ion."""
    items_read = [json.loads(line)["Item"] for line in ion_to_json_lines(to_ion_lines(printed(items))).splitlines()]
    assert [item_hash(item) for item in items_read] == [item_hash(item) for item in items]


@pytest.mark.parametrize(
    ("number", "ion"), [("600", "600."), ("-1.5", "-1.5"), ("1e3", "1000."), ("007", "7."), ("1.5E-3", "0.0015")]
)
def test_numbers_are_decimals(number, ion):
    """Every number is an Ion decimal, regardless of its text."""
    item = {"n": {"N": number}, "ns": {"NS": [number]}}
    assert to_ion_lines(printed([item])) == f'$ion_1_0 {{Item:{{"n":{ion},"ns":$dynamodb_NS::[{ion}]}}}}\n'.encode()
