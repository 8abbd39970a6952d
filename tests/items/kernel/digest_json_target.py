"""Digest damaged documents in a process of its own, with their bytes at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` takes the padding away, so that a load must overrun.
Every document is held against the plain reference: the same digest, or the same refusal.
"""

from __future__ import annotations

import json
import sys

from guard import IS_BROKEN, allocate_before_guard
from item_generator import Generator, deepest_items
from mutation import mutate

from ddbio.errors import DecodeError
from ddbio.items import digest_json
from ddbio.items.digest import Digest
from ddbio.items.framing import checked_items
from ddbio.items.kernel import memory
from ddbio.items.kernel.library import CHECKED
from ddbio.items.kernel.tape import digest, walker


def by_walk(body: bytes, framing: str) -> Digest | str:
    """Return the walk's digest, or why it is refused."""
    items = digest_json.JsonDigest()
    try:
        items.add(body, framing)
    except DecodeError as error:
        return str(error)
    return items.digest


def by_reference(body: bytes, framing: str) -> Digest | str:
    """Return the reference's digest, or why it is refused."""
    items = Digest()
    try:
        items.add_items(checked_items(body, framing))
    except DecodeError as error:
        return str(error)
    return items


def main() -> None:
    """Digest as many documents as were asked for, and say so."""
    memory.allocate = memory.allocate_zeros = allocate_before_guard
    # Every document needs more room than there is.
    walker._FIRST_NODES, walker._FIRST_TEXT_BYTES, walker._FIRST_NAMES = 1, 65, 2
    walker._FIRST_TAPE_WORDS, walker._TAPE_RATIO, digest._SCRATCH_BYTES = 33, 1 << 20, 1
    if IS_BROKEN:
        walker.PAD = 0
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    n_walked = n_refused = 0
    for item in deepest_items():
        body = json.dumps(item).encode()
        assert IS_BROKEN or by_walk(body, "items") == by_reference(body, "items"), body
    for number in range(seed, seed + count):
        generator = Generator(number)
        framing = generator.random.choice(["items", "export", "page"])
        whole = generator.document([generator.item(list(generator.schema())) for _ in range(3)], framing)
        for body in [whole, *(mutate(whole, generator.random) for _ in range(20))]:
            found = by_walk(body, framing)
            if not IS_BROKEN:
                wanted = by_reference(body, framing)
                assert found == wanted, (body, framing, found, wanted)
                n_refused += isinstance(found, str)
                n_walked += isinstance(found, Digest)
    sys.stdout.write(f"{n_walked > count and n_refused > count}, checked: {CHECKED}\n")
    sys.stderr.write(f"{n_walked} digested, {n_refused} refused\n")


main()
