"""Packing: valid batches, every row once, every key's rows in order, unprocessed rows first."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.load.batches import (
    MAX_BODY_BYTES,
    MAX_COUNTED_KEYS,
    MOST_WRITES,
    HotKeys,
    Packer,
    RequestTemplate,
    Writes,
    in_key_order,
    packing_order,
    spread_ranges,
    write_units,
)

TEMPLATE = RequestTemplate("BatchWriteItem", b'{"RequestItems":{"t":[', b",", b"]}}")
OTHER = RequestTemplate("UpdateItem", b"", None, b"")


def writes_of(keys, sizes=None, alone=()):
    """Return writes of rows with these keys, in the order in which they are taken."""
    hashes = np.asarray(keys, np.uint64)
    order = packing_order(hashes, np.isin(np.arange(len(keys)), list(alone)) if alone else None)
    sizes = np.asarray([10] * len(keys) if sizes is None else sizes, np.int64)[order]
    texts, starts = laid_out([b"x" * size for size in sizes.tolist()])
    apart = {index: OTHER for index, row in enumerate(order.tolist()) if row in alone}
    return Writes(order, hashes[order], write_units(sizes), texts, starts, TEMPLATE, apart)


def laid_out(parts):
    """Return texts followed by the frame's separator, and their offsets."""
    texts = b"".join(part + TEMPLATE.separator for part in parts)
    starts = np.cumsum([0, *(len(part) + len(TEMPLATE.separator) for part in parts)])
    return np.frombuffer(texts, np.uint8), starts


@given(st.data())
def test_every_row_is_settled_once_in_the_order_of_its_key(data):
    """With any unprocessed and split rows, batches are valid, no row is lost or repeated, and no key is reordered."""
    keys = data.draw(st.lists(st.integers(0, 12), max_size=90))
    alone = data.draw(st.sets(st.integers(0, 89), max_size=5))
    writes = writes_of(keys, alone=alone)
    packer = Packer(writes)
    settled = []
    while batch := packer.take():
        rows = [int(writes.rows[index]) for index in batch]
        assert len(batch) <= MOST_WRITES
        assert len({keys[row] for row in rows}) == len(rows)
        assert len(rows) == 1 or not alone & set(rows)
        fate = data.draw(st.sampled_from(["done", "done", "left", "part"]))
        if fate == "part" and len(batch) > 1:
            packer.halve(batch)
            continue
        left = data.draw(st.lists(st.sampled_from(batch), unique=True)) if fate == "left" else []
        left = [index for index in batch if index in left]
        packer.give_back(left)
        settled += [int(writes.rows[index]) for index in batch if index not in left]
    assert sorted(settled) == list(range(len(keys)))
    for key in set(keys):
        assert [row for row in settled if keys[row] == key] == [row for row, value in enumerate(keys) if value == key]


@given(st.lists(st.integers(1, 3), max_size=60))
def test_bodies_stay_below_the_largest(megabytes):
    """A batch of large items ends before its body is too large."""
    large = writes_of(range(len(megabytes)), [size << 20 for size in megabytes])
    packer = Packer(large)
    taken = []
    while batch := packer.take():
        assert len(large.body(batch)) <= MAX_BODY_BYTES
        taken += batch
    assert taken == list(range(len(megabytes)))


def test_distinct_keys_fill_every_batch():
    """Rows of different keys are sent 25 at a time, except for the last batch."""
    packer = Packer(writes_of(range(60)))
    assert [len(packer.take()) for _ in range(4)] == [25, 25, 10, 0]


def test_sorted_input_is_spread():
    """Rows are taken by hash, not in the order of the input: sorted input heats no partition."""
    hashes = np.arange(100, dtype=np.uint64)[::-1]
    assert packing_order(hashes).tolist() == list(range(99, -1, -1))


def test_rows_that_go_alone_break_no_batch():
    """Within a rank they come last, so that the others fill their batches as adjacent rows."""
    packer = Packer(writes_of(range(60), alone=range(0, 60, 6)))
    taken = [packer.take() for _ in range(13)]
    assert [len(batch) for batch in taken] == [25, 25] + [1] * 10 + [0]
    assert all(isinstance(batch, range) for batch in taken[:12])


def test_leftovers_go_before_newer_rows_of_their_key():
    """An unprocessed row is sent again in a batch before the next row of the same key."""
    writes = writes_of([7, 7])
    packer = Packer(writes)
    first = packer.take()
    packer.give_back(first)
    assert [list(packer.take()) for _ in range(3)] == [[0], [1], []]


def test_the_frame_makes_one_document():
    """Opening, separator and closing around the parts make the request's JSON."""
    assert json.loads(TEMPLATE.body([b"1", b"2"])) == {"RequestItems": {"t": [1, 2]}}


def test_units_are_complete_kibibytes():
    """1,024 bytes cost one unit, 1,025 two, and nothing less than one."""
    assert write_units(np.asarray([0, 1, 1024, 1025], np.int64)).tolist() == [1, 1, 1, 2]


@given(st.lists(st.integers(0, 3) | st.integers(0, 1000), min_size=1, max_size=30).filter(sum), st.integers(1, 40))
def test_every_row_comes_once_and_chunks_are_alike(lengths, n_chunks):
    """All rows are yielded, no range has rows of two batches, and no chunk has many more rows than another."""
    chunks = spread_ranges(lengths, n_chunks)
    orders = [chunk.order.tolist() for chunk in chunks]
    assert sorted(itertools.chain(*orders)) == list(range(sum(lengths)))
    for chunk, order in zip(chunks, orders, strict=True):
        assert [chunk.row_at(index) for index in range(0, len(order), 7)] == order[::7]
    ends = np.cumsum(lengths)
    for chunk in chunks:
        counts = np.diff(chunk.starts)
        assert (counts > 0).all()
        batches = [np.searchsorted(ends, rows, "right") for rows in (chunk.firsts, chunk.firsts + counts - 1)]
        assert (batches[0] == batches[1]).all()
        # A chunk has its share of the rows of each stretch, with less than one row of difference.
        assert abs(counts.sum() - sum(lengths) / n_chunks) <= 0.5 * sum(lengths) / n_chunks + 32


@pytest.mark.parametrize("partitions", [4, 40])
@pytest.mark.parametrize("lengths", [[20_000], [100_003], [1_000] * 60])
def test_any_chunk_reaches_all_partitions(lengths, partitions):
    """Of about 2,560 rows no partition has much more than its share, though the input is ordered by partition."""
    count = sum(lengths)
    for chunk in spread_ranges(lengths, count // 2560):
        counts = np.bincount(chunk.order * partitions // count, minlength=partitions)
        assert counts.max() <= 1.2 * counts.sum() / partitions


@given(st.lists(st.integers(0, 9), max_size=60), st.randoms())
def test_rows_of_a_key_ascend(keys, draw):
    """For any order, rows of one key ascend, at the positions that they had together."""
    order = list(range(len(keys)))
    draw.shuffle(order)
    ordered = in_key_order(np.array(order, np.int64), np.array(keys, np.uint64)).tolist()
    assert [keys[row] for row in ordered] == [keys[row] for row in order]
    assert all(
        [row for row in ordered if keys[row] == key] == [n for n, k in enumerate(keys) if k == key] for key in keys
    )


def test_a_hot_key_is_found_among_many():
    """Random keys neither hide a hot one nor accumulate."""
    keys = HotKeys()
    for number in range(10 * MAX_COUNTED_KEYS):
        keys.add(f"chance-{number}")
        if number % 50 == 0:
            keys.add("hot")
    assert keys.hottest() == {"hot": 10 * MAX_COUNTED_KEYS // 50}
    assert len(keys._times) <= MAX_COUNTED_KEYS


def test_counts_of_tasks_add_up():
    """The counts of two tasks are added."""
    one, other = HotKeys(), HotKeys()
    one.add("a")
    other.add("a", 2)
    other.add("b", 9)
    one.merge(other)
    assert list(one.hottest().items()) == [("b", 9), ("a", 3)]
