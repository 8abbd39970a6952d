"""Keep the values of a block of rows apart from its slots, and fill a batch from what many blocks kept.

Sparse rows have far more slots than values: a block of them is scanned, its values are kept, the slots are taken again.
Refuses nothing: the scan has decided.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0912, PLR0913, PLR0917

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.base64 import decode_base64, decoded_length
from ddbio.core.kernel.cache import inner, loop
from ddbio.core.kernel.decode.gather import LENGTH_MASK, place_buffers
from ddbio.core.kernel.memory import copy32, load64, lowest_bit, peek, pointers, poke
from ddbio.core.kernel.state import (
    BINARY,
    BOOLEAN,
    DECIMAL,
    INTEGER,
    KEPT_INDICES,
    KEPT_NODE,
    KEPT_RUNS,
    KEPT_WORDS,
    MAP,
    PLAN_BITS,
    PLAN_BYTES,
    PLAN_FIRST,
    PLAN_LENGTH,
    PLAN_SECOND,
    PLAN_VALID,
    PLAN_WIDTH,
    ROWS,
    STRUCT,
)

_ONE = np.uint64(1)


@loop
def keep_block(tables: Any, work: Any, kept: Any) -> Any:
    """Keep the values of all slots; return whether there was room: if not, call again with more."""
    n_nodes, n_spaces = len(tables.kind), len(kept.length)
    room = (len(kept.runs), len(kept.indices), len(kept.words))
    return _keep_nodes(pointers(tables), pointers(work), pointers(kept), n_nodes, n_spaces, room)


@inner
def _keep_nodes(tables: Any, work: Any, kept: Any, n_nodes: int, n_spaces: int, room: Any) -> Any:
    used = kept.used
    for node in range(used[KEPT_NODE], n_nodes):
        space = tables.space[node]
        length = work.state[ROWS] if space == 0 else work.count[space]
        if (
            used[KEPT_RUNS] == room[0]
            or used[KEPT_INDICES] + length > room[1]
            or used[KEPT_WORDS] + 2 * length > room[2]
        ):
            used[KEPT_NODE] = node
            return False
        _keep_node(work, kept, node, tables.kind[node], kept.length[space], length)
    used[KEPT_NODE] = 1
    for space in range(n_spaces):
        kept.length[space] += work.state[ROWS] if space == 0 else work.count[space]
    return True


@inner
def _keep_node(work: Any, kept: Any, node: int, kind: int, first: int, length: int) -> None:
    used, valid_place, value_place = kept.used, work.valid_place[node], work.value_place[node]
    n_indices, n_words = used[KEPT_INDICES], used[KEPT_WORDS]
    n_bytes = 0
    for start in range(0, length, 8):
        group = load64(work.valid, valid_place + start)
        while group != 0:
            index = start + (lowest_bit(group) >> 3)
            group &= group - _ONE
            poke(kept.indices, n_indices, first + index)
            n_indices += 1
            if kind == DECIMAL:
                poke(kept.words, n_words, peek(work.values, value_place + 2 * index))
                poke(kept.words, n_words + 1, peek(work.values, value_place + 2 * index + 1))
                n_words += 2
            elif kind != STRUCT:
                word = peek(work.values, value_place + index)
                poke(kept.words, n_words, word)
                n_words += 1
                if kind > MAP and kind not in (INTEGER, BOOLEAN):
                    size = word & LENGTH_MASK
                    n_bytes += decoded_length(work.data, word >> 32, size) if kind == BINARY else size
    count = n_indices - used[KEPT_INDICES]
    if count > 0:
        poke(kept.runs, used[KEPT_RUNS], node << 32 | count)
        used[KEPT_RUNS] += 1
        used[KEPT_INDICES], used[KEPT_WORDS] = n_indices, n_words
        kept.n_valid[node] += count
        kept.n_bytes[node] += n_bytes


@loop
def plan_kept(tables: Any, kept: Any, plan: Any) -> Any:
    """Put into ``plan`` how many entries each node has and where its buffers lie; return the bytes of all."""
    n_nodes = len(tables.kind)
    for node in range(1, n_nodes):
        entry = node * PLAN_WIDTH
        plan[entry + PLAN_LENGTH] = kept.length[tables.space[node]]
        plan[entry + PLAN_VALID] = kept.n_valid[node]
        plan[entry + PLAN_BYTES] = kept.n_bytes[node]
    return place_buffers(tables.kind, plan, n_nodes)


@loop
def fill_kept(tables: Any, work: Any, kept: Any, plan: Any, output: Any, offsets: Any, words: Any) -> None:
    """Fill the planned buffers, which hold zeros.

    ``offsets`` and ``words`` are the same memory as ``output``.
    """
    n_nodes, n_runs = len(tables.kind), kept.used[KEPT_RUNS]
    kept.target[:] = 0
    _fill_runs(pointers(tables), work.data, pointers(kept), plan, output, offsets, words, n_runs)
    for node in range(1, n_nodes):
        kind, entry = tables.kind[node], node * PLAN_WIDTH
        if plan[entry + PLAN_VALID] > 0 and kind not in (STRUCT, INTEGER, DECIMAL, BOOLEAN):
            _sum_sizes(offsets, plan[entry + PLAN_FIRST] >> 2, plan[entry + PLAN_LENGTH])


@inner
def _fill_runs(
    tables: Any, data: Any, kept: Any, plan: Any, output: Any, offsets: Any, words: Any, n_runs: int
) -> None:
    begin, word_at = 0, 0
    for run in range(n_runs):
        node, count = peek(kept.runs, run) >> 32, peek(kept.runs, run) & LENGTH_MASK
        kind, entry, end = tables.kind[node], node * PLAN_WIDTH, begin + count
        first = plan[entry + PLAN_FIRST]
        if plan[entry + PLAN_VALID] < plan[entry + PLAN_LENGTH]:
            bits = plan[entry + PLAN_BITS]
            for at in range(begin, end):
                _set_bit(output, bits, peek(kept.indices, at), 1)
        if kind == STRUCT:
            begin = end
            continue
        if kind == INTEGER:
            for at in range(begin, end):
                poke(words, (first >> 3) + peek(kept.indices, at), peek(kept.words, word_at + at - begin))
        elif kind == DECIMAL:
            for at in range(begin, end):
                place = (first >> 3) + 2 * peek(kept.indices, at)
                poke(words, place, peek(kept.words, word_at))
                poke(words, place + 1, peek(kept.words, word_at + 1))
                word_at += 2
            word_at -= count
        elif kind == BOOLEAN:
            for at in range(begin, end):
                _set_bit(output, first, peek(kept.indices, at), peek(kept.words, word_at + at - begin))
        elif kind <= MAP:
            for at in range(begin, end):
                poke(offsets, (first >> 2) + peek(kept.indices, at) + 1, peek(kept.words, word_at + at - begin))
        else:
            target = plan[entry + PLAN_SECOND] + kept.target[node]
            for at in range(begin, end):
                size = _put_text(output, target, data, peek(kept.words, word_at + at - begin), kind)
                poke(offsets, (first >> 2) + peek(kept.indices, at) + 1, size)
                target += size
            kept.target[node] = target - plan[entry + PLAN_SECOND]
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
