"""Tell by its beginning whether JSON is DynamoDB JSON or plain."""

from __future__ import annotations

import re

_TAGS = rb"(?:S|N|B|BOOL|NULL|SS|NS|BS|L|M)"
_FIRST = rb'\s*"(?:[^"\\]|\\.)*"\s*:\s*\{\s*"' + _TAGS + rb'"\s*:'
# An item, or an export's line: the first value has one of DynamoDB's types. Plain JSON has none.
_TYPED = re.compile(rb'\s*\{(?:\s*"Item"\s*:\s*\{)?' + _FIRST)
# A saved answer of Scan or Query, of which no member but Items holds items.
_ANSWER = re.compile(rb'\s*\{\s*"(?:ConsumedCapacity|Count|Items|LastEvaluatedKey|ScannedCount)"\s*:')
_ITEMS = re.compile(rb'"Items"\s*:\s*\[\s*\{' + _FIRST)
_NO_ITEMS = re.compile(rb'"Items"\s*:\s*\[\s*\][^\[]*\Z')


def starts_with_item(text: bytes) -> bool:
    """Return whether a text begins with DynamoDB JSON: an item, or a line of an export."""
    return bool(_TYPED.match(text))


def is_answer(text: bytes) -> bool:
    """Return whether a text is a saved answer of Scan or Query."""
    if not _ANSWER.match(text):
        return False
    return bool(_ITEMS.search(text) or (b'"ScannedCount"' in text and _NO_ITEMS.search(text)))
