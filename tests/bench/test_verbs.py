"""Verbs as processes, wall clock by latency, and writes over partitions, on very little data."""

from __future__ import annotations

import sys

import pytest

from bench import figures, steps
from bench.e2e import latency, processes, spread, verbs


@pytest.fixture(autouse=True)
def _little_data(monkeypatch):
    monkeypatch.setenv("BENCH_SCALE", "0.002")


def test_a_command_counts_with_all_that_it_started():
    """The seconds of a command include those of its children. Its output is returned, and its failure raised."""
    burns = "import time\nwhile time.process_time() < 0.3: pass"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burns!r}]); print('done')"
    seconds, output = processes.run([sys.executable, "-c", starts])
    assert output == "done\n"
    assert seconds >= 0.3
    with pytest.raises(RuntimeError, match="ended with 3: no such thing"):
        processes.run([sys.executable, "-c", "import sys; sys.stderr.write('no such thing'); sys.exit(3)"])


@pytest.mark.nightly
def test_a_verb_is_compared_with_its_steps_and_boto3():
    """A verb has the rate of additional rows, its start, the share of its steps and the ratio to boto3."""
    measured = verbs.measure({"load lines": verbs.VERBS["load lines"]}, verbs.LITTLE, rounds=1)["load lines"]
    assert measured["items"] == verbs.PART * verbs.LITTLE
    assert measured["rate_items"] == measured["items"] - measured["part_items"]
    for runs in ("cpu_seconds", "part_cpu_seconds", "start_cpu_seconds"):
        assert len(measured[runs]) == 1
    assert measured["share_of_steps"] > 0
    assert measured["times_as_many_as"][verbs.BATCH_WRITER] > 0


def test_work_that_a_verb_does_once_is_not_in_its_rate():
    """For runs with a constant time per row, the rate is that of the rows, without the start and the work done once."""
    sizes, seconds_a_row = verbs._Sizes(300, 100, 20), 0.01
    start, once = 0.5, 0.2
    larger, part = (start + once + seconds_a_row * count for count in (sizes.large, sizes.part))
    verb = verbs.Verb(lambda *_: [], ("decode",), verbs.BATCH_WRITER)
    taken = verbs._Taken([larger], [part], [start])
    figures = verbs._figures(verb, sizes, taken, {"decode": [0.8]}, {verbs.BATCH_WRITER: [10.0]})
    assert figures["items_per_cpu_second"] == 100
    assert figures["once_cpu_seconds"] == pytest.approx(once)
    assert figures["share_of_steps"] == pytest.approx(0.8)
    assert figures["steps_cpu_seconds"] == {"decode": 1.6}
    assert figures["times_as_many_as"] == {verbs.BATCH_WRITER: 10.0}
    assert figures["times_as_many_with_start"] == {verbs.BATCH_WRITER: round(300 / larger / 10, 2)}


def test_every_verb_has_existing_steps():
    """The steps of each verb are existing methods."""
    ways = steps.Steps(steps.Resources(*[None] * 7), 1).ways
    for verb in verbs.VERBS.values():
        assert verb.steps
        assert set(verb.steps) <= ways.keys()


def test_latency_is_taken_by_wall_clock():
    """Each method reads or writes all rows, and has a rate."""
    rates = latency.measure(0.001, rounds=1)
    assert rates.keys() == {latency.SCAN, latency.CLIENT, latency.WRITE, latency.LOAD, latency.BATCH_WRITER}
    assert all(rate > 0 for rate in rates.values())
    assert len(list(figures.CASES["latency"]({"figures": {"0": rates, "1": rates}}))) == 3


def test_spread_writes_are_held_against_the_table_s_rate():
    """The written units are those that the server counted, over the seconds in which it did."""
    measured = spread.measure(4)
    assert measured.keys() == {"load", "copy"}
    for way in measured.values():
        assert way["write_units"] == way["items"] * spread.ITEM_UNITS
        assert way["share_of_table"] > 0
    assert len(list(figures.CASES["spread"]({"figures": {"4": measured}}))) == 1
