"""Sizes of many items: Arrow rows and DynamoDB JSON have the sizes of the single items."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS

import ddbio
from ddbio.errors import EncodeError
from ddbio.items.capacity import item_size_bytes


def lines(items: list[dict]) -> bytes:
    """Return items as lines of DynamoDB JSON."""
    return "\n".join(json.dumps(item) for item in items).encode()


@given(st.lists(ITEMS.filter(bool), min_size=1, max_size=5))
def test_rows_have_the_sizes_of_their_items(items):
    """For every type, in columns and in ``_rescue``, the size of a row is that of its item."""
    batch = ddbio.from_dynamodb_json(lines(items))
    assert ddbio.capacity.item_bytes(batch).to_pylist() == [item_size_bytes(item) for item in items]


@given(st.lists(ITEMS.filter(bool), min_size=1, max_size=5))
def test_json_has_the_sizes_of_its_items(items):
    """Any text is measured without being decoded."""
    assert ddbio.capacity.item_bytes_of_json(lines(items)).to_pylist() == [item_size_bytes(item) for item in items]


@pytest.mark.parametrize("framing", ["items", "export", "page"])
def test_json_in_every_framing(framing):
    """Lines of items, lines of an export and a saved page have the sizes of their items."""
    items = [{"pk": {"S": "a"}, "n": {"N": "-12"}}, {"pk": {"S": "bcd"}}]
    body = {
        "items": lines(items),
        "export": lines([{"Item": item} for item in items]),
        "page": json.dumps({"Items": items, "Count": 2, "ScannedCount": 2}).encode(),
    }[framing]
    assert ddbio.capacity.item_bytes_of_json(body).to_pylist() == [7, 5]


def test_an_item_too_large_for_dynamodb_has_its_size():
    """An item that the service would refuse has a size."""
    table = pa.table({"pk": ["a", "b"], "text": ["x" * 500_000, "é"]})
    assert ddbio.capacity.item_bytes(table).to_pylist() == [3 + 4 + 500_000, 3 + 4 + 2]
    assert ddbio.capacity.item_bytes_of_json(ddbio.to_dynamodb_json(table.slice(1))).to_pylist() == [9]


def test_a_row_that_is_no_item_is_named():
    """A row that is not an item, for example with a number out of range, is an error with the number of the row."""
    table = pa.table({"pk": ["a", "b", "c"], "n": [1.0, 2.0, float("nan")]})
    with pytest.raises(EncodeError, match="row 2: n"):
        ddbio.capacity.item_bytes(pa.concat_tables([table.slice(0, 2), table.slice(2)]))


def test_nothing_weighs_nothing():
    """Data without rows has no sizes, as 64-bit integers."""
    sizes = ddbio.capacity.item_bytes(pa.table({"pk": pa.array([], pa.string())}))
    assert sizes.type == pa.int64()
    assert len(sizes) == 0
    assert len(ddbio.capacity.item_bytes_of_json(b"")) == 0
