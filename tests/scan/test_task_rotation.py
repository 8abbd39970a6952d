"""Segments read in rotation: at any time, items come from all parts of the table."""

from dataclasses import replace

import pytest

from ddbio.budget import LocalBudget
from ddbio.items.decode import Decoder
from ddbio.items.digest import Digest
from ddbio.options import parse_options
from ddbio.scan.describe import describe_scan, plan_of, scan_tasks
from ddbio.scan.options import ScanOptions
from ddbio.scan.plan import rotated_segments
from ddbio.scan.stream import RotatedStream, SegmentStream
from ddbio.testing import FakeDynamoDB

ITEMS = 800
SEGMENTS = 8


@pytest.fixture(scope="module")
def server():
    """Serve a table of small items."""
    with FakeDynamoDB() as running:
        running.load("numbers", "".join(f'{{"pk":{{"S":"{n}"}}}}\n' for n in range(ITEMS)).encode(), "pk:S")
        yield running


def stream_of(server, lanes):
    """Return a stream of the table's segments, in pages of about 20 items, and the keys of each segment."""
    values = {"table": "numbers", "endpoint_url": server.endpoint_url, "region": "us-east-1"}
    options = parse_options(ScanOptions, {**values, "segments": SEGMENTS, "lanes": lanes})
    table = describe_scan(options)
    (task,) = scan_tasks(plan_of(options, table=table), options, table)
    task = replace(task, digest=True)
    requests = tuple(replace(request, page_units=0.1, item_units=0.005) for request in task.requests)
    budget = LocalBudget(None)
    segments = [SegmentStream(replace(task, requests=(request,)), budget) for request in requests]
    keys = [{key for batch in segment for key in batch["pk"].to_pylist()} for segment in segments]
    return RotatedStream(replace(task, requests=requests), budget, Decoder(task.schema)), keys, segments


@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_segments_take_turns(server, lanes):
    """Every item is yielded and counted once, and the first pages are from all segments."""
    stream, keys, segments = stream_of(server, lanes)
    pages = [batch["pk"].to_pylist() for batch in stream]
    assert sorted(key for page in pages for key in page) == sorted(str(n) for n in range(ITEMS))
    first = [segment for page in pages[:SEGMENTS] for segment, held in enumerate(keys) if page[0] in held]
    # Of requests in flight at the same time, later ones may be answered first.
    assert lanes > 1 or len(set(first)) == SEGMENTS
    digest = Digest()
    for segment in segments:
        digest.merge(segment.counts.digest)
    assert stream.counts.digest.hexdigest() == digest.hexdigest()
    assert (stream.counts.items, stream.counts.scanned_items) == (ITEMS, ITEMS)
    assert stream.counts.wire_bytes == sum(segment.counts.wire_bytes for segment in segments)


def test_a_rotation_can_be_left(server):
    """Closing the iterator early does not wait for any segment."""
    stream, _, _ = stream_of(server, 4)
    batches = iter(stream)
    next(batches)
    batches.close()


@pytest.mark.parametrize(("size_bytes", "segments"), [(0, 64), (1, 1), (300_000, 3), (1 << 40, 256)])
def test_small_tables_have_few_segments(size_bytes, segments):
    """A segment has at least half a page."""
    assert rotated_segments(size_bytes) == segments
