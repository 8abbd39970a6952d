from __future__ import annotations

import base64
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from boto3.dynamodb.types import TypeSerializer
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS, VALUES, tables
from pyarrow import feather, orc

import ddbio
from ddbio.errors import EncodeError, SchemaError
from ddbio.items.capacity import item_size_bytes
from ddbio.items.decode import Decoder
from ddbio.items.encode import Encoder
from ddbio.items.number import canonical_number
from ddbio.items.reference import items_of
from ddbio.items.reference import plain_json_lines as reference
from ddbio.items.schema.item_schema import ItemSchema


def page_of(items):
    """Return the items as a page's text."""
    return json.dumps({"Items": items}, ensure_ascii=False).encode()


def batch_of(items, sample=None):
    """Return a batch of the items, in which NULL differs from missing."""
    return Decoder(ItemSchema.of_items(sample or items).to_arrow(), nulls="keep").decode(page_of(items), "page")


def texts_of(encoded):
    """Return the text of each item."""
    body = encoded.buffer.tobytes()
    return [body[start:stop] for start, stop in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)]


@given(tables())
def test_text_is_the_references_byte_for_byte(items):
    """The compiled encoder writes exactly the text of the reference, and items survive a round trip."""
    batch = batch_of(items)
    text = ddbio.to_dynamodb_json(batch)
    assert text == reference(batch)
    assert [json.loads(line) for line in text.splitlines()] == items


@given(st.lists(ITEMS, max_size=4), st.lists(ITEMS, max_size=3))
def test_items_that_fit_no_column_come_back(sample, others):
    """For any inferred schema, rescued values are in their items again, and nothing else is."""
    batch = batch_of(sample + others, sample)
    text = ddbio.to_dynamodb_json(batch)
    assert text == reference(batch)
    assert [json.loads(line) for line in text.splitlines()] == sample + others


@given(tables())
def test_spans_and_sizes_are_those_of_the_items(items):
    """Each span contains its item, and each size follows the documented rule."""
    batch = batch_of(items)
    encoded = Encoder(batch.schema).encode(batch)
    assert [json.loads(text) for text in texts_of(encoded)] == list(items_of(batch))
    assert encoded.sizes.tolist() == [item_size_bytes(item) for item in items]
    assert encoded.offsets.dtype == encoded.sizes.dtype == np.int64
    assert not encoded.refusals


@given(tables(), st.integers(0, 3), st.integers(0, 4))
def test_a_slice_gives_the_items_of_its_rows(items, start, length):
    """A slice of a batch, whose arrays begin inside their buffers, gives the items of its rows."""
    batch = batch_of(items).slice(start, length)
    assert ddbio.to_dynamodb_json(batch) == reference(batch)


def _parquet(table):
    file = io.BytesIO()
    pq.write_table(table, file)
    return pq.read_table(io.BytesIO(file.getvalue()), use_threads=False)


def _feather(table):
    file = io.BytesIO()
    feather.write_feather(table, file)
    return feather.read_table(io.BytesIO(file.getvalue()))


def _orc(table):
    file = io.BytesIO()
    orc.write_table(table, file)
    return orc.read_table(io.BytesIO(file.getvalue()))


ROUND_TRIP = [
    {
        "s": {"S": "é\0\n"},
        "n": {"N": "-7"},
        "d": {"N": "1.25"},
        "w": {"N": "-" + "9" * 38},
        "e": {"N": "0." + "0" * 129 + "1"},
        "b": {"B": "YQ=="},
        "t": {"BOOL": False},
        "ss": {"SS": ["b", "a"]},
        "ns": {"NS": ["2", "1"]},
        "bs": {"BS": ["YQ==", "YWI="]},
        "l": {"L": [{"M": {"x": {"N": "1"}}}, {"NULL": True}, {"M": {}}]},
        "m": {"M": {"x": {"S": ""}, "y": {"M": {"z": {"N": "5"}}}}},
        "j": {"L": [{"S": "a"}, {"N": "1"}]},
        "z": {"NULL": True},
    },
    {},
    {"s": {"N": "1"}, "l": {"L": []}},
]


# ORC stores no metadata of fields: the schema restores it.
@pytest.mark.parametrize(("way", "needs_schema"), [(_parquet, False), (_feather, False), (_orc, True)])
def test_items_survive_files(way, needs_schema):
    """Items of every type survive a round trip through a file, to the byte."""
    batch = batch_of(ROUND_TRIP)
    text = ddbio.to_dynamodb_json(way(pa.Table.from_batches([batch])), batch.schema if needs_schema else None)
    assert text == ddbio.to_dynamodb_json(batch)
    assert [json.loads(line) for line in text.splitlines()] == ROUND_TRIP


@given(tables())
def test_any_items_survive_parquet(items):
    """The round trip Arrow → Parquet → Arrow changes no item."""
    batch = batch_of(items)
    assert ddbio.to_dynamodb_json(_parquet(pa.Table.from_batches([batch]))) == ddbio.to_dynamodb_json(batch)


PYTHON = st.recursive(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.integers(-(10**38) + 1, 10**38 - 1),
        st.decimals(-(10**9), 10**9, places=3),
        st.binary(max_size=5),
        st.booleans(),
    ),
    lambda values: st.dictionaries(st.sampled_from("abc"), values, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(["pk", "x", "y"]), PYTHON, max_size=3))
def test_an_item_is_what_boto3_makes_of_it(values):
    """A value that boto3's TypeSerializer accepts encodes to the same item, with canonical numbers."""

    def plain(value):
        ((tag, content),) = value.items()
        if tag == "B":
            return {"B": base64.b64encode(bytes(content)).decode()}
        if tag == "M":
            return {"M": {name: plain(member) for name, member in content.items()}}
        return {tag: canonical_number(content)} if tag == "N" else value

    serializer = TypeSerializer()
    wanted = {name: plain(serializer.serialize(value)) for name, value in values.items()}
    assert json.loads(ddbio.to_dynamodb_json(batch_of([wanted]))) == wanted


def test_lines_of_a_native_export():
    """Lines can have a prefix and a suffix, as in a native export."""
    batch = pa.RecordBatch.from_pydict({"a": ["x", None]})
    lines = Encoder(batch.schema).encode_lines(batch, prefix=b'{"Item":', suffix=b"}")
    assert lines == b'{"Item":{"a":{"S":"x"}}}\n{"Item":{}}\n'


def test_a_batch_of_many_pieces_is_one():
    """A batch that is printed in several pieces gives its items in order, with spans in the joined text."""
    batch = pa.RecordBatch.from_pydict({"n": range(20_000), "s": ["x" * 300] * 20_000})
    encoded = Encoder(batch.schema).encode(batch)
    texts = texts_of(encoded)
    assert [json.loads(text)["n"]["N"] for text in texts] == [str(number) for number in range(20_000)]
    assert b"\n".join([*texts, b""]) == ddbio.to_dynamodb_json(batch)


@given(st.lists(st.dictionaries(st.integers(0, 59).map("a{}".format), VALUES, max_size=4), max_size=20))
def test_sparse_rows_of_many_columns(items):
    """Rows of sixty columns with values in a few, or in none, equal those of the reference, also if rescued."""
    every = {f"a{number}": {"S": "x"} for number in range(60)}
    batch = batch_of(items, [every])
    text = ddbio.to_dynamodb_json(batch)
    assert text == reference(batch)
    assert [json.loads(line) for line in text.splitlines()] == items


def test_texts_are_a_column():
    """Items can be a column of texts. A row that DynamoDB refuses is an error, or null."""
    batch = pa.RecordBatch.from_pydict({"n": [1.5, float("inf"), None]})
    encoder = Encoder(batch.schema)
    assert encoder.encode_texts(batch, strict=False).to_pylist() == ['{"n":{"N":"1.5"}}', None, "{}"]
    assert encoder.encode_texts(batch.slice(2)).type == pa.string()
    with pytest.raises(EncodeError, match=r"^row 1: n: 'inf' is not a DynamoDB number"):
        encoder.encode_texts(batch)


def test_an_empty_batch_has_no_items():
    """No rows give no bytes, one offset and no sizes."""
    encoded = Encoder(pa.schema([("a", pa.string())])).encode(
        pa.RecordBatch.from_pydict({"a": pa.array([], pa.string())})
    )
    assert (len(encoded.buffer), encoded.offsets.tolist(), encoded.sizes.tolist()) == (0, [0], [])
    assert ddbio.to_dynamodb_json(pa.RecordBatch.from_pydict({})) == b""


def test_another_schema_is_refused():
    """An encoder takes batches of its schema only."""
    with pytest.raises(SchemaError, match="another schema than its encoder"):
        Encoder(pa.schema([("a", pa.string())])).encode(pa.RecordBatch.from_pydict({"b": ["x"]}))


def test_batches_of_many_pieces_are_complete():
    """The text of several pieces is contiguous, also after a larger and a smaller batch."""
    wide = pa.record_batch([pa.array(range(40_000)), pa.array(["é" * 100] * 40_000)], names=["a", "b"])
    encoder = Encoder(wide.schema)
    for batch in (wide, wide.slice(39_990), wide.slice(7, 30_000)):
        lines = encoder.encode_lines(batch).splitlines()
        texts = texts_of(encoder.encode_view(batch))
        assert lines == texts
        assert [json.loads(line)["a"]["N"] for line in lines] == [
            str(number) for number in batch.column("a").to_pylist()
        ]
