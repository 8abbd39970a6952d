"""Encodes generated rows in a separate process, with every array that loops read or write unchecked at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` removes the padding, so that a load must overrun. Every row is
compared with the reference, and with the checks of the fake service.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from guard import IS_BROKEN, allocate_before_guard
from item_generator import Generator
from mutation import mutate

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.encode import EncodeOptions, Encoder
from ddbio.items.json_text import compact_json
from ddbio.items.kernel.encode import encoder
from ddbio.items.kernel.encode import load as encode_load
from ddbio.items.kernel.encode.encoder import KernelEncoder
from ddbio.items.kernel.encode.json_columns import Checker, make_checker
from ddbio.items.kernel.encode.rules import RefusedValueError, read_members
from ddbio.items.kernel.library import CHECKED
from ddbio.items.reference import RowBuilder, items_of
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import normalize_schema
from ddbio.testing.refusal import Refusal
from ddbio.testing.request import stored_item


def prepare() -> None:
    """Give every array exactly the size that its rows need."""
    encode_load.allocate = encoder.allocate = allocate_before_guard
    encode_load._MIN_BYTES = encode_load._MIN_WORDS = 0
    encode_load._GROWTH, encoder._AHEAD = 1, 0
    encode_load.make_checker = guarded_checker
    if IS_BROKEN:
        encode_load.PAD = encoder.PAD = 0


def guarded_checker(nodes, rules):
    """Return a checker of texts with each array before a guard page."""
    checker, offsets = make_checker(nodes, rules)
    guarded = Checker(*(allocate_before_guard(array.nbytes).view(array.dtype) for array in checker))
    for copy, array in zip(guarded, checker, strict=True):
        copy[:] = array
    return guarded, offsets


def stored_size(item) -> int:
    """Return the size with which the fake service would store the item, or -1 if it would refuse it."""
    try:
        return stored_item(item)[1]
    except Refusal:
        return -1


def check(batch, encoded) -> None:
    """Compare each row with the reference and with the stored item of the fake service."""
    refused = {refusal.row for refusal in encoded.refusals}
    body = encoded.buffer.tobytes()
    for row, item in enumerate(items_of(batch)):
        text = body[encoded.offsets[row] : encoded.offsets[row + 1]]
        size = stored_size(item)
        assert (row in refused) == (size < 0), (encoded.refusals, item)
        assert text == (b"" if size < 0 else compact_json(item).encode()), (text, item)
        assert encoded.sizes[row] == max(size, 0), (encoded.sizes[row], size, item)


def check_plain(batch, encoded) -> None:
    """Print the same rows without types: their number is equal, and they are JSON."""
    printed = KernelEncoder(batch.schema, {}, EncodeOptions(), (b"", b"\n"), is_plain=True).print_batch(batch)
    assert [refusal.row for refusal in printed.refused] == [refusal.row for refusal in encoded.refusals]
    lines = printed.text.tobytes().splitlines()
    assert len(lines) == batch.num_rows - len(printed.refused)
    for line in lines:
        assert isinstance(json.loads(line), dict)


def check_texts(generator) -> None:
    """Compare a rescue column of texts with any layout, some damaged, with the reference."""
    items = [generator.item(list(generator.schema())) for _ in range(5)]
    texts = [generator.spell(item) for item in items]
    texts += [mutate(text, generator.random) for text in texts for _ in range(10)]
    texts = pa.array(texts, pa.binary()).view(pa.string())
    batch = pa.record_batch([texts], names=["_rescue"])
    encoded = Encoder(batch.schema).encode(batch)
    refused = {refusal.row: refusal.message for refusal in encoded.refusals}
    body = encoded.buffer.tobytes()
    for row, text in enumerate(texts.view(pa.binary()).to_pylist()):
        try:
            parsed = read_members(text, {})
        except (DecodeError, RefusedValueError) as error:
            reason = error.message if isinstance(error, RefusedValueError) else str(error)
            assert refused[row] == f"row {row}: _rescue: {reason}", (text, refused[row])
            continue
        assert body[encoded.offsets[row] : encoded.offsets[row + 1]] == b"{" + parsed.text + b"}", text
        assert encoded.sizes[row] == parsed.size, text


def main() -> None:
    """Encode the requested number of batches, and report the numbers of accepted and refused rows."""
    prepare()
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    n_taken = n_refused = 0
    for number in range(seed, seed + count):
        generator = Generator(number)
        schema = normalize_schema(generator.schema())
        items = []
        while len(items) < 20:
            item = generator.item(list(schema)[:-1])
            try:
                RowBuilder(schema, keep_nulls=True).batch([item], MisfitLog())
            except ValueError:
                continue
            items.append(item)
        batch = RowBuilder(schema, keep_nulls=True).batch(items, MisfitLog())
        for start, length in [(0, 20), (3, 11), (19, 1)]:
            rows = batch.slice(start, length)
            try:
                encoded = Encoder(schema).encode(rows)
            except SchemaError as error:
                if "attribute's name" not in str(error):
                    raise
                continue
            if not IS_BROKEN:
                check(rows, encoded)
                check_plain(rows, encoded)
            n_taken += length - len(encoded.refusals)
            n_refused += len(encoded.refusals)
        if not IS_BROKEN:
            check_texts(generator)
    sys.stdout.write(f"{n_taken > n_refused > 0}, checked: {CHECKED}\n")
    sys.stderr.write(f"{n_taken} rows taken, {n_refused} refused\n")


main()
