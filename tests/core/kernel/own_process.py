"""Run a target that may die in a process of its own, with either build of the loops, and say how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent

BOTH_BUILDS = pytest.mark.parametrize("checked", [False, True], ids=["at a guard page", "with checked indices"])


def run(target: str, *arguments: str, checked: bool) -> subprocess.CompletedProcess[str]:
    """Return how the target ended, and what it wrote."""
    environment = {**os.environ, "DDBIO_KERNEL_CHECKED": "1" if checked else "0"}
    command = [sys.executable, "-X", "faulthandler=0", str(FOLDER / target), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)


def assert_writes(expected: str, target: str, *arguments: str, checked: bool) -> None:
    """Require that the target ends well, and writes which build it ran with behind what is expected."""
    done = run(target, *arguments, checked=checked)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"{expected}checked: {checked}\n"


def assert_dies_at_the_guard_page(target: str, *arguments: str) -> None:
    """Require that the production build dies of a segmentation fault."""
    assert run(target, *arguments, checked=False).returncode == -signal.SIGSEGV


def assert_fails_a_check(target: str, *arguments: str) -> None:
    """Require that the checked build raises IndexError."""
    done = run(target, *arguments, checked=True)
    assert done.returncode == 1
    assert "IndexError" in done.stderr
