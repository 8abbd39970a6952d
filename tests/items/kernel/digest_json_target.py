"""Digests damaged documents in a separate process, with their bytes at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` removes the padding, so that a load must overrun. Every document
is compared with the reference: the same digest, or the same refusal.
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
    """Return the walk's digest, or the reason of the refusal."""
    items = digest_json.JsonDigest()
    try:
        items.add(body, framing)
    except DecodeError as error:
        return str(error)
    return items.digest


def by_reference(body: bytes, framing: str) -> Digest | str:
    """Return the reference's digest, or the reason of the refusal."""
    items = Digest()
    try:
        items.add_items(checked_items(body, framing))
    except DecodeError as error:
        return str(error)
    return items


def main() -> None:
    """Digest the requested number of documents, and report it."""
    memory.allocate = memory.allocate_zeros = allocate_before_guard
    # Every document needs more memory than available.
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
        sound = generator.document([generator.item(list(generator.schema())) for _ in range(3)], framing)
        for body in [sound, *(mutate(sound, generator.random) for _ in range(20))]:
            actual = by_walk(body, framing)
            if not IS_BROKEN:
                expected = by_reference(body, framing)
                assert actual == expected, (body, framing, actual, expected)
                n_refused += isinstance(actual, str)
                n_walked += isinstance(actual, Digest)
    sys.stdout.write(f"{n_walked > count and n_refused > count}, checked: {CHECKED}\n")
    sys.stderr.write(f"{n_walked} digested, {n_refused} refused\n")


main()
