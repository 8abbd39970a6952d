"""Pages split into lines of an export, compared with ``json``."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS

from ddbio.errors import DecodeError
from ddbio.items.raw_items import PageSplitter

SPLITTER = PageSplitter()


def split(body):
    """Return the lines of a page, and their reported number."""
    ((text, count),) = SPLITTER.decode_batches(body, "page")
    return text, count


@given(st.lists(ITEMS, max_size=5), st.sampled_from([(",", ":"), (", ", ": ")]), st.booleans(), st.booleans())
def test_lines_hold_the_items(items, separators, ascii_only, pretty):
    """For any text of a page, each item becomes one line of an export with unchanged values."""
    body = json.dumps({"Items": items}, separators=separators, ensure_ascii=ascii_only, indent=1 if pretty else None)
    text, count = split(body.encode())
    assert [json.loads(line) for line in text.splitlines()] == [{"Item": item} for item in items]
    assert count == len(items) == text.count(b"\n")


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"Items":', b'{"Items":[', b'{"Items":[1]}', b'{"Items":[{}', b'{"Items":[{}{}]}',
     b'{"Items":[{},]}', b'{"Items":[{"a":{"S":"x', b'{"Items":[{"a":{"S":"\n"}}]}', b'{"Items":[{"a":{"S":"\\'],
)  # fmt: skip
def test_what_is_no_page_is_refused(body):
    """A page that ends early, or whose items are not objects, is an error."""
    with pytest.raises(DecodeError):
        split(body)


def test_smallest_items_fit_the_buffer():
    """Items without attributes, which grow most, are all printed."""
    text, count = split(b'{"Items":[' + b",".join([b"{}"] * 1000) + b"]}")
    assert (text, count) == (b'{"Item":{}}\n' * 1000, 1000)
