"""The line that tells how far a job is."""

import pyarrow as pa

from ddbio.budget import Usage
from ddbio.cli.progress import Pace
from ddbio.core.facts import TableFacts
from ddbio.core.plan import Resources, Sample, plan_scan
from ddbio.options import ScanOptions, parse_options


def _usage(seconds, items):
    return Usage(items, items * 500, items * 0.03, 1, {}, seconds, None)


def _pace(**options):
    facts = TableFacts("t", "arn", "id", "ACTIVE", (), 1000, 200_000, on_demand=True)
    sample = Sample(pa.schema([]), 10, 200.0, 1.0, complete=False)
    asked = parse_options(ScanOptions, {"table": "t", **options})
    return Pace(plan_scan(facts, sample, asked, Resources(1)), _usage(0.0, 0))


def test_rates_are_those_of_the_last_seconds():
    """A slow start does not spoil the rate shown later, nor the time left."""
    pace = _pace(rcu_per_second=3)
    pace.describe(_usage(10.0, 0))
    for second in range(11, 17):
        line = pace.describe(_usage(float(second), (second - 10) * 100))
    assert line == "600 items  0.1 MB/s  3 of 3 RCU/s  4.0 s left"


def test_no_budget_and_no_progress_read_well():
    """Without a budget none is shown; before the first item no time is promised."""
    assert _pace().describe(_usage(1.0, 0)) == "0 items  0.0 MB/s  0 RCU/s"


def test_nothing_is_left_at_the_end():
    """A table that grew past its stated count promises no negative time."""
    assert "left" not in _pace().describe(_usage(1.0, 1100))
