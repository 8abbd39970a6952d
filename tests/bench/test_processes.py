"""What ``/proc`` tells of this process and its descendants."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.e2e import processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this /proc")

# Says so when it has used 0.3 s of CPU, and waits to be ended.
BURNS = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
WAITS_FIRST = f"input()\n{BURNS}"


def child(script: str) -> subprocess.Popen[bytes]:
    """Start a Python that runs a script."""
    return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_clock_counts_children_that_come_later():
    """What a child used is counted, and still is when the child has ended."""
    clock = processes.TreeClock()
    before = clock()
    with child(BURNS) as burning:
        burning.stdout.readline()
        assert clock() - before > 0.25
        burning.communicate(b"\n")
    assert clock() - before > 0.25


def test_clock_leaves_out_children_that_were_there():
    """A server that runs already is not counted."""
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


def test_peak_starts_anew():
    """After a reset the peak is what is held now, and it grows with what is allocated, in a process of its own."""
    subprocess.run([sys.executable, "-c", PEAKS], check=True)


def test_peaks_leave_out_servers_and_outlast_ended_children():
    """A child that has ended and was not waited for has no memory; one that is left out is not looked at."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid in processes.children()
    others = [pid for pid in processes.children() if pid != child.pid]
    found = processes.peaks(others)
    assert found["driver"] > 0
    assert found["worker"] == 0.0
    assert "worker" not in processes.peaks([*others, child.pid])
    child.wait()
