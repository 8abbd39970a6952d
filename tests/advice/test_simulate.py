"""Scans in virtual time: the real planner and budget with a model of a table."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
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
    """A report is reproducible. Another seed returns another report."""
    assert ddbio.simulate_scan(**SMALL, seed=1, skew=0.4) == ddbio.simulate_scan(**SMALL, seed=1, skew=0.4)
    assert ddbio.simulate_scan(**SMALL, seed=1, skew=0.4) != ddbio.simulate_scan(**SMALL, seed=2, skew=0.4)


def test_fixed_shares_leave_a_budget_idle():
    """With unequal segments, the largest task determines the time with fixed shares, but not with leases."""
    options = {"table_bytes": 2 * 10**9, "tasks": 8, "rcu_per_second": 4_000, "skew": 0.3, "seed": 1}
    leases = ddbio.simulate_scan(**options, segments=400)
    fixed = ddbio.simulate_scan(**options, segments=8, static_shares=True)
    assert leases.ratio < 1.05
    assert fixed.ratio > 1.5
    assert fixed.idle_ratio > 0.3


def test_few_partitions_throttle():
    """A budget above the capacity of the table's partitions is throttled, and the scan takes the partitions' time."""
    report = ddbio.simulate_scan(**SMALL | {"rcu_per_second": 12_000}, partitions=2)
    assert report.throttles > 0
    assert report.ratio > 1.5


@pytest.mark.nightly
def test_fewer_pages_stand_for_many():
    """A terabyte is simulated with a quarter of its pages. The time is that of its budget."""
    report = ddbio.simulate_scan(table_bytes=10**12, item_bytes=500, tasks=20)
    assert report.scale > 1
    assert report.units == pytest.approx(1e12 / 8192, rel=0.01)
    assert 1 <= report.ratio < 1.05


@pytest.mark.nightly
def test_the_long_tail_of_fixed_shares():
    """80 TB: fixed shares read 70 TB in about nine hours and need more than five days; leases end with the first."""
    fixed, leases = (ddbio.simulate_scan("long-tail", static_shares=static) for static in (True, False))
    nine_hours, five_days = 9 * 3600, 5 * 86_400
    assert fixed.progress[7] < nine_hours < fixed.progress[8]
    assert fixed.seconds > five_days
    assert leases.ratio <= 1.1
    assert leases.seconds < 1.1 * nine_hours


def test_a_scenario_that_is_not_there_is_named():
    """The error lists the existing scenarios."""
    with pytest.raises(OptionError, match="input should be 'long-tail'"):
        ddbio.simulate_scan("short-tail")


def test_the_command_prints_lines_or_json():
    """The output is lines for people and the report for scripts. Flags override a scenario's values."""
    flags = ["scan", "--table-bytes", "1GB", "--item-bytes", "500", "--tasks", "2", "--rcu-per-second", "5000"]
    shown = CliRunner().invoke(cli, ["simulate", *flags])
    assert "the ideal" in shown.output, shown.output
    report = json.loads(CliRunner().invoke(cli, ["simulate", *flags, "--json", "--skew", "0.5", "--seed", "7"]).output)
    assert {"seconds", "ideal_seconds", "ratio", "units", "throttles"} <= report.keys()
    changed = ["--table-bytes", "10GB", "--tasks", "10", "--segments", "100", "--json"]
    named = CliRunner().invoke(cli, ["simulate", "scan", "--scenario", "long-tail", *changed])
    assert json.loads(named.output)["tasks"] == 10
    result = CliRunner().invoke(cli, ["simulate", "scan", "--scenario", "long-tail", *changed[:-1]])
    assert result.output.startswith("scenario  long-tail")


ROWS = {"source_bytes": 10**8, "item_bytes": 1_000, "tasks": 4, "wcu_per_second": 5_000}


def test_a_load_takes_what_its_budget_allows():
    """Rows of one unit, in batches of 25, are written at the budget's rate."""
    report = ddbio.simulate_load(**ROWS)
    assert (report.units, report.requests, report.segments) == (100_000, 4_000, 0)
    assert 1 <= report.ratio < 1.06
    assert report.peak_ratio <= 1.02
    assert report.throttles == 0


def test_indexes_and_single_requests_cost_more():
    """Each index costs as much as the table. An update is a request per row."""
    report = ddbio.simulate_load(**ROWS, mode="update", indexes=2)
    assert (report.units, report.requests) == (300_000, 100_000)


@pytest.mark.parametrize(
    ("limit", "options"),
    [
        ("key_range", {"partitions": 2}),
        ("table", {"table_rate": 2_500, "partitions": 20}),
        ("account", {"account_rate": 2_500, "partitions": 20}),
        ("account", {"account_rate": 5_000, "other_rate": 2_500, "partitions": 20}),
    ],
)
def test_throttling_is_reported_by_its_limit(limit, options):
    """The throttling limit is reported, and the load takes the time that the limit allows."""
    report = ddbio.simulate_load(**ROWS, **options)
    assert report.throttled_by.keys() == {limit}
    assert report.throttles == sum(report.throttled_by.values())
    assert report.ratio > 1.9


def test_a_hot_key_takes_one_lane():
    """Rows of one key are sent one by one: two of a hundred rows determine the time of the load.

    Among other rows they wait for the budget as long as batches of 25; without others each takes the time of a request.
    """
    even, hot = ddbio.simulate_load(**ROWS), ddbio.simulate_load(**ROWS, hot_key=0.02)
    assert 2_000 * 0.015 < hot.seconds < even.seconds + 2_000 * 0.015 * 1.1
    assert hot.seconds > 1.4 * even.seconds


def test_a_collection_is_read_by_one_lane():
    """A tenth of the table with one key is in one segment, regardless of the number of segments."""
    options = {"table_bytes": 10**10, "tasks": 20, "rcu_per_second": 20_000, "segments": 400}
    even, hot = ddbio.simulate_scan(**options), ddbio.simulate_scan(**options, hot_key=0.1)
    assert hot.seconds > 1.5 * even.seconds
    assert hot.largest_task_ratio > 2


def test_burst_capacity_carries_a_short_job():
    """Capacity saved during five minutes is served above the table's rate."""
    options = {**ROWS, "table_rate": 2_500, "partitions": 20}
    assert ddbio.simulate_load(**options, burst_seconds=300).ratio < 1.06


def test_without_adaptive_capacity_a_partition_has_its_share():
    """With segments of unequal size some partitions get more requests, but no more than their share."""
    options = {**SMALL, "table_rate": 8_000, "partitions": 8, "skew": 0.4, "seed": 1}
    adaptive, fixed = (
        ddbio.simulate_scan(**options, fixed_partitions=fixed_partitions) for fixed_partitions in (False, True)
    )
    assert fixed.throttles > adaptive.throttles
    assert fixed.seconds > adaptive.seconds


def test_partitions_that_are_busy_split():
    """Two partitions become four and eight while they are at their limit. Partitions of a hot key do not benefit."""
    options = {**ROWS, "partitions": 2}
    unsplit, split = ddbio.simulate_load(**options), ddbio.simulate_load(**options, split_seconds=10)
    assert (unsplit.splits, unsplit.ratio > 2.4) == (0, True)
    assert split.splits >= 2
    assert split.seconds < 0.75 * unsplit.seconds
    key = {"table_bytes": 10**9, "tasks": 2, "rcu_per_second": 8_000, "partitions": 1, "hot_key": 0.9}
    hot, helped = ddbio.simulate_scan(**key), ddbio.simulate_scan(**key, split_seconds=5)
    assert helped.seconds == pytest.approx(hot.seconds, rel=0.05)


def test_a_lost_executor_repeats_its_scan_and_others_finish_it():
    """Its tasks restart after others, or on an executor that joins. Their reads are repeated."""
    options = {"table_bytes": 10**10, "tasks": 8, "rcu_per_second": 8_000, "segments": 64}
    undisturbed = ddbio.simulate_scan(**options)
    lost = ddbio.simulate_scan(**options, lose="1@60")
    joined = ddbio.simulate_scan(**options, lose="1@60", join=((1, 70.0),))
    assert (lost.lost_tasks, undisturbed.lost_tasks) == (4, 0)
    assert lost.repeated_units == pytest.approx(8_000 * 60 / 2, rel=0.1)
    assert undisturbed.seconds < joined.seconds <= lost.seconds
    assert min(lost.running[20:40]) < 8
    assert sum(lost.rates) * lost.seconds / 100 == pytest.approx(undisturbed.units + lost.repeated_units, rel=0.01)


def test_a_load_resumes_after_the_loss_of_an_executor():
    """A repeated task has only the remaining rows."""
    lost = ddbio.simulate_load(**ROWS | {"source_bytes": 5 * 10**8, "tasks": 8}, lose="1@20")
    assert lost.lost_tasks == 4
    assert lost.repeated_units == 0
    assert lost.ratio < 1.1


def test_a_job_without_executors_is_refused():
    """If all executors are lost and none joins, the job never ends."""
    with pytest.raises(OptionError, match="all executors are lost"):
        ddbio.simulate_scan(**SMALL, lose="1@5", executor_tasks=4)


def test_a_warm_up_follows_what_a_new_table_serves():
    """The real ramp starts at 4,000 per second."""
    report = ddbio.simulate_load(**ROWS | {"wcu_per_second": 40_000}, warm_up=True, partitions=40)
    assert report.seconds == pytest.approx(100_000 / 4_000, rel=0.06)


@pytest.mark.parametrize(("policy", "segments"), [("task", 4), ("gib", 2), ("128mb", 15)])
def test_policies_choose_the_segments(policy, segments):
    """The policies are one segment per task, per GiB, or per 128 MiB."""
    assert ddbio.simulate_scan(**SMALL, policy=policy).segments == segments


@pytest.mark.parametrize("options", [{"lose": "1"}, {"lose": "x@y"}, {"chart": "picture.gif"}, {"hot_key": 1}])
def test_wrong_options_are_errors(options):
    """Wrong options have the same errors as in every verb."""
    with pytest.raises(OptionError, match=next(iter(options))):
        ddbio.simulate_scan(**SMALL, **options)


def test_the_commands_simulate_loads_and_draw(tmp_path):
    """The command reports throttled requests and lost tasks. A chart is a page or a picture."""
    page, picture = tmp_path / "page.html", tmp_path / "picture.png"
    flags = ["--source-bytes", "20MB", "--item-bytes", "1000", "--wcu-per-second", "5000", "--partitions", "2"]
    shown = CliRunner().invoke(cli, ["simulate", "load", *flags, "--chart", str(page)])
    assert "by partitions" in shown.output, shown.output
    assert "When each tenth is done" in page.read_text("utf-8")
    scan = ["scan", "--table-bytes", "1GB", "--tasks", "8", "--rcu-per-second", "4000", "--lose", "1@10"]
    drawn = CliRunner().invoke(cli, ["simulate", *scan, "--chart", str(picture)])
    assert "4 tasks" in drawn.output, drawn.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    values = json.loads(CliRunner().invoke(cli, ["simulate", "load", *flags, "--json"]).output)
    assert values["throttled_by"]["key_range"] == values["throttles"]


@pytest.mark.nightly
def test_a_hundred_terabytes_and_thousands_of_tasks():
    """Both are simulated with 250,000 requests, and end with the budget."""
    scan = ddbio.simulate_scan(table_bytes=10**14, tasks=4_000, rcu_per_second=400_000)
    load = ddbio.simulate_load(source_bytes=10**14, item_bytes=1_000, tasks=4_000, wcu_per_second=400_000)
    assert scan.ratio < 1.1
    assert load.ratio < 1.1
