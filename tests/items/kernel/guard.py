"""Arrays before a guard page, for targets that ``forked_targets.py`` runs."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

PROT_NONE = 0
IS_BROKEN = sys.argv[3:] == ["broken"]
"""Whether the target violates a bound, so that a load must overrun."""
LIBC = ctypes.CDLL(None, use_errno=True)


def allocate_before_guard(n_bytes: int) -> np.ndarray:
    """Return an array that ends at a guard page."""
    n_pages = -(-n_bytes // mmap.PAGESIZE)
    region = mmap.mmap(-1, (n_pages + 1) * mmap.PAGESIZE)
    region_bytes = np.frombuffer(region, np.uint8)
    guard = region_bytes.ctypes.data + n_pages * mmap.PAGESIZE
    if LIBC.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    return region_bytes[n_pages * mmap.PAGESIZE - n_bytes : n_pages * mmap.PAGESIZE]


def copy_before_guard(data: bytes | np.ndarray) -> np.ndarray:
    """Return a copy of bytes or of an array that ends at a guard page."""
    values = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    copy = allocate_before_guard(values.nbytes).view(values.dtype)
    copy[:] = values
    return copy
