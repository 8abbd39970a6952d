"""Digest bytes of DynamoDB JSON by a compiled walk, to the same value that ``digest`` has for their items.

The walk needs no schema and decodes no column. What it refuses, the plain reference decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddbio.core.digest import Digest
from ddbio.core.kernel.encode.load import allocate
from ddbio.core.kernel.hash import wire as walk
from ddbio.core.kernel.memory import PAD
from ddbio.core.kernel.state import FRAMINGS, SIDE_END, STATE_LENGTH
from ddbio.core.kernel.utf8 import is_utf8
from ddbio.core.text.framing import checked_items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.core.text.framing import Framing

_PIECE_BYTES = 4 << 20
_QUOTE = ord('"')


class JsonDigest:
    """Sum the hashes of items in ``digest``; keep one per thread."""

    def __init__(self) -> None:
        self.digest = Digest()
        self._workspace = walk.make_room()

    def add(self, body: bytes, framing: Framing) -> None:
        """Add the items of ``body``: one page, or a sequence of documents.

        Raises
        ------
        DecodeError
            The bytes are not DynamoDB JSON in this framing.
        """
        whole = Digest()
        for piece in _pieces(body) if framing in {"items", "export"} else [body]:
            added = self._walk(piece, framing)
            if added is None:
                # The reference reads the whole body, and reports the line of an error.
                whole = Digest()
                whole.add_items(checked_items(body, framing))
                break
            whole.merge(added)
        self.digest.merge(whole)

    def _walk(self, piece: bytes, framing: Framing) -> Digest | None:
        if not is_utf8(piece):
            return None
        # Texts without their escapes are shorter: there is space for all of them before the data.
        data = allocate(2 * len(piece) + 2 * PAD)
        state = np.zeros(STATE_LENGTH, np.int64)
        state[SIDE_END] = len(piece) + PAD
        stop = len(data) - PAD
        data[len(piece) + PAD : stop] = np.frombuffer(piece, np.uint8)
        data[stop:] = _QUOTE
        work = walk.Work(data, state, *self._workspace)
        count, high, low = walk.hash_documents(work, FRAMINGS[framing], stop)
        return None if count < 0 else Digest(count, int(high) << 64 | int(low))


def _pieces(body: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(body):
        stop = body.find(b"\n", start + _PIECE_BYTES) + 1 or len(body)
        yield body[start:stop]
        start = stop


def warm() -> None:
    """Compile the walk, or load it from the cache."""
    JsonDigest().add(b"{}", "items")
