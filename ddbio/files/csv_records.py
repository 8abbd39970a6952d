"""Find where the records of CSV end: a line end within quotes is a part of a cell.

A quote opens a cell only where the cell begins, and closes it unless another quote follows; quotes elsewhere are
characters like others, as Arrow's reader has it.
"""

from __future__ import annotations

import csv
import io
import re

import numpy as np

_MOST_HEADER_BYTES = 1024 * 1024
_QUOTE = ord('"')
_BEFORE_CELL = np.frombuffer(b',\n\r"', np.uint8)
# One cell, quoted or not, and what ends it.
_CELL = re.compile(rb'(?:"(?:[^"]|"")*+"[^,\r\n]*|[^",\r\n][^,\r\n]*|)(,|\r?\n|\r|\Z)')


def whole_records(text: bytes) -> int:
    """Return how many bytes of a text that begins with a record are whole records, more text being to come."""
    end = text.rfind(b"\n") + 1
    if not end or b'"' not in text:
        return end
    signs = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(signs == _QUOTE)
    if not _are_paired(signs, quotes):
        return _walk(text)
    # The line end is outside of quotes if as many of them stand before it as close a cell.
    while end and int(np.searchsorted(quotes, end)) % 2:
        opening = int(quotes[int(np.searchsorted(quotes, end)) - 1])
        end = text.rfind(b"\n", 0, opening) + 1
    return end


def header_names(text: bytes) -> list[str]:
    """Return the names in the first record."""
    head = text[:_MOST_HEADER_BYTES].decode(errors="replace")
    return next(csv.reader(io.StringIO(head, newline="")), [])


def _are_paired(
    signs: np.ndarray[tuple[int], np.dtype[np.uint8]], quotes: np.ndarray[tuple[int], np.dtype[np.intp]]
) -> bool:
    """Return whether each quote of odd number stands where a cell begins, or follows one that would have closed it."""
    opening = quotes[::2]
    opening = opening[opening > 0]
    return bool(np.isin(signs[opening - 1], _BEFORE_CELL).all())


def _walk(text: bytes) -> int:
    """Return the end of the last whole record, cell by cell."""
    place = end = 0
    while (match := _CELL.match(text, place)) and match[1]:
        place = match.end()
        if match[1] != b",":
            end = place
    return end
