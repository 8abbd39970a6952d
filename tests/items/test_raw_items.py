"""Items that stay text: located, checked, measured and hashed as by the reference."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS, TEXT, VALUES, meaning_of_item

from ddbio.aws.table_description import IndexKey
from ddbio.errors import DecodeError
from ddbio.items import raw_items
from ddbio.items.capacity import item_size_bytes
from ddbio.items.decode import from_dynamodb_json
from ddbio.items.item_key import key_hashes
from ddbio.items.raw_items import RawItemReader, joined_items

KEYS = {"pk": "S", "sk": "N"}
WRITTEN = st.builds(
    lambda item, text, number, seen: item | {"pk": {"S": text}, "sk": {"N": str(number)}, "seen": seen},
    ITEMS,
    TEXT.filter(bool),
    st.integers(1 - 10**38, 10**38 - 1) | st.sampled_from(["1.50", "-0.0", "007", "1e3", ".5"]),
    VALUES,
)
GOOD = {"pk": {"S": "a"}, "sk": {"N": "1"}}


def framed(items, framing, **layout):
    """Return items as text in a frame."""

    def print_json(value):
        return json.dumps(value, **layout).encode()

    if framing == "page":
        return print_json({"Items": items})
    return b"\n".join(print_json({"Item": item} if framing == "export" else item) for item in items)


def read(items, framing="items", keys=KEYS, **reader_options):
    """Return items read from compact text."""
    body = framed(items, framing, separators=(",", ":"), ensure_ascii=False)
    return joined_items(RawItemReader(keys, **reader_options).decode_batches(body, framing))


@given(
    st.lists(WRITTEN, min_size=1, max_size=5),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.sampled_from(["page", "export", "items"]),
)
def test_items_are_what_the_reference_reads(items, escaped, indent, framing):
    """In every framing and layout each item has its text, size, key hash and the requested values."""
    body = framed(items, framing, ensure_ascii=escaped, indent=indent)
    items_read = joined_items(RawItemReader(KEYS, compared="seen").decode_batches(body, framing))
    assert not items_read.doubtful.any()
    assert [json.loads(items_read.text(row)) for row in range(len(items_read))] == items
    assert [json.loads(items_read.item_text(row)) for row in range(len(items_read))] == items
    assert items_read.sizes.tolist() == list(map(item_size_bytes, items))
    keyed = [{name: item[name] for name in KEYS} for item in items]
    assert items_read.hashes.tolist() == key_hashes(from_dynamodb_json(framed(keyed, "items")), list(KEYS)).tolist()
    for row, item in enumerate(items):
        assert [json.loads(items_read.value(row, n)) for n in range(3)] == [item[name] for name in ("pk", "sk", "seen")]


@pytest.mark.parametrize(
    ("tag", "value"),
    [("S", "ü\n" * 9), ("N", "-12.50"), ("N", "9" * 38), ("N", "1e-130"), ("B", "AAEC"), ("B", "AA==")],
)
def test_keys_of_every_type(tag, value):
    """A partition key alone, of any type and text, has the hash of its identity."""
    item = {"k": {tag: value}}
    items_read = read([item, item | {"v": {"S": "x"}}], keys={"k": tag})
    expected = key_hashes(from_dynamodb_json(framed([item], "items")), ["k"])
    assert items_read.hashes.tolist() == [*expected, *expected]
    assert not items_read.doubtful.any()


DEEP = {"S": "x"}
for _ in range(31):
    DEEP = {"L": [DEEP]}
DOUBTS = {
    "no partition key": {"sk": {"N": "1"}},
    "no sort key": {"pk": {"S": "a"}},
    "no item": {},
    "another type": GOOD | {"pk": {"N": "1"}},
    "a map as key": GOOD | {"pk": {"M": {}}},
    "an empty key": GOOD | {"pk": {"S": ""}},
    "a long key": GOOD | {"pk": {"S": "x" * 2049}},
    "an index key of another type": GOOD | {"mail": {"N": "1"}},
    "an index key that is NULL": GOOD | {"mail": {"NULL": True}},
    "an empty index key": GOOD | {"mail": {"S": ""}},
    "a long index key": GOOD | {"mail": {"S": "x" * 1025}},
    "an empty set": GOOD | {"v": {"SS": []}},
    "an element twice": GOOD | {"v": {"SS": ["a", "b", "a"]}},
    "a number twice": GOOD | {"v": {"NS": ["1", "1.0"]}},
    "bytes twice": GOOD | {"v": {"BS": ["AA==", "AA=="]}},
    "an element twice among many": GOOD | {"v": {"SS": [str(n % 40) for n in range(41)]}},
    "too deep": GOOD | {"v": {"L": [DEEP]}},
    "too large": GOOD | {"v": {"S": "x" * 409_600}},
    "an empty name": GOOD | {"": {"S": "x"}},
    "an empty name within": GOOD | {"v": {"M": {"": {"S": "x"}}}},
    "a long name": GOOD | {"x" * 65_536: {"S": "x"}},
    "a zero with exponent": GOOD | {"v": {"N": "0e99"}},
    "loose bits": GOOD | {"v": {"B": "AB=="}},
    "very many elements": GOOD | {"v": {"NS": [str(n) for n in range(9000)]}},
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_only_items_that_may_be_illegal_are_doubtful(doubt):
    """Such an item has its text, and its neighbours are not doubtful."""
    index_keys = (IndexKey("mail", "S", 1024, "by-mail"),)
    items_read = read([GOOD, DOUBTS[doubt], GOOD], index_keys=index_keys)
    assert items_read.doubtful.tolist() == [False, True, False]
    assert json.loads(items_read.text(1)) == DOUBTS[doubt]


def test_unusual_legal_items_are_not_doubtful():
    """Text that is an attribute's name elsewhere, deep values, large sets and an existing index key are accepted."""
    odd = {
        "deep": DEEP["L"][0]["L"][0],
        "text": {"S": '{"pk":{"S":"b"}}'},
        "map": {"M": {"pk": {"N": "1"}, "mail": {"NULL": True}}},
        "set": {"SS": [str(n) for n in range(3000)]},
        "empty": {"M": {"s": {"S": ""}, "b": {"B": ""}, "l": {"L": []}, "m": {"M": {}}}},
        "mail": {"S": "x" * 1024},
    }
    items_read = read([GOOD | odd, GOOD], index_keys=(IndexKey("mail", "S", 1024, "by-mail"),))
    assert not items_read.doubtful.any()
    assert items_read.sizes.tolist() == [item_size_bytes(GOOD | odd), item_size_bytes(GOOD)]


BROKEN = [
    (b'{"a":{"S":"x"}', "items", "line 1: column 15: this is not JSON: Expecting ',' delimiter"),
    (b'{}\n{"a":{"S":"\xff"}}', "items", "line 2: byte 14 is not UTF-8: invalid start byte"),
    (b'{}\n\n{"a":{"T":"x"}}', "items", "line 3: a: 'T' is not a DynamoDB type"),
    (b'{}\n{"a":{"S":"x"},"a":{"S":"x"}}', "items", "line 2: the name 'a' occurs twice in one object"),
    (b'{"a":{"N":"1x"}}', "items", "line 1: a: '1x' is not a DynamoDB number"),
    (b'{"a":{"M":{"b":{"B":"A"}}}}', "items", "line 1: a.b: 'A' is not base64"),
    (b'{"Item":{}}\n{"Itom":{}}', "export", 'line 2: expected one {"Item": '),
    (b'{"Items":[{},{"a":1}]}', "page", "item 1 of the page: a: expected one type and its value"),
    (b'{"Items":[{},{]}', "page", "line 1: column 15: this is not JSON"),
    (b'{}\n{"a":{"S":"\\ud800"}}', "items", "line 2: a: .* holds half of a surrogate pair"),
]


@pytest.mark.parametrize(("body", "framing", "message"), BROKEN)
@pytest.mark.parametrize("piece_bytes", [1, 1 << 20])
def test_broken_text_is_refused_with_its_line(monkeypatch, body, framing, message, piece_bytes):
    """Text that is not DynamoDB JSON is refused as by the reference, for any size of pieces."""
    monkeypatch.setattr(raw_items, "PIECE_BYTES", piece_bytes)
    with pytest.raises(DecodeError, match="^" + message):
        RawItemReader(KEYS).decode_batches(body, framing)


@pytest.mark.parametrize("piece_bytes", [1, 50, 300, 1000])
@pytest.mark.parametrize("indent", [None, 2])
def test_pieces_end_where_documents_end(monkeypatch, piece_bytes, indent):
    """Documents of many lines and of one are read completely, for any size of pieces."""
    monkeypatch.setattr(raw_items, "PIECE_BYTES", piece_bytes)
    items = [GOOD | {"sk": {"N": str(n)}, "v": {"L": [{"S": "line\n"}] * n}} for n in range(20)]
    body = b"\xef\xbb\xbf" * (indent is None) + framed(items, "items", indent=indent) + b"\n\n"
    parts = RawItemReader(KEYS).decode_batches(body, "items")
    items_read = joined_items(parts)
    assert len(parts) > 1 or indent is None
    assert [json.loads(items_read.text(row)) for row in range(20)] == items
    assert [json.loads(items_read.value(row, 1)) for row in range(20)] == [item["sk"] for item in items]


@given(st.integers(1, 400), st.sampled_from([None, 1]), st.sampled_from(["items", "export"]))
def test_documents_can_span_blocks(block_bytes, indent, framing):
    """Text in blocks of whole lines has all items, although documents are cut."""
    items = [GOOD | {"sk": {"N": str(n)}, "v": {"L": [{"S": "line\n"}] * n}} for n in range(9)]
    lines = framed(items, framing, indent=indent).splitlines(keepends=True)
    blocks, size = [[]], 0
    for line in lines:
        if size > block_bytes:
            blocks.append([])
            size = 0
        blocks[-1].append(line)
        size += len(line)
    items_read = joined_items(list(RawItemReader(KEYS).read_blocks((memoryview(b"".join(b)) for b in blocks), framing)))
    assert [json.loads(items_read.text(row)) for row in range(len(items_read))] == items


def test_an_error_in_a_later_block_has_its_line():
    """Invalid text in a later block is refused with its line in the text, before an endless text is read."""
    blocks = [b'{"a":{"S":"x"}}\n' * 3, b'{"a":{"S":"y"}}\n{"a":{"T":"x"}}\n']
    with pytest.raises(DecodeError, match=r"^line 5: a: 'T' is not a DynamoDB type") as caught:
        list(RawItemReader(KEYS).read_blocks(blocks, "items"))
    assert caught.value.line == 5


def test_an_unclosed_document_does_not_buffer_the_text(monkeypatch):
    """A document that is not closed ends reading once it is longer than any item."""
    monkeypatch.setattr(raw_items, "MAX_DOCUMENT_BYTES", 100)
    taken = []

    def blocks():
        for n in range(50):
            taken.append(n)
            yield b'{"a":{"L":[\n' if n == 1 else b'{"a":{"S":"x"}}\n'

    with pytest.raises(DecodeError, match=r"^line 4: column 1: this is not JSON"):
        list(RawItemReader(KEYS).read_blocks(blocks(), "items"))
    assert len(taken) < 12


def test_nothing_is_read_of_nothing():
    """Empty text and a page without items have no items."""
    assert RawItemReader(KEYS).decode_batches(b"", "items") == []
    assert RawItemReader(KEYS).decode_batches(b'{"Items":[]}', "page") == []


@given(st.lists(ITEMS, max_size=4))
def test_any_item_is_found(items):
    """Items without the key are also read, each doubtful."""
    items_read = RawItemReader({"no such": "S"}).decode_batches(framed(items, "page"), "page")
    texts = [json.loads(part.text(row)) for part in items_read for row in range(len(part))]
    assert list(map(meaning_of_item, texts)) == list(map(meaning_of_item, items))
    assert all(part.doubtful.all() for part in items_read)
