from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import EncodeError
from ddbio.items.object_pool import ObjectPool


def test_a_returned_object_is_taken_once():
    """An object belongs to one caller until it is given back."""
    idle = ObjectPool[str, object](2, 100)
    value = object()
    assert idle.take("a") is None
    idle.give_back("a", value, 1)
    assert idle.take("b") is None
    assert idle.take("a") is value
    assert idle.take("a") is None


@pytest.mark.parametrize(("max_objects", "max_bytes"), [(2, 100), (9, 20)])
def test_the_least_recently_used_object_is_dropped_first(max_objects, max_bytes):
    """The limits of the number of objects and of bytes are not exceeded."""
    idle = ObjectPool[str, str](max_objects, max_bytes)
    for name in "abc":
        idle.give_back(name, name, 10)
    assert [idle.take(name) for name in "abc"] == [None, "b", "c"]


def test_too_large_objects_are_dropped():
    """A single object above the limit of bytes is dropped."""
    idle = ObjectPool[str, str](2, 100)
    idle.give_back("a", "a", 101)
    assert idle.take("a") is None


def test_encoders_are_kept_apart_by_metadata():
    """Schemas that differ only in DynamoDB's types, and failed calls, do not affect later calls."""
    column = pa.array(["1", "x"])
    as_number = pa.schema([pa.field("a", pa.string(), metadata={"ddb:type": "N"})])
    texts, numbers = pa.record_batch([column], names=["a"]), pa.record_batch([column], schema=as_number)
    for _ in range(2):
        assert ddbio.to_dynamodb_json(texts) == b'{"a":{"S":"1"}}\n{"a":{"S":"x"}}\n'
        with pytest.raises(EncodeError, match="row 1: a: 'x' is not a DynamoDB number"):
            ddbio.to_dynamodb_json(numbers)
        assert ddbio.to_dynamodb_json(numbers.slice(0, 1)) == b'{"a":{"N":"1"}}\n'


def test_threads_do_not_share_an_encoder():
    """Concurrent calls with one schema write their own rows."""
    batches = [pa.record_batch([pa.array([str(number)] * 2_000)], names=["a"]) for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(ddbio.to_dynamodb_json, batches * 4))
    assert texts == [b'{"a":{"S":"%d"}}\n' % number * 2_000 for number in range(8)] * 4
