from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS

from ddbio.items.schema.item_schema import ItemSchema

SCHEMAS = st.lists(ITEMS, max_size=4).map(ItemSchema.of_items)


def test_every_kind_of_change_is_reported():
    """New and removed attributes, new types and widened columns are reported by path, also nested ones."""
    before = ItemSchema.of_items([
        {"gone": {"S": "x"}, "n": {"N": "1"}, "t": {"S": "x"}, "same": {"BOOL": True},
         "m": {"M": {"x": {"N": "1"}}}, "l": {"L": [{"N": "1"}]}},
    ])  # fmt: skip
    after = ItemSchema.of_items([
        {"new": {"SS": ["x"]}, "n": {"N": "1.5"}, "t": {"N": "1"}, "same": {"BOOL": False},
         "m": {"M": {"x": {"N": "1"}, "y": {"S": "x"}}}, "l": {"L": [{"N": "1" * 20}]}},
        {"t": {"S": "x"}, "n": {"NULL": True}},
    ])  # fmt: skip
    evolution = before.diff(after)
    assert str(evolution).splitlines() == [
        "new attribute   new: SS list<string>",
        "widened         n: N int64 -> N decimal128(38, 1)",
        "new type        t: S string as before (now also N)",
        "new attribute   m.y: S string",
        "widened         l[]: N int64 -> N decimal128(38, 0)",
        "gone attribute  gone: S string",
    ]
    assert evolution.to_dict()["changes"][2] == {
        "path": "t", "kind": "new type", "before": "S string", "after": "S string", "new_types": ("N",)
    }  # fmt: skip
    assert [change.kind for change in after.diff(before).changes if change.path == "n"] == ["changed"]


@given(SCHEMAS, SCHEMAS)
def test_a_merge_only_adds(one, other):
    """A schema does not differ from itself, and a merge removes no attribute."""
    assert not one.diff(one)
    assert str(one.diff(one)) == "no change"
    merged = one.diff(one.merge(other))
    assert all(change.kind != "gone attribute" or "." in change.path for change in merged.changes)
