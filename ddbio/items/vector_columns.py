"""Conversion of lists of numbers to columns of embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    # The stubs lack the methods of each class of arrays.
    Array = Any

# The stubs take no values of Python.
pc: Any = pyarrow.compute


class Vectors(NamedTuple):
    """A column of vectors, and the lists that are none."""

    vectors: Array
    rows: list[int]
    """The rows whose list has another length, or an element that is no 32-bit float."""
    values: list[dict[str, Any]]
    """Their values, as attribute values."""


def vectors_of(stored: Array, arrow_type: Any) -> Vectors:
    """Return the vectors of lists of numbers as text. A list that is no vector is null."""
    size, valid = arrow_type.list_size, stored.is_valid().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(stored.flatten().cast(pa.float32()), np.nan).to_numpy()
    lengths = pc.fill_null(pc.list_value_length(stored), 0).to_numpy()
    ends = np.cumsum(lengths, dtype=np.int64)
    bad_until = np.concatenate(([0], np.cumsum(~np.isfinite(numbers), dtype=np.int64)))
    fits = valid & (lengths == size) & (bad_until[ends] == bad_until[ends - lengths])
    elements = np.zeros((len(stored), size), np.float32)
    elements[fits] = numbers[np.repeat(fits, lengths)].reshape(-1, size)
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(elements.reshape(-1)), type=arrow_type, mask=None if fits.all() else pa.array(~fits)
    )
    rows = np.flatnonzero(valid & ~fits)
    return Vectors(vectors, rows.tolist(), [_value(texts) for texts in stored.take(pa.array(rows)).to_pylist()])


def _value(texts: list[str | None]) -> dict[str, Any]:
    return {"L": [{"NULL": True} if text is None else {"N": text} for text in texts]}
