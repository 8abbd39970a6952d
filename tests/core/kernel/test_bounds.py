from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TARGET = Path(__file__).parent / "bounds_target.py"


def run(*arguments: str, checked: bool) -> subprocess.CompletedProcess[str]:
    """Run the target in a process that may die."""
    environment = {**os.environ, "DDBIO_KERNEL_CHECKED": "1" if checked else "0"}
    command = [sys.executable, "-X", "faulthandler=0", str(TARGET), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.parametrize("checked", [False, True], ids=["at a guard page", "with checked indices"])
def test_no_document_makes_the_loops_leave_their_arrays(checked):
    """Damaged documents neither touch a guard page nor use an index out of range."""
    done = run("50000", "100", checked=checked)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"2700 documents, checked: {checked}\n"


def test_a_broken_bound_is_seen_at_the_guard_page():
    """Without padding the production build dies of a segmentation fault: the guard page works."""
    assert run("50000", "100", "broken", checked=False).returncode == -signal.SIGSEGV


def test_a_broken_bound_is_seen_by_the_checked_build():
    """Without padding the checked build raises IndexError: its checks work."""
    done = run("50000", "100", "broken", checked=True)
    assert done.returncode == 1
    assert "IndexError" in done.stderr
