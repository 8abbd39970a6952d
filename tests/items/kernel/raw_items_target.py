"""Find the items of damaged documents in a process of its own, with their bytes at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` takes the padding away, so that a load must overrun.
Every document is held against the plain reference: the same items and sizes, or the same refusal.
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
    """Return each item, and its size where the walk is sure; or why the text is refused."""
    try:
        found = RawItemReader(KEYS, compared="pk").decode_batches(body, framing)
    except DecodeError as error:
        return str(error)
    return [
        (json.loads(part.text(row)), None if part.doubtful[row] else int(part.sizes[row]))
        for part in found
        for row in range(len(part))
    ]


def by_reference(body: bytes, framing: str) -> list | str:
    """Return the items, or why the text is refused."""
    try:
        return list(checked_items(body, framing))
    except DecodeError as error:
        return str(error)


def is_same(found: list | str, wanted: list | str) -> bool:
    """Return whether both are the same items, with the right sizes, or the same refusal."""
    if isinstance(found, str) or isinstance(wanted, str):
        return found == wanted
    sizes_agree = all(size is None or size == item_size_bytes(item) for item, size in found)
    return sizes_agree and [item for item, _ in found] == wanted


def main() -> None:
    """Read as many documents as were asked for, and say so."""
    memory.allocate = memory.allocate_zeros = allocate_before_guard
    # Every document needs more room than there is.
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
        whole = generator.document(items, framing)
        for body in [whole, *(mutate(whole, generator.random) for _ in range(20))]:
            found = by_walk(body, framing)
            if not IS_BROKEN:
                assert is_same(found, by_reference(body, framing)), (body, framing, found)
                n_refused += isinstance(found, str)
                n_sure += not isinstance(found, str) and any(size for _, size in found)
    sys.stdout.write(f"{n_sure > count and n_refused > count}, checked: {CHECKED}\n")
    sys.stderr.write(f"{n_sure} sure, {n_refused} refused\n")


main()
