"""Expiry of an item."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ddbio.cdc.archive import is_expired

NOW, FIVE_YEARS = 2_000_000_000, 5 * 365 * 86_400


@pytest.mark.parametrize(
    ("seconds", "expired"),
    [
        (NOW - 1, True),
        (NOW, True),
        (NOW + 1, False),
        (NOW - FIVE_YEARS + 1, True),
        (NOW - FIVE_YEARS, False),
        (None, False),
    ],
)
def test_an_item_expires_in_its_second_and_for_five_years(seconds, expired):
    """An item is expired from the second of its time to live on, but not if that is five years ago."""
    actual = is_expired(pa.array([seconds], pa.float64()), pa.array([float(NOW)]))
    assert actual.to_pylist() == [expired]
