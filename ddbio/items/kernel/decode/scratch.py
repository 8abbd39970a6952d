"""Hold the arrays that a scan writes to, and use them again for the next piece of data; they only grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ddbio.errors import DecodeError
from ddbio.items.kernel import codes
from ddbio.items.kernel.memory import PAD
from ddbio.items.kernel.text import copy_utf8

if TYPE_CHECKING:
    from ddbio.items.kernel.decode.tables import Node

MOST_BYTES = (1 << 31) - 1
"""Places in the data, and Arrow's offsets of what is made of it, have 31 bits."""

_QUOTE = ord('"')
_LEAST_UNESCAPED_BYTES = 4096
_SLOTS_RATIO = 1.5
_SLOT_BYTES = 9
_MOST_FIRST_ROWS, _LEAST_FIRST_ROWS = 256, 64
_FIRST_SLOTS_BYTES = 1 << 19


class Block(NamedTuple):
    """Say where a block of rows begins."""

    place: int = 0
    """The place in the data."""

    inside: int = 0
    """Whether it is inside a document."""

    unescaped: int = 0
    """How much of the space before the data is used by unescaped texts of earlier rows."""


class Work(NamedTuple):
    """Hold what one scan writes to."""

    data: npt.NDArray[np.uint8]
    valid: npt.NDArray[np.uint8]
    values: npt.NDArray[np.int64]
    valid_place: npt.NDArray[np.int64]
    value_place: npt.NDArray[np.int64]
    capacity: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]  # type: ignore[assignment] # not the method of tuples
    saved: npt.NDArray[np.int64]
    follower: npt.NDArray[np.int64]
    seen: npt.NDArray[np.int64]
    stack: npt.NDArray[np.int64]
    misfits: npt.NDArray[np.int64]
    seen_names: npt.NDArray[np.uint64]
    levels: npt.NDArray[np.int64]
    digits: npt.NDArray[np.uint8]
    sizes: npt.NDArray[np.int64]
    state: npt.NDArray[np.int64]


def allocate(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return as many bytes, whatever they are."""
    return np.empty(n_bytes, np.uint8)


def allocate_zeros(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return as many zeros; those of large arrays take memory where they are written to."""
    return np.zeros(n_bytes, np.uint8)


class Scratch:
    """Hold the arrays of one decoder, grown to what its data needed so far.

    The data is at the end of its array, followed by ``PAD`` quotes, at which every search ends. Before it is space for
    unescaped texts and for numbers and JSON in canonical form.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        fitting = _FIRST_SLOTS_BYTES // (_SLOT_BYTES * len(nodes)) // PAD * PAD
        n_rows = min(max(fitting, _LEAST_FIRST_ROWS), _MOST_FIRST_ROWS)
        self._capacity = [n_rows] + [2 * n_rows] * max(node.space for node in nodes)
        self._unescaped_bytes = _LEAST_UNESCAPED_BYTES
        self.origin = 0
        self._work = self._allocate(allocate(0), 0)
        self._measured: Work | None = None
        self._bytes = 0

    @property
    def retained_bytes(self) -> int:
        """Return how much memory the arrays take."""
        if self._measured is not self._work:
            self._measured, self._bytes = self._work, sum(array.nbytes for array in self._work)
        return self._bytes

    @property
    def max_rows(self) -> int:
        """Return how many rows a scan may make."""
        return self._capacity[0]

    def _allocate(self, data: npt.NDArray[np.uint8], instance: int) -> Work:
        nodes, count = self._nodes, len(self._nodes)
        slots = [self._capacity[node.space] for node in nodes]
        words = [n_slots * (2 if node.kind == codes.DECIMAL else 1) for node, n_slots in zip(nodes, slots, strict=True)]
        state = np.zeros(codes.MERGED_NULLS + count, np.int64)
        state[codes.INSTANCE] = instance
        return Work(
            data=data,
            valid=np.zeros(sum(slots) + PAD, np.uint8),
            values=np.empty(sum(words), np.int64),
            valid_place=np.cumsum([0, *slots[:-1]]).astype(np.int64),
            value_place=np.cumsum([0, *words[:-1]]).astype(np.int64),
            capacity=np.array(self._capacity, np.int64),
            count=np.zeros(len(self._capacity), np.int64),
            saved=np.zeros(len(self._capacity), np.int64),
            follower=_followers(nodes),
            seen=np.zeros(count, np.int64),
            stack=np.zeros((count + 1) * codes.FRAME_WIDTH, np.int64),
            misfits=np.empty(64 * codes.MISFIT_WIDTH, np.int64),
            seen_names=np.zeros(1024, np.uint64),
            levels=np.zeros(codes.MAX_SKIPPED_DEPTH, np.int64),
            digits=np.zeros(PAD, np.uint8),
            sizes=np.zeros(self._capacity[0], np.int64),
            state=state,
        )

    def load(self, piece: memoryview | npt.NDArray[np.uint8]) -> bool:
        """Copy the data to be scanned to its place; return whether it is UTF-8.

        Raises
        ------
        DecodeError
            It is too much for places of 31 bits, with the space for unescaped texts.
        """
        size = self._unescaped_bytes + len(piece) + PAD
        data = self._work.data
        if len(data) < size:
            if size > MOST_BYTES:
                raise DecodeError(f"{size} bytes to decode in one piece: decode the data in several pieces")
            data = allocate(min(size + size // 16, MOST_BYTES))
            data[-PAD:] = _QUOTE
            self._work = self._work._replace(data=data)
        self.origin = len(data) - PAD - len(piece)
        return copy_utf8(piece, data, self.origin)

    def begin(self, block: Block, max_rows: int) -> Work:
        """Return the arrays, clear of what an earlier scan left, to scan a block."""
        work = self._work
        work.valid[:] = 0
        work.count[:] = 0
        work.seen_names[:] = 0
        work.sizes[:max_rows] = 0
        state = work.state
        state[codes.PLACE], state[codes.INSIDE] = self.origin + block.place, block.inside
        state[codes.ROWS], state[codes.MAX_ROWS] = 0, max_rows
        state[codes.UNESCAPED], state[codes.UNESCAPED_END] = block.unescaped, self.origin
        state[codes.MISFITS], state[codes.NAMES] = 0, 0
        return work

    def grow(self, status: int) -> None:
        """Enlarge the array that was full in the last scan."""
        work = self._work
        match status:
            case codes.GROW_ELEMENTS:
                self._capacity[int(work.state[codes.SPACE])] *= 2
                self._grow_slots()
            case codes.GROW_UNESCAPED:
                self._unescaped_bytes = 2 * self.origin
                self.load(work.data[self.origin : -PAD].copy())
            case codes.GROW_MISFITS:
                self._work = work._replace(misfits=np.empty(2 * len(work.misfits), np.int64))
            case codes.GROW_NAMES:
                self._work = work._replace(seen_names=np.zeros(2 * len(work.seen_names), np.uint64))

    def expect_misfits(self, count: int) -> None:
        """Make room for so many misfits, and for their names."""
        names = np.zeros(1 << (2 * count).bit_length(), np.uint64)
        self._work = self._work._replace(misfits=np.empty(count * codes.MISFIT_WIDTH, np.int64), seen_names=names)

    def grow_rows(self, n_rows: int) -> bool:
        """Enlarge the slots to so many rows, if they take no more than one and a half times the memory of the data."""
        if n_rows * _SLOT_BYTES * len(self._nodes) > _SLOTS_RATIO * (len(self._work.data) - self.origin):
            return False
        if n_rows > self._capacity[0]:
            self._capacity = [-(-size * n_rows // self._capacity[0] // PAD) * PAD for size in self._capacity]
            self._grow_slots()
        return True

    def _grow_slots(self) -> None:
        # The old slots go first: wide tables have more of them than data.
        nothing = np.empty(0, np.int64)
        old = self._work = self._work._replace(valid=nothing.view(np.uint8), values=nothing)
        new = self._allocate(old.data, int(old.state[codes.INSTANCE]))
        self._work = new._replace(misfits=old.misfits, seen_names=old.seen_names, follower=old.follower)


def _followers(nodes: list[Node]) -> npt.NDArray[np.int64]:
    """Return the node expected after each node, and after the opening of each struct, until the data teaches better."""
    followers = np.zeros(2 * len(nodes), np.int64)
    for node in nodes:
        numbers = [child.number for child in node.children]
        followers[len(nodes) + node.number] = numbers[0] if numbers else 0
        followers[numbers] = numbers[1:] + numbers[:1]
    return followers
