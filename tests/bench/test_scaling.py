"""The case of scaling: what each verb reads, and what is said to limit it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import ddbio
from bench import jobs, serving
from bench.e2e import matrix, processes, scaling


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
    source = scaling.prepare(verb, "large", tmp_path)
    source.run_by.update(engine="local", tasks=1 if verb == "load" else scaling.TASKS)
    source.run_by.pop("shared_paths")
    if verb == "load":
        assert len(jobs.data_files(source.files)) == scaling.TASKS
    done = scaling.runner(verb)(source)
    assert done.rows == scaling.rows_of(verb, source)
    assert scaling.copies_of(verb, source) == (1 if verb == "load" else 4 * scaling.COPIES)


def test_an_export_that_names_links_is_read_whole(tmp_path):
    """Linked data files are as good as written ones: manifests and counts hold."""
    source = scaling.prepare("export", "small", tmp_path)
    assert ddbio.read_export(source.export).num_rows == source.count * scaling.COPIES


def test_the_start_is_no_part_of_the_speed_up():
    """Whatever a start takes, and whatever one slow round took: only the rows by which a job is larger count."""
    one = {"small": [taken(3.0), taken(3.0), taken(8.0)], "large": [taken(9.0, cpu=4.0)]}
    two = {"small": [taken(2.0)], "large": [taken(5.0, cpu=4.0)]}
    found = scaling.figures_of([100, 400], one, two, late=True)
    assert found["times_as_fast"] == 2.0
    assert found["times_as_fast_with_start"] == 1.8
    assert found["rows_per_second"] == [50, 100]
    assert found["start_seconds"] == [1.0, 1.0]
    assert (found["busy_cores_of_one"], found["busy_cores"], found["busy_cores_with_server"]) == (0.5, 1.0, 1.0)


def taken(seconds, cpu=1.0):
    """Return a run of a job that kept no server busy."""
    return matrix.Taken(seconds, cpu, 0.0)


def test_a_process_and_its_children_have_one_processor():
    """Each process that has the word runs on one processor with its children; others run where they ran."""
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])  # an-executor"
    command = [sys.executable, "-c", script, "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # Before it is a program of its own, a child has the words of its parent.
        process.stdout.readline()
        try:
            assert processes.pin("an-executor") == [process.pid]
            below = processes.descendants(process.pid)
            assert below
            assert {len(os.sched_getaffinity(pid)) for pid in (process.pid, *below)} == {1}
        finally:
            process.communicate(b"\n")
    assert processes.pin("an-executor") == []


@pytest.mark.parametrize(
    ("job", "late", "said"),
    [(1.5, True, "processors"), (0.5, True, "late"), (0.5, False, "after the other")],
)
def test_what_limits_is_named(job, late, said):
    """A busy machine first, then late answers, else what is done in a row."""
    assert said in scaling.limit(job, 0.3, 2, late=late)
