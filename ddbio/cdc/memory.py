"""Give memory back that only the start of a process needs."""

from __future__ import annotations

import ctypes
from pathlib import Path

_MAPS = Path("/proc/self/maps")
# https://man7.org/linux/man-pages/man2/madvise.2.html
_DONTNEED = 4
_LOADER = "libllvmlite"


def release_loader() -> None:
    """Let the system have the pages of LLVM's code, some 50 MiB that are read while compiled loops are loaded.

    Code is never written, so what is used again is read from its file again. Only Linux is asked.
    """
    try:
        lines = _MAPS.read_text().splitlines()
        advise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in lines:
        words = line.split(None, 5)
        # Only what is read and run: pages that were written to would be lost.
        if len(words) > 5 and words[1] == "r-xp" and _LOADER in words[5]:  # noqa: PLR2004 - the last is the file
            begin, end = (int(each, 16) for each in words[0].split("-"))
            advise(begin, end - begin, _DONTNEED)
