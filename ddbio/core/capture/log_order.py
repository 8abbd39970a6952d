"""Order the rows of a log: by sequence number, and the last of each item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.capture.columns import SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGITS, _ROW = "_digits", "_row"


def in_order(rows: pa.Table) -> pa.Table:
    """Return rows in the order of their sequence numbers, which are digits of different lengths."""
    digits = rows.append_column(_DIGITS, pc.binary_length(rows.column(SEQUENCE)))
    return rows.take(pc.sort_indices(digits, sort_keys=[(_DIGITS, "ascending"), (SEQUENCE, "ascending")]))


def last_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the last row of each item, in their order."""
    numbered: Any = rows.select(list(keys)).append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(keys)).aggregate([(_ROW, "max")]).column(f"{_ROW}_max")
    return rows.take(last.take(pc.sort_indices(last)))
