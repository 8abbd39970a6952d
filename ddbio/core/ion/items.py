"""Spell printed items as the text Ion of imports, all lines at once; refuses nothing: what it gets was checked.

Each step replaces one form of value in the whole text. It can be told from a member of that name by what follows, since
what is done already is marked by bytes that no line holds: JSON escapes them.
"""

from __future__ import annotations

import re

from ddbio.core.number import canonical_number

OPENING = b"$ion_1_0 {Item:"
"""What a line begins with, before its item."""

# Text without braces and brackets outside of its strings, in which no quote is escaped any more.
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


def ion_items(lines: bytes) -> bytes:
    """Return lines of ``OPENING``, an item of compact DynamoDB JSON and a brace as lines of Ion."""
    for escape, code in _ESCAPES:
        lines = lines.replace(escape, code)
    for pattern, form in _NUMBERS:
        lines = pattern.sub(form, lines)
    lines = _ODD_NUMBER.sub(lambda match: _MARK + _number(match[1]), lines)
    lines = _BINARY.sub(_STRUCT * 2 + rb"\1" + _END * 2, lines)
    for word, plain in _WORDS:
        lines = lines.replace(word, _MARK + plain)
    lines = _SET.sub(_set, lines)
    # A pattern for the most frequent type would take the most time: after its opening comes its end.
    head, *texts = lines.split(b'{"S":"')
    lines = (_MARK + b'"').join([head, *[text.replace(b'"}', b'"', 1) for text in texts]])
    found = 1
    while found:
        found = 0
        for pattern, form in _NESTED:
            # From the innermost on, a level at a time.
            lines, count = pattern.subn(form, lines)
            found += count
    lines = lines.translate(_PLAIN, _MARK)
    for escape, code in _ESCAPES:
        lines = lines.replace(code, escape)
    return lines


def _number(text: bytes) -> bytes:
    number = canonical_number(text.decode())
    return (number if "." in number else f"{number}.").encode()


def _set(match: re.Match[bytes]) -> bytes:
    def element(found: re.Match[bytes]) -> bytes:
        return _number(found[1]) if match[1] == b"NS" else _STRUCT * 2 + found[1] + _END * 2

    elements = match[2] if match[1] == b"SS" else _ELEMENT.sub(element, match[2])
    return b"$dynamodb_" + match[1] + b"::" + _LIST + elements + _LIST_END
