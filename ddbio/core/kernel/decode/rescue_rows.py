"""Tell the misfits of a block apart by path and kind, and write its rescue texts from their spans; parses no value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.core.kernel.cache import inner, loop
from ddbio.core.kernel.encode.text import put
from ddbio.core.kernel.memory import peek, pointers, poke
from ddbio.core.kernel.skip import CLOSE_OBJECT, COMMA, OPEN_OBJECT
from ddbio.core.kernel.state import (
    MISFIT_KIND,
    MISFIT_NAME,
    MISFIT_NAME_LENGTH,
    MISFIT_NODE,
    MISFIT_ROW,
    MISFIT_START,
    MISFIT_STOP,
    MISFIT_WIDTH,
    TEXT_OF_VALUE,
)
from ddbio.core.kernel.text import hash_text, same_text

if TYPE_CHECKING:
    import numpy.typing as npt

GROUP_FIRST, GROUP_COUNT, GROUP_BYTES = range(3)
GROUP_WIDTH = 3
"""What is known of a group: its first misfit, how many it has, and the bytes of their values."""

NAME_ROOT, NAME_OUTER, NAME_INNER, NAME_STOP = range(4)
NAME_WIDTH = 4
"""Where what opens a group's values stands: its root's name, if any is to be told, then its own."""

BESIDE_BYTES = 4
"""The most that stands in a text beside each name and value."""

_MIX, _HALF = np.uint64(0xD6E8FEB86659FD93), np.uint64(32)


class Found(NamedTuple):
    """Hold the misfits of a block, and room to tell them apart."""

    data: npt.NDArray[np.uint8]
    misfits: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    """The numbers of those that are misfits indeed."""
    group: npt.NDArray[np.int64]
    """The group of each by its number."""
    groups: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    """Zeros, more than there are misfits, a power of two."""


class Rescue(NamedTuple):
    """Hold what the rescue texts are written from, and room for them."""

    data: npt.NDArray[np.uint8]
    misfits: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    """The misfits that are kept: by row, by root, by name."""
    names: npt.NDArray[np.int64]
    name_text: npt.NDArray[np.uint8]
    text: npt.NDArray[np.uint8]
    rows: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]


@loop
def group_misfits(found: Any) -> Any:
    """Put misfits of one attribute, kind and place into one group.

    Returns how many groups and misfits there are, and whether a row has several.
    """
    return _group_misfits(pointers(found), len(found.order), len(found.slots) - 1)


@inner
def _group_misfits(f: Any, n_entries: int, mask: int) -> Any:
    n_groups, n_misfits, last_row, is_repeated = 0, 0, -1, False
    for number in range(n_entries):
        entry = number * MISFIT_WIDTH
        if peek(f.misfits, entry + MISFIT_KIND) == TEXT_OF_VALUE:
            continue
        slot = np.int64(_hash(f, entry) >> _HALF) & mask
        while True:
            group = peek(f.slots, slot) - 1
            if group < 0:
                group = n_groups
                n_groups += 1
                poke(f.slots, slot, n_groups)
                poke(f.groups, group * GROUP_WIDTH + GROUP_FIRST, number)
                poke(f.groups, group * GROUP_WIDTH + GROUP_COUNT, 0)
                poke(f.groups, group * GROUP_WIDTH + GROUP_BYTES, 0)
                break
            if _is_alike(f, entry, peek(f.groups, group * GROUP_WIDTH + GROUP_FIRST) * MISFIT_WIDTH):
                break
            slot = (slot + 1) & mask
        poke(f.order, n_misfits, number)
        poke(f.group, number, group)
        n_misfits += 1
        counts = group * GROUP_WIDTH
        n_bytes = peek(f.misfits, entry + MISFIT_STOP) - peek(f.misfits, entry + MISFIT_START)
        poke(f.groups, counts + GROUP_COUNT, peek(f.groups, counts + GROUP_COUNT) + 1)
        poke(f.groups, counts + GROUP_BYTES, peek(f.groups, counts + GROUP_BYTES) + n_bytes)
        row = peek(f.misfits, entry + MISFIT_ROW)
        is_repeated |= row == last_row
        last_row = row
    return n_groups, n_misfits, is_repeated


@inner
def _name_length(f: Any, entry: int) -> Any:
    # An attribute of the schema goes by its node.
    return peek(f.misfits, entry + MISFIT_NAME_LENGTH) if peek(f.misfits, entry + MISFIT_NODE) < 0 else 0


@inner
def _hash(f: Any, entry: int) -> Any:
    name = hash_text(f.data, peek(f.misfits, entry + MISFIT_NAME), _name_length(f, entry))
    where = (peek(f.misfits, entry + MISFIT_KIND) << 24) + peek(f.misfits, entry + MISFIT_NODE)
    return (name ^ np.uint64(where)) * _MIX


@inner
def _is_alike(f: Any, entry: int, other: int) -> Any:
    length = _name_length(f, entry)
    return (
        peek(f.misfits, entry + MISFIT_NODE) == peek(f.misfits, other + MISFIT_NODE)
        and peek(f.misfits, entry + MISFIT_KIND) == peek(f.misfits, other + MISFIT_KIND)
        and length == _name_length(f, other)
        and same_text(
            f.data, peek(f.misfits, entry + MISFIT_NAME), f.data, peek(f.misfits, other + MISFIT_NAME), length
        )
    )


@loop
def write_rescues(rescue: Any) -> Any:
    """Write an object for each row that keeps a misfit; return how many rows and bytes these are.

    ``text`` has room for every name and value that is kept, ``BESIDE_BYTES`` more for each, and ``PAD``.
    """
    return _write_rescues(pointers(rescue), len(rescue.order))


@inner
def _write_rescues(r: Any, n_kept: int) -> Any:
    n_rows, at, begin, row, root = 0, 0, 0, -1, 0
    for index in range(n_kept):
        number = peek(r.order, index)
        entry, name = number * MISFIT_WIDTH, peek(r.group, number) * NAME_WIDTH
        place = peek(r.names, name + NAME_OUTER)
        if peek(r.misfits, entry + MISFIT_ROW) != row:
            row, begin = peek(r.misfits, entry + MISFIT_ROW), at
            poke(r.text, at, OPEN_OBJECT)
        elif peek(r.names, name + NAME_ROOT) != root:
            poke(r.text, at, CLOSE_OBJECT)
            at += 1
            poke(r.text, at, COMMA)
        else:
            place = peek(r.names, name + NAME_INNER)
            poke(r.text, at, COMMA)
        root = peek(r.names, name + NAME_ROOT)
        at = put(r.text, at + 1, r.name_text, place, peek(r.names, name + NAME_STOP) - place)
        start = peek(r.misfits, entry + MISFIT_START)
        at = put(r.text, at, r.data, start, peek(r.misfits, entry + MISFIT_STOP) - start)
        if index + 1 < n_kept and peek(r.misfits, peek(r.order, index + 1) * MISFIT_WIDTH + MISFIT_ROW) == row:
            continue
        for _ in range(1 if root == 0 else 2):
            poke(r.text, at, CLOSE_OBJECT)
            at += 1
        poke(r.rows, n_rows, row)
        poke(r.lengths, n_rows, at - begin)
        n_rows += 1
    return n_rows, at


@loop
def spread_texts(rows: Any, lengths: Any, offsets: Any, bits: Any) -> None:
    """Fill the offsets and the validity of a column of which some rows, in their order, have a text.

    ``bits`` are zeros, and cover all rows of ``offsets``.
    """
    at, total = 0, 0
    for index in range(len(rows)):
        row = peek(rows, index)
        for before in range(at, row + 1):
            poke(offsets, before, total)
        at = row + 1
        total += peek(lengths, index)
        poke(bits, row >> 3, peek(bits, row >> 3) | 1 << (row & 7))
    for before in range(at, len(offsets)):
        poke(offsets, before, total)
