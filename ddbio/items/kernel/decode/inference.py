"""Observation of items without a schema, a megabyte at a time: types, digits, nesting and names of all attributes.

The walk predicts that attributes have the same order and types as before. The result equals that of the plain
inference. If the walk refuses an item, there is no result and the plain inference decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddbio.items.kernel import codes
from ddbio.items.kernel.decode.decoder import cut_lines
from ddbio.items.kernel.tape import paths
from ddbio.items.kernel.tape.walker import Walker, first_walk, forget_paths
from ddbio.items.number import MAX_DIGITS
from ddbio.items.object_pool import ObjectPool
from ddbio.items.schema.shape import ShapeBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ddbio.items.framing import Framing
    from ddbio.items.schema.shape import Shape

PIECE_BYTES = 1 << 20
_PIECE_GROWTH = 8
_ALL_ROWS = 1 << 62
# The words of a node that determine its columns, except counts and digits.
_OUTLINED = [paths.PARENT, paths.MEMBER_INDEX, paths.SCALE, paths.IS_WIDE, paths.NAME, paths.NAME_BYTES]
_COUNTED = slice(paths.COUNTS, paths.COUNTS + len(codes.TAGS))
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_POOLED, _MAX_POOLED_BYTES = 4, 64 << 20


@dataclass(frozen=True)
class Observed:
    """Observation of ``n_items`` items: the nodes of all paths, and the texts of their names."""

    n_items: int
    nodes: bytes
    texts: bytes

    def shape(self) -> Shape:
        """Return the shape of the items."""
        root = ShapeBuilder()
        all_seen = [root]
        for node in self._table()[1:].tolist():
            seen = _seen(node)
            parent, length = all_seen[node[paths.PARENT]], node[paths.NAME_BYTES]
            if length == paths.ELEMENTS:
                parent.element = seen
            elif length == paths.OTHERS:
                parent.rest = seen
            else:
                parent.members[self.texts[node[paths.NAME] : node[paths.NAME] + length].decode()] = seen
            all_seen.append(seen)
        return root.shape_of_items(self.n_items)

    def outline(self) -> tuple[bytes, ...]:
        """Return a key that is equal for all observations with the same columns, unless the columns depend on counts.

        For counts the key has whether they are zero, for numbers their decimal places and whether an integer or a
        decimal can represent them.
        """
        nodes = self._table()
        is_too_long = nodes[:, paths.WHOLE] + nodes[:, paths.SCALE] > MAX_DIGITS
        has_any = nodes[:, _COUNTED] > 0
        return nodes.take(_OUTLINED, axis=1).tobytes(), has_any.tobytes(), is_too_long.tobytes(), self.texts

    def path_numbers(self) -> dict[tuple[int, str | None], int]:
        """Return the number of each path by its parent's number and its name; the elements of a list have no name."""
        numbers = dict[tuple[int, str | None], int]()
        for number, node in enumerate(self._table()[1:].tolist(), 1):
            start, length = node[paths.NAME], node[paths.NAME_BYTES]
            name = self.texts[start : start + length].decode() if length >= 0 else None
            if length != paths.OTHERS:
                numbers[node[paths.PARENT], name] = number
        return numbers

    def _table(self) -> npt.NDArray[np.int64]:
        return np.frombuffer(self.nodes, np.int64).reshape(-1, paths.NODE_WIDTH)


def shape_of_items(parts: Sequence[tuple[bytes | memoryview, Framing]]) -> Shape | None:
    """Return the common shape of the items of all parts, or None if the walk refuses an item."""
    observed = observe_items(parts)
    return None if observed is None else observed.shape()


def observe_items(parts: Sequence[tuple[bytes | memoryview, Framing]]) -> Observed | None:
    """Observe the items of all parts together; return None if the walk refuses an item."""
    longest = max((len(body) for body, _ in parts), default=0)
    piece_bytes = PIECE_BYTES
    while True:
        # Reusing arrays that are in the processor's caches saves a tenth of the time for small bodies.
        observer = _pool.take(None) or Observer()
        while (is_whole := observer.add_all(parts, piece_bytes)) is None:
            observer.widen()
        if is_whole:
            observed = observer.observed()
            give_back(observer)
            return observed
        if piece_bytes >= longest:
            return None
        # A document may continue after the end of a line.
        piece_bytes *= _PIECE_GROWTH


def walk_whole(body: bytes | memoryview, framing: Framing) -> Observer | None:
    """Return an observer with all items of a body on its tape, or None if the walk refuses an item."""
    observer = _pool.take(None) or Observer()
    while (is_whole := observer.add_all([(body, framing)], max(1, len(body)))) is None:
        observer.widen()
    return observer if is_whole else None


def give_back(observer: Observer) -> None:
    """Return an observer to the pool."""
    _pool.give_back(None, observer, observer.retained_bytes)


_pool = ObjectPool[None, "Observer"](_MAX_POOLED, _MAX_POOLED_BYTES)


class Observer(Walker):
    """Walker that learns the paths of items, piece by piece."""

    def __init__(self) -> None:
        super().__init__(first_walk())
        self._n_items = 0

    def clear(self) -> None:
        """Forget all items."""
        forget_paths(self.walk)
        self._n_items = 0

    def add_all(self, parts: Sequence[tuple[bytes | memoryview, Framing]], piece_bytes: int) -> bool | None:
        """Add all items; return False if one is refused, or None if the space for texts is too small."""
        self.clear()
        for body, framing in parts:
            start = len(_BYTE_ORDER_MARK) if body[: len(_BYTE_ORDER_MARK)] == _BYTE_ORDER_MARK else 0
            while start < len(body):
                stop = len(body) if framing == "page" else cut_lines(body, start, piece_bytes)
                if not self.load(memoryview(body)[start:stop]):
                    return False
                status = self.resume_walk(framing, _ALL_ROWS)
                if status != codes.DONE:
                    return None if status == codes.GROW_UNESCAPED else False
                self._n_items += self.n_rows
                start = stop
        return True

    def observed(self) -> Observed:
        """Return the observation of all items."""
        state = self.walk.state
        nodes = self.walk.nodes[: state[codes.N_PATHS] * paths.NODE_WIDTH]
        return Observed(self._n_items, nodes.tobytes(), self.walk.texts[: state[codes.TEXTS]].tobytes())


def _seen(node: list[int]) -> ShapeBuilder:
    seen = ShapeBuilder(node[paths.MEMBER_INDEX])
    seen.tags = {tag: count for tag, count in zip(codes.TAGS, node[paths.COUNTS :], strict=False) if count}
    seen.whole_digits, seen.scale = node[paths.WHOLE], node[paths.SCALE]
    seen.fits_int64 = not (node[paths.IS_WIDE] or seen.scale)
    return seen
