"""Find the quotes of CSV, and where its records end: a line end within quotes is a part of a cell.

A quote opens a cell only where the cell begins, and closes it unless another quote follows (RFC 4180); a quote within a
cell that has none around it is a character like others. Text between a closing quote and the end of its cell is an
error, and so is a cell that is not closed.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import numpy as np

from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

QUOTE, LINE_END, _RETURN = b'"\n\r'
_SHOWN_BYTES = 40
MOST_HEADER_BYTES = 1024 * 1024
"""The first record of a file is at most so large."""

# A name may be as long; Python's limit is that of all readers.
csv.field_size_limit(max(csv.field_size_limit(), MOST_HEADER_BYTES))


def _table(signs: bytes) -> NDArray[np.bool_]:
    found = np.zeros(256, np.bool_)
    found[list(signs)] = True
    return found


_BEFORE_CELL, _BEFORE_QUOTE, _BEHIND_QUOTE = _table(b",\n\r"), _table(b',\n\r"'), _table(b',\n\r"')


def check_quotes(text: bytes) -> None:
    """Check that each quoted cell ends with its closing quote.

    Raises
    ------
    DecodeError
        A cell does not; the message has the line on which it begins.
    """
    if b'"' not in text:
        return
    signs = np.frombuffer(text, np.uint8)
    quotes = _cell_quotes(signs)
    closing = quotes[1::2]
    ends_cell = _BEHIND_QUOTE[signs[np.minimum(closing + 1, len(text) - 1)]]
    if ends_cell.all() and len(quotes) % 2 == 0:
        return
    bad = int(ends_cell.argmin()) if not ends_cell.all() else len(closing)
    opening = bad
    while opening and quotes[2 * opening] == quotes[2 * opening - 1] + 1:
        # Two quotes stand for one.
        opening -= 1
    line = 1 + text.count(b"\n", 0, int(quotes[2 * opening]))
    if bad == len(closing):
        raise DecodeError(f"line {line}: the quote that opens a cell here is never closed: close the cell", line=line)
    place = int(closing[bad]) + 1
    shown = text[place : place + _SHOWN_BYTES].splitlines()[0].decode(errors="replace")
    raise DecodeError(
        f"line {line}: the quoted cell that begins here is followed by {shown!r}: close each quoted cell, "
        "and write a quote within it as two quotes (RFC 4180), not with a backslash",
        line=line,
    )


def whole_records(text: bytes) -> int:
    """Return how many bytes of a text that begins with a record are whole records, more text being to come."""
    end = text.rfind(b"\n") + 1
    if not end or b'"' not in text:
        return end
    quotes = _cell_quotes(np.frombuffer(text, np.uint8))
    # The line end is outside of quotes if as many of them stand before it as close a cell.
    while end and int(np.searchsorted(quotes, end)) % 2:
        opening = int(quotes[int(np.searchsorted(quotes, end)) - 1])
        end = text.rfind(b"\n", 0, opening) + 1
    return end


def record_starts(text: bytes) -> NDArray[np.int64]:
    """Return where the records of a text begin, without empty lines."""
    signs = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(signs == LINE_END) + 1
    # An odd number of quotes before a line end: it is within a cell.
    starts = np.append(0, ends[np.searchsorted(_cell_quotes(signs), ends) % 2 == 0])
    starts = starts[starts < len(text)]
    following = signs[np.minimum(starts + 1, len(text) - 1)]
    is_empty = (signs[starts] == LINE_END) | ((signs[starts] == _RETURN) & (following == LINE_END))
    found: NDArray[np.int64] = starts[~is_empty].astype(np.int64)
    return found


def header_names(text: bytes) -> list[str]:
    """Return the names in the first record."""
    starts = record_starts(text[:MOST_HEADER_BYTES])
    end = int(starts[1]) if len(starts) > 1 else MOST_HEADER_BYTES
    head = text[int(starts[0]) : end].decode(errors="replace") if len(starts) else ""
    return next(csv.reader(io.StringIO(head, newline="")), [])


def opens_cells(
    signs: np.ndarray[tuple[int], np.dtype[np.uint8]], quotes: np.ndarray[tuple[int], np.dtype[np.intp]]
) -> bool:
    """Return whether each quote of odd number stands where a cell begins, or follows one that would have closed it."""
    opening = quotes[::2]
    opening = opening[opening > 0]
    return bool(_BEFORE_QUOTE[signs[opening - 1]].all())


def _cell_quotes(signs: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> NDArray[np.intp]:
    """Return the quotes that open and close cells, in turn."""
    quotes = np.flatnonzero(signs == QUOTE)
    return quotes if opens_cells(signs, quotes) else np.array(list(_opening_and_closing(signs, quotes)), np.intp)


def _opening_and_closing(signs: NDArray[np.uint8], quotes: NDArray[np.intp]) -> Iterator[int]:
    opens = ((quotes == 0) | _BEFORE_CELL[signs[quotes - 1]]).tolist()
    places, number = quotes.tolist(), 0
    while number < len(places):
        if not opens[number]:
            # A character of a cell without quotes.
            number += 1
            continue
        yield places[number]
        number += 1
        while number < len(places):
            yield places[number]
            number += 1
            if number == len(places) or places[number] != places[number - 1] + 1:
                break
            yield places[number]
            number += 1
