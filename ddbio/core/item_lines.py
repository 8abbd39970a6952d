"""Split pages into lines of an export, ``{"Item":{…}}``, without decoding an item; refuses what is no page."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddbio.core.kernel.decode.scratch import allocate
from ddbio.core.kernel.decode.splitting import ROOM_RATIO, split_items
from ddbio.core.kernel.memory import PAD
from ddbio.core.rescue import MisfitLog
from ddbio.core.text.page import ITEMS_MEMBER
from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from ddbio.core.text.framing import Framing


class ItemLines(NamedTuple):
    """Hold lines and how many they are."""

    text: bytes
    items: int

    @property
    def nbytes(self) -> int:
        """Return the lines' bytes."""
        return len(self.text)


class PageSplitter:
    """Print the items of pages as lines; keep one per thread, in the place of a decoder."""

    def __init__(self) -> None:
        self.log = MisfitLog()
        self._data = self._out = allocate(0)

    def decode_batches(self, data: bytes, framing: Framing) -> list[ItemLines]:
        """Return the lines of a page's items, every value as it came over the wire.

        Raises
        ------
        DecodeError
            The bytes are no page.
        """
        found = ITEMS_MEMBER.search(data) if framing == "page" else None
        if found is None:
            raise DecodeError('expected {"Items": …}')
        if len(self._data) < len(data) + PAD:
            self._data = allocate(len(data) + PAD)
            self._out = allocate(ROOM_RATIO * len(data) + PAD)
        self._data[: len(data)] = np.frombuffer(data, np.uint8)
        self._data[len(data) : len(data) + PAD] = 0
        count, printed = split_items(self._data, found.end(), self._out)
        if count < 0:
            raise DecodeError("the page's items are no list of objects")
        return [ItemLines(self._out[:printed].tobytes(), count)]
