"""Printing of images of changes as members of plain JSON: the key's members, then others of the new image."""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0912

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ddbio.items.kernel.codes import BOOL, KEYS, NEW_IMAGE, NULL, OLD_IMAGE, SS, WRITE_TIME, B, M, N, S
from ddbio.items.kernel.encode.printing import print_text
from ddbio.items.kernel.jit import inner, int64, loop
from ddbio.items.kernel.memory import PAD, copy_bytes, out_of_line, peek, pointers, poke
from ddbio.items.kernel.number import LONGEST_NUMBER, canonicalise_number, print_integer
from ddbio.items.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COLON, COMMA, OPEN_ARRAY, OPEN_OBJECT
from ddbio.items.kernel.tape.paths import ELEMENTS, NAME_BYTES, NAME_HASH, NODE_BITS, NODE_WIDTH, OTHERS
from ddbio.items.kernel.tape.paths import NAME as NODE_NAME
from ddbio.items.kernel.tape.walk import (
    CLOSE,
    ENCODING_BITS,
    ENTRY_WORDS,
    IN_SET,
    LENGTH_MASK,
    NAME,
    NUMBER_TEXT,
    ODD,
    TAG_BITS,
)
from ddbio.items.kernel.text import QUOTE, same_text

REFUSED: Final = -1
LONGER_BYTES: Final = LONGEST_NUMBER
"""The most bytes that the print of an entry exceeds its JSON by: a number may have an exponent."""

_WORDS = np.frombuffer(bytearray(b"true".ljust(8) + b"false".ljust(8) + b"null".ljust(PAD)), np.uint8)


class Plain(NamedTuple):
    """Tape of changes, and the output arrays."""

    data: npt.NDArray[np.uint8]
    tape: npt.NDArray[np.int64]
    nodes: npt.NDArray[np.int64]
    texts: npt.NDArray[np.uint8]
    digits: npt.NDArray[np.uint8]
    members: npt.NDArray[np.int64]
    """Space for the positions on the tape of a change's members: as many as keys and new images have names."""
    levels: npt.NDArray[np.int64]
    """Space for the closing brackets of the open containers."""
    out: npt.NDArray[np.uint8]
    """As long as the data, with ``LONGER_BYTES`` more for each entry, and ``PAD``."""
    ends: npt.NDArray[np.int64]
    """The end of the members of each change."""
    times: npt.NDArray[np.int64]


@loop(Plain, int64)
def print_changes(plain: Any, n_words: int) -> Any:
    """Print the members of every change, without braces; return the number of bytes.

    Return ``REFUSED`` if an image has no attributes, or a number is not valid.
    """
    return _print_changes(pointers(plain), n_words)


@inner
def _print_changes(c: Any, n_words: int) -> Any:
    at, row, position = 0, 0, 0
    while position < n_words:
        # A change has images in any order, a time, and whether the item is deleted.
        begin, keys, new = at, 0, 0
        position += ENTRY_WORDS
        tag = 0
        while tag != CLOSE:
            head = peek(c.tape, position)
            tag, node = head & TAG_BITS, head >> NODE_BITS
            if tag == M and KEYS <= node <= OLD_IMAGE:
                if peek(c.tape, position + ENTRY_WORDS) & TAG_BITS == CLOSE:
                    return REFUSED
                if node == KEYS:
                    keys = position + ENTRY_WORDS
                elif node == NEW_IMAGE:
                    new = position + ENTRY_WORDS
                position = _after_value(c.tape, position)
                continue
            if tag == N and node == WRITE_TIME:
                poke(c.times, row, peek(c.tape, position + 1))
            position += ENTRY_WORDS
        count = 0
        while peek(c.tape, keys) & TAG_BITS != CLOSE:
            poke(c.members, count, keys)
            count += 1
            keys = _after_value(c.tape, keys)
        n_keys = count
        while new > 0 and peek(c.tape, new) & TAG_BITS != CLOSE:
            index = 0
            while index < n_keys and not _has_same_name(c, peek(c.members, index), new):
                index += 1
            # The value of the new image replaces that of the key.
            poke(c.members, index if index < n_keys else count, new)
            count += index == n_keys
            new = _after_value(c.tape, new)
        for index in range(count):
            at = _print_member(c, at, peek(c.members, index))
            if at < 0:
                return REFUSED
        # The last member has no comma.
        at -= at > begin
        poke(c.ends, row, at)
        row += 1
    return at


@inner
def _after_value(tape: Any, position: int) -> Any:
    """Return the position of the entry after a value, which may begin with its name."""
    depth = 0
    while True:
        tag = peek(tape, position) & TAG_BITS
        position += ENTRY_WORDS
        if tag == CLOSE:
            depth -= 1
        elif SS <= tag < IN_SET:
            depth += 1
        if depth == 0 and tag not in (NAME, ODD):
            return position


@inner
def _has_same_name(c: Any, position: int, other: int) -> Any:
    """Return whether two attributes of images have the same name; every name of an image has a node."""
    one, two = _record_of(c.tape, position), _record_of(c.tape, other)
    length = peek(c.nodes, one + NAME_BYTES)
    if peek(c.nodes, one + NAME_HASH) != peek(c.nodes, two + NAME_HASH) or peek(c.nodes, two + NAME_BYTES) != length:
        return False
    return same_text(c.texts, peek(c.nodes, one + NODE_NAME), c.texts, peek(c.nodes, two + NODE_NAME), length)


@inner
def _record_of(tape: Any, position: int) -> Any:
    while peek(tape, position) & TAG_BITS == ODD:
        position += ENTRY_WORDS
    return (peek(tape, position) >> NODE_BITS) * NODE_WIDTH


@inner
def _print_text(c: Any, at: int, source: Any, span: int) -> Any:
    poke(c.out, at, QUOTE)
    at = print_text(c.out, at + 1, source, span >> 32, span & LENGTH_MASK)
    poke(c.out, at, QUOTE)
    return at + 1


@inner
def _print_number(c: Any, at: int, encoding: int, word: int) -> Any:
    """Print a number; return the position after it, or a negative one if DynamoDB has no such number."""
    start, length = word >> 32, word & LENGTH_MASK
    if encoding == NUMBER_TEXT:
        return copy_bytes(c.out, at, c.data, start, length)
    if encoding == 0:
        at, _ = canonicalise_number(c.out, at, c.data, start, length, c.digits)
    else:
        at, _ = print_integer(c.out, at, np.uint64(-word if word < 0 else word), word < 0, encoding - 1)
    return at


@inner
def _print_member(c: Any, at: int, position: int) -> Any:
    """Print the member at ``position``: its name, value and a comma; return the position after them in the output.

    The position is negative if DynamoDB has no such number.
    """
    out_of_line()
    depth, name = 0, 0
    while True:
        head, word = peek(c.tape, position), peek(c.tape, position + 1)
        position += ENTRY_WORDS
        tag = head & TAG_BITS
        if tag == NAME:
            name = word
        if tag in (NAME, ODD):
            continue
        if tag == CLOSE:
            # The last member has no comma.
            at -= peek(c.out, at - 1) == COMMA
            depth -= 1
            poke(c.out, at, peek(c.levels, depth))
            at += 1
        else:
            record, name_length = (head >> NODE_BITS) * NODE_WIDTH, ELEMENTS
            if tag >= IN_SET:
                tag -= IN_SET
            else:
                name_length = peek(c.nodes, record + NAME_BYTES)
            if name_length >= 0:
                name = peek(c.nodes, record + NODE_NAME) << 32 | name_length
            if name_length != ELEMENTS:
                at = _print_text(c, at, c.data if name_length == OTHERS else c.texts, name)
                poke(c.out, at, COLON)
                at += 1
            if tag >= SS:
                poke(c.out, at, OPEN_OBJECT if tag == M else OPEN_ARRAY)
                poke(c.levels, depth, CLOSE_OBJECT if tag == M else CLOSE_ARRAY)
                at += 1
                depth += 1
                continue
            if tag in (S, B):
                at = _print_text(c, at, c.data, word)
            elif tag == BOOL:
                at = copy_bytes(c.out, at, _WORDS, 8 - 8 * word, 5 - word)
            elif tag == NULL:
                at = copy_bytes(c.out, at, _WORDS, 16, 4)
            else:
                at = _print_number(c, at, (head >> ENCODING_BITS) & 0xFF, word)
                if at < 0:
                    return at
        poke(c.out, at, COMMA)
        at += 1
        if depth == 0:
            return at
