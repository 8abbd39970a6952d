from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pyarrow as pa
import pytest
from comparison import assert_same, by_kernel, by_reference

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.schema.arrow import list_of, tagged_field
from ddbio.items.schema.item_schema import ItemSchema


def decode(items, schema=None, **options):
    """Decode items as a page, compare with the reference, and return the decoder and the batch."""
    schema = ItemSchema.of_items(items).to_arrow() if schema is None else schema
    body = json.dumps({"Items": items}, separators=(",", ":"), ensure_ascii=False).encode()
    decoder = KernelDecoder(schema, **options)
    actual = by_kernel(decoder, body, "page")
    assert_same(actual, by_reference(body, schema, "page", options.get("nulls", "merge")), body)
    return decoder, actual[0]


def nested(depth):
    """Return a value with ``depth`` levels of lists and maps."""
    value = {"N": "1"}
    for level in range(depth):
        value = {"L": [value]} if level % 2 else {"M": {"m": value}}
    return value


@pytest.mark.parametrize("depth", [1, 31, 32, 33, 60])
def test_nesting_is_kept(depth):
    """Values as deep as the service allows, and deeper, decode completely with a schema of their depth."""
    _, batch = decode([{"a": nested(depth)}, {"a": nested(depth)}, {}])
    assert batch.column("_rescue").null_count == 3


@pytest.mark.parametrize("depth", [32, 64, 65, 200])
def test_nesting_is_rescued(depth):
    """Values of any depth that fit no column are rescued completely."""
    _, batch = decode([{"a": nested(depth)}], pa.schema([("b", pa.string())]))
    assert json.loads(batch.column("_rescue")[0].as_py()) == {"a": nested(depth)}


def test_one_large_string():
    """A string of 400 KB survives."""
    text = "x" * 400_000 + "é"
    assert decode([{"a": {"S": text}}])[1].column("a").to_pylist() == [text]


def test_ten_thousand_attributes():
    """Ten thousand attributes of one item are in their columns, in any order."""
    item = {f"prefix_{number:05d}_suffix_that_is_the_same": {"N": str(number)} for number in range(10_000)}
    schema = ItemSchema.of_items([item]).to_arrow()
    turned = json.dumps({"Items": [dict(reversed(item.items()))]}).encode()
    batch = KernelDecoder(schema).decode(turned, "page")
    assert list(batch.to_pylist()[0].values())[:-1] == list(range(10_000))


@pytest.mark.parametrize("items", [[], [{}], [{}, {}], [{"a": {"S": ""}}], [{"a": {"L": []}}, {"a": {"M": {}}}]])
def test_empty_values(items):
    """No item, items without attributes, and empty values are distinguished."""
    decode(items)


def test_lists_of_lists_and_maps_in_lists_in_maps():
    """Each level of a list has its own counter."""
    inner = tagged_field("element", pa.int64(), "N")
    deep = tagged_field("element", list_of(inner), "L")
    member = tagged_field("m", list_of(deep), "L")
    schema = pa.schema([tagged_field("a", list_of(tagged_field("element", pa.struct([member]), "M")), "L")])
    value = {"L": [{"M": {"m": {"L": [{"L": [{"N": "1"}, {"N": "2"}]}, {"L": []}, {"NULL": True}]}}}, {"M": {}}]}
    _, batch = decode([{"a": value}, {}, {"a": value}], schema)
    lists = [{"m": [[1, 2], [], None]}, {"m": None}]
    assert batch.column("a").to_pylist() == [lists, None, lists]


def test_a_nested_misfit_removes_the_values_of_its_attribute():
    """The lists of other rows are not affected by the attribute that did not fit."""
    good = {"L": [{"M": {"n": {"N": "1"}, "t": {"SS": ["a", "b"]}}}]}
    bad = {"L": [{"M": {"n": {"N": "2"}, "t": {"SS": ["c"]}}}, {"M": {"t": {"SS": ["d"]}, "n": {"S": "two"}}}]}
    decoder, batch = decode([{"a": good}, {"a": bad}, {"a": good}], ItemSchema.of_items([{"a": good}]).to_arrow())
    assert batch.column("a").to_pylist() == [[{"n": 1, "t": ["a", "b"]}], None, [{"n": 1, "t": ["a", "b"]}]]
    assert [misfit.path for misfit in decoder.misfits] == ["a[].n"]


def test_a_misfit_fails_on_request():
    """With on_misfit='fail' the first misfit is an error that names it."""
    decoder = KernelDecoder(pa.schema([("a", pa.int64())]), on_misfit="fail")
    with pytest.raises(SchemaError, match="a: another type"):
        decoder.decode(b'{"a":{"S":"x"}}', "items")
    assert decoder.misfits == []


def test_an_error_has_the_line_it_is_on():
    """The line of an error counts from the start of the data, regardless of slices."""
    lines = b'{"a":{"S":"x"}}\n' * 400_000
    with pytest.raises(DecodeError, match="line 400001") as caught:
        KernelDecoder(pa.schema([("a", pa.string())])).decode(lines + b'{"a":{"S":1}}\n', "items")
    assert caught.value.line == 400_001


def test_names_with_equal_hashes_are_distinguished_by_their_bytes():
    """Names of one length that differ in any byte have separate columns."""
    names = [f"{letter * 7}{other}{letter * 30}" for letter in "ab" for other in "xyz"]
    items = [{name: {"S": name} for name in names[::-1]}]
    _, batch = decode(items, pa.schema([(name, pa.string()) for name in names]))
    assert [batch.column(name)[0].as_py() for name in names] == names


def test_decoders_of_several_threads_do_not_disturb_each_other():
    """Threads with a decoder each give the result of one thread."""
    items = [
        {"pk": {"S": f"{number}"}, "n": {"N": str(number)}, "l": {"L": [{"S": "x"}] * (number % 5)}}
        for number in range(3000)
    ]
    schema, body = ItemSchema.of_items(items).to_arrow(), json.dumps({"Items": items}).encode()
    expected = KernelDecoder(schema).decode(body, "page")

    def work(_):
        decoder = KernelDecoder(schema)
        return all(decoder.decode(body, "page").equals(expected) for _ in range(10))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_an_item_larger_than_all_arrays_grows_them():
    """Long lists, many unknown names, many escapes and long numbers each grow the arrays."""
    item = {
        "l": {"L": [{"N": "1"}] * 5000},
        "ns": {"NS": [f"{number}e100" for number in range(1, 400)]},
        "s": {"S": '"\n' * 50_000},
        **{f"unknown{number}": {"S": "x"} for number in range(3000)},
    }
    fields = [tagged_field("l", list_of(tagged_field("element", pa.int64(), "N")), "L")]
    fields += [
        tagged_field("ns", list_of(tagged_field("element", pa.string(), "N")), "NS"),
        tagged_field("s", pa.string(), "S"),
    ]
    decoder, _ = decode([item, item], pa.schema(fields))
    assert len(decoder.misfits) == 3000


def test_numbers_are_exact_to_the_last_digit():
    """Thirty-eight digits, the widest integers and the finest fractions are decoded digit by digit."""
    texts = ["9" * 38, "-" + "9" * 38, "1" * 20, "0." + "1" * 38, "-0.5", "123456789012345678.25"]
    schema = pa.schema(
        [("w", pa.decimal128(38, 0)), ("f", pa.decimal128(38, 38)), ("t", tagged_field("t", pa.string(), "N").type)]
    )
    schema = schema.set(2, tagged_field("t", pa.string(), "N"))
    _, batch = decode([{name: {"N": text} for name in "wft"} for text in texts], schema)
    assert batch.column("t").to_pylist() == texts
    assert batch.column("w").to_pylist()[:3] == [Decimal(text) for text in texts[:3]]
    assert batch.column("f").to_pylist()[3:5] == [Decimal(text) for text in texts[3:5]]
