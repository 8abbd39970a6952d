"""Capacity over time: the stored series of a run."""

from __future__ import annotations

from bench.e2e import series


def test_tasks_are_counted_by_the_seconds_of_the_units():
    """The maximum number of running tasks per second is stored, from the first unit to the last."""
    watch = series.Watch()
    watch._seen = [(1.0, 2), (5.2, 2), (5.7, 1), (6.1, 1), (9.0, 2)]
    assert watch.tasks(first=5.0, count=25) == [2, 1, 0]
    watch._seen = [(5.2, 0)]
    assert watch.tasks(first=5.0, count=25) == []


def test_runs_are_under_skew_with_indexes_and_while_tasks_join_and_leave():
    """Each of these is a run, on threads or on Spark."""
    names = " ".join([*series.RUNS, *series.RUNS_ON_SPARK, *series.RUNS_ON_A_CLUSTER])
    for word in ("one key", "index", "join and leave", "killed"):
        assert word in names


def test_a_run_on_threads_has_its_series():
    """A short scan stores its units by second, and no tasks of Spark."""
    measured = series.measure(series.RUNS["scan"], 400.0, 1.0)
    assert sum(measured["units_by_second"]) > 350
    assert measured["tasks_by_second"] == []
    assert measured["rows"] > 0
