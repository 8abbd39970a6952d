"""Observe items by the compiled walk, a megabyte at a time, and say what they look like as inference does plainly.

Refuses what the walk refuses, without a word: the plain inference says what is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ddbio.core.kernel import state as st
from ddbio.core.kernel.decode import paths
from ddbio.core.kernel.decode.decoder import cut_lines
from ddbio.core.kernel.decode.observe import IS_INSERTED, STACK_LENGTH, STATE_WIDTH, observe
from ddbio.core.kernel.memory import PAD
from ddbio.core.kernel.utf8 import is_utf8
from ddbio.core.number import MAX_DIGITS
from ddbio.core.schema.shape import ShapeBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.core.schema.shape import Shape
    from ddbio.core.text.framing import Framing

MAX_NODES = 1 << 18
"""Of items with more paths than this the plain inference makes what it can; of a map few names are kept."""

PIECE_BYTES = 1 << 20
_PIECE_GROWTH = 8
_FIRST_NODES, _FIRST_TEXT_BYTES, _FIRST_NAMES, _SLOTS_RATIO = 128, 4096, 1024, 4
_NAME_SLOT_BITS = np.uint64(32)
_QUOTE = ord('"')
# What makes the columns of a path, but for how many digits and values it had.
_OUTLINED = [paths.PARENT, paths.PLACE_AMONG, paths.SCALE, paths.IS_WIDE, paths.NAME, paths.NAME_LENGTH]
_COUNTED = slice(paths.COUNTS, paths.COUNTS + len(st.TAGS))
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def allocate(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return as many bytes, whatever they are."""
    return np.empty(n_bytes, np.uint8)


def allocate_zeros(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return as many zeros."""
    return np.zeros(n_bytes, np.uint8)


@dataclass(frozen=True)
class Observed:
    """Hold what a walk has seen of so many items: what it keeps of each path, and the texts of the names in them."""

    n_items: int
    nodes: bytes
    texts: bytes

    def shape(self) -> Shape:
        """Return what the items looked like."""
        root = ShapeBuilder()
        all_seen = [root]
        for node in self._table()[1:].tolist():
            seen = _seen(node)
            parent, length = all_seen[node[paths.PARENT]], node[paths.NAME_LENGTH]
            if length == paths.ELEMENTS:
                parent.element = seen
            elif length == paths.OTHERS:
                parent.rest = seen
            else:
                parent.members[self.texts[node[paths.NAME] : node[paths.NAME] + length].decode()] = seen
            all_seen.append(seen)
        return root.shape_of_items(self.n_items)

    def outline(self) -> Observed:
        """Return the same for all items that get the same columns, where how many values have a type decides nothing.

        Of numbers it keeps the places, and whether an integer or a decimal holds them.
        """
        given = self._table()
        nodes = np.zeros_like(given)
        nodes[:, _OUTLINED] = given[:, _OUTLINED]
        nodes[:, _COUNTED] = given[:, _COUNTED] > 0
        is_too_long = given[:, paths.WHOLE] + given[:, paths.SCALE] > MAX_DIGITS
        nodes[:, paths.WHOLE] = is_too_long * (MAX_DIGITS + 1)
        return Observed(1, nodes.tobytes(), self.texts)

    def _table(self) -> npt.NDArray[np.int64]:
        return np.frombuffer(self.nodes, np.int64).reshape(-1, paths.NODE_WIDTH)


def shape_of_items(parts: Sequence[tuple[bytes | memoryview, Framing]]) -> Shape | None:
    """Return what the items of all parts look like together, or None if the walk refuses one of them."""
    observed = observe_items(parts)
    return None if observed is None else observed.shape()


def observe_items(parts: Sequence[tuple[bytes | memoryview, Framing]]) -> Observed | None:
    """Return what the walk sees of the items of all parts together, or None if it refuses one of them."""
    if not all(framing != "changes" and is_utf8(body) for body, framing in parts):
        return None
    longest = max((len(body) for body, _ in parts), default=0)
    piece_bytes = PIECE_BYTES
    while True:
        observer = _Observer()
        if all(observer.add(body, framing, piece_bytes) for body, framing in parts):
            return observer.observed()
        if piece_bytes >= longest:
            return None
        # A document goes on after the end of a line.
        piece_bytes *= _PIECE_GROWTH


class _Observer:
    def __init__(self) -> None:
        self._walk = paths.Walk(
            data=allocate(0),
            nodes=_words(_FIRST_NODES * paths.NODE_WIDTH),
            prefixes=allocate_zeros(_FIRST_NODES * paths.PREFIX_BYTES),
            texts=allocate_zeros(_FIRST_TEXT_BYTES),
            lookup=_words(_FIRST_NODES * _SLOTS_RATIO),
            stack=np.zeros(STACK_LENGTH, np.int64),
            names=_words(_FIRST_NAMES).view(np.uint64),
            digits=np.zeros(PAD, np.uint8),
            state=np.zeros(STATE_WIDTH, np.int64),
        )
        # The first node is the item; no comparison has these bits.
        self._walk.nodes[paths.PREFIX_MASK] = -1
        self._walk.state[paths.N_SEEN] = 1

    def add(self, body: bytes | memoryview, framing: Framing, piece_bytes: int) -> bool:
        """Add all items; return whether there was nothing to refuse."""
        start = len(_BYTE_ORDER_MARK) if body[: len(_BYTE_ORDER_MARK)] == _BYTE_ORDER_MARK else 0
        while start < len(body):
            stop = len(body) if framing == "page" else cut_lines(body, start, piece_bytes)
            if not self._add_piece(memoryview(body)[start:stop], framing):
                return False
            start = stop
        return True

    def _add_piece(self, piece: memoryview, framing: Framing) -> bool:
        # A text without its escapes is shorter: each has room before the data.
        size = 2 * len(piece) + 2 * PAD
        if len(self._walk.data) < size:
            self._walk = self._walk._replace(data=allocate(size))
            self._walk.data[size - PAD :] = _QUOTE
        data, state = self._walk.data, self._walk.state
        end = len(data) - PAD
        origin = end - len(piece)
        data[origin:end] = np.frombuffer(piece, np.uint8)
        state[st.PLACE], state[st.INSIDE], state[st.SIDE], state[st.SIDE_END] = origin, 0, 0, origin
        while True:
            status = observe(self._walk, end, st.FRAMINGS[framing])
            if status in {st.DONE, st.ERROR} or not self._grow(status):
                return bool(status == st.DONE)

    def _grow(self, status: int) -> bool:
        """Make room for what the walk had no room for; return whether that may be."""
        arrays = self._walk
        if status == paths.GROW_TEXTS:
            texts = allocate_zeros(2 * len(arrays.texts))
            texts[: len(arrays.texts)] = arrays.texts
            self._walk = arrays._replace(texts=texts)
            return True
        if status == paths.GROW_NAMES:
            self._walk = arrays._replace(names=_spread(arrays.names))
            return True
        arrays.state[IS_INSERTED] = 0
        nodes, prefixes = _words(2 * len(arrays.nodes)), allocate_zeros(2 * len(arrays.prefixes))
        nodes[: len(arrays.nodes)], prefixes[: len(arrays.prefixes)] = arrays.nodes, arrays.prefixes
        self._walk = arrays._replace(nodes=nodes, prefixes=prefixes, lookup=_words(2 * len(arrays.lookup)))
        return len(self._walk.nodes) <= MAX_NODES * paths.NODE_WIDTH

    def observed(self) -> Observed:
        """Return what was seen of all items."""
        state = self._walk.state
        nodes = self._walk.nodes[: state[paths.N_SEEN] * paths.NODE_WIDTH]
        return Observed(int(state[st.ROWS]), nodes.tobytes(), self._walk.texts[: state[paths.TEXTS]].tobytes())


def _seen(node: list[int]) -> ShapeBuilder:
    seen = ShapeBuilder(node[paths.PLACE_AMONG])
    seen.tags = {tag: count for tag, count in zip(st.TAGS, node[paths.COUNTS :], strict=False) if count}
    seen.whole_digits, seen.scale, seen.fits_int64 = node[paths.WHOLE], node[paths.SCALE], not node[paths.IS_WIDE]
    return seen


def _words(count: int) -> npt.NDArray[np.int64]:
    return allocate_zeros(8 * count).view(np.int64)


def _spread(names: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return twice the room for the names that one item's maps have, each where it will be looked for."""
    room = _words(2 * len(names)).view(np.uint64)
    for name in names[names > 0]:
        slot = int(name >> _NAME_SLOT_BITS) % len(room)
        while room[slot]:
            slot = (slot + 1) % len(room)
        room[slot] = name
    return room
