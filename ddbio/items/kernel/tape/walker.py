"""Walker of pieces of data: owns the arrays of a walk, enlarges them, and reuses them for the next piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from ddbio.errors import DecodeError
from ddbio.items.kernel import codes, memory
from ddbio.items.kernel.memory import PAD
from ddbio.items.kernel.tape import paths
from ddbio.items.kernel.tape.walk import SPARE_WORDS, STACK_LENGTH, skip_item, walk_changes, walk_items
from ddbio.items.kernel.text import load_utf8

if TYPE_CHECKING:
    import numpy.typing as npt

    from ddbio.items.framing import Framing
    from ddbio.items.kernel.tape.paths import Walk

    AnyFraming: TypeAlias = Framing | Literal["column"]
    """In a column each text is an item, followed by a zero byte."""

MAX_BYTES = (1 << 31) - 1
"""Positions in the data, and Arrow's offsets of columns made of it, have 31 bits."""

MAX_NODES = 1 << 18
"""Items with more paths are left to the plain reference; a map adds only a limited number of names."""

_FIRST_NODES, _FIRST_TEXT_BYTES, _FIRST_NAMES, _FIRST_TAPE_WORDS, _SLOTS_RATIO = 128, 4096, 1024, 2048, 4
_MAX_PATHS = 1 << 14
_ALL_ROWS = 1 << 62
_TAPE_RATIO, _FIRST_SIDE_RATIO, _MAX_SIDE_RATIO = 10, 0.25, 4
_NAME_SLOT_BITS = np.uint64(32)


def first_walk() -> Walk:
    """Return the arrays of a walk that learns all paths from the data."""
    walk = paths.Walk(
        data=memory.allocate(0),
        marks=memory.allocate(0),
        nodes=memory.allocate_words(_FIRST_NODES * paths.NODE_WIDTH),
        texts=memory.allocate_zeros(_FIRST_TEXT_BYTES),
        lookup=memory.allocate_words(_FIRST_NODES * _SLOTS_RATIO),
        stack=memory.allocate_words(STACK_LENGTH),
        names=memory.allocate_words(_FIRST_NAMES).view(np.uint64),
        digits=memory.allocate_zeros(PAD),
        tape=memory.allocate(8 * _FIRST_TAPE_WORDS).view(np.int64),
        state=memory.allocate_words(codes.STATE_LENGTH),
    )
    forget_paths(walk)
    return walk


def forget_paths(walk: Walk) -> None:
    """Forget all paths except the root's."""
    walk.nodes[: walk.state[codes.N_PATHS] * paths.NODE_WIDTH] = 0
    for array in (walk.lookup, walk.names, walk.state):
        array[:] = 0
    # No comparison has these bits.
    walk.nodes[[paths.PREFIX_MASK, paths.WHOLE_MASK]] = -1
    walk.state[codes.N_PATHS] = 1


class Walker:
    """Walker of the items in pieces of data.

    The data is at the end of its array, followed by ``PAD`` quotes, where every search ends. The space before it is for
    unescaped texts and canonical JSON.
    """

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.origin, self._end = 0, 0
        self._side_ratio = _FIRST_SIDE_RATIO
        self._measured: Walk | None = None
        self._bytes = 0

    @property
    def retained_bytes(self) -> int:
        """Return the bytes of memory of the arrays."""
        if self._measured is not self.walk:
            self._measured, self._bytes = self.walk, sum(array.nbytes for array in self.walk)
        return self._bytes

    @property
    def n_rows(self) -> int:
        """Return the number of walked items."""
        return int(self.walk.state[codes.ROWS])

    @property
    def n_words(self) -> int:
        """Return the number of words on the tape."""
        return int(self.walk.state[codes.TAPE])

    @property
    def position(self) -> int:
        """Return the position in the piece after the walked items."""
        return int(self.walk.state[codes.POSITION]) - self.origin

    @property
    def is_inside_records(self) -> bool:
        """Return whether that position is within an array of records, where no document begins."""
        return bool(self.walk.state[codes.INSIDE] < 0)

    @property
    def has_many_paths(self) -> bool:
        """Return whether the walk has too many paths to keep them for the next piece."""
        return bool(self.walk.state[codes.N_PATHS] > _MAX_PATHS)

    def load(self, piece: memoryview | npt.NDArray[np.uint8], *, in_new_array: bool = False) -> bool:
        """Copy the data to its array; return whether it is UTF-8.

        Parameters
        ----------
        in_new_array
            Whether the data gets a new array, which later pieces do not overwrite.

        Raises
        ------
        DecodeError
            With the space for unescaped texts, the data is too large for 31-bit positions.
        """
        min_size = len(piece) + 3 * PAD
        size = min(min_size + int(self._side_ratio * len(piece)) + PAD, MAX_BYTES)
        if size < min_size:
            raise DecodeError(f"{min_size} bytes are too many for one piece: decode the data in several pieces")
        if in_new_array or len(self.walk.data) < size:
            data = memory.allocate(size if in_new_array else min(size + size // 16, MAX_BYTES))
            self.walk = self.walk._replace(data=data, marks=memory.allocate(len(data) // 8 + PAD))
        if len(self.walk.tape) < len(piece) // _TAPE_RATIO:
            self.walk = self.walk._replace(tape=memory.allocate(len(piece) // _TAPE_RATIO * 8).view(np.int64))
        self.origin = (len(self.walk.data) - PAD - len(piece)) & ~7
        self._end = self.origin + len(piece)
        state = self.walk.state
        state[codes.POSITION], state[codes.INSIDE] = self.origin, 0
        state[codes.UNESCAPED], state[codes.UNESCAPED_END] = 0, self.origin
        state[codes.ROWS], state[codes.TAPE] = 0, 0
        return load_utf8(piece, self.walk.data, self.origin, self.walk.marks)

    def widen(self) -> None:
        """Reserve more space before the data, which must be loaded again.

        Raises
        ------
        DecodeError
            The space is already the largest that is ever needed.
        """
        if self._side_ratio > _MAX_SIDE_RATIO:
            raise DecodeError("the texts take too much space: decode the data in several pieces")
        self._side_ratio *= 2

    def restart(self) -> None:
        """Start a new tape for the next rows."""
        self.walk.state[codes.ROWS] = self.walk.state[codes.TAPE] = self.walk.state[codes.UNESCAPED] = 0

    def walk_whole(self, piece: memoryview | npt.NDArray[np.uint8], framing: AnyFraming) -> bool:
        """Walk all items of a piece; return False if one of them is refused.

        Raises
        ------
        DecodeError
            The piece is too large for 31-bit positions.
        """
        while self.load(piece):
            status = self.resume_walk(framing, _ALL_ROWS)
            if status != codes.GROW_UNESCAPED:
                return status == codes.DONE
            self.widen()
        return False

    def resume_walk(self, framing: AnyFraming, max_rows: int) -> int:
        """Continue the walk from the last position; return the status.

        The status is DONE; FULL after ``max_rows`` rows; ERROR at a refused item; or GROW_UNESCAPED, which means that
        the data must be loaded again, with more space before it.
        """
        self.walk.state[codes.MAX_ROWS] = max_rows
        while True:
            end = self._end
            if framing == "changes":
                status = int(walk_changes(self.walk, end))
            else:
                status = int(walk_items(self.walk, end, codes.FRAMINGS[framing]))
            if status in {codes.DONE, codes.FULL, codes.ERROR, codes.GROW_UNESCAPED}:
                return status
            if not self._grow(status):
                return codes.ERROR

    def skip_item(self, framing: Framing) -> bool:
        """Skip the item at which the walk stopped by counting brackets; return whether its end was found."""
        while True:
            status = int(skip_item(self.walk, self._end, codes.FRAMINGS[framing]))
            if status != codes.GROW_TAPE:
                return status == codes.DONE
            self._grow(status)

    def _grow(self, status: int) -> bool:
        """Enlarge the array that was full; return whether its size is within the limit."""
        walk = self.walk
        match status:
            case codes.GROW_TAPE:
                tape = memory.allocate(16 * len(walk.tape) + 8 * SPARE_WORDS).view(np.int64)
                tape[: self.n_words] = walk.tape[: self.n_words]
                self.walk = walk._replace(tape=tape)
            case codes.GROW_TEXTS:
                texts = memory.allocate_zeros(2 * len(walk.texts))
                texts[: len(walk.texts)] = walk.texts
                self.walk = walk._replace(texts=texts)
            case codes.GROW_NAMES:
                self.walk = walk._replace(names=_rehashed(walk.names))
            case codes.GROW_NODES:
                walk.state[codes.HAS_LOOKUP] = 0
                nodes = memory.allocate_words(2 * len(walk.nodes))
                nodes[: len(walk.nodes)] = walk.nodes
                lookup = memory.allocate_words(2 * len(walk.lookup))
                self.walk = walk._replace(nodes=nodes, lookup=lookup)
                return len(self.walk.nodes) <= MAX_NODES * paths.NODE_WIDTH
        return True


def _rehashed(names: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a table of names of twice the size, with each name at its new slot."""
    table = memory.allocate_words(2 * len(names)).view(np.uint64)
    for name in names[names > 0]:
        slot = int(name >> _NAME_SLOT_BITS) % len(table)
        while table[slot]:
            slot = (slot + 1) % len(table)
        table[slot] = name
    return table
