"""The matrix: its cases, the cases to run again, and the figures of files in a row."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import closing
from pathlib import Path

import pytest

from bench import jobs, peers, serving
from bench.e2e import matrix, record
from bench.e2e.matrix import Case


@pytest.fixture(scope="module", autouse=True)
def _no_servers_left():
    """Stop all servers at the end."""
    yield
    serving.stop()


def test_quick_has_every_verb_format_cluster_and_latency():
    """The quick part has each value of each axis, and is a part of the matrix."""
    quick, full = set(matrix.chosen(full=False)), set(matrix.chosen(full=True))
    assert quick < full
    assert {case.verb for case in quick} == set(matrix.VERBS)
    assert {case.file_format for case in quick} == set(jobs.FORMATS)
    assert {case.cluster for case in quick} == set(matrix.CLUSTERS)
    assert {case.latency_ms for case in quick} == set(matrix.LATENCIES_MS)


def test_any_master_is_a_cluster():
    """A named cluster gets a case of each verb."""
    named = {
        case.verb
        for case in matrix.chosen(full=False, masters=["spark://host:7077"])
        if case.cluster == "spark://host:7077"
    }
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
    """Files have no latency, threads have no DataFrames, and CSV has no nested columns."""
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
    """If the name of a cluster has a number of cores, a job has as many tasks."""
    assert matrix.engine_of(cluster).get("tasks") == tasks


def test_cases_of_this_commit_are_not_run_again(tmp_path, monkeypatch):
    """A row counts if it has this commit and the same number of items."""
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
    """A file of exactly a power of two is below it."""
    sizes = [1, 1024**2, 1024**2 + 1, 3 * 1024**2, 64 * 1024**2]
    assert matrix.histogram(sizes) == {"≤ 1 MiB": 2, "≤ 2 MiB": 1, "≤ 4 MiB": 1, "≤ 64 MiB": 1}


def test_a_row_has_speed_cost_and_layout():
    """Medians over the rounds, processor time per gigabyte of files, and the share of small files."""
    done = jobs.Done(1000, [10**6, 10**6], read_units=5.0)
    taken = [matrix.Taken(seconds, 2 * seconds, 0.5) for seconds in (1.0, 2.0, 4.0)]
    figures = matrix.figures_of(done, taken)
    assert (figures["rows_per_second"], figures["megabytes_per_second"]) == (500, 1.0)
    assert (figures["cpu_seconds_per_gigabyte"], figures["busy_cores"], figures["files"]) == (2000.0, 2.0, 2)
    assert (figures["read_units"], figures["small_file_ratio"]) == (5.0, 1.0)


def test_every_verb_has_peers_on_threads_and_on_spark():
    """In the quick part, each verb on threads and on two cores of Spark has other libraries as peers."""
    with_peers = [case for case in matrix.chosen(full=False) if case.has_peers]
    assert {case.verb for case in with_peers if case.cluster == "threads"} == set(matrix.VERBS) - {"frame"}
    assert {case.verb for case in with_peers if case.cluster == "local[2]"} == set(matrix.VERBS)


def test_a_load_moves_fewer_rows():
    """The fake writes slowly, and is not measured."""
    assert Case("load").rows_of(40_000) < Case("scan").rows_of(40_000) == 40_000


@pytest.mark.parametrize("verb", ["scan", "load", "export", "compact"])
def test_peers_do_the_same_work(verb, tmp_path):
    """Each installed library moves all given rows, and has a description of the call."""
    source = jobs.Source(tmp_path, 400)
    if verb == "load":
        assert source.files
    peers_of_verb = peers.of(verb, source, None, None)
    assert peers_of_verb
    for peer in peers_of_verb.values():
        moved, own = peer.run()
        assert peer.items <= moved <= source.count
        assert own is None
        assert peer.recorded["version"]
        assert peer.recorded["settings"]


def test_ratios_are_taken_in_turns_and_a_failure_is_reported(tmp_path, monkeypatch):
    """A peer has the spread of its ratios. A peer that refuses the data has its reason."""

    def refuse():
        raise ValueError("sets are no columns\nand more")

    def take():
        time.sleep(0.05)
        return 10, 10.0

    peers_by_name = {
        "slow": peers.Peer("pyarrow", "as advised", 10, take),
        "refusing": peers.Peer("pandas", "as advised", 10, refuse),
        "absent": "Maven is not there",
    }
    monkeypatch.setitem(jobs.JOBS, "compact", lambda _: jobs.Done(10, [1]))
    results = matrix.measure_peers(
        Case("compact"), jobs.Source(tmp_path, 10), peers_by_name, itertools.count(1.0).__next__, rounds=3
    )
    assert results["slow"]["times_as_fast"] == {"median": 10.0, "least": 10.0, "most": 10.0}
    assert results["slow"]["times_as_fast_by_the_clock"]["median"] > 0
    assert results["refusing"]["missing"] == "ValueError: sets are no columns"
    assert results["absent"] == {"missing": "Maven is not there"}


def test_a_case_is_measured_and_checked():
    """Files are compacted on threads: all rows, and the memory of this process are reported."""
    measured = matrix.measure(Case("compact", "json"), 200, rounds=1)
    assert measured["rows"] == 200
    assert measured["peak_mebibytes"]["driver"] > 0


def test_tables_and_exports_are_made_once_for_all_cases(tmp_path):
    """Cases of one latency read one table, which the matrix serves. A load has its own table."""
    with closing(matrix.Shared(tmp_path, 200)) as shared:
        first, again = (shared.for_case(Case("scan", file_format)) for file_format in ("parquet zstd", "avro"))
        assert first == again
        assert first.servers
        assert shared.for_case(Case("load")) == matrix.NOTHING
        measured = matrix.measure(Case("scan", "avro"), 200, rounds=1, inputs=first)
        assert measured["rows"] == 200
        exported = shared.for_case(Case("export", "avro"))
        assert matrix.measure(Case("export", "avro"), 200, rounds=1, inputs=exported)["rows"] == 200
    assert not [pid for pid in first.servers if Path(f"/proc/{pid}").exists()]
