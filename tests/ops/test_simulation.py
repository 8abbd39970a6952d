"""Scans in virtual time: the real planner and budget on a model of a table."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.simulate import simulate
from ddbio.errors import OptionError

SMALL = {"table_bytes": 2 * 10**9, "tasks": 4, "rcu_per_second": 8_000}


def test_a_scan_takes_what_its_budget_allows():
    """An even table is read at the budget's rate, never above it, and hardly below."""
    report = ddbio.simulate_scan(**SMALL)
    assert 1 <= report.ratio < 1.05
    assert report.peak_ratio is not None
    assert report.peak_ratio <= 1.02
    assert report.units == pytest.approx(2e9 / 8192, rel=0.01)
    assert report.seconds == report.progress[-1]
    assert report.throttles == 0


def test_the_same_seed_gives_the_same_report():
    """A report can be made again; another seed gives another."""
    assert ddbio.simulate_scan(**SMALL, seed=1, skew=0.4) == ddbio.simulate_scan(**SMALL, seed=1, skew=0.4)
    assert ddbio.simulate_scan(**SMALL, seed=1, skew=0.4) != ddbio.simulate_scan(**SMALL, seed=2, skew=0.4)


def test_fixed_shares_leave_a_budget_idle():
    """With unequal segments, a fixed share of each task makes the largest one decide; leases do not."""
    options = {"table_bytes": 2 * 10**9, "tasks": 8, "rcu_per_second": 4_000, "skew": 0.3, "seed": 1}
    leases = ddbio.simulate_scan(**options, segments=400)
    fixed = ddbio.simulate_scan(**options, segments=8, static_shares=True)
    assert leases.ratio < 1.05
    assert fixed.ratio > 1.5
    assert fixed.idle_ratio > 0.3


def test_few_partitions_throttle():
    """A budget beyond what the table's partitions serve is throttled, and the scan takes their time."""
    report = ddbio.simulate_scan(**SMALL | {"rcu_per_second": 12_000}, partitions=2)
    assert report.throttles > 0
    assert report.ratio > 1.5


@pytest.mark.slow
def test_fewer_pages_stand_for_many():
    """A terabyte is simulated by a quarter of its pages; what it takes is what its budget allows."""
    report = ddbio.simulate_scan(table_bytes=10**12, item_bytes=500, tasks=20)
    assert report.scale > 1
    assert report.units == pytest.approx(1e12 / 8192, rel=0.01)
    assert 1 <= report.ratio < 1.05


@pytest.mark.slow
def test_the_long_tail_of_fixed_shares():
    """80 TB: fixed shares read 70 TB in some nine hours and need more than five days; leases end with the first."""
    fixed, leases = (ddbio.simulate_scan("long-tail", static_shares=static) for static in (True, False))
    nine_hours, five_days = 9 * 3600, 5 * 86_400
    assert fixed.progress[7] < nine_hours < fixed.progress[8]
    assert fixed.seconds > five_days
    assert leases.ratio <= 1.1
    assert leases.seconds < 1.1 * nine_hours


def test_a_scenario_that_is_not_there_is_named():
    """The error lists those that are."""
    with pytest.raises(OptionError, match="there is long-tail"):
        ddbio.simulate_scan("short-tail")


def test_the_command_prints_lines_or_json():
    """For people lines, for scripts the report; the flags change a scenario's values."""
    flags = ["scan", "--table-bytes", "1GB", "--item-bytes", "500", "--tasks", "2", "--rcu-per-second", "5000"]
    shown = CliRunner().invoke(simulate, flags)
    assert "the ideal" in shown.output, shown.output
    report = json.loads(CliRunner().invoke(simulate, [*flags, "--json", "--skew", "0.5", "--seed", "7"]).output)
    assert {"seconds", "ideal_seconds", "ratio", "units", "throttles"} <= report.keys()
    changed = ["--table-bytes", "10GB", "--tasks", "10", "--segments", "100", "--json"]
    named = CliRunner().invoke(simulate, ["scan", "--scenario", "long-tail", *changed])
    assert json.loads(named.output)["tasks"] == 10
