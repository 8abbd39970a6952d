"""Tell UTF-8 from other bytes, thirty-two at a time; refuses what Python and Arrow refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddbio.core.kernel.cache import loop
from ddbio.core.kernel.memory import PAD, is_ascii35, is_utf8_32

if TYPE_CHECKING:
    import numpy.typing as npt

# So many bytes are checked at once, and so many before them say what they must be.
_STEP, _BEFORE = 32, 3


def is_utf8(body: bytes | memoryview | npt.NDArray[np.uint8]) -> bool:
    """Return whether the bytes are UTF-8."""
    data = np.frombuffer(body, np.uint8)
    # The loop is compiled for arrays that cannot be written.
    data.flags.writeable = False
    return bool(_check(data, np.zeros(PAD + _STEP, np.uint8)))


@loop
def _check(data: Any, edge: Any) -> Any:
    """Return whether ``data`` is UTF-8.

    Parameters
    ----------
    edge
        Zeros, of which the first and the last bytes of the data take some: nothing is read outside of both.
    """
    length = len(data)
    place = min(length, _STEP)
    for index in range(place):
        edge[_BEFORE + index] = data[index]
    if not is_utf8_32(edge, _BEFORE):
        return False
    while place + _STEP <= length:
        if not is_ascii35(data, place) and not is_utf8_32(data, place):
            return False
        place += _STEP
    # At least one zero follows the data, which goes on with no character.
    for index in range(_BEFORE + _STEP):
        at = place - _BEFORE + index
        edge[index] = data[at] if 0 <= at < length else 0
    return is_utf8_32(edge, _BEFORE)
