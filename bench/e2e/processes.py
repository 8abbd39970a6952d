"""CPU time and memory of this process and its descendants, from ``/proc``."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_MEBIBYTE_KIB = 1024


class TreeClock:
    """Clock of the CPU time of this process and all descendants, except existing children.

    Servers that are started first are not counted; a JVM and its workers that are started later are.
    """

    def __init__(self) -> None:
        self._others = {pid for pid, (parent, _) in _processes().items() if parent == os.getpid()}

    def __call__(self) -> float:
        """Return the seconds so far. Those of ended descendants that were waited for are in their parents'."""
        processes = _processes()
        children: dict[int, list[int]] = {}
        for pid, (parent, _) in processes.items():
            children.setdefault(parent, []).append(pid)
        total, waiting = 0.0, [os.getpid()]
        while waiting:
            pid = waiting.pop()
            total += processes[pid][1]
            waiting += [child for child in children.get(pid, ()) if child not in self._others]
        return total


def children() -> list[int]:
    """Return the running child processes of this process."""
    return [pid for pid, (parent, _) in _processes().items() if parent == os.getpid()]


def descendants(of: int | None = None) -> list[int]:
    """Return all descendants of a process, by default of this one."""
    running, waiting, pids = _processes(), [os.getpid() if of is None else of], list[int]()
    while waiting:
        parent = waiting.pop()
        below = [pid for pid, (above, _) in running.items() if above == parent]
        pids += below
        waiting += below
    return pids


def pin(named: str) -> list[int]:
    """Pin each descendant whose command contains a word to a separate processor, shared only with its children.

    Returns
    -------
    list[int]
        The processes, by the number of their processor.
    """
    pids = [pid for pid in sorted(descendants()) if named in _command(pid)]
    cores = sorted(os.sched_getaffinity(0))
    for number, pid in enumerate(pids):
        for member in (pid, *descendants(pid)):
            # Later threads and children of a thread inherit its processor.
            for thread in _threads(member):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(thread, {cores[number % len(cores)]})
    return pids


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    return ""


def _threads(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(thread.name) for thread in os.scandir(f"/proc/{pid}/task")]
    return []


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return user and system seconds of running processes."""
    running = _processes()
    return sum(running[pid][1] for pid in pids if pid in running)


def peaks(others: Sequence[int]) -> dict[str, float]:
    """Return peak resident memory in MiB: of this process, of its largest JVM, of the largest worker.

    Parameters
    ----------
    others
        Excluded children, such as servers.
    """
    peaks_by_kind = {"driver": round(peak_mebibytes(), 1)}
    running, waiting = _processes(), [os.getpid()]
    while waiting:
        parent = waiting.pop()
        waiting += [pid for pid, (above, _) in running.items() if above == parent and pid not in others]
        if parent != os.getpid():
            with contextlib.suppress(OSError):
                kind = "jvm" if Path(f"/proc/{parent}/comm").read_text().startswith("java") else "worker"
                peaks_by_kind[kind] = max(peaks_by_kind.get(kind, 0.0), round(_status_mebibytes("VmHWM", parent), 1))
    return peaks_by_kind


def run(command: Sequence[str]) -> tuple[float, str]:
    """Run a command to its end. Return the CPU seconds of all of its processes, and its standard output.

    Raises
    ------
    RuntimeError
        If it failed; the message has its output.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
        # It includes its descendants, which their parents have waited for.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for stream in (out, errors):
            stream.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {errors.read()}{out.read()}")
        return usage.ru_utime + usage.ru_stime, out.read()


def reset_peak() -> None:
    """Reset the peak of this process's resident memory to its current value."""
    # https://docs.kernel.org/filesystems/proc.html#process-specific-subdirectories: 5 resets the peak.
    Path("/proc/self/clear_refs").write_text("5")


def resident_mebibytes() -> float:
    """Return this process's resident memory."""
    return _status_mebibytes("VmRSS")


def peak_mebibytes(pid: int | str = "self") -> float:
    """Return a process's peak resident memory since the last reset."""
    return _status_mebibytes("VmHWM", pid)


def _status_mebibytes(name: str, pid: int | str = "self") -> float:
    match = re.search(rf"^{name}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text("utf-8"), re.MULTILINE)
    # A process that has ended without being waited for has no memory and no such line.
    return int(match[1]) / _MEBIBYTE_KIB if match else 0.0


def _processes() -> dict[int, tuple[int, float]]:
    """Return parent and seconds of every process, including its children that were waited for."""
    usage = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                text = Path(entry.path, "stat").read_text(errors="replace")
            except OSError:
                continue
            # https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html: the name may contain anything; count after it.
            fields = text.rpartition(")")[2].split()
            ticks = sum(map(int, fields[11:15]))
            usage[int(entry.name)] = (int(fields[1]), ticks / _TICKS_PER_SECOND)
    return usage
