"""The progress line of a job."""

import contextlib
import time

import pytest

from ddbio.budget import LocalBudget, Usage
from ddbio.cli.progress import Pace, shown
from ddbio.jobs.watch import JobOutline


def _usage(seconds, items, item_bytes=500):
    return Usage(items, items * item_bytes, items * 0.03, round(10 * seconds), {}, seconds, None)


def _pace(rcu_per_second=None):
    return Pace(JobOutline("scan t", "RCU", 1000, rcu_per_second), _usage(0.0, 0))


def test_rates_are_those_of_the_last_seconds():
    """A slow start affects neither the rate shown later nor the time left."""
    pace = _pace(rcu_per_second=3)
    pace.describe(_usage(10.0, 0))
    for second in range(11, 17):
        line = pace.describe(_usage(float(second), (second - 10) * 100))
    assert line == "600 items  0.1 MB/s  3 of 3 RCU/s  4.0 s left"


def test_seconds_before_the_first_request_are_no_part_of_the_rates():
    """While tasks start, and workers load their libraries, no rate is shown."""
    pace = _pace()
    nothing = Usage(0, 0, 0.0, 0, {}, 0.0, None)
    assert pace.describe(nothing) == "0 items  starting"
    assert pace.describe(_usage(1.0, 500)) == "500 items  0.2 MB/s  15 RCU/s  1.0 s left"


def wait_until(condition):
    """Return when a condition holds, which another thread fulfils."""
    deadline = time.monotonic() + 200
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_no_budget_and_no_progress_read_well():
    """Without a budget none is shown. Before the first item there is no time left."""
    assert _pace().describe(_usage(1.0, 0)) == "0 items  0 RCU/s"


def test_nothing_is_left_at_the_end():
    """A table that grew past its stated count has no negative time left."""
    assert "left" not in _pace().describe(_usage(1.0, 1100))


@pytest.mark.parametrize(
    ("outline", "first", "later", "text"),
    [
        # Rows of earlier runs count as done, but not for the speed; writes have no bytes.
        (JobOutline("load t", "WCU", 1000, None, done=400), (0.0, 0), (1.0, 100, 0), "500 items  3 WCU/s  5.0 s left"),
        # Items that a sample read before the job started are neither shown as done nor subtracted from the remaining
        # ones.
        (JobOutline("scan t", "RCU", 1000, None), (1.0, 400), (2.0, 900), "500 items  0.2 MB/s  15 RCU/s  1.0 s left"),
        # Reading an export shows items, megabytes of text and the time left, without capacity.
        (JobOutline("export read", "", 1000, None), (0.0, 0), (1.0, 500, 10_000), "500 items  5.0 MB/s  1.0 s left"),
    ],
    ids=["load", "scan", "export"],
)
def test_a_pace_is_that_of_the_job_alone(outline, first, later, text):
    """Only the items of this run count for the speed, in the units that the job consumes."""
    assert Pace(outline, _usage(*first)).describe(_usage(*later)) == text


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_only_a_job_that_ended_is_shown_as_complete(capsys, monkeypatch, is_interrupted):
    """Ctrl-C leaves the bar unchanged."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    budget = LocalBudget(None)
    with contextlib.suppress(KeyboardInterrupt), shown(JobOutline("load t", "WCU", 1000, None), budget):
        budget.settle(budget.acquire(1.0), 1.0, items=10)
        if is_interrupted:
            raise KeyboardInterrupt
    assert ("100%" in capsys.readouterr().err) is not is_interrupted
