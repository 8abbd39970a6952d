"""Turn blocks of an Ion export into DynamoDB JSON by the compiled loop; leave what that refuses to the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddbio.core.ion.plain import ion_to_json_lines
from ddbio.core.kernel.decode.scratch import allocate
from ddbio.core.kernel.ion import lines as ion
from ddbio.core.kernel.ion.parts import FULL, REFUSED
from ddbio.core.kernel.memory import PAD
from ddbio.core.kernel.number import LONGEST_NUMBER
from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

PIECE_BYTES = 8 << 20
"""So much is printed at a time, unless one line is more."""


class IonLines:
    """Print blocks of Ion lines as lines of DynamoDB JSON; keep one per thread.

    Parameters
    ----------
    max_line_bytes
        A line that is printed as more is refused: ``1d125`` stands for 126 digits.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_bytes = max_line_bytes + ion.ROOM
        self._data = allocate(PAD)
        self._out = allocate(min(PIECE_BYTES, self._max_bytes))
        self._levels = np.zeros(ion.MAX_DEPTH + 1, np.int64)
        self._digits = allocate(LONGEST_NUMBER + PAD)

    def pieces(self, block: Buffer) -> Iterator[bytes]:
        """Yield the documents of whole lines, a line each; lines without one are left out.

        Raises
        ------
        DecodeError
            A line is no Ion of an export; its number counts from the first that was not yet yielded.
        """
        text = memoryview(block)
        stop = len(text)
        if len(self._data) < stop + PAD:
            self._data = allocate(stop + PAD)
        self._data[:stop] = np.frombuffer(text, np.uint8)
        self._data[stop : stop + PAD] = 0
        place = 0
        while place < stop:
            status, place, printed = ion.print_ion(self._data, place, stop, self._out, self._levels, self._digits)
            if printed:
                yield self._out[:printed].tobytes()
            elif status == FULL:
                self._grow()
            if status == REFUSED:
                end = bytes(text[place:]).find(b"\n") + 1 or stop - place
                yield from filter(None, [ion_to_json_lines(bytes(text[place : place + end]))])
                place += end

    def _grow(self) -> None:
        if len(self._out) >= self._max_bytes:
            raise DecodeError(f"line 1: it stands for more than {self._max_bytes - ion.ROOM} bytes of JSON", line=1)
        self._out = allocate(min(2 * len(self._out), self._max_bytes))


def warm() -> None:
    """Compile the loop, or load it from where it is kept."""
    list(IonLines(PIECE_BYTES).pieces(b"{Item:{a:1.}}"))
