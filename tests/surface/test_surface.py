"""The public surface equals its snapshots: names, signatures, commands, options, JSON keys, files and columns."""

from __future__ import annotations

import difflib

import pytest

from tests.surface.jobs import run_jobs
from tests.surface.shapes import format_lines, printed_lines
from tests.surface.snapshot import FOLDER, SNAPSHOTS


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """Return a function that collects the lines of a snapshot. The jobs run once."""
    jobs = {}

    def collect(name):
        if name in SNAPSHOTS:
            return SNAPSHOTS[name]()
        folder = tmp_path_factory.getbasetemp() / "surface"
        if not jobs:
            folder.mkdir()
            jobs[folder] = run_jobs(folder)
        return printed_lines(jobs[folder]) if name == "printed.txt" else format_lines(folder)

    return collect


@pytest.mark.parametrize("name", [*SNAPSHOTS, "printed.txt", "files.txt"])
def test_the_surface_equals_the_snapshot(name, collected):
    """Every change of the public surface is recorded: an addition in the snapshot, a removal also in the changelog."""
    if name == "spark.txt":
        pytest.importorskip("pyspark")
    wanted = (FOLDER / name).read_text("utf-8").splitlines()
    changes = [
        line
        for line in difflib.unified_diff(wanted, collected(name), lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in {"+++", "---"}
    ]
    assert not changes, (
        f"the public surface differs from tests/surface/{name}; '-' was removed, '+' is new:\n"
        + "\n".join(changes)
        + "\nIf this is intended, run 'python -m tests.renew' and commit the difference. A line that is removed or "
        "changed also needs an entry in CHANGELOG.md."
    )
