"""Order the rows of a log: by sequence number, and the last of each item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.formats.log_columns import EVENT_TIME, SEQUENCE
from ddbio.items.item_key import KeyGroups, key_fingerprints
from ddbio.items.kernel.arrays import int64_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_DIGITS = "_digits"


def order_of(rows: pa.Table) -> NDArray[np.uint64]:
    """Return the places of rows in the order of their sequence numbers, which are digits of different lengths."""
    numbers = rows.select([SEQUENCE])
    digits = numbers.append_column(_DIGITS, pc.binary_length(rows.column(SEQUENCE)))
    found: Any = pc.sort_indices(digits, sort_keys=[(_DIGITS, "ascending"), (SEQUENCE, "ascending")])
    order: NDArray[np.uint64] = found.to_numpy()
    return order


def in_order(rows: pa.Table) -> pa.Table:
    """Return rows in the order of their sequence numbers."""
    order: Any = order_of(rows)
    return rows if (order[1:] > order[:-1]).all() else rows.take(pa.array(order))


def in_time_order(rows: pa.Table) -> pa.Table:
    """Return rows in the order of their times, and those of one time in the order of their sequence numbers.

    Numbers of different streams cannot be compared.
    """
    rows = in_order(rows)
    times: Any = rows.column(EVENT_TIME)
    order: Any = pc.sort_indices(times)
    return rows.take(order)


def last_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the last row of each item, in their order.

    Raises
    ------
    SchemaError
        If a row lacks its key.
    """
    items = KeyGroups(key_fingerprints(rows, keys))
    if len(items.starts) == rows.num_rows:
        return rows
    return rows.take(int64_array(np.sort(items.rows[items.starts + items.counts - 1])))
