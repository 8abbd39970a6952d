"""Instruction counts of calls with valgrind's callgrind, which is switched on and off from within the process.

Client requests are a sequence of instructions that does nothing on a processor and that valgrind recognises:
https://valgrind.org/docs/manual/manual-core-adv.html#manual-core-adv.clientreq. It is called here as machine code, so
that neither a compiler nor an extension module is needed.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# valgrind.h, amd64: move the argument to rax, 0 to rdx; four rotations of rdi; xchg rbx, rbx; return rdx.
_REQUEST = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")

# callgrind.h counts its requests from the letters CT.
_FIRST = (ord("C") << 24) | (ord("T") << 16)
_ZERO, _DUMP_AT, _START, _STOP = _FIRST + 1, _FIRST + 3, _FIRST + 4, _FIRST + 5

_OUT = "callgrind.out"
_NAMED = re.compile(r"^desc: Trigger: Client Request: (\S+)$", re.MULTILINE)
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)$", re.MULTILINE)


class Counter:
    """Counter of separate calls. Without callgrind they are only called."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._memory.write(_REQUEST)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._ask = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(address)

    def count(self, calls: Mapping[str, Callable[[], Any]]) -> None:
        """Make each call once, and write its instructions under its name."""
        self._request(_START)
        for name, call in calls.items():
            self._request(_ZERO)
            result = call()
            self._request(_DUMP_AT, name)
            del result
        self._request(_STOP)

    def _request(self, code: int, name: str = "") -> None:
        text = ctypes.create_string_buffer(name.encode())
        words = (ctypes.c_uint64 * 6)(code, ctypes.addressof(text), 0, 0, 0, 0)
        self._ask(ctypes.addressof(words))


def why_not() -> str:
    """Return the reason why instructions cannot be counted here; empty if they can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"instructions are counted on Linux on x86-64, not on {platform.system()} on {platform.machine()}"
    if shutil.which("valgrind") is None:
        return "valgrind is not installed: sudo apt-get install valgrind"
    return ""


def version() -> str:
    """Return valgrind's version."""
    return subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def instructions(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> dict[str, int]:
    """Run a command that uses a ``Counter``, and return the instructions by name.

    Raises
    ------
    RuntimeError
        If the command failed; the message has its output.
    """
    with tempfile.TemporaryDirectory() as out:
        words = ["--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}/{_OUT}", "--quiet"]
        done = subprocess.run(
            ["valgrind", *words, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} below callgrind ended with {done.returncode}: {done.stderr}")
        return dict(filter(None, map(_parsed, Path(out).iterdir())))


def _parsed(dump: Path) -> tuple[str, int] | None:
    text = dump.read_text("utf-8", "replace")
    named, total = _NAMED.search(text), _TOTAL.search(text)
    return (named[1], int(total[1])) if named and total else None
