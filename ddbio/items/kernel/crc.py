"""Reflected checksums of at most 64 bits, computed eight bytes at a time with tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.kernel.jit import inner, loop, uint8, uint64
from ddbio.items.kernel.memory import load64, peek

_WORD_BYTES = 8
_VALUES = 256
# The table of a byte that is followed by seven others.
_LAST = 7 * _VALUES


def tables_of(polynomial: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the tables of slicing-by-8: the contribution of each byte value that is followed by 0 to 7 bytes.

    Parameters
    ----------
    polynomial
        The coefficients; the lowest bit is that of the highest power.

    References
    ----------
    https://doi.org/10.1109/TC.2008.85 (Kounavis, Berry: slicing-by-8)
    """
    one = np.uint64(1)
    tables = np.zeros((_WORD_BYTES, _VALUES), np.uint64)
    tables[0] = np.arange(_VALUES, dtype=np.uint64)
    for _ in range(_WORD_BYTES):
        tables[0] = (tables[0] >> one) ^ ((tables[0] & one) * np.uint64(polynomial))
    for n_after in range(1, _WORD_BYTES):
        before = tables[n_after - 1]
        tables[n_after] = (before >> np.uint64(_WORD_BYTES)) ^ tables[0][before & np.uint64(0xFF)]
    return tables.ravel()


@loop(uint8[:], uint64[:], uint64)
def crc(data: Any, tables: Any, state: Any) -> Any:
    """Update the register ``state`` with all bytes, and return it."""
    return crc_of(data, 0, len(data), tables, state)


@inner
def crc_of(data: Any, position: int, stop: int, tables: Any, state: Any) -> Any:
    """Update the register ``state`` with the bytes from ``position`` to ``stop``, and return it."""
    low, shift = np.uint64(0xFF), np.uint64(8)
    while position + _WORD_BYTES <= stop:
        word = state ^ load64(data, position)
        state = np.uint64(peek(tables, _LAST + (word & low)))
        for step in range(1, _WORD_BYTES):
            word >>= shift
            state ^= np.uint64(peek(tables, _LAST - _VALUES * step + (word & low)))
        position += _WORD_BYTES
    while position < stop:
        state = np.uint64(peek(tables, (state ^ np.uint64(peek(data, position))) & low)) ^ (state >> shift)
        position += 1
    return state
