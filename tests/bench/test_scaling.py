"""The case of scaling: what each verb reads, and what is said to limit it."""

from __future__ import annotations

import pytest

from bench import jobs, serving
from bench.e2e import matrix, scaling


@pytest.fixture(autouse=True)
def little(monkeypatch):
    """Keep the data small, and stop what was served."""
    monkeypatch.setenv("BENCH_SCALE", "0.002")
    yield
    serving.stop()


def test_every_verb_of_the_matrix_is_scaled():
    """No verb is left out."""
    assert set(scaling.JOBS) == set(matrix.VERBS)


@pytest.mark.parametrize("verb", ["export", "compact", "load"])
def test_each_task_has_something_to_do(verb, tmp_path):
    """What a verb reads lies in at least as many files as there are tasks, and all of it is moved."""
    source = scaling.prepare(verb, tmp_path)
    source.run_by.update(engine="local", tasks=1 if verb == "load" else scaling.TASKS)
    source.run_by.pop("shared_paths")
    if verb == "load":
        assert len(jobs.data_files(source.files)) == scaling.TASKS
    done = scaling.runner(verb)(source)
    assert done.rows == source.count * scaling.JOBS[verb].copies


def test_a_speed_up_is_that_of_the_medians():
    """Two executors in half of the time are twice as fast, whatever one slow round took."""
    one = [matrix.Taken(seconds, 1.0, 0.0) for seconds in (4.0, 4.0, 9.0)]
    two = [matrix.Taken(seconds, 1.0, 0.5) for seconds in (2.0, 2.0, 2.0)]
    found = scaling.figures_of(10, one, two, late=True)
    assert found["times_as_fast"] == 2.0
    assert (found["busy_cores"], found["busy_cores_with_server"]) == (0.5, 0.75)


@pytest.mark.parametrize(
    ("job", "late", "said"),
    [(1.5, True, "processors"), (0.5, True, "late"), (0.5, False, "after the other")],
)
def test_what_limits_is_named(job, late, said):
    """A busy machine first, then late answers, else what is done in a row."""
    assert said in scaling.limit(job, 0.3, 2, late=late)
