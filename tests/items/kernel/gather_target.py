"""Reorders texts and lists in a separate process, with the inputs at a guard page.

The arguments are ``SEED COUNT [broken]``: with ``broken`` the last text ends after the data.
"""

from __future__ import annotations

import random
import sys

import numpy as np
from guard import IS_BROKEN, allocate_before_guard, copy_before_guard

from ddbio.items.kernel.gather import gather_lists, gather_texts
from ddbio.items.kernel.library import CHECKED
from ddbio.items.kernel.memory import PAD


def main() -> None:
    """Reorder the requested number of columns at random, and compare each with Python's result."""
    chance = random.Random(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        texts = [chance.randbytes(chance.randrange(70)) for _ in range(chance.randrange(1, 20))]
        order = chance.sample(range(len(texts)), chance.randrange(1, len(texts) + 1))
        if IS_BROKEN:
            order = list(range(len(texts)))
        joined = b"".join(texts)
        data = copy_before_guard(joined)
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        if IS_BROKEN:
            offsets[-1] += 1
        expected = [texts[row] for row in order]
        out = allocate_before_guard(sum(map(len, expected)) + PAD)
        ends = np.zeros(len(order), np.int32)
        indices = np.array(order, np.int64)
        gather_texts(data, offsets, indices, out, ends)
        assert out[: ends[-1]].tobytes() == b"".join(expected)
        elements, list_ends = np.zeros(ends[-1], np.int64), np.zeros(len(order), np.int32)
        gather_lists(offsets, indices, elements, list_ends)
        assert bytes(joined[element] for element in elements.tolist()) == b"".join(expected)
        assert list_ends.tolist() == ends.tolist()
    sys.stdout.write(f"checked: {CHECKED}\n")


main()
