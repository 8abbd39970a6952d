"""Order rows of a window so that any part of them is from all over it, and rows of one key keep their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddbio.core.plan import spread_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLACES = 512
"""At how many places of a window rows are taken in turn: several in each partition, as many as one process can use."""


def spread_rows(count: int) -> NDArray[np.int64]:
    """Return the numbers of some rows in an order that takes one at each of many places in turn."""
    each = max(1, -(-count // PLACES))
    places = np.array(spread_order(-(-count // each)), np.int64) * each
    order = (np.arange(each)[:, None] + places).reshape(-1)
    return order[order < count]


def in_key_order(order: NDArray[np.int64], hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return an order in which rows of one key ascend, at the places that they have together.

    Parameters
    ----------
    hashes
        Of each row's key; equal hashes count as equal keys.
    """
    # Sorting values takes a fraction of what sorting places takes, and most windows have every key once.
    found = np.sort(hashes)
    if (found[1:] != found[:-1]).all():
        return order
    by_hash = np.argsort(hashes, kind="stable")
    equal = hashes[by_hash[1:]] == hashes[by_hash[:-1]]
    is_repeated = np.concatenate((equal, [False])) | np.concatenate(([False], equal))
    # Ascending within each key, as the sort is stable.
    rows = by_hash[is_repeated]
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    taken = places[rows]
    ordered = order.copy()
    ordered[taken[np.lexsort((taken, hashes[rows]))]] = rows
    return ordered
