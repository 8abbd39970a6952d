"""Order all states of an item, wherever they come from, by one text: the version of a row.

A version is the epoch in four hexadecimal digits and the order within it in forty decimal ones; as texts, the greater
one is newer. Epoch 0 is a base load, over which every change wins. Each stream has an epoch of its own, in which the
order is the sequence number.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import SchemaError

_EPOCH_DIGITS, _ORDER_DIGITS = 4, 40

BASE: Final = "0" * (_EPOCH_DIGITS + _ORDER_DIGITS)
"""The version of rows of a base load."""

_LAST_EPOCH: Final = 16**_EPOCH_DIGITS - 1


def versions(epoch: int, sequences: Any) -> pa.Array[Any]:
    """Return the version of each sequence number of an epoch.

    Raises
    ------
    SchemaError
        If a number has more digits than the service gives.
    """
    if not 0 < epoch <= _LAST_EPOCH:
        raise SchemaError(f"a table has no epoch {epoch}: streams have 1 to {_LAST_EPOCH}")
    longest: Any = pc.max(pc.binary_length(sequences))
    if longest.is_valid and longest.as_py() > _ORDER_DIGITS:
        raise SchemaError(f"a sequence number has {longest.as_py()} digits, and the service gives at most 40")
    padded: Any = pc.utf8_lpad(sequences, _ORDER_DIGITS, "0")
    joined: pa.Array[Any] = pc.binary_join_element_wise(pa.scalar(prefix_of(epoch)), padded, "")
    return joined


def prefix_of(epoch: int) -> str:
    """Return what the versions of an epoch begin with."""
    return f"{epoch:04x}"


def epoch_of(version: str) -> int:
    """Return the epoch of a version."""
    return int(version[:_EPOCH_DIGITS], 16)
