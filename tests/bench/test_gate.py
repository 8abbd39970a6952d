"""The gate: the comparison, the threshold, and the statistics of interleaved comparisons."""

from __future__ import annotations

import json

import pytest

from bench import compare
from bench.e2e import record
from bench.gate import __main__ as gate
from bench.gate import callgrind, kernels

BEFORE = {"decode": 1_000_000, "encode": 2_000_000}


def test_kernels_agree_and_can_be_counted_anywhere():
    """Every named kernel runs on checked data. The requests to callgrind do nothing without valgrind."""
    assert kernels.main() == 0


@pytest.mark.parametrize(
    ("counts", "exceeding"),
    [
        ({"decode": 1_014_000, "encode": 1_000_000}, []),
        ({"decode": 1_016_000, "encode": 2_000_000}, ["decode"]),
        ({"decode": 1_000_000, "new": 9}, []),
    ],
)
def test_more_instructions_than_the_threshold_fail(counts, exceeding):
    """1.4 % more pass, 1.6 % more fail. A kernel that the baseline lacks passes."""
    assert gate.exceeding(counts, BEFORE) == exceeding


def test_baseline_is_of_the_same_versions(tmp_path):
    """The baseline is the newest row with the given compiler versions, of any machine."""
    path = tmp_path / "gate.jsonl"
    assert gate.newest_baseline({"numba": "1"}, path) is None
    rows = [{"compiled_with": {"numba": version}, "at": at} for at, version in enumerate("1121")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    baseline = gate.newest_baseline({"numba": "1"}, path)
    assert baseline is not None
    assert baseline["at"] == 3
    assert gate.newest_baseline({"numba": "3"}, path) is None


def test_stored_baselines_have_their_origin():
    """Each row of the baseline has its commit, machine and versions, and a count of every kernel it names."""
    lines = gate.BASELINE.read_text("utf-8").splitlines() if gate.BASELINE.exists() else []
    for row in map(json.loads, lines):
        assert {"case", "figures", "compiled_with", *record.provenance()} <= row.keys()
        assert all(count > 0 for count in row["figures"]["instructions"].values())
        assert not row["dirty"]


def test_without_a_counter_the_gate_reports_it_and_passes(monkeypatch, capsys):
    """The gate does not fail on a machine without valgrind."""
    monkeypatch.setattr(callgrind, "why_not", lambda: "there is none")
    assert gate.main([]) == 0
    assert "nothing is counted: there is none" in capsys.readouterr().err


def test_table_shows_what_changed():
    """A kernel has its change in percent, a new one has none."""
    lines = list(gate.table({"decode": 1_010_000, "new": 5}, BEFORE, "the baseline"))
    assert "+1.00 %" in lines[1]
    assert lines[2].split() == ["new", "5"]


def test_runs_are_held_against_their_mean():
    """The variation is that of the kernel with the largest variation."""
    assert gate.variation([{"a": 100, "b": 50}, {"a": 100, "b": 50}]) == 0
    assert gate.variation([{"a": 100, "b": 90}, {"a": 100, "b": 110}]) == pytest.approx(0.1414, abs=1e-4)


def test_interval_holds_the_median_of_any_distribution():
    """Of 15 values the 4th and the 12th bound the median in 95 of 100 cases. Three values have no closer bounds."""
    assert compare.interval(list(range(15))) == (3, 11)
    assert compare.interval([1.0, 2.0, 3.0]) == (1.0, 3.0)
