"""Writes keys of lake rows in a separate process, with their texts at a guard page.

The arguments are ``SEED COUNT [broken]``: with ``broken`` the last text ends after the data. Every key is compared with
Python's text, and its checksum with zlib's.
"""

from __future__ import annotations

import random
import sys
from zlib import crc32

import numpy as np
from guard import IS_BROKEN, allocate_before_guard, copy_before_guard

from ddbio.items.kernel.crc import tables_of
from ddbio.items.kernel.lake_keys import CRC_32, Keys, Texts, write_keys
from ddbio.items.kernel.library import CHECKED
from ddbio.items.kernel.memory import PAD


def guarded(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return contiguous texts up to a guard page, and their offsets."""
    joined = b"".join(texts)
    return copy_before_guard(joined), np.cumsum([0, *map(len, texts)], dtype=np.int64)


def main() -> None:
    """Write the keys of the requested number of batches."""
    chance, tables = random.Random(int(sys.argv[1])), tables_of(CRC_32)
    for _ in range(int(sys.argv[2])):
        count, n_keys = chance.randrange(1, 20), chance.choice((1, 2))
        parts = [[chance.randbytes(chance.randrange(70)) for _ in range(count)] for _ in range(n_keys)]
        tags = bytes(chance.choices(b"SNB", k=n_keys))
        expected = [
            b"|".join(b"%c:%b" % pair for pair in zip(tags, row, strict=True)) for row in zip(*parts, strict=True)
        ]
        size = sum(map(len, expected))
        out = allocate_before_guard(size + PAD)
        ends, crcs = np.zeros(count, np.int32), np.zeros(count, np.uint32)
        columns = guarded(parts[0]), guarded(parts[-1])
        if IS_BROKEN:
            columns[0][1][-1] += 1
        first, second = (Texts(*column) for column in columns)
        write_keys(first, second, np.frombuffer(tags, np.uint8).copy(), tables, Keys(out, ends, crcs))
        assert out[:size].tobytes() == b"".join(expected)
        assert ends.tolist() == np.cumsum([len(key) for key in expected]).tolist()
        assert crcs.tolist() == [crc32(key) for key in expected]
    sys.stdout.write(f"checked: {CHECKED}\n")


main()
