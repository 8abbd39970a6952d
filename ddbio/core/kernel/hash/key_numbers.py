"""Print the numbers of keys in the service's own spelling; refuses text that is no number.

The output has room for the longest number a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import loop
from ddbio.core.kernel.encode.number import put_number, put_wide

_DIGITS_ROOM = 64


@loop
def print_decimals(words: Any, scale: int, out: Any, ends: Any) -> None:
    """Print numbers of two words, low first, over ten to the power of ``scale``; fill in where each one ends."""
    digits = np.zeros(_DIGITS_ROOM, np.uint8)
    at = 0
    for row in range(len(ends)):
        at, _ = put_wide(out, at, np.int64(words[2 * row]), np.int64(words[2 * row + 1]), scale, digits)
        ends[row] = at


@loop
def print_numbers(data: Any, offsets: Any, out: Any, ends: Any) -> Any:
    """Print numbers given as texts, and fill in where each one ends; return the first that is none, else -1.

    An entry without text has none.
    """
    digits = np.zeros(_DIGITS_ROOM, np.uint8)
    at = 0
    for row in range(len(offsets) - 1):
        if offsets[row + 1] > offsets[row]:
            at, _ = put_number(out, at, data, offsets[row], offsets[row + 1] - offsets[row], digits)
            if at < 0:
                return row
        ends[row] = at
    return -1
