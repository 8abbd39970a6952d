from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.testing.calls.reads import MAX_PAGE_BYTES, backward_page, forward_page, scan
from ddbio.testing.calls.writes import put_item
from ddbio.testing.tables.table import HASH_BITS, ItemStore, Stored, hash_bounds, part_of_hash, snapshot_of

SIZES = st.lists(st.integers(1, MAX_PAGE_BYTES), max_size=30)
LIMITS = st.none() | st.integers(1, 10)


def snapshot(sizes):
    """Return a snapshot store of items of these sizes."""
    return snapshot_of(((at, b"", b""), Stored(b"{}", size)) for at, size in enumerate(sizes))


def is_whole_page(sizes, limit):
    """Return whether a page of items in this order must end here."""
    return sum(sizes) >= MAX_PAGE_BYTES > sum(sizes[:-1]) or (len(sizes) == limit and sum(sizes[:-1]) < MAX_PAGE_BYTES)


@given(sizes=SIZES, limit=LIMITS)
def test_forward_pages_read_everything_once(sizes, limit):
    """Pages follow each other, stop after the item that reaches 1 MiB or at the limit, and end with the last item."""
    first, end = 0, len(sizes)
    while True:
        page = forward_page(snapshot(sizes), first, end, limit)
        assert page.first == first
        assert page.stops_early == (page.last < end)
        if not page.stops_early:
            break
        assert is_whole_page(sizes[page.first : page.last], limit)
        first = page.last


@given(sizes=SIZES, limit=LIMITS)
def test_backward_pages_mirror_forward_pages(sizes, limit):
    """A backward read equals a forward read of the reversed items."""
    count = len(sizes)
    ahead = forward_page(snapshot(sizes[::-1]), 0, count, limit)
    back = backward_page(snapshot(sizes), 0, count, limit)
    assert (back.first, back.last, back.stops_early) == (count - ahead.last, count, ahead.stops_early)


@given(
    writes=st.lists(st.tuples(st.integers(0, 5), st.none() | st.binary(min_size=1, max_size=5)), max_size=40),
    rests=st.sets(st.integers(0, 40)),
)
def test_store_is_a_sorted_map(writes, rests):
    """The store has the last value of each key in order, after any puts and deletes, settled at any time."""
    store, model = ItemStore(), {}
    for at, (number, text) in enumerate(writes):
        key = (number, b"k", b"")
        store.replace(key, None if text is None else Stored(text, len(text)))
        model[key] = text
        if at in rests:
            store.snapshot()
        assert store.get(key) == (None if text is None else Stored(text, len(text)))
    kept = {key: text for key, text in sorted(model.items()) if text is not None}
    snapshot_read = store.snapshot()
    assert snapshot_read.keys == list(kept)
    assert bytes(snapshot_read.json_between(0, len(kept))) == b",".join(kept.values())
    assert (store.count, store.size_bytes) == (len(kept), sum(map(len, kept.values())))


@given(hash_value=st.integers(0, 2**HASH_BITS - 1), parts=st.integers(1, 1_000_000))
def test_hash_is_in_exactly_one_part(hash_value, parts):
    """Parts of the hash space are disjoint and complete."""
    low, high = hash_bounds(part_of_hash(hash_value, parts), parts)
    assert low <= hash_value < high
    assert hash_bounds(0, parts)[0] == 0
    assert hash_bounds(parts - 1, parts)[1] == 2**HASH_BITS


@pytest.mark.parametrize(("segments", "units"), [(1, 2.0), (2, 1.0), (4, 0.5), (8, 0.5), (3, 1.0)])
def test_segment_pays_for_the_partitions_it_visits(hold, segments, units):
    """A segment of an empty on-demand table costs half a unit per partition that it touches."""
    held = hold()
    held.create()
    held.now = 1.0
    held.call(put_item, TableName="tab", Item={"pk": {"S": "a"}})
    held.call(scan, TableName="tab", Segment=0, TotalSegments=segments)
    assert sum(read for _, read, _ in held.database.consumption.consumed()) == units


def test_consistent_page_costs_its_bytes_per_partition(hold):
    """A page that crosses partitions is rounded in each of them."""
    held = hold()
    held.create()
    for at in range(40):
        held.now += 1.0
        held.call(put_item, TableName="tab", Item={"pk": {"S": str(at)}, "x": {"S": "x" * 3000}})
    before = sum(read for _, read, _ in held.database.consumption.consumed())
    held.call(scan, TableName="tab", ConsistentRead=True)
    consumed = sum(read for _, read, _ in held.database.consumption.consumed()) - before
    by_partition = [0] * 4
    for key, stored in held.database.tables["tab"].store.snapshot().entries():
        by_partition[part_of_hash(key[0], 4)] += stored.size_bytes
    assert consumed == sum(-(-size // 4096) for size in by_partition)
