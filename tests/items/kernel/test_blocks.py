from __future__ import annotations

import pytest
from comparison import assert_same, by_kernel, by_reference
from item_generator import Generator
from mutation import mutate

from ddbio.items.capacity import item_size_bytes
from ddbio.items.framing import checked_items
from ddbio.items.kernel.decode import decoder as decoder_module
from ddbio.items.kernel.decode.decoder import KernelDecoder

FRAMINGS = ["items", "export", "page"]


def drawn(seed, framing, count=200):
    """Return a generator, a schema of some attributes, and a document of ``count`` items."""
    generator = Generator(seed)
    schema = generator.schema()
    return generator, schema, generator.document([generator.item(list(schema)) for _ in range(count)], framing)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_batches_of_some_rows_are_parts_of_one_batch(framing, monkeypatch):
    """Rows that fill a batch end it. The batches together equal one batch."""
    monkeypatch.setattr(decoder_module, "_BATCH_BYTES", 8000)
    n_batches = 0
    for seed in range(10):
        _, schema, body = drawn(seed, framing, 500)
        decoder = KernelDecoder(schema, item_size=True)
        batches = decoder.decode_batches(body, framing)
        n_batches += len(batches)
        sizes = [size for batch in batches for size in batch.column("_item_bytes").to_pylist()]
        assert sizes == [item_size_bytes(item) for item in checked_items(body, framing)]
        joined = decoder.combine(batches).drop_columns(["_item_bytes"])
        assert_same((joined, decoder.misfits, decoder.log.merged_nulls), by_reference(body, schema, framing), body)
    assert n_batches > 15


def test_damaged_documents_of_many_items_get_the_answer_of_the_reference():
    """A document that is damaged after many items is refused, or decoded, as by the reference."""
    refused = 0
    for seed in range(40):
        framing = FRAMINGS[seed % 3]
        generator, schema, sound = drawn(seed, framing, 150)
        body = mutate(sound, generator.random)
        expected = by_reference(body, schema, framing)
        assert_same(by_kernel(KernelDecoder(schema), body, framing), expected, body)
        refused += not isinstance(expected, tuple)
    assert refused > 5
