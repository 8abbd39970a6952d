"""Decodes damaged documents in a separate process, with every array that loops read or write unchecked at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` removes the padding, so that a load must overrun.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

import pyarrow as pa
from comparison import assert_same, by_kernel, by_reference
from guard import IS_BROKEN, allocate_before_guard
from item_generator import Generator, deepest_items
from mutation import mutate

from ddbio.errors import DecodeError
from ddbio.items.changes import ChangeDecoder
from ddbio.items.kernel import memory
from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.kernel.library import CHECKED
from ddbio.items.kernel.tape import walker


def decode_changes(generator: Generator, schema: pa.Schema) -> int:
    """Decode damaged change lines. Return the number of documents."""
    images = [generator.item(list(schema)) for _ in range(3)]
    change = {"Metadata": {"WriteTimestampMicros": {"N": "1"}}, "Keys": images[0], "NewImage": images[1]}
    sound = generator.spell(change) + generator.spell({**change, "OldImage": images[2]})
    for _ in range(5):
        with suppress(DecodeError):
            ChangeDecoder(schema, schema.names[:1]).decode(mutate(sound, generator.random))
    return 5


def decode_many(generator: Generator, schema: pa.Schema, framing: str) -> int:
    """Decode damaged documents of many items. Return their number."""
    sound = generator.document([generator.item(list(schema)) for _ in range(150)], framing)
    for _ in range(2):
        body = mutate(sound, generator.random)
        assert_same(by_kernel(KernelDecoder(schema), body, framing), by_reference(body, schema, framing), body)
    return 2


def decode_deep(item: dict[str, Any]) -> None:
    """Decode an item of the maximum depth: in a JSON column, in a column that it does not fit, and without columns."""
    body = json.dumps(item).encode()
    key = pa.field("pk", pa.string(), metadata={"ddb:type": "S"})
    rescue = pa.field("_rescue", pa.string(), metadata={"ddb:type": "RESCUE"})
    kinds = [pa.field("deep", pa.string(), metadata={"ddb:type": tag}) for tag in ("JSON", "S")]
    for schema in (pa.schema([key, kinds[0], rescue]), pa.schema([key, kinds[1], rescue]), pa.schema([key, rescue])):
        actual = by_kernel(KernelDecoder(schema), body, "items")
        assert_same(actual, by_reference(body, schema, "items"), body)


def main() -> None:
    """Decode the requested number of documents, and report it."""
    memory.allocate = memory.allocate_zeros = allocate_before_guard
    # Every document needs a longer tape than available.
    walker._FIRST_TAPE_WORDS, walker._TAPE_RATIO = 33, 1 << 20
    if IS_BROKEN:
        walker.PAD = 0
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    n_documents = 0
    for item in [] if IS_BROKEN else deepest_items():
        decode_deep(item)
    for number in range(seed, seed + count):
        generator = Generator(number)
        schema = generator.schema()
        framing = generator.random.choice(["items", "export", "page"])
        sound = generator.document([generator.item(list(schema)) for _ in range(3)], framing)
        for _ in range(20):
            # Each document has its own decoder, whose arrays have exactly the needed size.
            decoder = KernelDecoder(schema)
            body = mutate(sound, generator.random)
            actual = by_kernel(decoder, body, framing)
            if not IS_BROKEN:
                assert_same(actual, by_reference(body, schema, framing), body)
            n_documents += 1
        n_documents += decode_changes(generator, schema)
        n_documents += 0 if IS_BROKEN else decode_many(generator, schema, framing)
    sys.stdout.write(f"{n_documents} documents, checked: {CHECKED}\n")


main()
