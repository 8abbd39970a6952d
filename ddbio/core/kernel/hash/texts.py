"""Hash the DynamoDB JSON that texts of columns hold, and add it to the sum that each entry has.

Leaves the texts to the plain reference that the walk over items refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.core.digest import NULL
from ddbio.core.kernel.cache import inner, loop
from ddbio.core.kernel.hash.hashing import finish
from ddbio.core.kernel.hash.wire import hash_item, hash_value
from ddbio.core.kernel.memory import pointers
from ddbio.core.kernel.state import SIDE

if TYPE_CHECKING:
    import numpy.typing as npt


class Texts(NamedTuple):
    """Hold a column of texts, and room to note those that are left to the reference."""

    offsets: npt.NDArray[np.int64]
    """Where each text begins in the data of the walk; behind the last are ``PAD`` quotes."""
    valid: npt.NDArray[np.uint8]
    """A byte a text, 0 where it is null."""
    others: npt.NDArray[np.int64]
    """Room for the number of each text."""


class Beside(NamedTuple):
    """Hold which other columns have a value in a row, to be found by the first word of their names' keys."""

    slots: npt.NDArray[np.int64]
    """The number of a column, or -1; a power of two, more than there are columns."""
    keys: npt.NDArray[np.uint64]
    present: npt.NDArray[np.uint8]
    """A byte a row of the first column, then of the next."""


@loop
def add_members(work: Any, texts: Any, beside: Any, sums: Any) -> Any:
    """Add the attributes of each text to the sum of its row; return how many are left to the reference.

    That is also a row one of whose attributes is in its own column.
    """
    return _add_members(pointers(work), pointers(texts), pointers(beside), len(texts.valid), len(beside.slots), sums)


@inner
def _add_members(w: Any, t: Any, b: Any, n_rows: int, n_slots: int, sums: Any) -> Any:
    n_others = 0
    for row in range(n_rows):
        if not t.valid[row]:
            continue
        w.state[SIDE] = 0
        place, n_names = hash_item(w, t.offsets[row])
        if place != t.offsets[row + 1] or _is_beside(w, b, n_names, row, n_rows, n_slots - 1):
            t.others[n_others] = row
            n_others += 1
        else:
            sums[2 * row] += w.lanes[2]
            sums[2 * row + 1] += w.lanes[3]
    return n_others


@inner
def _is_beside(w: Any, b: Any, n_names: int, row: int, n_rows: int, mask: int) -> Any:
    """Return whether one of the attributes is perhaps in its own column."""
    for name in range(n_names):
        key = w.names[name]
        slot = np.int64(key) & mask
        while b.slots[slot] >= 0:
            column = b.slots[slot]
            if b.keys[column] == key and b.present[column * n_rows + row]:
                return True
            slot = (slot + 1) & mask
    return False


@loop
def add_values(work: Any, texts: Any, keys: Any, nulls_count: bool, sums: Any) -> Any:  # noqa: FBT001
    """Add the attribute value of each text under its key; return how many are left to the reference."""
    return _add_values(pointers(work), pointers(texts), keys, (len(texts.valid), nulls_count), sums)


@inner
def _add_values(w: Any, t: Any, keys: Any, entries: Any, sums: Any) -> Any:
    n_entries, nulls_count = entries
    n_others = 0
    for entry in range(n_entries):
        at = 2 * entry if len(keys) > 2 else 0  # noqa: PLR2004 - one key for all
        if t.valid[entry]:
            w.state[SIDE] = 0
            if hash_value(w, t.offsets[entry], keys[at], keys[at + 1]) != t.offsets[entry + 1]:
                t.others[n_others] = entry
                n_others += 1
                continue
            left, right = w.lanes[2], w.lanes[3]
        elif nulls_count:
            left, right = finish(keys[at], keys[at + 1], np.uint64(NULL))
        else:
            continue
        sums[2 * entry] += left
        sums[2 * entry + 1] += right
    return n_others
