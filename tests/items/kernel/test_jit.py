"""What a process says of the loops that it compiles."""

from __future__ import annotations

import re
import subprocess
import sys


def test_a_compilation_is_told_once_and_only_if_it_is_ours():
    """Whoever waits for a loop to be compiled reads so once, and each counts; those of others are no news here."""
    script = """
import numba
from ddbio.items.kernel.compiling import COMPILATIONS
from ddbio.items.kernel.jit import LOOPS
numba.njit(lambda number: number + 1)(1)
print("theirs", COMPILATIONS.ended, flush=True)
LOOPS.append(numba.njit(lambda number: number - 1))
LOOPS[0](1), LOOPS[0](1.5)
print("ours", COMPILATIONS.ended, COMPILATIONS.is_running, flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    theirs, ours, counted = done.stdout.splitlines()
    assert (theirs, counted) == ("theirs 0", "ours 2 False")
    assert re.fullmatch(r"compiling loops, .* (kept in \S+|in every process: .*)", ours)
