"""Digest the DynamoDB JSON that columns of text hold where it lies; the plain reference reads what the loops refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddbio.core import digest as plain
from ddbio.core.attribute import check_item, check_value
from ddbio.core.items import checked_json
from ddbio.core.kernel.encode.fields import plain_array
from ddbio.core.kernel.encode.load import allocate, allocate_words, bytes_array, offsets_of, valid_of
from ddbio.core.kernel.encode.state import TEXT
from ddbio.core.kernel.encode.unfit import broken_texts
from ddbio.core.kernel.hash import texts as loops
from ddbio.core.kernel.hash import wire as walk
from ddbio.core.kernel.memory import PAD
from ddbio.core.kernel.state import SIDE_END, STATE_LENGTH
from ddbio.core.rescue import given_twice
from ddbio.core.schema.field import RESCUE_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    # The stubs lack what the classes of arrays have of their own.
    _Array: TypeAlias = Any
    _Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

_QUOTE = ord('"')
_DIGITS_ROOM = 64


def add_members(array: _Array, columns: Mapping[str, _Array], sums: _Words, first_row: int) -> None:
    """Add the attributes that each row's text holds to the row's sum.

    Parameters
    ----------
    columns
        The column of each attribute, in which a row that has it in its text must not have it too.

    Raises
    ------
    DecodeError
        A text does not hold an item.
    EncodeError
        An attribute is in its column too.
    """
    texts = bytes_array(plain_array(array), TEXT)
    work, column = _laid_out(texts)
    n_others = loops.add_members(work, column, _beside(columns, len(texts)), sums)
    for row in column.others[:n_others].tolist():
        item = checked_json(texts[row].as_buffer().to_pybytes(), check_item, RESCUE_NAME)
        for name in filter(columns.__contains__, item):
            if columns[name][row].is_valid:
                raise given_twice(first_row + row, name)
        sums[2 * row : 2 * row + 2] += np.array(plain.members_hash(item), np.uint64)


def add_values(array: _Array, path: str, under: tuple[_Words, bool], sums: _Words) -> None:
    """Add the hash of the attribute value that each entry's text holds; ``under`` are keys, and whether nulls count.

    Raises
    ------
    DecodeError
        A text does not hold an attribute value; its message begins with ``path``.
    """
    keys, _ = under
    texts = bytes_array(array, TEXT)
    work, column = _laid_out(texts)
    n_others = loops.add_values(work, column, *under, sums)
    for entry in column.others[:n_others].tolist():
        place = 2 * entry if len(keys) > 2 else 0  # noqa: PLR2004 - one key for all
        value = checked_json(texts[entry].as_buffer().to_pybytes(), check_value, path)
        key = int(keys[place]), int(keys[place + 1])
        sums[2 * entry : 2 * entry + 2] += np.array(plain.value_hash(key, value), np.uint64)


def _laid_out(texts: _Array) -> tuple[walk.Work, loops.Texts]:
    """Return what the walk over texts reads and writes."""
    offsets = offsets_of(texts).astype(np.int64)
    start, n_bytes = int(offsets[0]), int(offsets[-1] - offsets[0])
    lengths = np.diff(offsets)
    valid = (valid_of(texts) if texts.null_count else np.ones(len(texts), np.bool_)).astype(np.uint8)
    # A text without its escapes is shorter: each has room before the data.
    first = int(lengths.max(initial=0)) + PAD
    data = allocate(first + n_bytes + PAD)
    if n_bytes:
        data[first : first + n_bytes] = np.frombuffer(texts.buffers()[2], np.uint8)[start : start + n_bytes]
    data[first + n_bytes :] = _QUOTE
    offsets += first - start
    for row in broken_texts(texts, offsets, data[first : first + n_bytes]):
        # What begins with a quote is left to the reference, which knows what to tell.
        data[offsets[row]] = _QUOTE
    state = np.zeros(STATE_LENGTH, np.int64)
    state[SIDE_END] = first
    work = walk.Work(data, state, *walk.make_room())
    return work, loops.Texts(offsets, valid, allocate_words(len(texts)))


def _beside(columns: Mapping[str, _Array], n_rows: int) -> loops.Beside:
    """Return where each column has a value."""
    keys = np.array([plain.name_key(name)[0] for name in columns], np.uint64)
    size = 1 << (2 * len(keys)).bit_length()
    slots = np.full(size, -1, np.int64)
    for number, key in enumerate(keys.tolist()):
        slot = key & (size - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        slots[slot] = number
    present = np.ones(len(keys) * n_rows, np.uint8)
    for number, column in enumerate(columns.values()):
        if column.null_count:
            present[number * n_rows : (number + 1) * n_rows] = valid_of(column)
    return loops.Beside(slots, keys, present)
