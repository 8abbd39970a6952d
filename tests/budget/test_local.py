from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.budget import Budget, BudgetClosedError, Grant, LocalBudget
from ddbio.budget.local import PeakWindow, RequestCounts
from ddbio.budget.pacing import ThrottleScope


class Clock:
    """Clock with a settable time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def spend(budget: LocalBudget, clock: Clock, units: float) -> None:
    """Acquire on the virtual clock, then settle with the charged units."""
    position = budget.enqueue(units)
    while (state := budget.check(position))[0] > 1e-9:
        clock.now += state[0]
    budget.settle(Grant(units, state[1]), units, items=2, wire_bytes=300)


def test_threads_share_one_budget_and_every_count_is_exact() -> None:
    """Eight threads with one budget lose no item, byte, unit or throttle."""
    budget: LocalBudget = LocalBudget(4000.0)

    def lane(_: int) -> None:
        for _ in range(25):
            grant = budget.acquire(5.0)
            budget.settle(grant, 4.0, items=3, wire_bytes=100)
        budget.throttled(ThrottleScope.KEY_RANGE, "a hot key")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lane, range(8)))
    usage = budget.usage()
    assert (usage.items, usage.wire_bytes, usage.consumed_units, usage.requests) == (600, 20_000, 800.0, 200)
    assert usage.throttles == {"key_range": 8}
    assert usage.elapsed_seconds >= 800.0 / 4000.0


def test_without_a_rate_everything_is_granted_and_counted() -> None:
    """Without a rate every request is granted immediately, also after throttles, and there is no peak ratio."""
    clock = Clock()
    budget = LocalBudget(None, clock=clock)
    budget.throttled(ThrottleScope.TABLE, "too fast")
    for _ in range(100):
        budget.settle(budget.acquire(1e9), 1e9)
    clock.now += 60.0
    assert budget.usage().consumed_units == 1e11
    assert budget.usage().elapsed_seconds == 60.0
    assert budget.usage().peak_10s_ratio is None


def test_the_peak_is_known_after_ten_seconds() -> None:
    """A busy budget shows a peak just below the rate, and none before 10 s have passed."""
    clock = Clock()
    budget = LocalBudget(100.0, clock=clock)
    while clock.now < 1005.0:
        spend(budget, clock, 5.0)
    assert budget.usage().peak_10s_ratio is None
    while clock.now < 1060.0:
        spend(budget, clock, 5.0)
    assert budget.usage().peak_10s_ratio == pytest.approx(1.0, abs=0.02)


def test_the_peak_shows_a_page_that_cost_more_than_charged() -> None:
    """Consumed units count in the window of their grant, not the estimate."""
    clock = Clock()
    budget = LocalBudget(100.0, clock=clock)
    position = budget.enqueue(1.0)
    clock.now += 1.0
    budget.settle(Grant(1.0, budget.check(position)[1]), 1500.0)
    clock.now += 30.0
    assert budget.usage().peak_10s_ratio == pytest.approx(1.5)


def test_a_table_throttle_slows_the_next_request_down() -> None:
    """After a throttle the same request waits longer by 1/0.7."""
    clock = Clock()
    budget = LocalBudget(100.0, clock=clock)
    before, _ = budget.check(budget.enqueue(10.0))
    budget.throttled(ThrottleScope.TABLE, "too fast")
    after, _ = budget.check(10.0)
    assert after == pytest.approx(before / 0.7)


def test_a_permanent_limit_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The account's quota is a single warning with its detail."""
    budget = LocalBudget(100.0)
    with caplog.at_level(logging.WARNING, "ddbio.budget"):
        for _ in range(3):
            budget.throttled(ThrottleScope.ACCOUNT, "arn:of:the:table")
    (message,) = caplog.messages
    assert "arn:of:the:table" in message
    assert "quota" in message


def test_close_wakes_everybody_who_waits() -> None:
    """Threads that would wait for hours raise as soon as the budget is closed."""
    budget: Budget = LocalBudget(0.001)
    waiting, raised = [Event() for _ in range(4)], []

    def lane(here: Event) -> None:
        here.set()
        try:
            budget.acquire(100.0)
        except BudgetClosedError as error:
            raised.append(error)

    threads = [Thread(target=lane, args=(here,)) for here in waiting]
    for thread, here in zip(threads, waiting, strict=True):
        thread.start()
        here.wait()
    budget.close()
    for thread in threads:
        thread.join()
    assert len(raised) == 4


def test_after_close_nothing_is_granted_but_pages_under_way_count() -> None:
    """A closed budget refuses to acquire, counts settlements, and its time stops."""
    clock = Clock()
    budget = LocalBudget(None, clock=clock)
    grant = budget.acquire(1.0)
    clock.now += 3.0
    budget.close()
    clock.now += 3.0
    budget.close()
    with pytest.raises(BudgetClosedError, match="stopped"):
        budget.acquire(1.0)
    budget.settle(grant, 2.0, items=7)
    assert (budget.usage().items, budget.usage().elapsed_seconds) == (7, 3.0)


def test_progress_is_logged_each_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A job with a name logs its progress once a minute, and nothing earlier. Others log nothing."""
    clock = Clock()
    budget, silent = LocalBudget(100.0, job="scan of orders", clock=clock), LocalBudget(100.0, clock=clock)
    with caplog.at_level(logging.INFO, "ddbio"):
        for job_budget in (budget, silent):
            grant = job_budget.acquire(0.0)
            for seconds, items in ((59.0, 1000), (60.0, 200), (61.0, 5), (120.0, 9)):
                clock.now = 1000.0 + seconds
                job_budget.settle(grant, 30.0, items=items)
            clock.now = 1000.0
    assert caplog.messages == [
        "scan of orders: 1,200 items in 60 s; 20 items/s and 1.0 of 100 units/s lately",
        "scan of orders: 1,214 items in 120 s; 0 items/s and 1.0 of 100 units/s lately",
    ]


def brute_force(records: list[tuple[int, float]]) -> float:
    """Return the maximum sum over 100 neighbouring slots by checking all of them."""
    slots = [0.0] * (max(slot for slot, _ in records) + 101)
    for slot, units in records:
        slots[slot] += units
    return max(sum(slots[first : first + 100]) for first in range(len(slots) - 99))


@given(st.lists(st.tuples(st.integers(0, 2000), st.floats(0, 100)), min_size=1, max_size=60))
def test_the_peak_is_the_highest_ten_seconds(records: list[tuple[int, float]]) -> None:
    """Records in order of time give the highest window of the entire run, although only 70 s are retained."""
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


def test_a_pause_of_days_costs_nothing() -> None:
    """After days without a request the peak is unchanged, and late records of the last minute count."""
    window = PeakWindow()
    window.record(5.0, 10.0)
    for at_seconds in (1e9, 1e9 - 1, 1e9 - 60):
        window.record(at_seconds, 4.0)
    assert window.highest() == 10.0
    window.record(1e9 + 1, 5.0)
    assert window.highest() == 13.0


def test_counts_add_up() -> None:
    """The sum has every count, and throttles by scope."""
    total = RequestCounts(1, 2, 3.0, 4, {"table": 1})
    total.add(RequestCounts(10, 20, 30.0, 40, {"table": 2, "account": 1}))
    assert total == RequestCounts(11, 22, 33.0, 44, {"table": 3, "account": 1})
