"""Put arrays where the next byte may not be touched."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PROT_NONE = 0
LIBC = ctypes.CDLL(None, use_errno=True)


def allocate_before_guard(n_bytes: int) -> np.ndarray:
    """Return an array that ends where the memory ends that may be touched."""
    n_pages = -(-n_bytes // mmap.PAGESIZE)
    region = mmap.mmap(-1, (n_pages + 1) * mmap.PAGESIZE)
    whole = np.frombuffer(region, np.uint8)
    guard = whole.ctypes.data + n_pages * mmap.PAGESIZE
    if LIBC.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    return whole[n_pages * mmap.PAGESIZE - n_bytes : n_pages * mmap.PAGESIZE]
