"""Infers schemas of damaged documents in a separate process, with every growing array and the bytes at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` removes the padding, so that a load must overrun. Every document
is compared with the plain inference: the same shape, or the same refusal.
"""

from __future__ import annotations

import sys

from guard import IS_BROKEN, allocate_before_guard
from item_generator import Generator
from mutation import mutate
from observation import assert_same_shape

from ddbio.items.kernel import memory
from ddbio.items.kernel.decode import inference
from ddbio.items.kernel.library import CHECKED
from ddbio.items.kernel.tape import walker
from ddbio.items.object_pool import ObjectPool


def main() -> None:
    """Infer the schemas of the requested number of documents, and report it."""
    memory.allocate = memory.allocate_zeros = allocate_before_guard
    # Arrays have the size that one document needs, and are not reused.
    inference._pool = ObjectPool(0, 0)
    # Every document needs more memory than available.
    inference.PIECE_BYTES = 200
    walker._FIRST_NODES, walker._FIRST_TEXT_BYTES, walker._FIRST_NAMES = 1, 65, 2
    walker._FIRST_TAPE_WORDS, walker._TAPE_RATIO = 33, 1 << 20
    if IS_BROKEN:
        walker.PAD = 0
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    n_observed = n_refused = 0
    for number in range(seed, seed + count):
        generator = Generator(number)
        framing = generator.random.choice(["items", "export", "page"])
        sound = generator.document([generator.item(list(generator.schema())) for _ in range(3)], framing)
        for body in [sound, *(mutate(sound, generator.random) for _ in range(20))]:
            if IS_BROKEN:
                inference.shape_of_items([(body, framing)])
            elif assert_same_shape([body], framing) is None:
                n_refused += 1
            else:
                n_observed += 1
    sys.stdout.write(f"{n_observed > count and n_refused > count}, checked: {CHECKED}\n")
    sys.stderr.write(f"{n_observed} observed, {n_refused} refused\n")


main()
