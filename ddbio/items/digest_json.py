"""Digest of DynamoDB JSON by the compiled loops, with the same value as ``digest`` for the items.

The loops need no schema and decode no column. The reference implementation reads text that the loops refuse. A body is
one text, or comes in blocks of lines. Memory use is little more than one block.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ddbio.errors import DecodeError
from ddbio.items.digest import Digest
from ddbio.items.framing import checked_items
from ddbio.items.kernel.tape.digest import Hasher
from ddbio.items.kernel.tape.walker import Walker, first_walk, forget_paths
from ddbio.items.raw_items import RawItemReader, shift_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddbio.items.framing import Framing

_PIECE_BYTES = 4 << 20


class JsonDigest:
    """Sum of the hashes of items in ``digest``. Use one per thread."""

    def __init__(self) -> None:
        self.digest = Digest()
        self._walker = Walker(first_walk())
        self._hasher = Hasher()

    def add(self, body: bytes, framing: Framing) -> None:
        """Add the items of ``body``: one page, or a sequence of documents.

        Raises
        ------
        DecodeError
            The bytes are not DynamoDB JSON in this framing.
        """
        total = Digest()
        for piece in _pieces(body) if framing in {"items", "export"} else [body]:
            added = self._walk(piece, framing)
            if added is None:
                # The reference reads the whole body, and reports the line of an error.
                total = Digest()
                total.add_items(checked_items(body, framing))
                break
            total.merge(added)
        self.digest.merge(total)

    def add_blocks(self, blocks: Iterable[bytes | memoryview], framing: Framing) -> None:
        """Add the items of ``items`` or ``export`` text that comes in blocks.

        Parameters
        ----------
        blocks
            Each block ends at a line end, and is not used after the next is taken. A document may span blocks.

        Raises
        ------
        DecodeError
            The text is not DynamoDB JSON in this framing.
        """
        total, lines = Digest(), 0
        remaining = (bytes(block) for block in blocks)
        for block in remaining:
            added = self._walk(block, framing)
            if added is None:
                # A document of many lines, or an error: from here on items are read one by one.
                total.merge(self._digest_raw_items(itertools.chain([block], remaining), framing, lines))
                break
            total.merge(added)
            lines += block.count(b"\n")
        self.digest.merge(total)

    def _digest_raw_items(self, blocks: Iterable[bytes], framing: Framing, lines: int) -> Digest:
        """Return the digest of text in blocks, which follows ``lines`` lines."""
        total = Digest()
        try:
            for items in RawItemReader({}).read_blocks(blocks, framing):
                text = b"\n".join(items.text(row) for row in range(len(items)))
                added = self._walk(text, "items")
                if added is None:
                    total.add_items(checked_items(text, "items"))
                else:
                    total.merge(added)
        except DecodeError as error:
            raise shift_line(error, lines) from None
        return total

    def _walk(self, piece: bytes, framing: Framing) -> Digest | None:
        walker = self._walker
        if not walker.walk_whole(memoryview(piece), framing):
            return None
        total = self._hasher.total(walker)
        if walker.has_many_paths:
            forget_paths(walker.walk)
        return Digest(walker.n_rows, total)


def _pieces(body: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(body):
        stop = body.find(b"\n", start + _PIECE_BYTES) + 1 or len(body)
        yield body[start:stop]
        start = stop


def digest_of_json(body: bytes | memoryview, framing: Framing) -> Digest:
    """Return the digest of the items of a page, or of a sequence of documents.

    Raises
    ------
    DecodeError
        The bytes are not DynamoDB JSON in this framing.
    """
    items = JsonDigest()
    items.add(bytes(body), framing)
    return items.digest
