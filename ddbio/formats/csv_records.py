"""Search for the quotes of CSV and for the ends of its records. A line end within quotes is part of a cell.

A quote opens a cell only at the cell's start, and closes it unless another quote follows (RFC 4180). A quote within an
unquoted cell is an ordinary character. Text between a closing quote and the end of its cell is an error, and so is a
cell that is not closed.
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
MAX_HEADER_BYTES = 1024 * 1024
"""Maximum size of the first record of a file."""

# A name may be as long as the header; Python's limit applies to all readers of the process.
csv.field_size_limit(max(csv.field_size_limit(), MAX_HEADER_BYTES))


def _lookup_table(signs: bytes) -> NDArray[np.bool_]:
    is_sign = np.zeros(256, np.bool_)
    is_sign[list(signs)] = True
    return is_sign


_BEFORE_CELL, _BEFORE_QUOTE, _AFTER_QUOTE = _lookup_table(b",\n\r"), _lookup_table(b',\n\r"'), _lookup_table(b',\n\r"')


def check_quotes(text: bytes) -> None:
    """Check that each quoted cell ends with its closing quote.

    Raises
    ------
    DecodeError
        A cell does not; the message has the line on which the cell starts.
    """
    if b'"' not in text:
        return
    signs = np.frombuffer(text, np.uint8)
    quotes = _cell_quotes(signs)
    closing = quotes[1::2]
    ends_cell = _AFTER_QUOTE[signs[np.minimum(closing + 1, len(text) - 1)]]
    if ends_cell.all() and len(quotes) % 2 == 0:
        return
    bad = int(ends_cell.argmin()) if not ends_cell.all() else len(closing)
    opening = bad
    while opening and quotes[2 * opening] == quotes[2 * opening - 1] + 1:
        # Two quotes are one quote character.
        opening -= 1
    line = 1 + text.count(b"\n", 0, int(quotes[2 * opening]))
    if bad == len(closing):
        raise DecodeError(f"line {line}: the quote that opens a cell here is never closed: close the cell", line=line)
    end = int(closing[bad]) + 1
    shown = text[end : end + _SHOWN_BYTES].splitlines()[0].decode(errors="replace")
    raise DecodeError(
        f"line {line}: the quoted cell that starts here is followed by {shown!r}: close each quoted cell, "
        "and write a quote within it as two quotes (RFC 4180), not with a backslash",
        line=line,
    )


def complete_records_end(text: bytes) -> int:
    """Return the number of bytes of complete records at the start of a text, which is cut at any byte."""
    end = text.rfind(b"\n") + 1
    if not end or b'"' not in text:
        return end
    quotes = _cell_quotes(np.frombuffer(text, np.uint8))
    # The line end is outside of quotes if an even number of quotes is before it.
    while end and int(np.searchsorted(quotes, end)) % 2:
        opening = int(quotes[int(np.searchsorted(quotes, end)) - 1])
        end = text.rfind(b"\n", 0, opening) + 1
    return end


def record_starts(text: bytes) -> NDArray[np.int64]:
    """Return the offsets of the records of a text, without empty lines."""
    signs = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(signs == LINE_END) + 1
    # After an odd number of quotes, the line end is within a cell.
    starts = np.append(0, ends[np.searchsorted(_cell_quotes(signs), ends) % 2 == 0])
    starts = starts[starts < len(text)]
    following = signs[np.minimum(starts + 1, len(text) - 1)]
    is_empty = (signs[starts] == LINE_END) | ((signs[starts] == _RETURN) & (following == LINE_END))
    offsets: NDArray[np.int64] = starts[~is_empty].astype(np.int64)
    return offsets


def header_names(text: bytes) -> list[str]:
    """Return the column names, from the first record."""
    starts = record_starts(text[:MAX_HEADER_BYTES])
    end = int(starts[1]) if len(starts) > 1 else MAX_HEADER_BYTES
    head = text[int(starts[0]) : end].decode(errors="replace") if len(starts) else ""
    return next(csv.reader(io.StringIO(head, newline="")), [])


def opens_cells(
    signs: np.ndarray[tuple[int], np.dtype[np.uint8]], quotes: np.ndarray[tuple[int], np.dtype[np.intp]]
) -> bool:
    """Return whether every opening quote is at the start of a cell, or follows a quote that would have closed it."""
    opening = quotes[::2]
    opening = opening[opening > 0]
    return bool(_BEFORE_QUOTE[signs[opening - 1]].all())


def _cell_quotes(signs: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> NDArray[np.intp]:
    """Return the offsets of the quotes that open and close cells, alternately."""
    quotes = np.flatnonzero(signs == QUOTE)
    return quotes if opens_cells(signs, quotes) else np.array(list(_opening_and_closing(signs, quotes)), np.intp)


def _opening_and_closing(signs: NDArray[np.uint8], quotes: NDArray[np.intp]) -> Iterator[int]:
    opens = ((quotes == 0) | _BEFORE_CELL[signs[quotes - 1]]).tolist()
    offsets, number = quotes.tolist(), 0
    while number < len(offsets):
        if not opens[number]:
            # An ordinary character of an unquoted cell.
            number += 1
            continue
        yield offsets[number]
        number += 1
        while number < len(offsets):
            yield offsets[number]
            number += 1
            if number == len(offsets) or offsets[number] != offsets[number - 1] + 1:
                break
            yield offsets[number]
            number += 1
