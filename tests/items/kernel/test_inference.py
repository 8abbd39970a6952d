"""Shapes of items that the walk sees equal those of the plain inference."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_generator import Generator
from item_strategies import ITEMS, tables
from mutation import mutate
from observation import assert_same_shape

from ddbio.items.json_text import compact_json
from ddbio.items.kernel.decode import inference as observer
from ddbio.items.kernel.tape import walker

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"), key=lambda path: path.name)


def lines(*items):
    """Return bare items, one a line."""
    return "".join(f"{compact_json(item)}\n" for item in items).encode()


@given(st.lists(st.one_of(st.lists(ITEMS, max_size=4), tables()), max_size=3))
def test_any_items_look_the_same(bodies):
    """For any items, in any number of bodies, types, digits, names and their order are the same."""
    assert assert_same_shape([lines(*items) for items in bodies], "items") is not None
    pages = [compact_json({"Items": items}).encode() for items in bodies]
    assert assert_same_shape(pages, "page") is not None


def test_sound_and_damaged_documents_look_the_same():
    """Documents of other writers, and damaged ones, are observed or refused as by the plain inference."""
    outcomes = [0, 0]
    for seed in range(700, 760):
        generator = Generator(seed)
        for framing in ("items", "export", "page"):
            items = [generator.item(list(generator.schema())) for _ in range(generator.random.randrange(1, 6))]
            sound = generator.document(items, framing)
            for body in [sound, *(mutate(sound, generator.random) for _ in range(20))]:
                outcomes[assert_same_shape([body], framing) is None] += 1
    assert min(outcomes) > 100


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_document_that_was_once_hard_is_seen_as_by_the_reference(path):
    """Alone, after valid lines, and within a page, every document of the corpus is observed or refused equally."""
    body = path.read_bytes()
    for document in (body, b'{"a":{"S":"x"}}\n' + body):
        assert_same_shape([document], "items")
    for document in (body, b'{"Item":' + body + b"}"):
        assert_same_shape([document], "export")
    for document in (body, b'{"Items":[{"a":{"S":"x"}},' + body + b"]}"):
        assert_same_shape([document], "page")


NUMBERS = [
    "0", "-0", "00", "1", "007", "-5", "+5", "12345678901234567", "123456789012345678", "1234567890123456789",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "18446744073709551616", "99999999999999999999", "1" * 38, "1" * 39, "1e18", "1e19", "9e18", "1e37", "1e125",
    "1e126", "0.5", "-0.5", "00.5", ".5", "5.", "5.0", "1.50", "12.25", "123456789012345678.123456789012345678",
    "1234567890123456789.5", "0.1234567890123456789", "1e-3", "12e-1", "120e-1", "1e-130", "1e-131", "0e999", "", "-",
    "1.", ".", "1e", "1 ", " 1", "1_0", "0x1", "1" + "0" * 37, "1" + "0" * 60, "0" * 60 + "1", "\u0661",
]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
def test_every_text_of_a_number_has_the_same_digits(number):
    """Digits before and after the point, and whether 64 bits suffice, depend on the number, not on its text."""
    for value in ({"N": number}, {"NS": [number]}, {"L": [{"N": "3"}, {"N": number}]}):
        assert_same_shape([lines({"n": {"N": "1"}}, {"n": value}, {"n": {"N": "2.5"}})], "items")


def test_names_are_found_in_any_order_and_text():
    """Names in another order, escaped, long, or under several maps are one attribute each."""
    long, quoted = "long" * 20, 'q"\\\n'
    first = {"a": {"S": "1"}, "b": {"M": {"a": {"N": "1"}}}, long: {"S": "x"}, quoted: {"NULL": True}, "é": {"S": ""}}
    backwards = dict(reversed(first.items()))
    escaped = json.dumps(backwards).encode().replace(b'"a"', b'"\\u0061"') + b"\n"
    shape = assert_same_shape([lines(first, backwards, first) + escaped], "items")
    assert list(shape.members) == ["a", "b", long, quoted, "é"]


def test_twice_named_attributes_are_refused():
    """An object that names an attribute twice is refused at any depth, with any members between."""
    for text in (
        b'{"a":{"S":"1"},"a":{"S":"1"}}',
        b'{"a":{"S":"1"},"b":{"S":"1"},"\\u0061":{"S":"1"}}',
        b'{"m":{"M":{"a":{"S":"1"},"a":{"S":"1"}}}}',
        b'{"l":{"L":[{"M":{"a":{"S":"1"},"b":{"S":"1"},"a":{"S":"1"}}}]}}',
    ):
        assert assert_same_shape([text], "items") is None
    twins = b'{"l":{"L":[{"M":{"a":{"S":"1"}}},{"M":{"a":{"S":"1"}}}]},"a":{"S":"1"}}'
    assert assert_same_shape([twins], "items") is not None


@pytest.mark.parametrize("depth", [2, 31, 60, 70, 200])
def test_deep_items_are_observed_here_or_by_the_reference(depth):
    """The plain inference reads items that are nested too deeply for the walk."""
    value = {"S": "x"}
    for level in range(depth):
        value = {"L": [value]} if level % 2 else {"M": {"a": value}}
    if depth > 64:
        assert observer.shape_of_items([(lines({"a": value}), "items")]) is None
    else:
        assert assert_same_shape([lines({"a": value})], "items") is not None


@pytest.mark.parametrize("piece_bytes", [1, 50, 1 << 20])
def test_long_bodies_are_cut_at_lines(piece_bytes, monkeypatch):
    """The result does not depend on where a body is cut, even within an item. The last line may lack its end."""
    monkeypatch.setattr(observer, "PIECE_BYTES", piece_bytes)
    items = [{"a": {"S": "x" * number}, f"b{number}": {"L": [{"N": f"{number}"}]}} for number in range(60)]
    assert assert_same_shape([lines(*items)], "items") is not None
    indented = "\n".join(json.dumps({"Item": item}, indent=1) for item in items).encode()
    assert assert_same_shape([b"\xef\xbb\xbf" + indented, indented], "export") is not None
    assert assert_same_shape([indented, indented + b"\xff"], "export") is None
    assert assert_same_shape([], "items") == assert_same_shape([b"", b" \n"], "export")


def test_too_many_names_are_left_to_the_reference(monkeypatch):
    """The plain inference reads items with more names than the limit."""
    monkeypatch.setattr(walker, "MAX_NODES", 256)
    few, many = ({f"n{name}": {"S": ""} for name in range(count)} for count in (250, 300))
    assert assert_same_shape([lines(few)], "items") is not None
    assert observer.shape_of_items([(lines(many), "items")]) is None


def many_names(generator, depth):
    """Return a map with enough names to be data, or with few."""
    names = [f"n{generator.randrange(150)}" for _ in range(generator.choice([0, 1, 5, 80]))]
    if not depth:
        return {"M": {name: generator.choice([{"S": ""}, {"N": "1.5"}, {"L": [{"S": ""}]}]) for name in names}}
    return {"M": {name: many_names(generator, depth - 1) if generator.random() < 0.2 else {"N": "1"} for name in names}}


@pytest.mark.parametrize("seed", range(8))
def test_maps_of_many_names_look_the_same(seed):
    """Values beyond the first names of a map share one shape, at every depth, and no name may occur twice."""
    generator = random.Random(seed)
    items = [{"m": many_names(generator, 2), "l": {"L": [many_names(generator, 1)]}} for _ in range(20)]
    shape = assert_same_shape([lines(*items[:10]), lines(*items[10:])], "items")
    assert shape.members["m"].others is not None
    names = [f'"x{number}":{{"S":""}}' for number in range(100)]
    assert assert_same_shape([f'{{"m":{{"M":{{{",".join(names)}}}}}}}'.encode()], "items") is not None
    for twice in (names[3], names[80]):
        assert assert_same_shape([f'{{"m":{{"M":{{{",".join([*names, twice])}}}}}}}'.encode()], "items") is None


def test_the_number_of_names_of_items_is_unlimited():
    """All names of attributes are kept, and the maps of one item may have very many names."""
    wide = [{f"a{number}": {"S": ""} for number in range(start, start + 90)} for start in (0, 60, 200)]
    assert len(assert_same_shape([lines(*wide)], "items").members) == 240
    keys = {"m": {"M": {f"k{number}": {"N": "1"} for number in range(50_000)}}}
    assert assert_same_shape([lines(keys, keys, wide[0])], "items").members["m"].others.tags == {"N": 100_000}
