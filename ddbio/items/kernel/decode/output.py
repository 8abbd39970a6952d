"""Fill Arrow's buffers from the slots of a scan.

``plan_output`` counts entries and bytes, ``fill_output`` fills the buffers, of which ``assembly.py`` makes a record
batch without a copy. No value is refused here: the scan has checked all.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ddbio.items.kernel.base64 import decode_base64, decoded_length
from ddbio.items.kernel.codes import (
    BINARY,
    BOOLEAN,
    DECIMAL,
    INTEGER,
    MAP,
    NOTHING,
    PLAN_BITS,
    PLAN_BITS_BYTES,
    PLAN_FIRST,
    PLAN_FIRST_BYTES,
    PLAN_LENGTH,
    PLAN_NULLS,
    PLAN_SECOND,
    PLAN_SECOND_BYTES,
    PLAN_WIDTH,
    ROWS,
    STRUCT,
)
from ddbio.items.kernel.jit import inner, loop
from ddbio.items.kernel.memory import PAD, copy32, load64, out_of_line, peek, pointers, poke

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


_ONES = np.uint64(0x0101010101010101)
_TO_BITS = np.uint64(0x0102040810204080)
_TOP = np.uint64(56)
LENGTH_MASK = 0xFFFFFFFF
"""The slot of a text holds its place in the high half, its length in the low one."""


@inner
def plan_output(tables: Any, work: Any, plan: Any, n_nodes: int) -> Any:
    """Put into ``plan`` how many entries each node has and where its buffers lie; return the bytes of all."""
    out_of_line()
    for node in range(1, n_nodes):
        kind, space = tables.kind[node], tables.space[node]
        length = work.state[ROWS] if space == 0 else work.count[space]
        n_valid = _count_valid(work.valid, work.valid_place[node], length)
        n_bytes = 0
        if kind > MAP and kind not in (INTEGER, DECIMAL, BOOLEAN, NOTHING):
            n_bytes = _count_bytes(work, node, kind, length)
        entry = node * PLAN_WIDTH
        poke(plan, entry + PLAN_LENGTH, length)
        poke(plan, entry + PLAN_NULLS, length - n_valid)
        poke(plan, entry + PLAN_SECOND_BYTES, n_bytes)
    return place_buffers(tables.kind, plan, n_nodes)


@inner
def place_buffers(kinds: Any, plan: Any, n_nodes: int) -> Any:
    """Put into ``plan`` where the buffers of each node lie; return the bytes of all."""
    total = 0
    for node in range(1, n_nodes):
        entry = node * PLAN_WIDTH
        length = peek(plan, entry + PLAN_LENGTH)
        bits_bytes = (length + 7) // 8 if peek(plan, entry + PLAN_NULLS) > 0 else 0
        first_bytes = _first_bytes(kinds[node], length)
        poke(plan, entry + PLAN_BITS, total)
        poke(plan, entry + PLAN_BITS_BYTES, bits_bytes)
        total += _room(bits_bytes)
        poke(plan, entry + PLAN_FIRST, total)
        poke(plan, entry + PLAN_FIRST_BYTES, first_bytes)
        total += _room(first_bytes)
        poke(plan, entry + PLAN_SECOND, total)
        total += _room(peek(plan, entry + PLAN_SECOND_BYTES))
    return total


@inner
def _room(n_bytes: int) -> Any:
    return 0 if n_bytes == 0 else (n_bytes + 2 * PAD - 1) // PAD * PAD


@inner
def _first_bytes(kind: int, length: int) -> Any:
    if kind == INTEGER:
        return length * 8
    if kind == DECIMAL:
        return length * 16
    if kind == BOOLEAN:
        return (length + 7) // 8
    return 0 if kind == STRUCT else (length + 1) * 4


@inner
def _count_valid(valid: Any, place: int, length: int) -> Any:
    total: Any = 0
    for start in range(0, length, 8):
        total += np.int64((load64(valid, place + start) * _ONES) >> _TOP)
    return total


@inner
def _count_bytes(work: Any, node: int, kind: int, length: int) -> Any:
    valid_place, value_place = work.valid_place[node], work.value_place[node]
    total = 0
    for index in range(length):
        if peek(work.valid, valid_place + index):
            value = peek(work.values, value_place + index)
            size = value & LENGTH_MASK
            if kind == BINARY:
                size = decoded_length(work.data, value >> 32, size)
            total += size
    return total


@loop
def fill_output(kinds: Any, work: Any, plan: Any, output: Any, offsets: Any, words: Any) -> None:
    """Fill the planned buffers.

    ``offsets`` and ``words`` are the same memory as ``output``.
    """
    _fill_nodes(kinds, pointers(work), plan, output, offsets, words)


@inner
def _fill_nodes(kinds: Any, work: Any, plan: Any, output: Any, offsets: Any, words: Any) -> None:
    for node in range(1, len(kinds)):
        kind, entry = kinds[node], node * PLAN_WIDTH
        length, first = plan[entry + PLAN_LENGTH], plan[entry + PLAN_FIRST]
        valid_place, value_place = work.valid_place[node], work.value_place[node]
        if plan[entry + PLAN_NULLS] > 0:
            _fill_bits(output, plan[entry + PLAN_BITS], work.valid, valid_place, length)
        if kind in (INTEGER, DECIMAL):
            width = 2 if kind == DECIMAL else 1
            for index in range(length):
                keep = -peek(work.valid, valid_place + index)
                for part in range(width):
                    word = peek(work.values, value_place + index * width + part)
                    poke(words, (first >> 3) + index * width + part, word & keep)
        elif kind == BOOLEAN:
            for index in range(length):
                if peek(work.valid, valid_place + index):
                    truth = peek(work.values, value_place + index)
                    work.valid[valid_place + index] = truth
            _fill_bits(output, first, work.valid, valid_place, length)
        elif kind <= MAP:
            if kind != STRUCT:
                _fill_list_offsets(offsets, first >> 2, work, valid_place, value_place, length)
        elif kind == BINARY:
            _fill_binary(output, offsets, plan, node, work)
        else:
            _fill_text(output, offsets, plan, node, work)


@inner
def _fill_bits(output: Any, at: int, valid: Any, place: int, length: int) -> None:
    out_of_line()
    for start in range(0, length, 8):
        poke(output, at + (start >> 3), np.int64((load64(valid, place + start) * _TO_BITS) >> _TOP))


@inner
def _fill_list_offsets(offsets: Any, at: int, work: Any, valid_place: int, value_place: int, length: int) -> None:
    total = 0
    for index in range(length):
        poke(offsets, at + index, total)
        if peek(work.valid, valid_place + index):
            total += peek(work.values, value_place + index)
    poke(offsets, at + length, total)


@inner
def _fill_text(output: Any, offsets: Any, plan: Any, node: int, work: Any) -> None:
    out_of_line()
    entry = node * PLAN_WIDTH
    length, at, start = plan[entry + PLAN_LENGTH], plan[entry + PLAN_FIRST] >> 2, plan[entry + PLAN_SECOND]
    data, valid, values = work.data, work.valid, work.values
    valid_place, value_place = work.valid_place[node], work.value_place[node]
    target = start
    for index in range(length):
        poke(offsets, at + index, target - start)
        if peek(valid, valid_place + index):
            value = peek(values, value_place + index)
            source, size = value >> 32, value & LENGTH_MASK
            stop = target + size
            if size > 0:
                copy32(output, target, data, source)
                while target + 32 < stop:
                    target += 32
                    source += 32
                    copy32(output, target, data, source)
            target = stop
    poke(offsets, at + length, target - start)


@inner
def _fill_binary(output: Any, offsets: Any, plan: Any, node: int, work: Any) -> None:
    entry = node * PLAN_WIDTH
    length, at, start = plan[entry + PLAN_LENGTH], plan[entry + PLAN_FIRST] >> 2, plan[entry + PLAN_SECOND]
    valid_place, value_place = work.valid_place[node], work.value_place[node]
    target = start
    for index in range(length):
        poke(offsets, at + index, target - start)
        if peek(work.valid, valid_place + index):
            value = peek(work.values, value_place + index)
            source, size = value >> 32, decoded_length(work.data, value >> 32, value & LENGTH_MASK)
            decode_base64(output, target, work.data, source, size)
            target += size
    poke(offsets, at + length, target - start)


@loop
def spread_texts(rows: Any, lengths: Any, offsets: Any, bits: Any) -> None:
    """Fill the offsets and the validity of a column of which some rows, in their order, have a text.

    ``bits`` are zeros, and cover all rows of ``offsets``.
    """
    at, total = 0, 0
    for index in range(len(rows)):
        row = peek(rows, index)
        for before in range(at, row + 1):
            poke(offsets, before, total)
        at = row + 1
        total += peek(lengths, index)
        poke(bits, row >> 3, peek(bits, row >> 3) | 1 << (row & 7))
    for before in range(at, len(offsets)):
        poke(offsets, before, total)


class RowTexts(NamedTuple):
    """Hold the texts of some rows, one after the other."""

    rows: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]


def row_texts(texts: Sequence[RowTexts], length: int) -> Any:
    """Return a string column of ``length`` rows, null but for the given ones."""
    if not sum(len(each.rows) for each in texts):
        return pa.nulls(length, pa.string())
    rows, lengths, data = texts[0] if len(texts) == 1 else map(np.concatenate, zip(*texts, strict=True))
    offsets, bits = np.empty(length + 1, np.int32), np.zeros((length + 7) // 8, np.uint8)
    spread_texts(rows, lengths, offsets, bits)
    buffers: list[pa.Buffer | None] = [pa.py_buffer(bits.data), pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    return pa.Array.from_buffers(pa.string(), length, buffers, length - len(rows))
