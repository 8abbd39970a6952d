"""Prices of items and requests: by the examples of AWS's developer guide, and by ddbio's own rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS

from ddbio.items import capacity
from ddbio.testing.pricing import item_bytes, read_units, write_units

KIB = 1024


@pytest.mark.parametrize(
    ("size_bytes", "units"),
    [
        (1, 1),
        (int(1.5 * KIB), 1),
        (4 * KIB, 1),
        (int(6.5 * KIB), 2),
        (8 * KIB, 2),
        (int(40.8 * KIB), 11),
        (1500 * 64, 24),
    ],
)
def test_reads_of_the_guide(size_bytes, units):
    """The examples of the guide's pages about reads: one item, items of BatchGetItem, and sums of a Query."""
    assert read_units(size_bytes, consistent=True) == units
    assert read_units(size_bytes, consistent=False) == units / 2


@pytest.mark.parametrize(
    ("size_bytes", "units"),
    [(0, 1), (500, 1), (512, 1), (KIB, 1), (int(1.5 * KIB), 2), (2 * KIB, 2), (int(3.5 * KIB), 4)],
)
def test_writes_of_the_guide(size_bytes, units):
    """The examples of the guide's page about writes, by item and by item of BatchWriteItem.

    A missing item costs one unit.
    """
    assert write_units(size_bytes) == units


@pytest.mark.parametrize(
    ("item", "size_bytes"),
    [
        ({"name": {"S": "Zoë"}}, 4 + 4),
        ({"n": {"N": "0"}}, 1 + 1),
        ({"n": {"N": "1234"}}, 1 + 2 + 1),
        ({"n": {"N": "12345"}}, 1 + 3 + 1),
        ({"n": {"N": "120000"}}, 1 + 1 + 1),
        ({"n": {"N": "-0.0012"}}, 1 + 1 + 1 + 1),
        ({"bin": {"B": "AAECAw=="}}, 3 + 4),
        ({"yes": {"BOOL": True}, "no": {"NULL": True}}, 3 + 1 + 2 + 1),
        ({"empty": {"L": []}}, 5 + 3),
        ({"list": {"L": [{"S": "ab"}, {"N": "7"}]}}, 4 + 3 + (1 + 2) + (1 + 2)),
        ({"map": {"M": {"key": {"S": "v"}}}}, 3 + 3 + (1 + 3 + 1)),
        ({"set": {"SS": ["a", "bc"]}}, 3 + 3),
    ],
)
def test_sizes_of_the_guide(item, size_bytes):
    """Each rule of the guide's page about sizes, calculated manually."""
    assert item_bytes(item) == size_bytes


def test_a_400_kib_item():
    """The largest item costs 100 units to read and 400 to write."""
    item = {"k": {"S": "x" * (400 * KIB - 1)}}
    assert item_bytes(item) == 400 * KIB
    assert (read_units(400 * KIB, consistent=True), write_units(400 * KIB)) == (100, 400)


@given(item=ITEMS)
def test_an_item_has_the_size_that_ddbio_gives_it(item):
    """Two implementations that share no code agree on the size of any item."""
    assert item_bytes(item) == capacity.item_size_bytes(item)


@given(size_bytes=st.integers(0, 2 << 20), consistent=st.booleans())
def test_a_read_costs_what_ddbio_expects(size_bytes, consistent):
    """Two implementations that share no code agree on the units of any read."""
    assert read_units(size_bytes, consistent=consistent) == capacity.read_units(size_bytes, consistent)
