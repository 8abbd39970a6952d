"""Chains of images: which changes begin with something else than the one before left."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from ddbio.core.capture.audit import ImageChains

IMAGE = pa.struct([("pk", pa.string()), ("n", pa.int64())])
SCHEMA = pa.schema(
    [
        ("_op", pa.string()),
        ("_sequence", pa.string()),
        ("_event_time", pa.timestamp("us", "UTC")),
        ("pk", pa.string()),
        ("n", pa.int64()),
        ("_old_image", IMAGE),
        ("_old_rescue", pa.string()),
        ("_rescue", pa.string()),
    ]
)


def change(number, pk, old, new):
    """Return a row of a log: numbers of an item before and after, None where it is not there."""
    return {
        "_op": "REMOVE" if new is None else "INSERT" if old is None else "MODIFY",
        "_sequence": str(number),
        "_event_time": datetime(2026, 1, 1, second=number % 60, tzinfo=UTC),
        "pk": pk,
        "n": new,
        "_old_image": None if old is None else {"pk": pk, "n": old},
    }


ROWS = [
    change(8, "a", None, 1),
    change(9, "b", None, 1),
    change(10, "a", 1, 2),
    change(11, "b", 5, 6),
    change(100, "a", 2, None),
    change(101, "b", 6, 7),
    change(102, "a", 9, 10),
]


def test_breaks_are_found_whatever_the_order_of_the_rows(seeds):
    """The numbers tell the order, longer ones come later; breaks come in it, with the times of both changes."""
    for seed in seeds(8, 1_000):
        shuffled = [ROWS[place] for place in np.random.default_rng(seed).permutation(len(ROWS)).tolist()]
        chains = ImageChains(["pk"])
        for part in (shuffled[:3], shuffled[3:]):
            chains.add(pa.Table.from_pylist(part, SCHEMA))
        assert [(each.key, each.sequence, each.since.second, each.until.second) for each in chains.broken()] == [
            ({"pk": "b"}, "11", 9, 11),
            ({"pk": "a"}, "102", 40, 42),
        ], seed


def test_nothing_is_broken_where_nothing_is():
    """Also where all rows were left out, or have no numbers that repeat."""
    assert ImageChains(["pk"]).broken() == []
    assert repeated(pa.chunked_array([], pa.string())) == 0


def test_numbers_that_repeat_are_counted_across_parts():
    """Each but one of those that are equal."""
    assert repeated(pa.chunked_array([["9", "10", "9"], ["10", "9", "100"]])) == 3
