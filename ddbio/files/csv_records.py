"""Find where the records of CSV end: a line end within quotes is a part of a cell.

A quote opens a cell only where the cell begins, and closes it unless another quote follows; quotes elsewhere are
characters like others, as Arrow's reader has it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_MOST_HEADER_BYTES = 1024 * 1024
QUOTE, LINE_END, _RETURN = b'"\n\r'
_BEFORE_CELL = np.frombuffer(b',\n\r"', np.uint8)
# One cell, quoted or not, and what ends it.
_CELL = re.compile(rb'(?:"(?:[^"]|"")*+"[^,\r\n]*|[^",\r\n][^,\r\n]*|)(,|\r?\n|\r|\Z)')

_QUOTED = re.compile(r'"((?:[^"]|"")*+)"?(.*)', re.DOTALL)


def whole_records(text: bytes) -> int:
    """Return how many bytes of a text that begins with a record are whole records, more text being to come."""
    end = text.rfind(b"\n") + 1
    if not end or b'"' not in text:
        return end
    signs = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(signs == QUOTE)
    if not opens_cells(signs, quotes):
        return _walk(text)
    # The line end is outside of quotes if as many of them stand before it as close a cell.
    while end and int(np.searchsorted(quotes, end)) % 2:
        opening = int(quotes[int(np.searchsorted(quotes, end)) - 1])
        end = text.rfind(b"\n", 0, opening) + 1
    return end


def record_starts(text: bytes) -> NDArray[np.int64]:
    """Return where the records of a text begin, without empty lines."""
    signs = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(signs == QUOTE)
    if opens_cells(signs, quotes):
        ends = np.flatnonzero(signs == LINE_END) + 1
        # An odd number of quotes before a line end: it is within a cell.
        starts = np.append(0, ends[np.searchsorted(quotes, ends) % 2 == 0])
    else:
        starts = np.array([0, *_record_ends(text)])
    starts = starts[starts < len(text)]
    following = signs[np.minimum(starts + 1, len(text) - 1)]
    is_empty = (signs[starts] == LINE_END) | ((signs[starts] == _RETURN) & (following == LINE_END))
    found: NDArray[np.int64] = starts[~is_empty].astype(np.int64)
    return found


def opens_cells(
    signs: np.ndarray[tuple[int], np.dtype[np.uint8]], quotes: np.ndarray[tuple[int], np.dtype[np.intp]]
) -> bool:
    """Return whether each quote of odd number stands where a cell begins, or follows one that would have closed it."""
    opening = quotes[::2]
    opening = opening[opening > 0]
    return bool(np.isin(signs[opening - 1], _BEFORE_CELL).all())


def header_names(text: bytes) -> list[str]:
    """Return the names in the first record, however long they are."""
    head, names, place = text[:_MOST_HEADER_BYTES], list[str](), 0
    while (match := _CELL.match(head, place)) is not None:
        names.append(_name_in(head[place : match.start(1)]))
        place = match.end()
        if match[1] != b",":
            break
    else:
        # The record is longer than what is looked at, and ends within quotes.
        names.append(_name_in(head[place:]))
    return names if head[:1] not in {b"", b"\n", b"\r"} else []


def _name_in(cell: bytes) -> str:
    text = cell.decode(errors="replace")
    found = _QUOTED.fullmatch(text)
    return text if found is None else found[1].replace('""', '"') + found[2]


def _walk(text: bytes) -> int:
    """Return the end of the last whole record, cell by cell."""
    end = 0
    for each in _record_ends(text):
        end = each
    return end


def _record_ends(text: bytes) -> Iterator[int]:
    place = 0
    while (match := _CELL.match(text, place)) and match[1]:
        place = match.end()
        if match[1] != b",":
            yield place
