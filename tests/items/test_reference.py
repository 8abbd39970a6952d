from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS, tables

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.decode import Decoder, from_dynamodb_json
from ddbio.items.reference import items_of, plain_json_lines
from ddbio.items.schema.item_schema import ItemSchema


def page_of(items):
    """Return the items as a page's text."""
    return json.dumps({"Items": items}, ensure_ascii=False).encode()


@given(st.lists(ITEMS, max_size=5), st.lists(ITEMS, max_size=3))
def test_items_survive_a_batch(sample, others):
    """For any inferred schema, every item survives a round trip through a batch."""
    items = sample + others
    batch = Decoder(ItemSchema.of_items(sample).to_arrow(), nulls="keep").decode(page_of(items), "page")
    assert list(items_of(batch)) == items


@given(tables())
def test_items_survive_a_parquet_file(items):
    """Items survive a round trip through a Parquet file: types, sets and NULL are in its metadata."""
    batch = Decoder(ItemSchema.of_items(items).to_arrow(), nulls="keep").decode(page_of(items), "page")
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch]), file)
    file.seek(0)
    table = pq.read_table(file, use_threads=False)
    assert [item for again in table.to_batches() for item in items_of(again)] == items


@given(tables())
def test_text_made_from_a_batch_decodes_to_it(items):
    """Item lines made from a batch decode to the same items."""
    batch = Decoder(ItemSchema.of_items(items).to_arrow(), nulls="keep").decode(page_of(items), "page")
    text = plain_json_lines(batch)
    assert [json.loads(line) for line in text.splitlines()] == items
    assert list(items_of(from_dynamodb_json(text, batch.schema, nulls="keep"))) == items


def test_a_plain_batch_is_read_by_its_arrow_types():
    """A batch without DynamoDB types gives items by its Arrow types."""
    batch = pa.RecordBatch.from_pydict(
        {"pk": ["a", None], "n": [1.5, 1e20], "l": [[1, None], []], "m": [{"x": b"a"}, {"x": None}]}
    )
    assert list(items_of(batch)) == [
        {
            "pk": {"S": "a"},
            "n": {"N": "1.5"},
            "l": {"L": [{"N": "1"}, {"NULL": True}]},
            "m": {"M": {"x": {"B": "YQ=="}}},
        },
        {"n": {"N": "1" + "0" * 20}, "l": {"L": []}, "m": {"M": {}}},
    ]


def test_merged_nulls_come_back_as_missing():
    """A NULL that was merged into null becomes a missing attribute."""
    batch = from_dynamodb_json(b'{"a":{"NULL":true},"b":{"S":"x"}}', nulls="merge")
    assert list(items_of(batch)) == [{"b": {"S": "x"}}]


def test_a_column_without_columns_still_has_items():
    """A batch with only the rescue column gives one item per row."""
    batch = from_dynamodb_json(b'{}\n{"_rescue":{"S":"x"}}')
    assert list(items_of(batch)) == [{}, {"_rescue": {"S": "x"}}]


def test_nan_is_refused():
    """DynamoDB has no NaN."""
    with pytest.raises(DecodeError, match=r"'nan' is not a DynamoDB number"):
        list(items_of(pa.RecordBatch.from_pydict({"a": [float("nan")]})))


def test_a_type_without_an_encoding_is_refused():
    """A column of timestamps has no exact encoding in DynamoDB."""
    batch = pa.RecordBatch.from_arrays([pa.array([0], pa.timestamp("s"))], names=["t"])
    with pytest.raises(SchemaError, match=r"^t: no DynamoDB type"):
        list(items_of(batch))
