from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS

from ddbio.errors import DecodeError
from ddbio.items import digest_json
from ddbio.items.digest import Digest
from ddbio.items.digest_json import JsonDigest


def digest_of(items):
    """Return the digest of items, by the reference."""
    digest = Digest()
    digest.add_items(items)
    return digest


def walked(body, framing):
    """Return the digest by the loops, without the reference."""
    digest = JsonDigest()._walk(body, framing)
    assert digest is not None
    return digest


@given(st.lists(ITEMS, max_size=5), st.booleans(), st.sampled_from([None, 1]))
def test_the_walk_has_the_digest_of_the_items(items, escaped, indent):
    """Pages, export lines and item lines, with escapes and white space or without, have the digest of their items."""

    def print_json(value):
        return json.dumps(value, ensure_ascii=escaped, indent=indent).encode()

    wanted = digest_of(items)
    assert walked(print_json({"Items": items}), "page") == wanted
    assert walked(b"\n".join(print_json({"Item": item}) for item in items), "export") == wanted
    assert walked(b"".join(print_json(item) + b"\r\n" for item in items), "items") == wanted


@pytest.mark.parametrize(
    "number", ["1", "-1.50", "007", ".5", "5.", "+1", "-0", "1e3", "1" * 19, "9" * 38, "0.0001", "1" * 19 + ".5"]
)
def test_every_text_of_numbers(number):
    """Short and long, canonical and other texts of numbers are read as by the reference."""
    items = [{"a": {"N": number}, "b": {"NS": [number, "2"]}}]
    assert walked(json.dumps({"Items": items}).encode(), "page") == digest_of(items)


def test_wide_and_deep_items():
    """Hundreds of attributes and 64 levels are walked. The reference reads larger items."""
    wide = {f"attribute {n}": {"N": str(n)} for n in range(700)}
    deep = {"S": "x"}
    for level in range(63):
        deep = {"L": [deep]} if level % 2 else {"M": {"a": deep}}
    assert walked(json.dumps({"Items": [wide, {"deep": deep}]}).encode(), "page") == digest_of([wide, {"deep": deep}])
    deeper = [{"deep": {"L": [{"L": [deep]}]}}]
    body = json.dumps({"Items": deeper}).encode()
    assert JsonDigest()._walk(body, "page") is None
    digest = JsonDigest()
    digest.add(body, "page")
    assert digest.digest == digest_of(deeper)


def test_many_pieces(monkeypatch):
    """A body of several pieces has the digest of its items, also if the reference reads the last piece."""
    monkeypatch.setattr(digest_json, "_PIECE_BYTES", 100)
    items = [{"pk": {"S": f"{n}" * 9}} for n in range(100)]
    lines = [json.dumps(item).encode() for item in items]
    for body in (b"\n".join(lines), b"\n".join([*lines[:-1], b"  " + lines[-1]])):
        digest = JsonDigest()
        digest.add(body, "items")
        assert digest.digest == digest_of(items)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"a":{"S":"x"},"a":{"S":"y"}}', "line 1"),
        (b'{"a":{"S":"x"}}\n{"a":{"N":"one"}}', "line 2"),
        (b'{"a":{"S":"\xff"}}', "UTF-8"),
        (b'{"a":{"B":"YQ"}}', "base64"),
        (b'{"a":{"S":"x"}', "line 1"),
        (b'{"a":{"NULL":false}}', "line 1"),
    ],
)
def test_what_is_broken_is_refused_with_its_line(body, message):
    """For bytes that the loops refuse, the reference reports the error, and no part of them counts."""
    digest = JsonDigest()
    with pytest.raises(DecodeError, match=message):
        digest.add(body, "items")
    assert digest.digest == Digest()


@given(st.lists(ITEMS, min_size=1, max_size=5), st.sampled_from([None, 1]), st.integers(1, 9), st.booleans())
def test_blocks_have_the_digest_of_the_text(items, indent, lines_per_block, is_export):
    """Text in blocks of lines has its digest, also if a document spans blocks."""
    framing = "export" if is_export else "items"
    documents = [{"Item": item} if is_export else item for item in items]
    lines = b"".join(json.dumps(document, indent=indent).encode() + b"\n" for document in documents).splitlines(
        keepends=True
    )
    blocks = [b"".join(lines[n : n + lines_per_block]) for n in range(0, len(lines), lines_per_block)]
    digest = JsonDigest()
    digest.add_blocks(blocks, framing)
    assert digest.digest == digest_of(items)


def test_an_error_in_a_block_has_its_line():
    """The line of an error in a later block, plain or after a document of many lines, counts from the first block."""
    for start in ([b'{"a":{"N":"1"}}\n'] * 3, [b"{\n", b'"a":{"N":"1"}}\n', b"{}\n"]):
        digest = JsonDigest()
        with pytest.raises(DecodeError, match=r"^line 5: a") as caught:
            digest.add_blocks([*start, b'{}\n{"a":{"N":"x"}}\n', b"{}\n"], "items")
        assert caught.value.line == 5
        assert digest.digest == Digest()


@pytest.mark.parametrize("document", [b'{"a":{"S":"%s"}}\n', b'{"a":\n{"S":"%s"}}\n'])
def test_blocks_are_not_held(document):
    """Many blocks take no more memory than a few."""
    block = (document % (b"x" * 1000)) * 1000
    digest = JsonDigest()
    digest.add_blocks([block], "items")
    tracemalloc.start()
    try:
        digest.add_blocks((bytes(bytearray(block)) for _ in range(40)), "items")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * len(block)
    assert digest.digest.count == 41_000
