"""Measurements of this process and its descendants from ``/proc``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.e2e import processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this /proc")

# Prints a line after 0.3 s of CPU, and waits for its end.
BURNS = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
WAITS_FIRST = f"input()\n{BURNS}"


def child(script: str) -> subprocess.Popen[bytes]:
    """Start a Python that runs a script."""
    return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_clock_counts_children_that_come_later():
    """The time of a child is counted, also after its end."""
    clock = processes.TreeClock()
    before = clock()
    with child(BURNS) as burning:
        burning.stdout.readline()
        assert clock() - before > 0.25
        burning.communicate(b"\n")
    assert clock() - before > 0.25


def test_clock_excludes_existing_children():
    """The time of a server that already runs is not counted."""
    with child(WAITS_FIRST) as server:
        clock = processes.TreeClock()
        before = clock()
        server.stdin.write(b"\n")
        server.stdin.flush()
        server.stdout.readline()
        assert clock() - before < 0.25
        server.communicate(b"\n")


PEAKS = """if True:
    from bench.e2e import processes
    processes.reset_peak()
    before = processes.peak_mebibytes()
    block = bytearray(64 << 20)
    block[::4096] = bytes(len(block) // 4096)
    del block
    assert processes.peak_mebibytes() - before > 48
    processes.reset_peak()
    assert processes.peak_mebibytes() - before < 48
    assert processes.peak_mebibytes() >= processes.resident_mebibytes() - 1"""


def test_peak_is_reset():
    """After a reset the peak is the current memory, and it grows with allocations. This runs in a separate process."""
    subprocess.run([sys.executable, "-c", PEAKS], check=True)


def test_peaks_exclude_servers_and_ended_children():
    """A child that has ended and was not waited for has no memory. An excluded child is not measured."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid in processes.children()
    others = [pid for pid in processes.children() if pid != child.pid]
    peaks = processes.peaks(others)
    assert peaks["driver"] > 0
    assert peaks["worker"] == 0.0
    assert "worker" not in processes.peaks([*others, child.pid])
    child.wait()
