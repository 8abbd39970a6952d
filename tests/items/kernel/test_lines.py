"""Copies of texts: the requested rows, in the requested order, each with its separator."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddbio.items.kernel.lines import take_texts
from ddbio.items.kernel.memory import PAD


@given(
    parts=st.lists(st.binary(max_size=100), min_size=1, max_size=20),
    separator=st.binary(max_size=40),
    data=st.data(),
)
def test_rows_are_in_the_requested_order(parts, separator, data):
    """The copies equal joining the parts in Python, and every start is the offset of its copy."""
    rows = data.draw(st.lists(st.integers(0, len(parts) - 1), max_size=30))
    offsets = np.cumsum([0, *map(len, parts)])
    expected = b"".join(parts[row] + separator for row in rows)
    out, starts = np.zeros(len(expected) + PAD, np.uint8), np.empty(len(rows) + 1, np.int64)
    padded = np.frombuffer(separator + bytes(PAD), np.uint8)
    # No padding after the texts: they end at the end of their array.
    texts = np.frombuffer(bytearray(b"".join(parts)), np.uint8)
    take_texts(texts, offsets[:-1], offsets[1:], np.asarray(rows, np.int64), padded, out, starts)
    assert out[: len(expected)].tobytes() == expected
    assert starts.tolist() == np.cumsum([0, *(len(parts[row] + separator) for row in rows)]).tolist()
