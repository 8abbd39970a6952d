"""Keys of a lake table's rows as text, with the CRC-32 of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.kernel.crc import crc_of
from ddbio.items.kernel.jit import inner, loop, uint8, uint64
from ddbio.items.kernel.memory import copy_bytes_unpadded, pointers, poke

if TYPE_CHECKING:
    import numpy.typing as npt

CRC_32 = 0xEDB88320
"""The polynomial of CRC-32, for ``crc.tables_of``."""

_ONES = np.uint64(0xFFFFFFFF)
_COLON, _BAR = ord(":"), ord("|")


class Texts(NamedTuple):
    """Texts of rows: that of a row is in ``data`` from ``offsets[row]`` to ``offsets[row + 1]``."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]


class Keys(NamedTuple):
    """Buffers for keys, the end of each, and its CRC-32; ``out`` is ``PAD`` bytes longer than all keys."""

    out: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int32]
    crcs: npt.NDArray[np.uint32]


class _Arrays(NamedTuple):
    first: npt.NDArray[np.uint8]
    second: npt.NDArray[np.uint8]
    tables: npt.NDArray[np.uint64]
    out: npt.NDArray[np.uint8]


@loop(Texts, Texts, uint8[:], uint64[:], Keys)
def write_keys(first: Any, second: Any, tags: Any, tables: Any, keys: Any) -> None:
    """Write ``S:text`` for each row, or ``S:text|N:text`` if there are two tags."""
    _write_keys(pointers(_Arrays(first.data, second.data, tables, keys.out)), first, second, tags, keys)


@inner
def _write_keys(arrays: Any, first: Any, second: Any, tags: Any, keys: Any) -> None:
    first_offsets, first_end = first.offsets, len(first.data)
    second_offsets, second_end = second.offsets, len(second.data)
    out, tables, ends, crcs = arrays.out, arrays.tables, keys.ends, keys.crcs
    has_second = len(tags) > 1
    at = 0
    for row in range(len(crcs)):
        start, position = at, first_offsets[row]
        at = _tagged(out, at, tags[0])
        at = copy_bytes_unpadded(out, at, arrays.first, position, first_offsets[row + 1] - position, first_end)
        if has_second:
            poke(out, at, _BAR)
            position = second_offsets[row]
            at = _tagged(out, at + 1, tags[1])
            at = copy_bytes_unpadded(out, at, arrays.second, position, second_offsets[row + 1] - position, second_end)
        ends[row] = at
        crcs[row] = crc_of(out, start, at, tables, _ONES) ^ _ONES


@inner
def _tagged(out: Any, at: int, tag: Any) -> Any:
    poke(out, at, tag)
    poke(out, at + 1, _COLON)
    return at + 2
