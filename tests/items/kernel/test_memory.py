from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.schema.item_schema import ItemSchema

SPARSE = [(3400, 10, 8), (1700, 300, 20), (3400, 300, 20), (6000, 1000, 5)]


def sparse_items(count, n_attributes, n_present):
    """Return items of which each has a few of many attributes."""
    chance = random.Random(1)
    for number in range(count):
        item = {"pk": {"S": f"user#{number}"}}
        for attribute in chance.sample(range(n_attributes), n_present):
            kind = {"S": "x" * chance.randrange(8)} if attribute % 2 else {"N": str(chance.randrange(10**6))}
            item[f"attribute_{attribute}"] = kind
        yield item


def lines_and_page(items):
    """Return items as lines and as a page."""
    lines = [json.dumps(item, separators=(",", ":")).encode() for item in items]
    return b"\n".join(lines), b'{"Items":[%b]}' % b",".join(lines)


@pytest.mark.parametrize(
    ("count", "n_attributes", "n_present", "is_page"),
    [
        pytest.param(*shape, is_page, marks=() if is_page == number % 2 else pytest.mark.nightly)
        for number, shape in enumerate(SPARSE)
        for is_page in (True, False)
    ],
)
def test_decoding_takes_three_times_its_bytes_beyond_the_output(count, n_attributes, n_present, is_page):
    """The memory for the first data of a table, beyond the returned batches, is bounded, also for wide tables."""
    items = list(sparse_items(count, n_attributes, n_present))
    schema = ItemSchema.of_items(items).to_arrow()
    lines, page = lines_and_page(items)
    decoder = KernelDecoder(schema)
    gc.collect()
    tracemalloc.start()
    try:
        batches = decoder.decode_batches(page, "page") if is_page else [decoder.decode(lines, "items")]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(batch.num_rows for batch in batches) == count
    assert peak_bytes - sum(batch.nbytes for batch in batches) <= 3 * len(page)


@pytest.mark.parametrize(
    ("n_attributes", "n_present"),
    [(1000, 5), *(pytest.param(*shape, marks=pytest.mark.nightly) for shape in ((10, 10), (300, 20)))],
)
def test_one_batch_of_many_slices_takes_three_times_its_bytes_beyond_the_output(n_attributes, n_present):
    """The process grows by no more, including Arrow and the allocator, for one batch of 10 MB."""
    done = subprocess.run(
        [sys.executable, __file__, str(n_attributes), str(n_present)], capture_output=True, text=True, check=True
    )
    grown_bytes, batch_bytes, wire_bytes = map(int, done.stdout.split())
    assert wire_bytes > 9_000_000
    assert grown_bytes - batch_bytes <= 3 * wire_bytes


def peak_bytes() -> int:
    """Return the maximum memory of this process."""
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def grow(n_attributes, n_present):
    """Decode 10 MB in a process, and print its growth, the batch's bytes and the data's."""
    sample = list(sparse_items(2000, n_attributes, n_present))
    schema = ItemSchema.of_items(sample).to_arrow()
    lines, _ = lines_and_page(sample)
    lines += b"\n"
    data = lines * (1 + 10_000_000 // len(lines))
    decoder = KernelDecoder(schema)
    before = peak_bytes()
    batch = decoder.decode(data, "items")
    sys.stdout.write(f"{peak_bytes() - before} {batch.nbytes} {len(data)}\n")


if __name__ == "__main__":
    grow(int(sys.argv[1]), int(sys.argv[2]))
