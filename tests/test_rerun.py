"""Reruns of failed tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FLAKY = """
import pathlib

def test_flaky():
    mark = pathlib.Path(__file__).with_suffix(".ran")
    ran = mark.exists()
    mark.touch()
    assert ran
"""
BROKEN = "def test_broken():\n    assert False\n"
WARNS = "import warnings\n" + FLAKY.replace("    mark =", "    warnings.warn('old', stacklevel=1)\n    mark =")


@pytest.mark.parametrize(
    ("files", "status", "last"),
    [
        ([WARNS], 0, ["FLAKY test_0.py::test_flaky: it failed, and passed when rerun alone"]),
        ([FLAKY, BROKEN], 1, ["FLAKY test_0.py::test_flaky", "FAILED test_1.py::test_broken: it failed twice"]),
        ([FLAKY, FLAKY, FLAKY, FLAKY], 1, ["4 failed"]),
        ([FLAKY, "import missing_module"], 1, ["1 failed, 1 error"]),
        (["def test_passes():\n    pass\n"], 0, ["1 passed"]),
        ([], 5, ["no tests ran"]),
    ],
    ids=["flaky", "both", "more than three", "not collected", "passes", "none"],
)
def test_a_test_that_passes_when_rerun_is_flaky(tmp_path, files, status, last):
    """At most three failed tests are rerun. The last lines name those that pass, and the run passes."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    for number, text in enumerate(files):
        (tmp_path / f"test_{number}.py").write_text(text)
    program = "import sys; from tests.rerun import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "-q", "-p", "xdist.plugin", "-n", "2", "-o", "filterwarnings=default"]
    done = subprocess.run(command, cwd=tmp_path, env=_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert not files or [*tmp_path.rglob("*.pyc")]
    assert [*map(str.__contains__, done.stdout.splitlines()[-len(last) :], last)] == [True] * len(last), done.stdout


def _environment() -> dict[str, str]:
    variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    # Modules are still compiled to bytecode files.
    return {**variables, "PYTHONDONTWRITEBYTECODE": "1"}
