from __future__ import annotations

import gc
import json
import random
import tracemalloc

import pytest

from ddbio.core.kernel.decoder import KernelDecoder
from ddbio.core.schema import infer_schema_of_items


def sparse_items(count, n_attributes, n_present):
    """Return items of which each has a few of many attributes."""
    chance = random.Random(1)
    for number in range(count):
        item = {"pk": {"S": f"user#{number}"}}
        for attribute in chance.sample(range(n_attributes), n_present):
            kind = {"S": "x" * chance.randrange(8)} if attribute % 2 else {"N": str(chance.randrange(10**6))}
            item[f"attribute_{attribute}"] = kind
        yield item


@pytest.mark.parametrize(("count", "n_attributes", "n_present"), [(3400, 10, 8), (1700, 300, 20), (3400, 300, 20)])
def test_decoding_a_page_takes_three_times_its_bytes_beyond_the_output(count, n_attributes, n_present):
    """What the first page of a table takes, beyond the batches that it returns, is bounded, for wide tables too."""
    items = list(sparse_items(count, n_attributes, n_present))
    schema = infer_schema_of_items(items)
    body = json.dumps({"Items": items}, separators=(",", ":")).encode()
    KernelDecoder(schema).decode(b'{"Items":[{}]}', "page")
    gc.collect()
    tracemalloc.start()
    try:
        batches = KernelDecoder(schema).decode_batches(body, "page")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(batch.num_rows for batch in batches) == count
    assert peak_bytes - sum(batch.nbytes for batch in batches) <= 3 * len(body)
