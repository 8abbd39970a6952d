from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COLUMNS, WIRE = (Path(__file__).parent / name for name in ("digest_target.py", "wire_target.py"))


def run(target: Path, *arguments: str, checked: bool) -> subprocess.CompletedProcess[str]:
    """Run the target in a process that may die."""
    environment = {**os.environ, "DDBIO_KERNEL_CHECKED": "1" if checked else "0"}
    command = [sys.executable, "-X", "faulthandler=0", str(target), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.parametrize("checked", [False, True], ids=["at a guard page", "with checked indices"])
def test_no_row_makes_the_loops_leave_their_arrays(checked):
    """Generated rows touch no guard page and use no index out of range, and have the digest of their items."""
    done = run(COLUMNS, "90000", "200", checked=checked)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"200 batches, checked: {checked}\n"


@pytest.mark.parametrize("checked", [False, True], ids=["at a guard page", "with checked indices"])
def test_no_document_makes_the_walk_leave_its_arrays(checked):
    """Damaged documents touch no guard page, and are digested or refused as the reference has it."""
    done = run(WIRE, "80000", "150", checked=checked)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"True, checked: {checked}\n"


BROKEN = pytest.mark.parametrize("target", [COLUMNS, WIRE], ids=["columns", "wire"])


@BROKEN
def test_a_broken_bound_is_seen_at_the_guard_page(target):
    """With a text longer than its bytes, or no padding, the production build dies of a segmentation fault."""
    assert run(target, "90000", "50", "broken", checked=False).returncode == -signal.SIGSEGV


@BROKEN
def test_a_broken_bound_is_seen_by_the_checked_build(target):
    """With a text longer than its bytes, or no padding, the checked build raises IndexError."""
    done = run(target, "90000", "50", "broken", checked=True)
    assert done.returncode == 1
    assert "IndexError" in done.stderr
