"""Bring texts and lists into another order in a process of its own, with what they are read from at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` lets the last text end behind the data.
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
    """Bring as many columns as were asked for into an order by chance, and hold each against Python's own."""
    chance = random.Random(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        texts = [chance.randbytes(chance.randrange(70)) for _ in range(chance.randrange(1, 20))]
        order = chance.sample(range(len(texts)), chance.randrange(1, len(texts) + 1))
        if IS_BROKEN:
            order = list(range(len(texts)))
        whole = b"".join(texts)
        data = copy_before_guard(whole)
        places = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        if IS_BROKEN:
            places[-1] += 1
        wanted = [texts[row] for row in order]
        out = allocate_before_guard(sum(map(len, wanted)) + PAD)
        ends = np.zeros(len(order), np.int32)
        given = np.array(order, np.int64)
        gather_texts(data, places, given, out, ends)
        assert out[: ends[-1]].tobytes() == b"".join(wanted)
        elements, list_ends = np.zeros(ends[-1], np.int64), np.zeros(len(order), np.int32)
        gather_lists(places, given, elements, list_ends)
        assert bytes(whole[each] for each in elements.tolist()) == b"".join(wanted)
        assert list_ends.tolist() == ends.tolist()
    sys.stdout.write(f"checked: {CHECKED}\n")


main()
