from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from comparison import assert_same, by_kernel, by_reference
from hypothesis import given
from hypothesis import strategies as st
from item_generator import Generator
from item_strategies import ITEMS, tables
from mutation import mutate

from ddbio.items.kernel.decode import decoder as decoder_module
from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.schema.item_schema import ItemSchema

FRAMINGS = ["items", "export", "page"]


def compare_generated(seeds: range, n_items: int) -> int:
    """Compare generated documents of three framings per seed. Return the number of their items."""
    count = 0
    for seed in seeds:
        generator = Generator(seed)
        schema, nulls = generator.schema(), generator.random.choice(["merge", "keep"])
        decoder = KernelDecoder(schema, nulls=nulls)
        for framing in FRAMINGS:
            items = [generator.item(list(schema)) for _ in range(n_items)]
            body = generator.document(items, framing)
            assert_same(by_kernel(decoder, body, framing), by_reference(body, schema, framing, nulls), body)
            count += len(items)
    return count


def compare_mutated(seeds: range) -> tuple[int, int]:
    """Compare damaged documents. Return how many the reference refuses, and how many it accepts."""
    outcomes = [0, 0]
    for seed in seeds:
        generator = Generator(seed)
        schema, nulls = generator.schema(), generator.random.choice(["merge", "keep"])
        decoder = KernelDecoder(schema, nulls=nulls)
        for framing in FRAMINGS:
            items = [generator.item(list(schema)) for _ in range(generator.random.randrange(1, 6))]
            sound = generator.document(items, framing)
            for _ in range(20):
                body = mutate(sound, generator.random)
                expected = by_reference(body, schema, framing, nulls)
                assert_same(by_kernel(decoder, body, framing), expected, body)
                outcomes[isinstance(expected, tuple)] += 1
    return outcomes[0], outcomes[1]


def test_views_are_decoded_as_bytes_are(monkeypatch):
    """A view of bytes, short or long, sound or damaged, gives the batch or the error of the bytes."""
    for seed in range(60):
        generator = Generator(seed)
        schema = generator.schema()
        monkeypatch.setattr(decoder_module, "SLICE_BYTES", generator.random.choice([300, 1 << 22]))
        framing = FRAMINGS[seed % 3]
        body = generator.document([generator.item(list(schema)) for _ in range(5)], framing)
        if seed % 2:
            body = mutate(body, generator.random)
        padded = bytearray(b"}" + body + b"{")
        actual = by_kernel(KernelDecoder(schema), memoryview(padded)[1:-1], framing)
        assert_same(actual, by_reference(body, schema, framing), body)


@pytest.mark.parametrize("part", range(4))
def test_the_loops_equal_the_reference_on_forty_thousand_items(part):
    """Ten thousand generated items a part: all types, notations, orders, absences and misfits give the same batch."""
    assert compare_generated(range(part * 30, part * 30 + 30), 112) >= 10_000


@pytest.mark.parametrize("part", range(2))
def test_damaged_documents_get_the_answer_of_the_reference(part):
    """A damaged document is refused with the reference's error, or decoded as by the reference."""
    refused, accepted = compare_mutated(range(1_000_000 + part * 30, 1_000_030 + part * 30))
    assert refused > 1_000
    assert accepted > 20


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_loops_equal_the_reference_on_a_million_items(seeds):
    """The longer run: a million generated items, and a hundred thousand damaged documents."""
    assert compare_generated(seeds(12_000, 12_000), 28) > 1_000_000
    assert sum(compare_mutated(seeds(2_000, 2_000))) > 100_000


@given(items=tables(), keep=st.booleans())
def test_items_of_one_shape_decode_alike(items, keep):
    """The shapes that Hypothesis draws decode equally under the schema inferred from them."""
    schema, nulls = ItemSchema.of_items(items).to_arrow(), "keep" if keep else "merge"
    body = json.dumps({"Items": items}, separators=(",", ":"), ensure_ascii=False).encode()
    assert_same(
        by_kernel(KernelDecoder(schema, nulls=nulls), body, "page"), by_reference(body, schema, "page", nulls), body
    )


@given(sample=st.lists(ITEMS, max_size=4), items=st.lists(ITEMS, max_size=6))
def test_items_that_do_not_fit_decode_alike(sample, items):
    """Items under the schema of other items are rescued equally."""
    schema = ItemSchema.of_items(sample).to_arrow()
    body = "".join(json.dumps({"Item": item}) + "\n" for item in items).encode()
    assert_same(by_kernel(KernelDecoder(schema), body, "export"), by_reference(body, schema, "export"), body)


def test_pieces_and_grown_arrays_change_nothing(monkeypatch):
    """Lines cut into pieces far smaller than their items, and arrays that grow often, give the same batch."""
    monkeypatch.setattr(decoder_module, "SLICE_BYTES", 100)
    generator = Generator(77)
    schema = pa.schema([generator.field(name, 2) for name in ("pk", "a", "n", "sk", "A", "naïve")])
    items = [generator.item(list(schema)) for _ in range(600)]
    for framing in ("items", "export"):
        body = generator.document(items, framing)
        assert_same(by_kernel(KernelDecoder(schema), body, framing), by_reference(body, schema, framing), body)


def test_truncation_at_every_byte_gets_the_answer_of_the_reference():
    """A sample cut at every byte is refused as by the reference, in every framing."""
    generator = Generator(5)
    schema = pa.schema([generator.field(name, 2) for name in ("pk", "a", "n", "A")])
    decoder = KernelDecoder(schema)
    items = [generator.item(list(schema)) for _ in range(4)]
    for framing in FRAMINGS:
        body = generator.document(items, framing)
        for stop in range(len(body)):
            cut = body[:stop]
            assert_same(by_kernel(decoder, cut, framing), by_reference(cut, schema, framing), cut)


def test_a_decoder_keeps_nothing_of_what_it_refused():
    """After each damaged document the same decoder still decodes a valid one."""
    generator = Generator(9)
    schema = pa.schema([generator.field(name, 2) for name in ("pk", "a", "n", "A")])
    decoder, chance = KernelDecoder(schema), random.Random(9)
    body = generator.document([generator.item(list(schema)) for _ in range(5)], "items")
    expected = by_reference(body, schema, "items")
    for _ in range(200):
        by_kernel(decoder, mutate(body, chance), "items")
        assert_same(by_kernel(decoder, body, "items"), expected, body)
