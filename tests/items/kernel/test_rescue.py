from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from comparison import assert_same, by_kernel, by_reference

from ddbio.items.kernel.decode.decoder import KernelDecoder

SCHEMA = pa.schema([("a", pa.int64()), ("m", pa.struct([("x", pa.int64())])), ("é", pa.int64())])
NAMES = ["a", "m", "é", "b", "aa", 'quo"te', "back\\slash", "new\nline", "名", "😀", "\uffff", "", "z" * 90]
VALUES = [{"S": "x"}, {"S": '\n"\\/é'}, {"M": {"x": {"S": "é"}, "y": {"L": []}}}, {"NULL": True}, {"SS": ["b", "a"]}]


def drifting(count, share):
    """Return items of which a share has any of the names, in any order, with any of the values."""
    chance = random.Random(count)
    for _ in range(count):
        names = chance.sample(NAMES, chance.randrange(6)) if chance.random() < share else []
        yield {"a": {"N": "1"}} | {name: chance.choice(VALUES) for name in names}


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["compact", "spaced"])
@pytest.mark.parametrize("ascii_only", [False, True], ids=["as they are", "escaped"])
@pytest.mark.parametrize(("count", "share"), [(1, 1), (40, 0.05), (700, 0.05), (700, 1)])
def test_texts_are_those_of_the_reference(count, share, ascii_only, separators):
    """Rows of none, one or several misfits, of any names and notation, have the reference's text and counts."""
    items = list(drifting(count, share))
    body = "".join(json.dumps(item, separators=separators, ensure_ascii=ascii_only) + "\n" for item in items).encode()
    for nulls in ("merge", "keep"):
        actual = by_kernel(KernelDecoder(SCHEMA, nulls=nulls), body, "items")
        assert_same(actual, by_reference(body, SCHEMA, "items", nulls), body)


def test_a_row_without_a_misfit_has_no_text():
    """A row is null if it has no misfit, or all its misfits are dropped, also the first and the last row."""
    body = b'{}\n{"b":{"S":"x"}}\n{}\n{}\n{"c":{"S":"y"},"b":{"S":"z"}}\n{}\n'
    texts = [None, '{"b":{"S":"x"}}', None, None, '{"b":{"S":"z"},"c":{"S":"y"}}', None]
    assert KernelDecoder(SCHEMA).decode(body, "items").column("_rescue").to_pylist() == texts
    dropping = KernelDecoder(SCHEMA, on_misfit="drop", drop=["b"])
    texts = [None, None, None, None, '{"c":{"S":"y"}}', None]
    assert dropping.decode(body, "items").column("_rescue").to_pylist() == texts
    dropping = KernelDecoder(SCHEMA, on_misfit="drop", drop=["b", "c"])
    assert dropping.decode(body, "items").column("_rescue").null_count == 6


@pytest.mark.parametrize("spell", ["json", "all escaped", "spaced"])
def test_any_json_is_written_canonically(spell):
    """White space is removed and only necessary escapes remain, in JSON columns and in the rescue column."""
    text = "".join(map(chr, [*range(0x100), 0x7FF, 0x800, 0xD7FF, 0xFFFF, 0x10000, 0x10FFFF]))
    value = {"M": {text: {"L": [{"S": text}, {"BOOL": True}, {"NS": ["1"]}, {"M": {}}]}, "/": {"S": "\\\\u0041/"}}}
    item = json.dumps({"j": value, "unknown": value, "z": {"S": "a"}})
    if spell == "all escaped":
        codes = (text[index : index + 1].encode("utf-16-be").hex() for index in range(len(text)))
        escaped = "".join(f"\\u{code[:4]}" + (f"\\u{code[4:]}" if code[4:] else "") for code in codes)
        item = item.replace(json.dumps(text)[1:-1], escaped).replace('"/"', '"\\/"')
    if spell == "spaced":
        item = json.dumps(json.loads(item), indent="\t", ensure_ascii=False).replace("\n", " \n\r\t ")
    schema = pa.schema([pa.field("j", pa.string(), metadata={"ddb:type": "JSON"}), ("z", pa.int64())])
    body = item.encode()
    assert json.loads(body)["j"] == value
    assert_same(by_kernel(KernelDecoder(schema), body, "items"), by_reference(body, schema, "items"), body)
