"""Reads the items of damaged documents in a separate process, with their bytes at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` removes the padding, so that a load must overrun. Every document
is compared with the reference: the same items and sizes, or the same refusal.
"""

from __future__ import annotations

import json
import sys

from guard import IS_BROKEN, allocate_before_guard
from item_generator import Generator, deepest_items
from mutation import mutate

from ddbio.errors import DecodeError
from ddbio.items.capacity import item_size_bytes
from ddbio.items.framing import checked_items
from ddbio.items.kernel import memory
from ddbio.items.kernel.library import CHECKED
from ddbio.items.kernel.tape import walker
from ddbio.items.raw_items import RawItemReader

KEYS = {"pk": "S", "n": "N"}


def by_walk(body: bytes, framing: str) -> list | str:
    """Return each item, and its size if the item is not doubtful, or the reason of the refusal."""
    try:
        parts = RawItemReader(KEYS, compared="pk").decode_batches(body, framing)
    except DecodeError as error:
        return str(error)
    return [
        (json.loads(part.text(row)), None if part.doubtful[row] else int(part.sizes[row]))
        for part in parts
        for row in range(len(part))
    ]


def by_reference(body: bytes, framing: str) -> list | str:
    """Return the items, or the reason of the refusal."""
    try:
        return list(checked_items(body, framing))
    except DecodeError as error:
        return str(error)


def is_same(actual: list | str, expected: list | str) -> bool:
    """Return whether both are the same items, with the right sizes, or the same refusal."""
    if isinstance(actual, str) or isinstance(expected, str):
        return actual == expected
    sizes_agree = all(size is None or size == item_size_bytes(item) for item, size in actual)
    return sizes_agree and [item for item, _ in actual] == expected


def main() -> None:
    """Read the requested number of documents, and report it."""
    memory.allocate = memory.allocate_zeros = allocate_before_guard
    # Every document needs more memory than available.
    walker._FIRST_NODES, walker._FIRST_TEXT_BYTES, walker._FIRST_NAMES = 1, 65, 2
    walker._FIRST_TAPE_WORDS, walker._TAPE_RATIO = 33, 1 << 20
    if IS_BROKEN:
        walker.PAD = 0
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    n_sure = n_refused = 0
    for item in deepest_items():
        body = json.dumps(item).encode()
        assert IS_BROKEN or is_same(by_walk(body, "items"), by_reference(body, "items")), body
    for number in range(seed, seed + count):
        generator = Generator(number)
        framing = generator.random.choice(["items", "export", "page"])
        items = [generator.item(list(generator.schema())) for _ in range(3)]
        for item in items[:2]:
            item |= {"pk": {"S": "a"}, "n": {"N": str(number)}}
        sound = generator.document(items, framing)
        for body in [sound, *(mutate(sound, generator.random) for _ in range(20))]:
            actual = by_walk(body, framing)
            if not IS_BROKEN:
                assert is_same(actual, by_reference(body, framing)), (body, framing, actual)
                n_refused += isinstance(actual, str)
                n_sure += not isinstance(actual, str) and any(size for _, size in actual)
    sys.stdout.write(f"{n_sure > count and n_refused > count}, checked: {CHECKED}\n")
    sys.stderr.write(f"{n_sure} sure, {n_refused} refused\n")


main()
