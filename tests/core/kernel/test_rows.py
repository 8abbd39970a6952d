from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TARGET = Path(__file__).parent / "rows_target.py"


def run(*arguments: str, checked: bool) -> subprocess.CompletedProcess[str]:
    """Run the target in a process that may die."""
    environment = {**os.environ, "DDBIO_KERNEL_CHECKED": "1" if checked else "0"}
    command = [sys.executable, "-X", "faulthandler=0", str(TARGET), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.parametrize("checked", [False, True], ids=["at a guard page", "with checked indices"])
def test_no_row_makes_the_loop_leave_its_arrays(checked):
    """Rows that end where their memory ends are joined as the plain way joins them."""
    done = run("1", "500", checked=checked)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"checked: {checked}\n"


def test_a_broken_bound_is_seen_at_the_guard_page():
    """With an offset behind the data the production build dies of a segmentation fault: the guard page works."""
    assert run("1", "500", "broken", checked=False).returncode == -signal.SIGSEGV


def test_a_broken_bound_is_seen_by_the_checked_build():
    """With an offset behind the data the checked build raises IndexError: its checks work."""
    done = run("1", "500", "broken", checked=True)
    assert done.returncode == 1
    assert "IndexError" in done.stderr
