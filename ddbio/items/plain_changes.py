"""Changes as members of plain JSON, printed by the compiled loops without parsing in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ddbio.items.kernel import codes, memory
from ddbio.items.kernel.memory import PAD
from ddbio.items.kernel.tape import paths
from ddbio.items.kernel.tape.columns import clear_counts
from ddbio.items.kernel.tape.plain import LONGER_BYTES, REFUSED, Plain, print_changes
from ddbio.items.kernel.tape.walk import ENTRY_WORDS
from ddbio.items.kernel.tape.walker import Walker, first_walk, forget_paths

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_MAX_ROWS = 1 << 12
_ANY_NAMES = 1 << 40


class PlainChanges(NamedTuple):
    """Changes: the members of each without braces, their ends, and the times in microseconds since 1970."""

    data: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]


class ChangePrinter:
    """Printer of the changes of texts. It reuses memory from text to text. Use one per thread."""

    def __init__(self) -> None:
        self._walker = Walker(first_walk())
        self._levels = memory.allocate_words(codes.MAX_SKIPPED_DEPTH + 1)
        self._forget()

    def _forget(self) -> None:
        walk = self._walker.walk
        forget_paths(walk)
        # The nodes of a change have no names. The number of an image's names is not limited, as for an item.
        walk.state[codes.N_PATHS] = codes.DELETED + 1
        nodes = walk.nodes.reshape(-1, paths.NODE_WIDTH)[1 : codes.DELETED + 1]
        nodes[:, [paths.NAME_BYTES, paths.MEMBERS]] = paths.ELEMENTS, -_ANY_NAMES

    @property
    def names(self) -> set[str]:
        """The attributes of the images of the last text."""
        walk = self._walker.walk
        nodes = walk.nodes.reshape(-1, paths.NODE_WIDTH)[: walk.state[codes.N_PATHS]]
        is_root = (nodes[:, paths.PARENT] >= codes.KEYS) & (nodes[:, paths.PARENT] <= codes.OLD_IMAGE)
        has_values = nodes[:, paths.COUNTS : paths.COUNTS + codes.M + 1].any(axis=1)
        spans = nodes[is_root & has_values][:, [paths.NAME, paths.NAME_BYTES]].tolist()
        return {walk.texts[start : start + length].tobytes().decode() for start, length in spans}

    def print_changes(self, text: memoryview) -> list[PlainChanges] | None:
        """Return the changes of a text in batches of thousands, or None if only the reference can read a change.

        Raises
        ------
        DecodeError
            The text is too long.
        """
        walker = self._walker
        if walker.has_many_paths:
            self._forget()
        while True:
            clear_counts(walker.walk.nodes)
            if not walker.load(text):
                return None
            printed, status = list[PlainChanges](), codes.FULL
            while status == codes.FULL:
                begin = walker.position
                walker.restart()
                status = walker.resume_walk("changes", _MAX_ROWS)
                if status in {codes.FULL, codes.DONE}:
                    changes = self._print_tape(walker.position - begin)
                    if changes is None:
                        return None
                    printed.append(changes)
            if status != codes.GROW_UNESCAPED:
                return printed if status == codes.DONE else None
            walker.widen()

    def _print_tape(self, n_bytes: int) -> PlainChanges | None:
        """Return the changes on the tape, whose text has ``n_bytes`` bytes."""
        walk, n_rows = self._walker.walk, self._walker.n_rows
        images = walk.nodes.reshape(-1, paths.NODE_WIDTH)[[codes.KEYS, codes.NEW_IMAGE]]
        n_names = int((images[:, paths.MEMBERS] + _ANY_NAMES).sum())
        members, ends, times = (memory.allocate_words(count) for count in (n_names, n_rows, n_rows))
        out = memory.allocate(n_bytes + LONGER_BYTES * self._walker.n_words // ENTRY_WORDS + PAD)
        own = (walk.data, walk.tape, walk.nodes, walk.texts, walk.digits)
        n_printed = int(print_changes(Plain(*own, members, self._levels, out, ends, times), self._walker.n_words))
        return None if n_printed == REFUSED else PlainChanges(out[:n_printed], ends, times)
