"""Hashes of the items or the attribute values in a column of texts: one walk reads some megabytes of texts.

The texts are joined, with a zero byte after each. If the walk refuses a piece, each half of the piece is walked. The
plain reference decides single texts that the walk refuses. A value is walked as the only attribute of an item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ddbio.items.kernel import memory
from ddbio.items.kernel.arrays import spans_of, valid_of
from ddbio.items.kernel.codes import N_PATHS
from ddbio.items.kernel.lines import take_texts
from ddbio.items.kernel.memory import PAD
from ddbio.items.kernel.tape import paths
from ddbio.items.kernel.tape.digest import Hasher, find_rows
from ddbio.items.kernel.tape.walker import Walker, first_walk, forget_paths
from ddbio.items.object_pool import ObjectPool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    _Words: TypeAlias = npt.NDArray[np.uint64]
    _Rows: TypeAlias = npt.NDArray[np.int64]

_PIECE_BYTES = 2 << 20
"""The size of a piece, so that it stays in the processor's caches with its tape."""

_MAX_TEXT_BYTES = 1 << 29
"""A longer text is left to the reference: positions have 31 bits."""

_MAX_POOLED, _MAX_POOLED_BYTES = 4, 64 << 20


class _Ends(NamedTuple):
    """Text before the first value, and text after each: its end, and the start of the next."""

    before: npt.NDArray[np.uint8]
    after: npt.NDArray[np.uint8]
    """Followed by ``PAD`` bytes."""


def _ends(before: bytes, after: bytes) -> _Ends:
    return _Ends(*(np.frombuffer(text, np.uint8) for text in (before, after + before + bytes(PAD))))


_OF_ITEMS, _OF_VALUES = _ends(b"", b"\0"), _ends(b'{"v":', b"}\0")
_NO_KEYS = np.zeros(0, np.uint64)


def add_items(texts: Any, columns: Mapping[str, Any], sums: _Words) -> list[int]:
    """Add the hashes of the attributes of the item in each text to the two words of its row.

    Return the rows that are left to the reference, including those with an attribute that also has a value in its
    column.
    """
    hasher, refused = _borrow_hasher(), list[int]()
    for rows in hasher.walked_rows(texts, _OF_ITEMS, refused):
        refused += hasher.rows_in_both(rows, columns)
        hasher.add_sums(rows, _NO_KEYS, sums)
    _pool.give_back(None, hasher, hasher.retained_bytes)
    return sorted(refused)


def add_values(texts: Any, keys: _Words, sums: _Words) -> list[int]:
    """Add the hash of the attribute value in each text to the words of its entry, under its key or one key for all.

    Return the entries that are left to the reference.
    """
    hasher, refused = _borrow_hasher(), list[int]()
    for rows in hasher.walked_rows(texts, _OF_VALUES, refused):
        hasher.add_sums(rows, keys, sums)
    _pool.give_back(None, hasher, hasher.retained_bytes)
    return refused


class _TextHasher:
    def __init__(self) -> None:
        self._walker = Walker(first_walk())
        self._hasher = Hasher()
        self._joined = memory.allocate(0)

    @property
    def retained_bytes(self) -> int:
        """Return the bytes of memory of the arrays."""
        return self._walker.retained_bytes + self._joined.nbytes

    def walked_rows(self, texts: Any, ends: _Ends, refused: list[int]) -> Iterator[_Rows]:
        """Walk the texts in pieces, and yield the rows of each piece; append rows of refused texts to ``refused``."""
        # Another column has other paths.
        forget_paths(self._walker.walk)
        data, offsets = spans_of(texts)
        spans = data, offsets[:-1], offsets[1:]
        parts = _pieces(np.flatnonzero(valid_of(texts)) if texts.null_count else np.arange(len(texts)), offsets)
        while parts:
            rows = parts.pop()
            if self._walk_texts(spans, rows, ends):
                yield rows
                if self._walker.has_many_paths:
                    forget_paths(self._walker.walk)
            elif len(rows) == 1:
                refused.append(int(rows[0]))
            else:
                middle = len(rows) // 2
                parts += [rows[middle:], rows[:middle]]

    def _walk_texts(self, spans: tuple[Any, Any, Any], rows: _Rows, ends: _Ends) -> bool:
        """Walk the texts of some rows; return whether each text is one item or value."""
        _, begins, stops = spans
        n_before = len(ends.before)
        first, last = int(rows[0]), int(rows[-1])
        is_whole = last - first < len(rows)
        n_bytes = int(stops[last] - begins[first] if is_whole else (stops[rows] - begins[rows]).sum())
        n_bytes += (len(ends.after) - PAD) * len(rows)
        if n_bytes > _MAX_TEXT_BYTES:
            return False
        if len(self._joined) < n_bytes + 2 * PAD:
            self._joined = memory.allocate(n_bytes + n_bytes // 8 + 2 * PAD)
        self._joined[:n_before] = ends.before
        take_texts(*spans, rows, ends.after, self._joined[n_before:], memory.allocate_words(len(rows) + 1))
        walker = self._walker
        is_taken = walker.walk_whole(self._joined[:n_bytes], "column") and walker.n_rows == len(rows)
        if n_before and walker.walk.nodes[paths.MEMBERS] > 1:
            # A text has more than one value: the others became attributes of the enclosing item.
            forget_paths(walker.walk)
            return False
        return is_taken

    def add_sums(self, rows: _Rows, keys: _Words, sums: _Words) -> None:
        """Add the sums of the items on the tape."""
        self._hasher.add_sums(self._walker, rows, keys, sums)

    def rows_in_both(self, rows: _Rows, columns: Mapping[str, Any]) -> list[int]:
        """Return the rows with an attribute that also has a value in its column."""
        if not columns:
            return []
        walk = self._walker.walk
        nodes = walk.nodes[: paths.NODE_WIDTH * walk.state[N_PATHS]].reshape(-1, paths.NODE_WIDTH)
        of_items = np.flatnonzero(nodes[:, paths.PARENT] == 0)[1:]
        spans = nodes[of_items][:, [paths.NAME, paths.NAME_BYTES]].tolist()
        names = [walk.texts[start : start + length].tobytes() for start, length in spans]
        node_of_name = dict(zip(names, of_items.tolist(), strict=True))
        starts, present = np.full(len(nodes), -1), list[Any]()
        for name, column in columns.items():
            node = node_of_name.get(name.encode())
            if node is not None and column.null_count < len(column):
                starts[node] = len(present) * len(column)
                present.append(valid_of(column))
        if not present:
            return []
        doubled = memory.allocate_words(len(rows))
        count = find_rows(walk, self._walker.n_words, rows, starts, np.concatenate(present), doubled)
        return doubled[:count].tolist()  # type: ignore[no-any-return]


_pool = ObjectPool[None, _TextHasher](_MAX_POOLED, _MAX_POOLED_BYTES)


def _borrow_hasher() -> _TextHasher:
    return _pool.take(None) or _TextHasher()


def _pieces(rows: _Rows, offsets: _Rows) -> list[_Rows]:
    """Return the rows in pieces, in reverse order."""
    if not len(rows):
        return []
    if offsets[-1] - offsets[0] <= _PIECE_BYTES:
        return [rows]
    # Bytes under nulls count too; usually there are none.
    numbers = (offsets[rows] - offsets[0]) // _PIECE_BYTES
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    stops = [*starts[1:], len(rows)]
    return [rows[start:stop] for start, stop in zip(reversed(starts), reversed(stops), strict=True)]
