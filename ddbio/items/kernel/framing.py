"""Frames of items: the lines of an export, pages, and the texts of a column.

A frame with any other member is refused; the plain reference reports the error.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.items.kernel.codes import COLUMN, ERROR, EXPORT
from ddbio.items.kernel.jit import inner
from ddbio.items.kernel.memory import load64, out_of_line, peek
from ddbio.items.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COLON, COMMA, OPEN_ARRAY, OPEN_OBJECT
from ddbio.items.kernel.text import QUOTE, read_text, skip_blank

_EXPORT_START = int.from_bytes(b'{"Item":', "little")
_PAGE_START = int.from_bytes(b'{"Items"', "little")


@inner
def open_document(data: Any, position: int, framing: int, state: Any) -> Any:
    """Return the position of the first item of a line or page, and 1 within a page; -1 for a page without items."""
    out_of_line()
    if framing == COLUMN:
        return position, 0
    start = np.int64(load64(data, position))
    if framing == EXPORT and start == _EXPORT_START:
        return skip_blank(data, position + 8), 0
    if framing != EXPORT and start == _PAGE_START and peek(data, position + 8) == COLON:
        position += 9
    else:
        if peek(data, position) != OPEN_OBJECT:
            return -ERROR, 0
        position = skip_blank(data, position + 1)
        if peek(data, position) != QUOTE:
            return -ERROR, 0
        text, length, position = read_text(data, position + 1, state)
        if position < 0:
            return position, 0
        is_item = np.int64(load64(data, text)) & 0xFFFFFFFF == 0x6D657449  # noqa: PLR2004 - "Item"
        if not is_item or length != (4 if framing == EXPORT else 5) or (length == 5 and peek(data, text + 4) != 115):  # noqa: PLR2004 - "s"
            return -ERROR, 0
        position = skip_blank(data, position)
        if peek(data, position) != COLON:
            return -ERROR, 0
        position += 1
    position = skip_blank(data, position)
    if framing == EXPORT:
        return position, 0
    if peek(data, position) != OPEN_ARRAY:
        return -ERROR, 0
    position = skip_blank(data, position + 1)
    if peek(data, position) != CLOSE_ARRAY:
        return position, 1
    position = skip_blank(data, position + 1)
    return (position + 1, -1) if peek(data, position) == CLOSE_OBJECT else (-ERROR, 0)


@inner
def close_document(data: Any, position: int, framing: int) -> Any:
    """Return the position of the next document or item, and 1 for the latter."""
    position = skip_blank(data, position)
    if framing == COLUMN:
        # JSON has no zero byte, so an item cannot continue in the next text.
        return (position + 1, 0) if peek(data, position) == 0 else (-ERROR, 0)
    if framing != EXPORT:
        if peek(data, position) == COMMA:
            return skip_blank(data, position + 1), 1
        if peek(data, position) != CLOSE_ARRAY:
            return -ERROR, 0
        position = skip_blank(data, position + 1)
    return (position + 1, 0) if peek(data, position) == CLOSE_OBJECT else (-ERROR, 0)
