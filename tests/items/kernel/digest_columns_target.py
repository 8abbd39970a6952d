"""Digests generated rows in a separate process, with every array that loops read or write unchecked at a guard page.

The arguments are ``SEED COUNT [broken]``: ``broken`` makes the last text of each column longer than its bytes, so that
a load must overrun. Every batch, and slices of it, are compared with the reference.
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
from guard import IS_BROKEN, allocate_before_guard, copy_before_guard
from item_generator import Generator
from mutation import mutate

from ddbio.errors import DdbioError
from ddbio.items import digest_columns
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import digest_of_batches
from ddbio.items.kernel import arrays, memory
from ddbio.items.kernel.library import CHECKED
from ddbio.items.kernel.tape import digest, texts, walker
from ddbio.items.object_pool import ObjectPool
from ddbio.items.reference import RowBuilder, items_of
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import normalize_schema

N_ROWS = 20

plain_view, plain_offsets = arrays.view_of, arrays.offsets_of


def guarded_view(buffer, dtype) -> np.ndarray:
    """Return a copy of a buffer before a guard page."""
    view = copy_before_guard(plain_view(buffer, dtype))
    view.flags.writeable = False
    return view


def stretched_offsets(array) -> np.ndarray:
    """Return offsets of which the last is beyond the bytes."""
    offsets = plain_offsets(array).copy()
    offsets[-1] += 16
    return offsets


def digest_or_refusal(rows, compute):
    """Return the digest of rows, or that there is none."""
    try:
        return compute(rows)
    except (DdbioError, UnicodeDecodeError):
        return None


def digest_by_reference(rows) -> Digest:
    """Return the digest of rows by the reference."""
    added = Digest()
    added.add_items(items_of(rows))
    return added


def check_texts(generator) -> None:
    """Compare texts with any layout, some damaged, with the reference, each separately."""
    items = [generator.item(list(generator.schema())) for _ in range(3)]
    rescued = [generator.spell(item) for item in items]
    rescued += [mutate(text, generator.random) for text in rescued for _ in range(5)]
    values = [generator.spell(generator.any_value(3)) for _ in range(3)]
    values += [mutate(text, generator.random) for text in values for _ in range(5)]
    json = pa.field("a", pa.string(), metadata={"ddb:type": "JSON"})
    for field, column in [(pa.field("_rescue", pa.string()), rescued), (json, values)]:
        batch = pa.record_batch([pa.array(column, pa.binary()).view(pa.string())], schema=pa.schema([field]))
        fine = []
        for row in range(batch.num_rows):
            rows = batch.slice(row, 1)
            expected = digest_or_refusal(rows, digest_by_reference)
            assert digest_or_refusal(rows, lambda row_batch: digest_of_batches([row_batch])) == expected, column[row]
            fine += [row] if expected else []
        batch = batch.take(pa.array(fine, pa.int64()))
        assert digest_of_batches([batch]) == digest_by_reference(batch), column


def main() -> None:
    """Digest the requested number of batches, and report it."""
    arrays.view_of = digest_columns.view_of = guarded_view
    memory.allocate = memory.allocate_zeros = allocate_before_guard
    # Every column needs more memory than available, and is walked in several pieces.
    walker._FIRST_NODES, walker._FIRST_TEXT_BYTES, walker._FIRST_NAMES = 1, 65, 2
    walker._FIRST_TAPE_WORDS, walker._TAPE_RATIO, digest._SCRATCH_BYTES = 33, 1 << 20, 1
    texts._PIECE_BYTES, texts._pool = 1000, ObjectPool(1, 0)
    digest_columns.new_sums = lambda n_entries: copy_before_guard(np.zeros(2 * n_entries, np.uint64))
    if IS_BROKEN:
        arrays.offsets_of = stretched_offsets
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(seed, seed + count):
        generator = Generator(number)
        schema = normalize_schema(generator.schema())
        items = []
        while len(items) < N_ROWS:
            item = generator.item(list(schema)[:-1])
            try:
                RowBuilder(schema, keep_nulls=True).batch([item], MisfitLog())
            except ValueError:
                continue
            items.append(item)
        batch = RowBuilder(schema, keep_nulls=True).batch(items, MisfitLog())
        for start, length in [(0, N_ROWS), (3, 11), (19, 1)]:
            rows = batch.slice(start, length)
            computed = digest_of_batches([rows])
            if not IS_BROKEN:
                assert computed == digest_by_reference(rows), (number, start, length)
        if not IS_BROKEN:
            check_texts(generator)
    sys.stdout.write(f"{count} batches, checked: {CHECKED}\n")


main()
