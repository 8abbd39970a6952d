"""The matrix: which cases there are, which are run again, and what a row says of files."""

from __future__ import annotations

import json

import pytest

from bench import jobs
from bench.e2e import matrix, record
from bench.e2e.matrix import Case


def test_quick_has_every_verb_format_cluster_and_latency():
    """The part holds each value of each axis, and is a part of the whole."""
    quick, full = set(matrix.chosen(False, [])), set(matrix.chosen(True, []))
    assert quick < full
    assert {case.verb for case in quick} == set(matrix.VERBS)
    assert {case.file_format for case in quick} == set(jobs.FORMATS)
    assert {case.cluster for case in quick} == set(matrix.CLUSTERS)
    assert {case.latency_ms for case in quick} == set(matrix.LATENCIES_MS)


def test_any_master_is_a_cluster():
    """A cluster that is named gets a case of each verb."""
    named = {case.verb for case in matrix.chosen(False, ["spark://host:7077"]) if case.cluster == "spark://host:7077"}
    assert named == set(matrix.VERBS)


@pytest.mark.parametrize(
    ("case", "possible"),
    [
        (Case("export", latency_ms=5), False),
        (Case("load", latency_ms=5), True),
        (Case("frame"), False),
        (Case("frame", cluster="local[2]"), True),
        (Case("frame", "csv", "local[2]"), False),
    ],
)
def test_only_cases_that_exist_are_run(case, possible):
    """Files answer at once, threads have no DataFrames, and CSV has no nested columns."""
    assert case.is_possible is possible


@pytest.mark.parametrize(
    ("cluster", "tasks"),
    [
        ("threads", None),
        ("local[2]", 2),
        ("local-cluster[2,1,1024]", 2),
        ("local-cluster[2,3,1024]", 6),
        ("yarn", None),
    ],
)
def test_each_core_has_a_task(cluster, tasks):
    """Where a cluster's name says how many cores it has, a job has as many tasks."""
    assert matrix.engine_of(cluster).get("tasks") == tasks


def test_cases_of_this_commit_are_not_run_again(tmp_path, monkeypatch):
    """A row counts if it is of this commit and of as many items."""
    commit = record.provenance()["commit"]
    parameters = {"items": 5, "verb": "scan", "file_format": "avro", "cluster": "threads", "latency_ms": 0}
    rows = [
        {"commit": commit, "parameters": parameters},
        {"commit": "another", "parameters": {**parameters, "verb": "load"}},
    ]
    (tmp_path / "matrix.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    assert matrix.done_before(5) == {Case("scan", "avro")}
    assert matrix.done_before(6) == set()


def test_files_are_counted_by_powers_of_two():
    """A file of exactly a power is below it."""
    sizes = [1, 1024**2, 1024**2 + 1, 3 * 1024**2, 64 * 1024**2]
    assert matrix.histogram(sizes) == {"≤ 1 MiB": 2, "≤ 2 MiB": 1, "≤ 4 MiB": 1, "≤ 64 MiB": 1}


def test_a_row_has_speed_cost_and_layout():
    """Medians over the rounds; processor time for each gigabyte of files; how many files are small."""
    done = jobs.Done(1000, [10**6, 10**6], read_units=5.0)
    taken = [matrix.Taken(seconds, 2 * seconds, 0.5) for seconds in (1.0, 2.0, 4.0)]
    found = matrix.figures_of(done, taken)
    assert (found["rows_per_second"], found["megabytes_per_second"]) == (500, 1.0)
    assert (found["cpu_seconds_per_gigabyte"], found["busy_cores"], found["files"]) == (2000.0, 2.0, 2)
    assert (found["read_units"], found["small_file_ratio"]) == (5.0, 1.0)


def test_a_case_is_measured_and_checked():
    """Files are compacted on threads: all rows, and the memory of this process."""
    found = matrix.measure(Case("compact", "json"), 200, rounds=1)
    assert found["rows"] == 200
    assert found["peak_mebibytes"]["driver"] > 0
