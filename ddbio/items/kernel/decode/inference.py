"""Observe items without a schema, a megabyte at a time: types, digits, nesting and names of all attributes.

The walk predicts that attributes follow each other as last time, with the same types. The result is what the plain
inference makes of the same items. If the walk refuses an item, there is no result, and the plain inference decides.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ddbio.items.kernel import codes
from ddbio.items.kernel.codes import (
    DONE,
    ERROR,
    INSIDE,
    INSTANCE,
    ITEMS,
    MAX_SKIPPED_DEPTH,
    NAMES,
    NAMES_MASK,
    NULL,
    PLACE,
    ROWS,
    L,
    M,
    N,
    S,
)
from ddbio.items.kernel.decode import inference_paths as paths
from ddbio.items.kernel.decode.attributes import inside_value
from ddbio.items.kernel.decode.decoder import cut_lines
from ddbio.items.kernel.decode.inference_paths import (
    COUNTS,
    ELEMENT,
    FIRST,
    FOLLOWER,
    LAST_SEEN,
    N_SEEN,
    NODE_WIDTH,
    PREFIX_BYTES,
    PREFIX_LENGTH,
    PREFIX_MASK,
    TAG,
    TAG_LENGTH,
    TAG_MASK,
    TAG_WORD,
    TEXTS,
    find_path,
    insert_path,
    observe_number,
    observe_rare,
    other_type,
    skip_string,
)
from ddbio.items.kernel.framing import close_document, open_document
from ddbio.items.kernel.jit import inlined, inner, loop
from ddbio.items.kernel.memory import PAD, equal32, load64, out_of_line, peek, pointers, poke
from ddbio.items.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COMMA, OPEN_OBJECT
from ddbio.items.kernel.text import QUOTE, copy_utf8, skip_blank
from ddbio.items.number import MAX_DIGITS
from ddbio.items.object_pool import ObjectPool
from ddbio.items.schema.shape import ShapeBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.items.framing import Framing
    from ddbio.items.schema.shape import Shape

# Places in the state from which an interrupted walk goes on.
IS_INSERTED, _IS_WITHIN, _CONTEXT, _INSTANCE, _LAST, _DEPTH = range(TEXTS + 1, TEXTS + 7)
STATE_WIDTH: Final = TEXTS + 7

_FRAME_CONTEXT, _FRAME_INSTANCE, _FRAME_LAST = range(3)
_FRAME_WIDTH = 4
STACK_LENGTH: Final = _FRAME_WIDTH * MAX_SKIPPED_DEPTH
_THREE_BYTES = 0xFFFFFF
_NULL_START = int.from_bytes(b'NULL":tr', "little")
_NULL_STOP = int.from_bytes(b"ue}", "little")
_NULL_LENGTH = len('NULL":true}')
_LAST_BLANK = ord(" ")


@loop
def observe(walk: Any, end: int, framing: int) -> Any:
    """Observe the items from the state's place on; return how it ended."""
    walk.state[NAMES_MASK] = len(walk.names) - 1
    sizes = (len(walk.nodes) // NODE_WIDTH, len(walk.texts) - 2 * PREFIX_BYTES, len(walk.lookup) - 1)
    return _observe_items(pointers(walk), end, framing, sizes)


@inner
def _observe_items(walk: Any, end: int, framing: int, sizes: Any) -> Any:
    data, state = walk.data, walk.state
    if state[IS_INSERTED] == 0:
        for node in range(1, state[N_SEEN]):
            insert_path(walk, node, sizes[2])
        state[IS_INSERTED] = 1
    place, inside = state[PLACE], state[INSIDE]
    while True:
        if state[_IS_WITHIN] == 0:
            if inside == 0:
                place = skip_blank(data, place)
                if place >= end:
                    state[PLACE], state[INSIDE] = place, inside
                    return DONE
            if inside == 0 and framing != ITEMS:
                place, inside = open_document(data, place, framing, state)
                if place < 0:
                    return ERROR
                if inside < 0:
                    inside = 0
                    continue
            if peek(data, place) != OPEN_OBJECT:
                return ERROR
            place = skip_blank(data, place + 1)
            if state[NAMES] * 4 > state[NAMES_MASK]:
                # Those of other items are none of this one's.
                for slot in range(state[NAMES_MASK] + 1):
                    poke(walk.names, slot, 0)
                state[NAMES] = 0
        state[PLACE], state[INSIDE] = place, inside
        place = _observe_item(walk, place, sizes)
        if place < 0:
            return -place
        state[_IS_WITHIN] = 0
        state[ROWS] += 1
        if framing != ITEMS:
            place, inside = close_document(data, place, framing)
        if place < 0 or place > end:
            return ERROR


@inlined
def _observe_item(walk: Any, place: int, sizes: Any) -> Any:
    """Return the place after the item whose first attribute is at ``place``, or a negative status.

    An item that was interrupted, since an array was full, goes on at the state's place.
    """
    data, nodes, state, stack = walk.data, walk.nodes, walk.state, walk.stack
    if state[_IS_WITHIN]:
        context, instance, last, depth = state[_CONTEXT], state[_INSTANCE], state[_LAST], state[_DEPTH]
    else:
        if peek(data, place) == CLOSE_OBJECT:
            return place + 1
        state[INSTANCE] += 1
        context, instance, last, depth = 0, state[INSTANCE], FIRST, 0
    # The context is that of a list where it has no instance: then it is the node of the elements.
    while True:
        # Which value is this?
        begin = place
        if instance > 0:
            record = peek(nodes, last) * NODE_WIDTH
            mask = peek(nodes, record + PREFIX_MASK)
            found = equal32(data, place, walk.prefixes, record) & mask == mask
            if not found:
                record = peek(nodes, record + FOLLOWER) * NODE_WIDTH
                mask = peek(nodes, record + PREFIX_MASK)
                found = equal32(data, place, walk.prefixes, record) & mask == mask
            if found:
                place += peek(nodes, record + PREFIX_LENGTH)
            else:
                record, place = find_path(walk, place, context, instance, sizes)
                if place < 0:
                    if place != -ERROR:
                        _leave(state, begin, context, instance, last, depth)
                    return place
                poke(nodes, last, record // NODE_WIDTH)
            if peek(nodes, record + LAST_SEEN) == instance:
                return -ERROR
            poke(nodes, record + LAST_SEEN, instance)
        else:
            record = context * NODE_WIDTH
            if peek(data, place) == OPEN_OBJECT and peek(data, place + 1) == QUOTE:
                place += 2
            else:
                place = inside_value(data, skip_blank(data, place))
                if place < 0:
                    return place
        # Of which type?
        word = np.int64(load64(data, place))
        is_open = True
        if word & peek(nodes, record + TAG_MASK) == peek(nodes, record + TAG_WORD):
            tag = peek(nodes, record + TAG)
            place += peek(nodes, record + TAG_LENGTH)
        elif word == _NULL_START and np.int64(load64(data, place + 8)) & _THREE_BYTES == _NULL_STOP:
            tag = NULL
            place += _NULL_LENGTH
            is_open = False
        else:
            tag, place = other_type(walk, place, record, sizes)
            if place < 0:
                if place != -ERROR:
                    poke(nodes, record + LAST_SEEN, 0)
                    _leave(state, begin, context, instance, last, depth)
                return place
        poke(nodes, record + COUNTS + tag, peek(nodes, record + COUNTS + tag) + 1)
        if instance > 0:
            last = record + FOLLOWER
        # What does it hold?
        if tag >= L:
            byte = peek(data, place)
            if byte <= _LAST_BLANK:
                place = skip_blank(data, place)
                byte = peek(data, place)
            if byte != (CLOSE_ARRAY if tag == L else CLOSE_OBJECT):
                if depth == MAX_SKIPPED_DEPTH:
                    return -ERROR
                frame = depth * _FRAME_WIDTH
                poke(stack, frame + _FRAME_CONTEXT, context)
                poke(stack, frame + _FRAME_INSTANCE, instance)
                poke(stack, frame + _FRAME_LAST, last)
                depth += 1
                if tag == M:
                    state[INSTANCE] += 1
                    context, instance, last = record // NODE_WIDTH, state[INSTANCE], record + FIRST
                else:
                    context, instance = peek(nodes, record + ELEMENT), 0
                continue
            place += 1
        elif tag == S:
            place = skip_string(data, place, state)
        elif tag == N:
            place = observe_number(walk, place, record)
        elif is_open:
            place = observe_rare(walk, place, record, tag)
        if place < 0:
            return place
        if is_open:
            if peek(data, place) != CLOSE_OBJECT:
                place = skip_blank(data, place)
                if peek(data, place) != CLOSE_OBJECT:
                    return -ERROR
            place += 1
        # What comes after it?
        while True:
            byte = peek(data, place)
            if byte == COMMA:
                place += 1
                break
            if byte == (CLOSE_OBJECT if instance > 0 else CLOSE_ARRAY):
                place += 1
                if depth == 0:
                    return place
                depth -= 1
                frame = depth * _FRAME_WIDTH
                context = peek(stack, frame + _FRAME_CONTEXT)
                instance = peek(stack, frame + _FRAME_INSTANCE)
                last = peek(stack, frame + _FRAME_LAST)
                if peek(data, place) != CLOSE_OBJECT:
                    place = skip_blank(data, place)
                    if peek(data, place) != CLOSE_OBJECT:
                        return -ERROR
                place += 1
                continue
            after = skip_blank(data, place)
            if after == place:
                return -ERROR
            place = after


@inner
def _leave(state: Any, place: int, context: int, instance: int, last: int, depth: int) -> None:
    """Note where the walk is to go on."""
    out_of_line()
    state[PLACE], state[_IS_WITHIN] = place, 1
    state[_CONTEXT], state[_INSTANCE], state[_LAST], state[_DEPTH] = context, instance, last, depth


MAX_NODES = 1 << 18
"""Items with more paths are left to the plain inference; only few names of a map count."""

PIECE_BYTES = 1 << 20
_PIECE_GROWTH = 8
_FIRST_NODES, _FIRST_TEXT_BYTES, _FIRST_NAMES, _SLOTS_RATIO = 128, 4096, 1024, 4
_NAME_SLOT_BITS = np.uint64(32)
_QUOTE = ord('"')
# What decides the columns of a path, except for its counts and digits.
_OUTLINED = [paths.PARENT, paths.PLACE_AMONG, paths.SCALE, paths.IS_WIDE, paths.NAME, paths.NAME_LENGTH]
_COUNTED = slice(paths.COUNTS, paths.COUNTS + len(codes.TAGS))
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_POOLED, _MAX_POOLED_BYTES = 4, 16 << 20


def allocate(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return as many bytes, whatever they are."""
    return np.empty(n_bytes, np.uint8)


def allocate_zeros(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return as many zeros."""
    return np.zeros(n_bytes, np.uint8)


@dataclass(frozen=True)
class Observed:
    """Hold what a walk has seen of so many items: the nodes of all paths, and the texts of their names."""

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

    def outline(self) -> tuple[bytes, ...]:
        """Return what decides the columns, unless counts do: the same for all items that get the same columns.

        Of counts it has whether there is any, of numbers their decimal places, and whether an integer or a decimal can
        hold them.
        """
        nodes = self._table()
        is_too_long = nodes[:, paths.WHOLE] + nodes[:, paths.SCALE] > MAX_DIGITS
        has_any = nodes[:, _COUNTED] > 0
        return nodes.take(_OUTLINED, axis=1).tobytes(), has_any.tobytes(), is_too_long.tobytes(), self.texts

    def _table(self) -> npt.NDArray[np.int64]:
        return np.frombuffer(self.nodes, np.int64).reshape(-1, paths.NODE_WIDTH)


def shape_of_items(parts: Sequence[tuple[bytes | memoryview, Framing]]) -> Shape | None:
    """Return what the items of all parts look like together, or None if the walk refuses one of them."""
    observed = observe_items(parts)
    return None if observed is None else observed.shape()


def observe_items(parts: Sequence[tuple[bytes | memoryview, Framing]]) -> Observed | None:
    """Return what the walk sees of the items of all parts together, or None if it refuses one of them."""
    if any(framing == "changes" for _, framing in parts):
        return None
    longest = max((len(body) for body, _ in parts), default=0)
    piece_bytes = PIECE_BYTES
    while True:
        # Arrays that are still in the processor's caches save a tenth of the time of small bodies.
        observer = _pool.take(None) or _Observer()
        if all(observer.add(body, framing, piece_bytes) for body, framing in parts):
            observed = observer.observed()
            observer.clear()
            _pool.give_back(None, observer, observer.retained_bytes)
            return observed
        if piece_bytes >= longest:
            return None
        # A document goes on after the end of a line.
        piece_bytes *= _PIECE_GROWTH


_pool = ObjectPool[None, "_Observer"](_MAX_POOLED, _MAX_POOLED_BYTES)


class _Observer:
    """Hold the arrays of a walk over items, and use them again for the next items."""

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
        self.clear()

    @property
    def retained_bytes(self) -> int:
        """Return how much memory the arrays take."""
        return sum(array.nbytes for array in self._walk)

    def clear(self) -> None:
        """Forget all items."""
        walk = self._walk
        for array in (walk.nodes, walk.prefixes, walk.lookup, walk.names, walk.state):
            array[:] = 0
        # The first node is the item; no comparison has these bits.
        walk.nodes[paths.PREFIX_MASK] = -1
        walk.state[paths.N_SEEN] = 1

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
        # A text without its escapes is shorter: all of them fit before the data.
        size = 2 * len(piece) + 2 * PAD
        if len(self._walk.data) < size:
            self._walk = self._walk._replace(data=allocate(size))
            self._walk.data[size - PAD :] = _QUOTE
        data, state = self._walk.data, self._walk.state
        end = len(data) - PAD
        origin = end - len(piece)
        if not copy_utf8(piece, data, origin):
            return False
        state[codes.PLACE], state[codes.INSIDE] = origin, 0
        state[codes.UNESCAPED], state[codes.UNESCAPED_END] = 0, origin
        while True:
            status = observe(self._walk, end, codes.FRAMINGS[framing])
            if status in {codes.DONE, codes.ERROR} or not self._grow(status):
                return bool(status == codes.DONE)

    def _grow(self, status: int) -> bool:
        """Enlarge the array that was full; return whether it may grow so far."""
        arrays = self._walk
        if status == paths.GROW_TEXTS:
            texts = allocate_zeros(2 * len(arrays.texts))
            texts[: len(arrays.texts)] = arrays.texts
            self._walk = arrays._replace(texts=texts)
            return True
        if status == paths.GROW_NAMES:
            self._walk = arrays._replace(names=_rehashed(arrays.names))
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
        return Observed(int(state[codes.ROWS]), nodes.tobytes(), self._walk.texts[: state[paths.TEXTS]].tobytes())


def _seen(node: list[int]) -> ShapeBuilder:
    seen = ShapeBuilder(node[paths.PLACE_AMONG])
    seen.tags = {tag: count for tag, count in zip(codes.TAGS, node[paths.COUNTS :], strict=False) if count}
    seen.whole_digits, seen.scale, seen.fits_int64 = node[paths.WHOLE], node[paths.SCALE], not node[paths.IS_WIDE]
    return seen


def _words(count: int) -> npt.NDArray[np.int64]:
    return allocate_zeros(8 * count).view(np.int64)


def _rehashed(names: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a table of names of twice the size, each name where it will be looked for."""
    table = _words(2 * len(names)).view(np.uint64)
    for name in names[names > 0]:
        slot = int(name >> _NAME_SLOT_BITS) % len(table)
        while table[slot]:
            slot = (slot + 1) % len(table)
        table[slot] = name
    return table
