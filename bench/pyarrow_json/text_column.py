"""Buffers of a string column as numpy arrays, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa


def text_offsets(texts: pa.StringArray) -> npt.NDArray[np.int32]:
    """Return the ``len(texts) + 1`` offsets of the texts in the column's data."""
    buffer: Any = texts.buffers()[1]
    if buffer is None or not len(texts):
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(buffer, dtype=np.int32, count=len(texts) + 1, offset=texts.offset * 4)


def text_bytes(texts: pa.StringArray) -> npt.NDArray[np.uint8]:
    """Return the concatenated bytes of all texts."""
    offsets = text_offsets(texts)
    data: Any = texts.buffers()[2]
    if data is None:
        return np.zeros(0, dtype=np.uint8)
    return np.frombuffer(data, dtype=np.uint8, count=int(offsets[-1] - offsets[0]), offset=int(offsets[0]))
