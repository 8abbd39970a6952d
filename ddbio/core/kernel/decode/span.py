"""Keep spans of a document for later: keys, JSON texts and what fits no column; refuses values that are none."""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: PLR0913, PLR0917

from __future__ import annotations

from typing import Any

from ddbio.core.capacity import NULL_BYTES
from ddbio.core.kernel.cache import inner
from ddbio.core.kernel.memory import out_of_line, peek, poke
from ddbio.core.kernel.skip import COLON, is_plain, remember_name, skip_value
from ddbio.core.kernel.state import (
    ERROR,
    GROW_MISFITS,
    MISFIT_KIND,
    MISFIT_NAME,
    MISFIT_NAME_LENGTH,
    MISFIT_NODE,
    MISFIT_PLAIN,
    MISFIT_ROW,
    MISFIT_START,
    MISFIT_STOP,
    MISFIT_WIDTH,
    MISFITS,
    MISFITS_END,
    ROUGH,
    SAVED_MISFITS,
    SAVED_SIZE,
    TEXT_OF_VALUE,
)
from ddbio.core.kernel.text import QUOTE, hash_text, read_text, skip_blank


@inner
def scan_key(work: Any, place: int, node: int, index: int, instance: int) -> Any:
    """Return the place of the value whose name is at ``place``, and keep the name as the map's key."""
    out_of_line()
    data = work.data
    place = skip_blank(data, place)
    if peek(data, place) != QUOTE:
        return -ERROR
    start, length, place = read_text(data, place + 1, work.state)
    if place < 0:
        return place
    status = remember_name(work.seen_names, hash_text(data, start, length), instance, work.state)
    if status != 0:
        return -status
    poke(work.values, peek(work.value_place, node) + index, start << 32 | length)
    poke(work.valid, peek(work.valid_place, node) + index, 1)
    place = skip_blank(data, place)
    return skip_blank(data, place + 1) if peek(data, place) == COLON else -ERROR


@inner
def scan_json(work: Any, start: int, node: int, index: int, slot: int) -> Any:
    """Return the place after the value at ``start``, and keep its text, or its place among those to be spelled anew."""
    out_of_line()
    data = work.data
    place = skip_value(data, start, work.seen_names, work.levels, work.digits, work.state)
    if place < 0:
        return place
    poke(work.valid, peek(work.valid_place, node) + index, 1)
    poke(work.values, slot, start << 32 | (place - start))
    if not is_plain(data, start, place):
        return put_misfit(work, index, node, 0, 0, start, TEXT_OF_VALUE)
    return place


@inner
def put_misfit(work: Any, row: int, node: int, name: int, name_length: int, start: int, kind: int) -> Any:
    """Return the place after the value at ``start``, once it is in the misfit list, or a negative status."""
    out_of_line()
    data, state, misfits = work.data, work.state, work.misfits
    place = skip_value(data, start, work.seen_names, work.levels, work.digits, state)
    if place < 0:
        return place
    entry = state[MISFITS] * MISFIT_WIDTH
    if entry == state[MISFITS_END]:
        return -GROW_MISFITS
    poke(misfits, entry + MISFIT_ROW, row)
    poke(misfits, entry + MISFIT_NODE, node)
    poke(misfits, entry + MISFIT_NAME, name)
    poke(misfits, entry + MISFIT_NAME_LENGTH, name_length)
    poke(misfits, entry + MISFIT_START, start)
    poke(misfits, entry + MISFIT_STOP, place)
    poke(misfits, entry + MISFIT_KIND, kind)
    plain = is_plain(data, start, place)
    poke(misfits, entry + MISFIT_PLAIN, plain)
    if not plain:
        state[ROUGH] = 1
    state[MISFITS] += 1
    return place


@inner
def undo(tables: Any, work: Any, top: int, row: int) -> None:
    """Forget what was kept of the attribute that a misfit was met in."""
    out_of_line()
    for entry in range(tables.first_below[top], tables.last_below[top]):
        node = tables.below[entry]
        space = tables.space[node]
        first, stop = (row, row + 1) if space == 0 else (work.saved[space], work.count[space])
        for index in range(first, stop):
            poke(work.valid, work.valid_place[node] + index, 0)
    for space in range(tables.first_space[top], tables.last_space[top]):
        work.count[space] = work.saved[space]
    # Texts to be spelled anew for places that others will take.
    work.state[MISFITS] = work.state[SAVED_MISFITS]
    poke(work.sizes, row, work.state[SAVED_SIZE])


@inner
def weigh_null(tables: Any, work: Any, node: int, row: int) -> None:
    """Add a NULL to the size of its row, for no column shows it."""
    out_of_line()
    poke(work.sizes, row, peek(work.sizes, row) + tables.beside_bytes[node] + NULL_BYTES)
