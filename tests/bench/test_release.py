"""The rows of a release: which steps there are, what is left out, and in which order they come."""

from __future__ import annotations

import json

import pytest

from bench import release
from bench.e2e import record
from bench.figures import CASES
from bench.release import Step


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """Let rows and the gate's baseline be stored elsewhere; return how a row of this commit is put there."""
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(release, "BASELINE", tmp_path / "gate.jsonl")

    def take(name, **row):
        stored = {"commit": record.provenance()["commit"], "scale": 1.0, **row}
        with (tmp_path / f"{name}.jsonl").open("a", encoding="utf-8") as rows:
            rows.write(json.dumps(stored) + "\n")

    return take


def test_every_case_has_a_step():
    """What the page shows is taken by a step, and nothing twice; the short ones need less than forty minutes."""
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
    """It has no row of its own."""
    assert not release.is_done(Step("matrix", 1))


def test_a_run_goes_on_where_it_stopped_and_ends_in_time(taken, capsys):
    """Steps with a row are left out, so is what would last too long; a failure does not stop the others."""
    taken("done")
    steps = (Step("done", 1), Step("long", 9), Step("short", 1, (), "bench.rows"), Step("missing", 1))
    assert release.run(steps, minutes=5) == ["missing"]
    told = capsys.readouterr().err
    assert "done: has a row of this commit" in told
    assert "long: left for the next run" in told
    assert "short: done after" in told


def test_a_quick_run_says_only_what_each_case_knows():
    """Each flag of a quick run is one of its case, and no row is kept."""
    for step in release.every_step():
        words = step.quick_command[3:]
        if step.module:
            assert words == []
            continue
        known = (record.ROOT / "bench/e2e" / f"{step.name}.py").read_text("utf-8")
        if "slopes.main(" in known:
            known += (record.ROOT / "bench/e2e/slopes.py").read_text("utf-8")
        assert words[-1] == "--dry-run"
        for word in words[:-1]:
            assert f'"{word.partition("=")[0]}"' in known, step


def test_a_quick_run_names_what_failed(capsys):
    """A failure is told with what it said, and does not stop the others."""
    steps = (Step("missing", 1, (), "bench.not_there"), Step("rows", 1, (), "bench.rows"))
    assert release.run_quickly(steps) == ["missing"]
    told = capsys.readouterr().err
    assert "bench.not_there" in told
    assert "rows: done" in told
    assert "2 steps after" in told


def test_the_list_runs_nothing(capsys):
    """Each step has its line, with the command that takes it alone."""
    assert release.main(["--list", "--all"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == len(release.every_step())
    assert "python -m bench.gate --baseline --repeat 3" in told[0]
