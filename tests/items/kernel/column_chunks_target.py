"""Reads damaged Parquet footers in a separate process, in memory that ends at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` cuts the table of the format's members. Each footer is also read
without compiling.
"""

from __future__ import annotations

import io
import random
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from guard import IS_BROKEN, copy_before_guard

from ddbio.items.kernel import column_chunks
from ddbio.items.kernel.column_chunks import FACTS, _read_footer
from ddbio.items.kernel.declarations import LOOPS
from ddbio.items.kernel.library import CHECKED

LEAVES, GROUPS = 4, 2


def footer(chance: random.Random) -> bytes:
    """Return a footer, sometimes damaged."""
    sink = io.BytesIO()
    rows = pa.table({"a": ["x", "y"], "b": [1, None], "c": [[1.5], []], "d": [{"e": b"z"}] * 2})
    pq.write_table(rows, sink, row_group_size=1, write_page_index=chance.random() < 0.5)
    data = sink.getvalue()
    text = bytearray(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        position = chance.randrange(len(text))
        match chance.randrange(4):
            case 0:
                text[position] = chance.choice((0, 0x10, 0x7F, 0xFF, chance.randrange(256)))
            case 1:
                del text[position : position + chance.choice((1, 3, 1000))]
            case 2:
                text[position:position] = bytes(
                    chance.choices((0x19, 0x1C, 0xFC, 0x80, 0xFF), k=chance.choice((1, 9, 60)))
                )
            case 3:
                text[position:position] = text[chance.randrange(len(text)) :][: chance.choice((2, 90))]
    return bytes(text)


def guarded(values: list[int]) -> np.ndarray:
    """Return numbers up to a guard page."""
    return copy_before_guard(np.array(values, np.int64))


def main() -> None:
    """Read the requested number of footers."""
    chance, n_complete = random.Random(int(sys.argv[1])), 0
    (in_python,) = (loop.function for loop in LOOPS if loop.name == "column_chunks._read_footer")
    table, levels = column_chunks._TABLE.tolist(), column_chunks._FIRST_LEVELS
    for _ in range(int(sys.argv[2])):
        text = footer(chance)
        data = copy_before_guard(text).view(np.int8)
        facts, plain = guarded([-1] * (LEAVES * GROUPS * FACTS)), [-1] * (LEAVES * GROUPS * FACTS)
        members = guarded(table[:40] if IS_BROKEN else table)
        n_chunks = _read_footer(data, members, LEAVES, guarded(levels), facts)
        assert n_chunks == in_python(text, table, LEAVES, [*levels], plain)
        assert facts.tolist() == plain
        n_complete += n_chunks == LEAVES * GROUPS
    sys.stdout.write(f"{n_complete > 0}, checked: {CHECKED}\n")


main()
