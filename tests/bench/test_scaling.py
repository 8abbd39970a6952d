"""The case of scaling: the input of each verb, and its reported limit."""

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
    """Limit the data, and stop all servers."""
    monkeypatch.setenv("BENCH_SCALE", "0.002")
    yield
    serving.stop()


def test_every_verb_of_the_matrix_is_scaled():
    """No verb is missing."""
    assert set(scaling.JOBS) == set(matrix.VERBS)


@pytest.mark.parametrize("verb", ["export", "compact", "load"])
def test_each_task_has_something_to_do(verb, tmp_path):
    """The input of a verb has at least as many files as tasks, and all of it is moved."""
    source = scaling.prepare(verb, "large", tmp_path)
    source.run_by.update(engine="local", tasks=1 if verb == "load" else scaling.TASKS)
    source.run_by.pop("shared_paths")
    if verb == "load":
        assert len(jobs.data_files(source.files)) == scaling.TASKS
    done = scaling.runner(verb)(source)
    assert done.rows == scaling.rows_of(verb, source)
    assert scaling.copies_of(verb, source) == (1 if verb == "load" else 4 * scaling.COPIES)


def test_an_export_of_links_is_read_completely(tmp_path):
    """Linked data files are equivalent to copies: manifests and counts match."""
    source = scaling.prepare("export", "small", tmp_path)
    assert ddbio.read_export(source.export).num_rows == source.count * scaling.COPIES


def test_the_start_is_no_part_of_the_speed_up():
    """The start and slow rounds do not count: only the additional rows of the larger job do."""
    one = {"small": [taken(3.0), taken(3.0), taken(8.0)], "large": [taken(9.0, cpu=4.0)]}
    two = {"small": [taken(2.0)], "large": [taken(5.0, cpu=4.0)]}
    figures = scaling.figures_of([100, 400], one, two, late=True)
    assert figures["times_as_fast"] == 2.0
    assert figures["times_as_fast_with_start"] == 1.8
    assert figures["rows_per_second"] == [50, 100]
    assert figures["start_seconds"] == [1.0, 1.0]
    assert (figures["busy_cores_of_one"], figures["busy_cores"], figures["busy_cores_with_server"]) == (0.5, 1.0, 1.0)


def taken(seconds, cpu=1.0):
    """Return a run of a job that kept no server busy."""
    return matrix.Taken(seconds, cpu, 0.0)


def test_a_process_and_its_children_have_one_processor():
    """Each process with the word runs on one processor with its children. Others are not moved."""
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])  # an-executor"
    command = [sys.executable, "-c", script, "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # Before it executes its own program, a child has the words of its parent.
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
    ("job", "late", "expected"),
    [(1.5, True, "processors"), (0.5, True, "late"), (0.5, False, "after the other")],
)
def test_the_limit_is_named(job, late, expected):
    """The limit is a busy machine, then late answers, then serial work."""
    assert expected in scaling.limit(job, 0.3, 2, late=late)
