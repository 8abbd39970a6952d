from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from comparison import assert_same
from hypothesis import given
from hypothesis import strategies as st
from item_generator import Generator
from item_strategies import ITEMS
from mutation import mutate

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.capacity import item_size_bytes
from ddbio.items.digest_columns import digest_of_batches
from ddbio.items.encode import Encoder
from ddbio.items.framing import checked_items
from ddbio.items.kernel.decode import decoder as decoder_module
from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.reference import items_of
from ddbio.items.schema.item_schema import ItemSchema
from ddbio.load.requests import UpdateEncoder


@pytest.mark.parametrize("framing", ["items", "export", "page"])
def test_sizes_equal_the_rule_and_change_no_column(framing, monkeypatch):
    """Generated items of all types and notations have the size by the plain rule, fitting or not."""
    monkeypatch.setattr(decoder_module, "SLICE_BYTES", 2000)
    for seed in range(60):
        generator = Generator(seed)
        schema = generator.schema()
        body = generator.document([generator.item(list(schema)) for _ in range(80)], framing)
        decoder, plain = KernelDecoder(schema, item_size=True), KernelDecoder(schema)
        batch = decoder.decode(body, framing)
        assert batch.schema.equals(decoder.schema, check_metadata=True)
        assert batch.schema.names[-2:] == ["_item_bytes", "_rescue"]
        sizes = [item_size_bytes(item) for item in checked_items(body, framing)]
        assert batch.column("_item_bytes").to_pylist() == sizes
        attributes = batch.select([name for name in batch.schema.names if name != "_item_bytes"])
        actual, expected = (attributes, decoder.misfits), (plain.decode(body, framing), plain.misfits)
        assert_same((*actual, decoder.log.merged_nulls), (*expected, plain.log.merged_nulls), body)


@given(sample=st.lists(ITEMS, max_size=3), items=st.lists(ITEMS, max_size=6))
def test_the_size_of_any_item_follows_the_rule(sample, items):
    """Items of any shape have the same size under the schema of other items."""
    body = "".join(json.dumps(item) + "\n" for item in items).encode()
    batch = KernelDecoder(ItemSchema.of_items(sample).to_arrow(), item_size=True).decode(body, "items")
    assert batch.column("_item_bytes").to_pylist() == [item_size_bytes(item) for item in items]


def test_sizes_do_not_change_the_result_of_a_damaged_document():
    """With sizes, the same documents are decoded and refused as without."""
    generator = Generator(3)
    schema = pa.schema([generator.field(name, 2) for name in ("pk", "a", "n", "A")])
    decoder, plain = KernelDecoder(schema, item_size=True), KernelDecoder(schema)
    sound = generator.document([generator.item(list(schema)) for _ in range(4)], "items")
    for _ in range(400):
        body = mutate(sound, generator.random)
        assert _outcome(decoder, body) == _outcome(plain, body)


def _outcome(decoder, body):
    try:
        batch = decoder.decode(body, "items")
    except DecodeError as error:
        return error.args
    return batch.select([name for name in batch.schema.names if name != "_item_bytes"])


def test_the_name_of_the_sizes_is_taken_once():
    """If sizes are requested, a schema with an attribute of the column's name is refused."""
    with pytest.raises(SchemaError, match="_item_bytes"):
        KernelDecoder(pa.schema([("_item_bytes", pa.int64())]), item_size=True)


def test_sizes_are_no_attribute(tmp_path):
    """Batches with sizes, also from a file, are read, written and digested as if they had none."""
    body = b'{"pk":{"S":"a"},"n":{"N":"1"}}\n{"pk":{"S":"b"},"x":{"BOOL":true}}\n'
    schema = pa.schema([("pk", pa.string()), ("n", pa.int64())])
    sized = KernelDecoder(schema, item_size=True).decode(body, "items")
    pq.write_table(pa.Table.from_batches([sized]), tmp_path / "sized.parquet")
    (again,) = pq.read_table(tmp_path / "sized.parquet").to_batches()
    for batch in (sized, again):
        assert "_item_bytes" in batch.schema.names
        assert list(items_of(batch)) == [json.loads(line) for line in body.splitlines()]
        assert Encoder(batch.schema).encode_lines(batch) == body
        assert digest_of_batches([batch]) == digest_of_batches([KernelDecoder(schema).decode(body, "items")])
        assert KernelDecoder(batch.schema).schema.names == ["pk", "n", "_rescue"]
        made = UpdateEncoder(batch.schema, batch.schema.names, {"pk": "S"}, "table").encode(batch)
        assert b"_item_bytes" not in made.texts.tobytes()
        assert "_item_bytes" not in repr(made.templates)


def test_an_attribute_may_have_the_name_of_the_sizes():
    """A column of that name that no decoder has marked is an attribute."""
    batch = pa.RecordBatch.from_pydict({"pk": ["a"], "_item_bytes": [7]})
    assert list(items_of(batch)) == [{"pk": {"S": "a"}, "_item_bytes": {"N": "7"}}]
