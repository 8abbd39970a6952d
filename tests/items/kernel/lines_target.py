"""Joins generated rows in a separate process, with input and output at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` uses offsets that end after the data, so that a load must overrun.
"""

from __future__ import annotations

import json
import random
import sys

import numpy as np
from guard import IS_BROKEN, allocate_before_guard, copy_before_guard

from ddbio.items.kernel.library import CHECKED
from ddbio.items.kernel.lines import LINES_RATIO, Rows, join_rows, split_items
from ddbio.items.kernel.memory import PAD

MOST_BYTES = 200


def split(chance: random.Random) -> None:
    """Split a damaged page, whose text and lines both end at a guard page."""
    item = {"a": {"S": chance.choice(['"\\', "x" * 40, "é"])}, "m": {"M": {"b": {"L": [{"N": "1"}]}, "": {"SS": [""]}}}}
    spaces = chance.choice([(",", ":"), (", ", ": ")])
    page = bytearray(json.dumps([item, {}], separators=spaces).encode()[1:])
    for _ in range(chance.randrange(3)):
        page[chance.randrange(len(page))] = chance.choice(b'"{}[]\\:, \0x')
    del page[chance.randrange(1, 2 * len(page)) :]
    data = allocate_before_guard(len(page) + PAD)
    data[: len(page)] = np.frombuffer(page, np.uint8)
    split_items(data, 0, allocate_before_guard(LINES_RATIO * len(page) + PAD))


def main() -> None:
    """Join the requested number of columns, and compare each with Python's result."""
    chance = random.Random(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        split(chance)
        texts = [chance.choice([b" ", b""]) + b"{" + b"x" * chance.randrange(90) + b"}\n" for _ in range(4)]
        data = copy_before_guard(b"".join(texts))
        offsets = np.cumsum([0, *map(len, texts)])
        offsets[-1] += IS_BROKEN
        rows = Rows(data, offsets, allocate_before_guard(MOST_BYTES + PAD), np.zeros(4, np.int64))
        row, n_bytes = join_rows(rows, 0, 4, MOST_BYTES)
        stripped = [text.strip() + b"\n" for text in texts]
        assert rows.joined[:n_bytes].tobytes() == b"".join(stripped[:row])
        assert row == 4 or n_bytes + len(stripped[row]) > MOST_BYTES
    sys.stdout.write(f"checked: {CHECKED}\n")


main()
