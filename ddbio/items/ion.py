"""Fast conversion of blocks of lines between DynamoDB JSON and the text Ion of exports and imports.

``IonReader`` reads Ion by the compiled loop. The reference implementation reads text that the loop refuses.
``to_ion_lines`` writes Ion by regular expressions over all lines: each step replaces one kind of value in the whole
text. Converted values are marked with control characters, which JSON never contains unescaped, so that no later step
changes them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ddbio.errors import DecodeError
from ddbio.items.ion_values import ion_to_json_lines
from ddbio.items.kernel import ion
from ddbio.items.kernel.ion import FULL, REFUSED
from ddbio.items.kernel.memory import PAD, allocate
from ddbio.items.kernel.number import LONGEST_NUMBER
from ddbio.items.number import canonical_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

PIECE_BYTES = 8 << 20
"""The number of bytes to print at a time, unless one line is longer."""

OPENING = b"$ion_1_0 {Item:"
"""The start of a line, before its item."""

# Text without braces and brackets outside strings. Escaped quotes were replaced before.
_FLAT = rb'((?:[^"{}\[\]]++|"[^"]*+")*+)'
_DIGITS = rb"(-?(?:0|[1-9][0-9]*+))"
_MARK, _STRUCT, _END, _LIST, _LIST_END, _BACKSLASH, _QUOTE = (bytes([code]) for code in range(1, 8))
_PLAIN = bytes.maketrans(_STRUCT + _END + _LIST + _LIST_END, b"{}[]")
_ESCAPES = [(rb"\\", _BACKSLASH), (rb"\"", _QUOTE)]

_NUMBERS = [
    (re.compile(rb'\{"N":"' + _DIGITS + rb'"\}'), _MARK + rb"\1."),
    (re.compile(rb'\{"N":"' + _DIGITS + rb'(\.[0-9]++)"\}'), _MARK + rb"\1\2"),
]
_ODD_NUMBER = re.compile(rb'\{"N":"([^"]++)"\}')
_BINARY = re.compile(rb'\{"B":"([^"]*+)"\}')
_WORDS = [(b'{"BOOL":true}', b"true"), (b'{"BOOL":false}', b"false"), (b'{"NULL":true}', b"null")]
_SET = re.compile(rb'\{"([SNB]S)":\[' + _FLAT + rb"\]\}")
_ELEMENT = re.compile(rb'"([^"]*+)"')
_NESTED = [
    (re.compile(rb'\{"L":\[' + _FLAT + rb"\]\}"), _LIST + rb"\1" + _LIST_END),
    (re.compile(rb'\{"M":\{' + _FLAT + rb"\}\}"), _STRUCT + rb"\1" + _END),
]


class IonReader:
    """Conversion of blocks of Ion lines to lines of DynamoDB JSON. Use one per thread.

    Parameters
    ----------
    max_line_bytes
        The longest line of JSON to print: ``1d125`` stands for 126 digits.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_bytes = max_line_bytes + ion.RESERVED_BYTES
        self._data = allocate(PAD)
        self._out = allocate(min(PIECE_BYTES, self._max_bytes))
        self._levels = np.zeros(ion.MAX_DEPTH + 1, np.int64)
        self._digits = allocate(LONGEST_NUMBER + PAD)

    def pieces(self, block: Buffer) -> Iterator[bytes]:
        """Yield the documents of whole lines as lines of JSON. Lines without a document are skipped.

        Raises
        ------
        DecodeError
            A line is not Ion of an export. Its number counts from the first line not yet yielded.
        """
        text = memoryview(block)
        stop = len(text)
        if len(self._data) < stop + PAD:
            self._data = allocate(stop + PAD)
        self._data[:stop] = np.frombuffer(text, np.uint8)
        self._data[stop : stop + PAD] = 0
        position = 0
        while position < stop:
            status, position, printed = ion.print_ion(self._data, position, stop, self._out, self._levels, self._digits)
            if printed:
                yield self._out[:printed].tobytes()
            elif status == FULL:
                self._grow()
            if status == REFUSED:
                end = bytes(text[position:]).find(b"\n") + 1 or stop - position
                yield from filter(None, [ion_to_json_lines(bytes(text[position : position + end]))])
                position += end

    def _grow(self) -> None:
        if len(self._out) >= self._max_bytes:
            raise DecodeError(
                f"line 1: it stands for more than {self._max_bytes - ion.RESERVED_BYTES} bytes of JSON", line=1
            )
        self._out = allocate(min(2 * len(self._out), self._max_bytes))


def to_ion_lines(lines: bytes) -> bytes:
    """Convert lines of ``OPENING``, an item in compact DynamoDB JSON and a closing brace to lines of Ion."""
    for escape, code in _ESCAPES:
        lines = lines.replace(escape, code)
    for pattern, replacement in _NUMBERS:
        lines = pattern.sub(replacement, lines)
    lines = _ODD_NUMBER.sub(lambda match: _MARK + _number(match[1]), lines)
    lines = _BINARY.sub(_STRUCT * 2 + rb"\1" + _END * 2, lines)
    for word, plain in _WORDS:
        lines = lines.replace(word, _MARK + plain)
    lines = _SET.sub(_set, lines)
    # Replacing strings, the most frequent type, by a pattern would take most of the time.
    head, *texts = lines.split(b'{"S":"')
    lines = (_MARK + b'"').join([head, *[text.replace(b'"}', b'"', 1) for text in texts]])
    n_replaced = 1
    while n_replaced:
        n_replaced = 0
        for pattern, replacement in _NESTED:
            # From the innermost level outwards, one level at a time.
            lines, count = pattern.subn(replacement, lines)
            n_replaced += count
    lines = lines.translate(_PLAIN, _MARK)
    for escape, code in _ESCAPES:
        lines = lines.replace(code, escape)
    return lines


def _number(text: bytes) -> bytes:
    number = canonical_number(text.decode())
    return (number if "." in number else f"{number}.").encode()


def _set(match: re.Match[bytes]) -> bytes:
    def element(element_match: re.Match[bytes]) -> bytes:
        return _number(element_match[1]) if match[1] == b"NS" else _STRUCT * 2 + element_match[1] + _END * 2

    elements = match[2] if match[1] == b"SS" else _ELEMENT.sub(element, match[2])
    return b"$dynamodb_" + match[1] + b"::" + _LIST + elements + _LIST_END
