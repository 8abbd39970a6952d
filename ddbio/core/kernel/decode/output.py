"""Make Arrow arrays from the slots of a scan.

``plan_output`` counts entries and bytes, ``fill_output`` fills the buffers, ``Assembly`` wraps them as arrays without
a copy. No value is refused here: the scan has checked all.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0913, PLR0917

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ddbio.core.kernel import codes
from ddbio.core.kernel.base64 import decode_base64, decoded_length
from ddbio.core.kernel.codes import (
    BINARY,
    BOOLEAN,
    DECIMAL,
    INTEGER,
    MAP,
    NOTHING,
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
from ddbio.core.kernel.jit import inner, loop
from ddbio.core.kernel.memory import PAD, copy32, load64, out_of_line, peek, pointers, poke

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ddbio.core.kernel.decode.tables import Node

_ONES = np.uint64(0x0101010101010101)
_TO_BITS = np.uint64(0x0102040810204080)
_TOP = np.uint64(56)
LENGTH_MASK = 0xFFFFFFFF
"""The slot of a text holds its place in the high half, its length in the low one."""


@loop
def plan_output(tables: Any, work: Any, plan: Any) -> Any:
    """Put into ``plan`` how many entries each node has and where its buffers lie; return the bytes of all."""
    n_nodes = len(tables.kind)
    _count_entries(pointers(tables), pointers(work), plan, n_nodes)
    return place_buffers(tables.kind, plan, n_nodes)


@inner
def _count_entries(tables: Any, work: Any, plan: Any, n_nodes: int) -> None:
    for node in range(1, n_nodes):
        kind, space = tables.kind[node], tables.space[node]
        length = work.state[ROWS] if space == 0 else work.count[space]
        n_valid = _count_valid(work.valid, work.valid_place[node], length)
        n_bytes = 0
        if kind > MAP and kind not in (INTEGER, DECIMAL, BOOLEAN, NOTHING):
            n_bytes = _count_bytes(work, node, kind, length)
        entry = node * PLAN_WIDTH
        plan[entry + PLAN_LENGTH], plan[entry + PLAN_VALID], plan[entry + PLAN_BYTES] = length, n_valid, n_bytes


@inner
def place_buffers(kinds: Any, plan: Any, n_nodes: int) -> Any:
    """Put into ``plan`` where the buffers of each node lie; return the bytes of all."""
    total = 0
    for node in range(1, n_nodes):
        entry = node * PLAN_WIDTH
        length = plan[entry + PLAN_LENGTH]
        plan[entry + PLAN_BITS] = total
        total += _room((length + 7) // 8 if plan[entry + PLAN_VALID] < length else 0)
        plan[entry + PLAN_FIRST] = total
        total += _room(_first_bytes(kinds[node], length))
        plan[entry + PLAN_SECOND] = total
        total += _room(plan[entry + PLAN_BYTES])
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
def fill_output(tables: Any, work: Any, plan: Any, output: Any, offsets: Any, words: Any) -> None:
    """Fill the planned buffers.

    ``offsets`` and ``words`` are the same memory as ``output``.
    """
    n_nodes = len(tables.kind)
    _fill_nodes(pointers(tables), pointers(work), plan, output, offsets, words, n_nodes)


@inner
def _fill_nodes(tables: Any, work: Any, plan: Any, output: Any, offsets: Any, words: Any, n_nodes: int) -> None:
    for node in range(1, n_nodes):
        kind, entry = tables.kind[node], node * PLAN_WIDTH
        length, first = plan[entry + PLAN_LENGTH], plan[entry + PLAN_FIRST]
        valid_place, value_place = work.valid_place[node], work.value_place[node]
        if plan[entry + PLAN_VALID] < length:
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


_OFFSET_BYTES = 4


class RowTexts(NamedTuple):
    """Hold the texts of some rows, one after the other."""

    rows: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]


class Assembly:
    """Build the arrays of one record batch.

    Parameters
    ----------
    plan
        A row per node, as the loops planned it.
    """

    def __init__(self, plan: npt.NDArray[np.int64], output: pa.Buffer) -> None:
        self._plan = plan.reshape(-1, codes.PLAN_WIDTH).tolist()
        self._output = output

    def array(self, node: Node) -> Any:
        """Return the column of a node."""
        length, n_valid, bits, first, second, n_bytes = self._plan[node.number]
        n_null = length - n_valid
        cut = self._output.slice
        validity = cut(bits, (length + 7) // 8) if n_null else None
        match node.kind:
            case codes.TEXT | codes.NUMBER_TEXT | codes.JSON | codes.BINARY | codes.NOTHING:
                buffers = [validity, cut(first, (length + 1) * _OFFSET_BYTES), cut(second, n_bytes)]
            case codes.INTEGER:
                buffers = [validity, cut(first, length * 8)]
            case codes.DECIMAL:
                buffers = [validity, cut(first, length * 16)]
            case codes.BOOLEAN:
                buffers = [validity, cut(first, (length + 7) // 8)]
            case _:
                return self._container(node, length, validity, n_null)
        array: Any = pa.Array.from_buffers(node.stored_type, length, buffers, n_null)
        if node.stored_type is node.arrow_type:
            return array
        return _cast(array, node.arrow_type)

    def _container(self, node: Node, length: int, validity: Any, n_null: int) -> Any:
        children = [self.array(child) for child in node.children]
        if node.kind == codes.STRUCT:
            return pa.Array.from_buffers(node.arrow_type, length, [validity], n_null, children=children)
        first = self._plan[node.number][codes.PLAN_FIRST]
        offsets = self._output.slice(first, (length + 1) * _OFFSET_BYTES)
        if node.kind == codes.MAP:
            entries = pa.StructArray.from_arrays(
                [children[1], children[0]], fields=[node.arrow_type.key_field, node.arrow_type.item_field]
            )
            return pa.Array.from_buffers(node.arrow_type, length, [validity, offsets], n_null, children=[entries])
        stored = pa.list_(node.arrow_type.field(0))
        array: Any = pa.Array.from_buffers(stored, length, [validity, offsets], n_null, children=children)
        return _cast(array, node.arrow_type)


def _cast(array: Any, arrow_type: pa.DataType) -> Any:
    if array.type == arrow_type:
        return array
    # Rounded once to a double, then to a float, as Python does.
    return array.cast(pa.float64()).cast(arrow_type) if arrow_type == pa.float32() else array.cast(arrow_type)


def row_texts(texts: Sequence[RowTexts], length: int) -> Any:
    """Return a string column of ``length`` rows, null but for the given ones."""
    if not sum(len(each.rows) for each in texts):
        return pa.nulls(length, pa.string())
    rows, lengths, data = texts[0] if len(texts) == 1 else map(np.concatenate, zip(*texts, strict=True))
    offsets, bits = np.empty(length + 1, np.int32), np.zeros((length + 7) // 8, np.uint8)
    spread_texts(rows, lengths, offsets, bits)
    buffers: list[pa.Buffer | None] = [pa.py_buffer(bits.data), pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    return pa.Array.from_buffers(pa.string(), length, buffers, length - len(rows))
