from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import EncodeError
from ddbio.items.object_pool import ObjectPool


def test_what_was_given_back_is_taken_once():
    """A value is one caller's alone until it is given back."""
    idle = ObjectPool[str, object](2, 100)
    value = object()
    assert idle.take("a") is None
    idle.give_back("a", value, 1)
    assert idle.take("b") is None
    assert idle.take("a") is value
    assert idle.take("a") is None


@pytest.mark.parametrize(("most", "most_bytes"), [(2, 100), (9, 20)])
def test_what_was_used_longest_ago_goes_first(most, most_bytes):
    """No more objects, and no more bytes, than the limits are held."""
    idle = ObjectPool[str, str](most, most_bytes)
    for name in "abc":
        idle.give_back(name, name, 10)
    assert [idle.take(name) for name in "abc"] == [None, "b", "c"]


def test_what_is_too_large_is_not_kept():
    """A single object above the limit of bytes is dropped."""
    idle = ObjectPool[str, str](2, 100)
    idle.give_back("a", "a", 101)
    assert idle.take("a") is None


def test_encoders_are_kept_apart_by_metadata():
    """Schemas that differ in what DynamoDB's types are only, and calls that fail, leave no trace in later calls."""
    column = pa.array(["1", "x"])
    as_number = pa.schema([pa.field("a", pa.string(), metadata={"ddb:type": "N"})])
    texts, numbers = pa.record_batch([column], names=["a"]), pa.record_batch([column], schema=as_number)
    for _ in range(2):
        assert ddbio.to_dynamodb_json(texts) == b'{"a":{"S":"1"}}\n{"a":{"S":"x"}}\n'
        with pytest.raises(EncodeError, match="row 1: a: 'x' is not a DynamoDB number"):
            ddbio.to_dynamodb_json(numbers)
        assert ddbio.to_dynamodb_json(numbers.slice(0, 1)) == b'{"a":{"N":"1"}}\n'


def test_threads_do_not_share_an_encoder():
    """Calls of several threads with one schema write each its own rows."""
    batches = [pa.record_batch([pa.array([str(number)] * 2_000)], names=["a"]) for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(ddbio.to_dynamodb_json, batches * 4))
    assert texts == [b'{"a":{"S":"%d"}}\n' % number * 2_000 for number in range(8)] * 4
