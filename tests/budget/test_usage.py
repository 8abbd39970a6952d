from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.budget.usage import PeakWindow, RequestCounts


def brute_force(records: list[tuple[int, float]]) -> float:
    """Return the highest sum over 100 neighbouring slots by looking at all of them."""
    slots = [0.0] * (max(slot for slot, _ in records) + 101)
    for slot, units in records:
        slots[slot] += units
    return max(sum(slots[first : first + 100]) for first in range(len(slots) - 99))


@given(st.lists(st.tuples(st.integers(0, 2000), st.floats(0, 100)), min_size=1, max_size=60))
def test_the_peak_is_the_highest_ten_seconds(records: list[tuple[int, float]]) -> None:
    """Records in order of time give the highest window of the whole run, although only 70 s are kept."""
    window = PeakWindow()
    for slot, units in sorted(records):
        window.record(slot / 10 + 0.05, units)
    assert window.highest() == pytest.approx(brute_force(records))


def test_records_may_come_out_of_order_within_a_minute() -> None:
    """A page that took a minute still counts in the window of its grant."""
    window = PeakWindow()
    for at_seconds in (65.0, 60.0, 5.0, 0.0):
        window.record(at_seconds, 10.0)
    assert window.highest() == 20.0


def test_tallies_add_up() -> None:
    """Adding a tally adds every count, and throttles by scope."""
    total = RequestCounts(1, 2, 3.0, 4, {"table": 1})
    total.add(RequestCounts(10, 20, 30.0, 40, {"table": 2, "account": 1}))
    assert total == RequestCounts(11, 22, 33.0, 44, {"table": 3, "account": 1})
