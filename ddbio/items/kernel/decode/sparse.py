"""Decode sparse rows block by block, and fill one batch from the values of many blocks.

Sparse rows have far more slots than values. A block of them is scanned, its values are stored apart with their rows,
and the slots are used again for the next block.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0912, PLR0913, PLR0917

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ddbio.items.kernel import codes
from ddbio.items.kernel.base64 import decode_base64, decoded_length
from ddbio.items.kernel.codes import (
    BINARY,
    BOOLEAN,
    DECIMAL,
    INTEGER,
    MAP,
    PLAN_BITS,
    PLAN_FIRST,
    PLAN_LENGTH,
    PLAN_NULLS,
    PLAN_SECOND,
    PLAN_SECOND_BYTES,
    PLAN_WIDTH,
    ROWS,
    STORED_INDICES,
    STORED_NODE,
    STORED_RUNS,
    STORED_WORDS,
    STRUCT,
)
from ddbio.items.kernel.decode.output import LENGTH_MASK, RowTexts, place_buffers
from ddbio.items.kernel.jit import inner, loop
from ddbio.items.kernel.memory import copy32, load64, lowest_bit, peek, pointers, poke
from ddbio.items.rescue import MisfitLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.items.kernel.decode.scratch import Work
    from ddbio.items.kernel.decode.tables import Node, Tables

_ONE = np.uint64(1)


@loop
def store_block(tables: Any, work: Any, stored: Any) -> Any:
    """Keep the values of all slots; return whether there was space: if not, call again with more."""
    n_nodes, n_spaces = len(tables.kind), len(stored.length)
    sizes = (len(stored.runs), len(stored.indices), len(stored.words))
    return _store_nodes(pointers(tables), pointers(work), pointers(stored), n_nodes, n_spaces, sizes)


@inner
def _store_nodes(tables: Any, work: Any, stored: Any, n_nodes: int, n_spaces: int, sizes: Any) -> Any:
    used = stored.used
    for node in range(used[STORED_NODE], n_nodes):
        space = tables.space[node]
        length = work.state[ROWS] if space == 0 else work.count[space]
        if (
            used[STORED_RUNS] == sizes[0]
            or used[STORED_INDICES] + length > sizes[1]
            or used[STORED_WORDS] + 2 * length > sizes[2]
        ):
            used[STORED_NODE] = node
            return False
        _store_node(work, stored, node, tables.kind[node], stored.length[space], length)
    used[STORED_NODE] = 1
    for space in range(n_spaces):
        stored.length[space] += work.state[ROWS] if space == 0 else work.count[space]
    return True


@inner
def _store_node(work: Any, stored: Any, node: int, kind: int, first: int, length: int) -> None:
    used, valid_place, value_place = stored.used, work.valid_place[node], work.value_place[node]
    n_indices, n_words = used[STORED_INDICES], used[STORED_WORDS]
    n_bytes = 0
    for start in range(0, length, 8):
        group = load64(work.valid, valid_place + start)
        while group != 0:
            index = start + (lowest_bit(group) >> 3)
            group &= group - _ONE
            poke(stored.indices, n_indices, first + index)
            n_indices += 1
            if kind == DECIMAL:
                poke(stored.words, n_words, peek(work.values, value_place + 2 * index))
                poke(stored.words, n_words + 1, peek(work.values, value_place + 2 * index + 1))
                n_words += 2
            elif kind != STRUCT:
                word = peek(work.values, value_place + index)
                poke(stored.words, n_words, word)
                n_words += 1
                if kind > MAP and kind not in (INTEGER, BOOLEAN):
                    size = word & LENGTH_MASK
                    n_bytes += decoded_length(work.data, word >> 32, size) if kind == BINARY else size
    count = n_indices - used[STORED_INDICES]
    if count > 0:
        poke(stored.runs, used[STORED_RUNS], node << 32 | count)
        used[STORED_RUNS] += 1
        used[STORED_INDICES], used[STORED_WORDS] = n_indices, n_words
        stored.n_valid[node] += count
        stored.n_bytes[node] += n_bytes


@loop
def plan_stored(tables: Any, stored: Any, plan: Any) -> Any:
    """Put into ``plan`` how many entries each node has and where its buffers lie; return the bytes of all."""
    n_nodes = len(tables.kind)
    for node in range(1, n_nodes):
        entry = node * PLAN_WIDTH
        length = stored.length[tables.space[node]]
        plan[entry + PLAN_LENGTH] = length
        plan[entry + PLAN_NULLS] = length - stored.n_valid[node]
        plan[entry + PLAN_SECOND_BYTES] = stored.n_bytes[node]
    return place_buffers(tables.kind, plan, n_nodes)


@loop
def fill_stored(tables: Any, work: Any, stored: Any, plan: Any, output: Any, offsets: Any, words: Any) -> None:
    """Fill the planned buffers, which hold zeros.

    ``offsets`` and ``words`` are the same memory as ``output``.
    """
    n_nodes, n_runs = len(tables.kind), stored.used[STORED_RUNS]
    stored.target[:] = 0
    _fill_runs(pointers(tables), work.data, pointers(stored), plan, output, offsets, words, n_runs)
    for node in range(1, n_nodes):
        kind, entry = tables.kind[node], node * PLAN_WIDTH
        if plan[entry + PLAN_NULLS] < plan[entry + PLAN_LENGTH] and kind not in (STRUCT, INTEGER, DECIMAL, BOOLEAN):
            _sum_sizes(offsets, plan[entry + PLAN_FIRST] >> 2, plan[entry + PLAN_LENGTH])


@inner
def _fill_runs(
    tables: Any, data: Any, stored: Any, plan: Any, output: Any, offsets: Any, words: Any, n_runs: int
) -> None:
    begin, word_at = 0, 0
    for run in range(n_runs):
        node, count = peek(stored.runs, run) >> 32, peek(stored.runs, run) & LENGTH_MASK
        kind, entry, end = tables.kind[node], node * PLAN_WIDTH, begin + count
        first = plan[entry + PLAN_FIRST]
        if plan[entry + PLAN_NULLS] > 0:
            bits = plan[entry + PLAN_BITS]
            for at in range(begin, end):
                _set_bit(output, bits, peek(stored.indices, at), 1)
        if kind == STRUCT:
            begin = end
            continue
        if kind == INTEGER:
            for at in range(begin, end):
                poke(words, (first >> 3) + peek(stored.indices, at), peek(stored.words, word_at + at - begin))
        elif kind == DECIMAL:
            for at in range(begin, end):
                place = (first >> 3) + 2 * peek(stored.indices, at)
                poke(words, place, peek(stored.words, word_at))
                poke(words, place + 1, peek(stored.words, word_at + 1))
                word_at += 2
            word_at -= count
        elif kind == BOOLEAN:
            for at in range(begin, end):
                _set_bit(output, first, peek(stored.indices, at), peek(stored.words, word_at + at - begin))
        elif kind <= MAP:
            for at in range(begin, end):
                poke(offsets, (first >> 2) + peek(stored.indices, at) + 1, peek(stored.words, word_at + at - begin))
        else:
            target = plan[entry + PLAN_SECOND] + stored.target[node]
            for at in range(begin, end):
                size = _put_text(output, target, data, peek(stored.words, word_at + at - begin), kind)
                poke(offsets, (first >> 2) + peek(stored.indices, at) + 1, size)
                target += size
            stored.target[node] = target - plan[entry + PLAN_SECOND]
        begin = end
        word_at += count


@inner
def _put_text(output: Any, target: int, data: Any, word: int, kind: int) -> Any:
    source, size = word >> 32, word & LENGTH_MASK
    if kind == BINARY:
        size = decoded_length(data, source, size)
        decode_base64(output, target, data, source, size)
        return size
    for start in range(0, size, 32):
        copy32(output, target + start, data, source + start)
    return size


@inner
def _set_bit(output: Any, place: int, index: int, bit: int) -> None:
    byte = place + (index >> 3)
    poke(output, byte, peek(output, byte) | bit << (index & 7))


@inner
def _sum_sizes(offsets: Any, first: int, length: int) -> None:
    total = 0
    for place in range(first + 1, first + length + 1):
        total += peek(offsets, place)
        poke(offsets, place, total)


_LEAST_SIZE = 4096
_FIXED_BYTES = {codes.STRUCT: 0, codes.INTEGER: 8, codes.DECIMAL: 16, codes.BOOLEAN: 0}
_OFFSET_BYTES = 4


class StoredValues(NamedTuple):
    """Hold the values of the blocks: a run per block and node that has any, an index per value, and its words."""

    runs: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    words: npt.NDArray[np.int64]
    used: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    n_valid: npt.NDArray[np.int64]
    n_bytes: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]


class SparseRows:
    """Hold what the scanned blocks of one batch have stored so far."""

    def __init__(self, nodes: list[Node], tables: Tables) -> None:
        self._tables = tables
        n_nodes, n_spaces = len(nodes), max(node.space for node in nodes) + 1
        self._fixed_bytes = np.zeros(n_spaces, np.int64)
        for node in nodes[1:]:
            self._fixed_bytes[node.space] += _FIXED_BYTES.get(node.kind, _OFFSET_BYTES)
        counts = [np.zeros(n_nodes, np.int64) for _ in range(3)]
        self._stored = StoredValues(
            np.empty(n_nodes, np.int64),
            np.empty(_LEAST_SIZE, np.int32),
            np.empty(_LEAST_SIZE, np.int64),
            np.zeros(4, np.int64),
            np.zeros(n_spaces, np.int64),
            *counts,
        )
        self._bytes = sum(array.nbytes for array in self._stored)
        self._is_clear = False
        self.clear()

    @property
    def row_bytes(self) -> int:
        """Return what a row takes of the columns, whatever it holds."""
        return int(self._fixed_bytes[0])

    @property
    def retained_bytes(self) -> int:
        """Return how much memory the arrays take."""
        return self._bytes

    @property
    def n_rows(self) -> int:
        """Return how many rows there are."""
        return int(self._stored.length[0])

    @property
    def column_bytes(self) -> int:
        """Return what the columns will take, without the texts."""
        return int(self._fixed_bytes @ self._stored.length)

    def clear(self) -> None:
        """Forget all rows."""
        if self._is_clear:
            return
        self._is_clear = True
        stored = self._stored
        for counts in (stored.used, stored.length, stored.n_valid, stored.n_bytes):
            counts[:] = 0
        stored.used[codes.STORED_NODE] = 1
        self.texts = list[RowTexts]()
        self.sizes = list[npt.NDArray[np.int64]]()
        self.log = MisfitLog()

    def add(self, work: Work, texts: Sequence[RowTexts]) -> None:
        """Keep the rows of a block, and the rescue texts of some of them."""
        self._is_clear = False
        self.texts += [each._replace(rows=each.rows + self.n_rows) for each in texts]
        self.sizes.append(work.sizes[: int(work.state[codes.ROWS])].copy())
        while not store_block(self._tables, work, self._stored):
            self._grow(work)

    def plan(self, plan: npt.NDArray[np.int64]) -> int:
        """Plan the columns; return their bytes."""
        return int(plan_stored(self._tables, self._stored, plan))

    def fill(self, work: Work, plan: npt.NDArray[np.int64], output: npt.NDArray[np.uint8]) -> None:
        """Fill the planned columns."""
        fill_stored(self._tables, work, self._stored, plan, output, output.view(np.int32), output.view(np.int64))

    def _grow(self, work: Work) -> None:
        stored, longest = self._stored, int(max(work.state[codes.ROWS], work.count.max()))
        used = stored.used.tolist()
        for array, needed in (
            (stored.runs, used[codes.STORED_RUNS] + 1),
            (stored.indices, used[codes.STORED_INDICES] + longest),
            (stored.words, used[codes.STORED_WORDS] + 2 * longest),
        ):
            if needed > len(array):
                # In place, for the largest arrays move without a copy.
                array.resize(needed + len(array) // 4, refcheck=False)
        self._bytes = sum(array.nbytes for array in stored)
