from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS, TEXT

from ddbio.errors import DecodeError
from ddbio.items.page import split_page

TRAPS = ['x],"Count":7}', '],"', 'a]},"ScannedCount":1}', '"Items":[', "\\", '\\"],"', "]}", "null"]


@given(
    st.lists(ITEMS, max_size=4),
    st.none()
    | st.dictionaries(TEXT, st.fixed_dictionaries({"S": TEXT | st.sampled_from(TRAPS)}), min_size=1, max_size=2),
    st.none() | st.sampled_from([0.5, 128.5]),
    st.sampled_from([None, 1]),
    st.randoms(use_true_random=False),
)
def test_a_page_is_split_as_json_reads_it(items, key, units, indent, random):
    """For any items and key, and in any order and layout, splitting agrees with a full parse."""
    body = {"Count": len(items), "Items": items, "ScannedCount": len(items) + 1}
    if key is not None:
        body["LastEvaluatedKey"] = key
    if units is not None:
        body["ConsumedCapacity"] = {"TableName": 't],"', "CapacityUnits": units}
    members = list(body.items())
    random.shuffle(members)
    separators = (",", ":") if indent is None else None
    page = split_page(json.dumps(dict(members), indent=indent, separators=separators, ensure_ascii=False).encode())
    assert json.loads(page.items) == {"Items": items}
    assert (page.count, page.scanned_count) == (len(items), len(items) + 1)
    assert page.last_evaluated_key == key
    assert page.consumed_units == units


@pytest.mark.parametrize("trap", TRAPS)
def test_the_key_may_look_like_the_end(trap):
    """A key whose text looks like the end of the items does not end them."""
    items = [{"pk": {"S": trap}, "Items": {"L": [{"S": trap}]}, "l": {"SS": [trap]}}]
    body = {"Items": items, "Count": 1, "ScannedCount": 1, "LastEvaluatedKey": {"pk": {"S": trap}, "Count": {"N": "1"}}}
    page = split_page(json.dumps(body, separators=(",", ":")).encode())
    assert page.items == json.dumps({"Items": items}, separators=(",", ":")).encode()
    assert page.last_evaluated_key == body["LastEvaluatedKey"]


def test_a_count_has_no_items():
    """A response to Select=COUNT is a page without items."""
    page = split_page(b'{"Count":5,"ScannedCount":7}')
    assert (page.items, page.count, page.scanned_count) == (b'{"Items":[]}', 5, 7)


def test_an_unknown_member_does_not_hurt():
    """A member that a later service version may add is ignored."""
    page = split_page(b'{"Count":1,"Items":[{"a":{"S":"x"}}],"ScannedCount":1,"New":[1,2]}')
    assert page.items == b'{"Items":[{"a":{"S":"x"}}]}'


def test_the_items_are_not_copied_into_objects():
    """The bytes of the items are passed on unchanged, valid or not: decoding detects errors."""
    assert split_page(b'{"Items":[ {"a" : ?} ],"Count":1,"ScannedCount":1}').items == b'{"Items":[ {"a" : ?} ]}'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"Items":[]}',
        b'{"Items":{},"Count":0,"ScannedCount":0}',
        b'{"Items":[],"Count":"0","ScannedCount":0}',
        b'{"Items":[],"Count":0,"ScannedCount":0',
        b'{"Items":[{"a":{"S":"x"}}',
        b'{"message":"no"}',
        b"\xff",
    ],
)
def test_other_bodies_are_refused(body):
    """A body that is not a Scan or Query response is refused."""
    with pytest.raises(DecodeError):
        split_page(body)
