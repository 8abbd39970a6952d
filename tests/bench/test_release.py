"""The rows of a release: its steps, the skipped steps, and their order."""

from __future__ import annotations

import json

import pytest

from bench import release
from bench.e2e import record
from bench.figures import CASES
from bench.release import Step


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """Redirect rows and the gate's baseline to a folder, and return a function that adds a row of this commit."""
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(release, "BASELINE", tmp_path / "gate.jsonl")

    def take(name, **row):
        stored = {"commit": record.provenance()["commit"], "scale": 1.0, **row}
        with (tmp_path / f"{name}.jsonl").open("a", encoding="utf-8") as rows:
            rows.write(json.dumps(stored) + "\n")

    return take


def test_every_case_has_a_step():
    """Each row of the page has exactly one step. The short steps need less than forty minutes."""
    names = [step.name for step in release.every_step()]
    assert CASES.keys() <= set(names)
    assert len(names) == len(set(names))
    assert sum(step.minutes for step in release.STEPS) < 40


@pytest.mark.parametrize("name", ["gate", "write"])
def test_a_step_with_a_row_of_this_commit_is_done(name, taken):
    """A row of another commit or of a smaller scale does not count."""
    step = Step(name, 1)
    taken(name, commit="another")
    taken(name, scale=0.1)
    assert not release.is_done(step)
    taken(name)
    assert release.is_done(step)


def test_the_matrix_is_done_with_all_its_cases(taken):
    """The matrix as a whole has no row."""
    assert not release.is_done(Step("matrix", 1))


def test_a_run_resumes_where_it_stopped_and_ends_in_time(taken, capsys):
    """Steps with a row are skipped, and so are steps that would take too long. A failure does not stop the others."""
    taken("done")
    steps = (Step("done", 1), Step("long", 9), Step("short", 1, (), "bench.rows"), Step("missing", 1))
    assert release.run(steps, minutes=5) == ["missing"]
    printed = capsys.readouterr().err
    assert "done: has a row of this commit" in printed
    assert "long: left for the next run" in printed
    assert "short: done after" in printed


def test_a_quick_run_uses_only_existing_flags():
    """Each flag of a quick run is a flag of its case, and no row is stored."""
    for step in release.every_step():
        words = step.quick_command[3:]
        if step.module:
            assert words == []
            continue
        source = (record.ROOT / "bench/e2e" / f"{step.name}.py").read_text("utf-8")
        if "slopes.main(" in source:
            source += (record.ROOT / "bench/e2e/slopes.py").read_text("utf-8")
        assert words[-1] == "--dry-run"
        for word in words[:-1]:
            assert f'"{word.partition("=")[0]}"' in source, step


def test_a_quick_run_names_the_failed_step(capsys):
    """A failure is reported with its output, and does not stop the others."""
    steps = (Step("missing", 1, (), "bench.not_there"), Step("rows", 1, (), "bench.rows"))
    assert release.run_quickly(steps) == ["missing"]
    printed = capsys.readouterr().err
    assert "bench.not_there" in printed
    assert "rows: done" in printed
    assert "2 steps after" in printed


def test_the_list_runs_nothing(capsys):
    """Each step has a line with its command."""
    assert release.main(["--list", "--all"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(release.every_step())
    assert "python -m bench.gate --baseline --repeat 3" in printed[0]
