"""The bounds of DynamoDB's numbers in every loop that reads one, and those of a piece."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import DecodeError
from ddbio.items.decode import Decoder
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import digest_of_batches
from ddbio.items.encode import Encoder
from ddbio.items.item_key import key_hashes
from ddbio.items.kernel.tape.walker import Walker, first_walk

BAD = [
    "1e126", "10e125", "-1e126", "1e-131", "0.1e-130", "-9e-131", "1" * 39, "1." + "1" * 38, "0." + "1" * 39,
    "1" + "0" * 37 + "01", "1e999999", "1e-999999", "0." + "0" * 130 + "1", "1" + "0" * 126,
]  # fmt: skip
GOOD = [
    "9.9999999999999999999999999999999999999e125", "1e125", "-1e125", "1e-130", "0.1e-129", "1" * 38, "1" + "0" * 125,
    "1" * 38 + "00", "000" + "1" * 38, "1." + "1" * 37 + "000", "0e999", "0" * 50,
]  # fmt: skip
TEXT = {"ddb:type": "N"}
COLUMNS = {
    "int64": [pa.field("n", pa.int64())],
    "decimal": [pa.field("n", pa.decimal128(38, 0))],
    "decimal with places": [pa.field("n", pa.decimal128(38, 20))],
    "double": [pa.field("n", pa.float64())],
    "text": [pa.field("n", pa.string(), metadata=TEXT)],
    "another type": [pa.field("n", pa.string())],
    "none": [pa.field("x", pa.string())],
}
WRAPPERS = {
    "attribute": lambda text: {"N": text},
    "set": lambda text: {"NS": ["1", text]},
    "list": lambda text: {"L": [{"N": text}]},
    "map": lambda text: {"M": {"a": {"N": text}}},
}


def line(value):
    """Return an item of one attribute as a line."""
    return json.dumps({"n": value}).encode()


@pytest.mark.parametrize("text", BAD)
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_numbers_out_of_bounds_are_refused_by_every_loop_on_json(text, wrap):
    """With any column, or none, and in the digest of bytes, a number that DynamoDB cannot store is refused."""
    data = line(wrap(text))
    for name, fields in COLUMNS.items():
        with pytest.raises(DecodeError, match="n"):
            assert Decoder(pa.schema(fields)).decode(data, "items") is None, name
    inferred = ddbio.from_dynamodb_json(line(wrap("1"))).schema
    for read in (lambda: Decoder(inferred).decode(data, "items"), lambda: ddbio.digest(data)):
        with pytest.raises(DecodeError):
            read()


@pytest.mark.parametrize("text", GOOD)
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_numbers_at_the_bounds_are_kept(text, wrap):
    """The largest, the smallest and the longest numbers are unchanged, and have one digest by every method."""
    # A set has each number once.
    text = "2" if wrap is WRAPPERS["set"] and float(text) == 1 else text
    data = line(wrap(text))
    expected = Digest()
    expected.add_items([{"n": wrap(text)}])
    inferred = ddbio.from_dynamodb_json(line(wrap("1"))).schema
    # A column that was declared as double rounds.
    exact = [pa.schema(fields) for name, fields in COLUMNS.items() if name != "double"]
    for schema in [inferred, *exact]:
        batch = Decoder(schema).decode(data, "items")
        assert digest_of_batches([batch]).as_tuple() == expected.as_tuple()
        assert ddbio.digest(ddbio.to_dynamodb_json(batch)) == ddbio.digest(data) == expected.hexdigest()


@pytest.mark.parametrize("text", BAD)
def test_numbers_out_of_bounds_are_refused_by_every_loop_on_columns(text):
    """A column of number texts, or of doubles, cannot have such a number: writing, digesting and hashing fail."""
    columns = [(pa.field("n", pa.string(), metadata=TEXT), text)]
    if "e" in text and 0 < abs(float(text)) < float("inf"):
        columns.append((pa.field("n", pa.float64()), float(text)))
    for field, value in columns:
        batch = pa.RecordBatch.from_arrays([pa.array([value], field.type)], schema=pa.schema([field]))
        (refusal,) = Encoder(batch.schema).encode(batch).refusals
        assert refusal.rule == "number"
        for read in (lambda: digest_of_batches([batch]), lambda: key_hashes(batch, ["n"])):  # noqa: B023 - run immediately
            with pytest.raises(DecodeError):
                read()


@pytest.mark.parametrize("unscaled", [10**38 - 1, 1 - 10**38])
def test_the_longest_decimals_are_written(unscaled):
    """Decimals of 38 digits are written. Larger values in a damaged column are refused by row."""
    words = [number.to_bytes(16, "little", signed=True) for number in (unscaled, 10**38 if unscaled > 0 else -(10**38))]
    array = pa.Array.from_buffers(pa.decimal128(38), 2, [None, pa.py_buffer(b"".join(words))])
    batch = pa.RecordBatch.from_arrays([array], ["n"])
    encoded = Encoder(batch.schema).encode(batch)
    assert json.loads(encoded.buffer[: encoded.offsets[1]].tobytes()) == {"n": {"N": str(unscaled)}}


def test_pieces_beyond_31_bits_are_refused():
    """A piece, or the texts next to it, beyond 31 bits is refused before memory is allocated."""
    walker = Walker(first_walk())
    with pytest.raises(DecodeError, match="in several pieces"):
        walker.load(np.broadcast_to(np.uint8(0), (1 << 31) - 64))
    with pytest.raises(DecodeError, match="in several pieces"):  # noqa: PT012 - it doubles some times
        for _ in range(10):
            walker.widen()
