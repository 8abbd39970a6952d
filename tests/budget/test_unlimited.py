"""Counts of a worker process without a rate."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ddbio.budget import BudgetAddress, BudgetClosedError, BudgetServer, LocalBudget, UnlimitedBudget
from ddbio.budget.job_limits import JobLimits
from ddbio.budget.local import RequestCounts
from ddbio.budget.pacing import ThrottleScope
from tests.budget.deaf_port import deaf_port

HANG_SECONDS = 200.0


def wait_until(condition: Callable[[], object]) -> None:
    """Return when a condition holds, which another thread fulfils."""
    deadline = time.monotonic() + HANG_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def threads() -> set[threading.Thread]:
    """Return the threads of budgets."""
    return {thread for thread in threading.enumerate() if thread.name == "ddbio-budget"}


@pytest.fixture
def deaf() -> Iterator[BudgetAddress]:
    """Return the address of a port that drops everything."""
    with deaf_port() as port:
        yield BudgetAddress("127.0.0.1", port, b"key")


def test_without_an_address_everything_is_granted_and_only_counted() -> None:
    """No thread is started that could connect, and the counts are reported at the end."""
    before = threads()
    budget = UnlimitedBudget()
    for _ in range(3):
        reservation = budget.reserve(1e12)
        assert reservation.wait_seconds() == 0
        budget.settle(reservation.grant(), 2.0, items=5, wire_bytes=7)
    budget.throttled(ThrottleScope.TABLE, "too fast")
    assert threads() <= before
    assert budget.close() == RequestCounts(15, 21, 6.0, 3, {"table": 1})
    assert budget.close() == RequestCounts()
    with pytest.raises(BudgetClosedError):
        budget.acquire(1.0)


def test_a_driver_that_needs_them_gets_the_counts_during_the_job(caplog: pytest.LogCaptureFixture) -> None:
    """The work of a task is visible at the driver while it runs, each request once, and the last one when it ends."""
    central = LocalBudget(None)
    with BudgetServer(central) as server:
        budget = UnlimitedBudget(server.address)
        budget.settle(budget.acquire(1.0), 2.0, items=5, wire_bytes=7)
        wait_until(lambda: central.usage().items == 5)
        budget.settle(budget.acquire(1.0), 2.0, items=5, wire_bytes=7)
        budget.throttled(ThrottleScope.ACCOUNT, "too fast")
        with caplog.at_level(logging.WARNING, "ddbio.budget"):
            assert budget.close() == RequestCounts()
            wait_until(lambda: caplog.messages)
        usage = central.usage()
        assert (usage.items, usage.wire_bytes, usage.consumed_units, usage.requests) == (10, 14, 4.0, 2)
        assert usage.throttles == {"account": 1}
        assert usage.elapsed_seconds > 0
    (message,) = caplog.messages
    assert "the account's throughput quota is reached" in message


@pytest.mark.parametrize("is_limited", [False, True])
def test_a_job_that_is_stopped_is_stopped_in_every_worker(*, is_limited: bool) -> None:
    """A worker learns that the driver's budget is closed, also by a limit that its own counts exceed."""
    central = LocalBudget(None)
    if is_limited:
        central.bound(JobLimits(units=10.0))
    with BudgetServer(central) as server, contextlib.closing(UnlimitedBudget(server.address)) as budget:
        budget.settle(budget.acquire(1.0), 20.0)
        wait_until(lambda: central.usage().requests)
        if not is_limited:
            central.close()

        def is_stopped() -> bool:
            try:
                budget.acquire(1.0)
            except BudgetClosedError:
                return True
            return False

        wait_until(is_stopped)
    assert (central.exceeded is not None) == is_limited


def test_an_unreachable_driver_costs_nothing_and_loses_nothing(deaf: BudgetAddress) -> None:
    """If the driver's port drops everything, the counts come at the end as if there was no driver."""
    budget = UnlimitedBudget(deaf)
    budget.settle(budget.acquire(1.0), 2.0, items=3)
    assert budget.close() == RequestCounts(items=3, consumed_units=2.0, requests=1)


def test_counts_that_a_lost_driver_did_not_get_come_at_the_end() -> None:
    """A connection that breaks leaves the later counts."""
    central = LocalBudget(None)
    with BudgetServer(central) as server:
        budget = UnlimitedBudget(server.address)
        budget.settle(budget.acquire(1.0), 1.0, items=1)
        wait_until(lambda: central.usage().items == 1)
        with budget._exchanging:
            budget._hang_up()
        budget.settle(budget.acquire(1.0), 1.0, items=10)
        assert budget.close().items == 10
    assert central.usage().items == 1
