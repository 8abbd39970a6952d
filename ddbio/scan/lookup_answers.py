"""Read the answers to BatchGetItem: the items stay bytes, and are counted; keys that were not found are told.

No Python object is made per attribute, unless items are missing whose keys are to be told.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.errors import DecodeError
from ddbio.items.item_key import key_identity
from ddbio.items.json_text import compact_json, parse_json
from ddbio.items.page import Page, units_in
from ddbio.items.raw_items import PageSplitter

if TYPE_CHECKING:
    from collections.abc import Sequence

# A quote ends a JSON string unless escaped, and no type of an attribute value has a name as long as a table's.
_RESPONSES = re.compile(rb'"Responses"\s*:\s*\{\s*"[^"]{3,}"\s*:\s*\[')
_END = re.compile(rb'\]\s*\}\s*(?:,\s*(?=")|(?=\}\s*\Z))')
_MEMBERS = {"ConsumedCapacity", "UnprocessedKeys"}
_MOST_CANDIDATES = 16


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """Hold one answer: the items as the inside of a JSON list, and the keys to be asked for again."""

    items: bytes
    count: int
    scanned_count: int
    """Keys that were looked up, whether there is an item or not."""
    consumed_units: float | None
    wire_bytes: int
    unprocessed: tuple[bytes, ...]
    missing: tuple[bytes, ...]
    """Keys without an item, if their items' keys were asked for."""


class AnswerReader:
    """Read the answers of one lane."""

    def __init__(self) -> None:
        self._splitter = PageSplitter()

    def read(self, body: bytes, keys: Sequence[bytes]) -> LookupAnswer:
        """Return the answer to a request for some keys.

        Raises
        ------
        DecodeError
            The body is not the response of a BatchGetItem.
        """
        items, members = _split(body)
        unprocessed = tuple(
            compact_json(key).encode()
            for each in (members.get("UnprocessedKeys") or {}).values()
            for key in each["Keys"]
        )
        (lines,) = self._splitter.decode_batches(page_of([items]), "page")
        looked_up = len(keys) - len(unprocessed)
        missing = () if lines.items >= looked_up else _missing(items, keys, unprocessed)
        units = units_in(members.get("ConsumedCapacity"))
        return LookupAnswer(items, lines.items, looked_up, units, len(body), unprocessed, missing)


def page_of(answers: Sequence[bytes]) -> bytes:
    """Return the items of some answers as a page's are."""
    return b'{"Items":[' + b",".join(filter(None, answers)) + b"]}"


def page_of_answers(answers: Sequence[LookupAnswer]) -> Page:
    """Return several answers as one page."""
    units = [each.consumed_units for each in answers if each.consumed_units is not None]
    count, scanned = sum(each.count for each in answers), sum(each.scanned_count for each in answers)
    return Page(
        items=page_of([each.items for each in answers]),
        count=count,
        scanned_count=scanned,
        last_evaluated_key=None,
        consumed_units=sum(units) if units else None,
        wire_bytes=sum(each.wire_bytes for each in answers),
        missing=scanned - count,
        missing_keys=tuple(key for each in answers for key in each.missing),
    )


def _split(body: bytes) -> tuple[bytes, dict[str, Any]]:
    start = _RESPONSES.search(body)
    if start is not None:
        head = _members(body[: start.start()].rstrip().removesuffix(b",") + b"}")
        position = len(body)
        for _ in range(_MOST_CANDIDATES if head is not None else 0):
            position = body.rfind(b"]", start.end(), position)
            if position < 0:
                break
            found = _END.match(body, position)
            tail = None if found is None else _members(b"{" + body[found.end() :])
            if head is not None and tail is not None:
                return body[start.end() : position].strip(), {**head, **tail}
    return _split_slowly(body)


def _members(text: bytes) -> dict[str, Any] | None:
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return members if isinstance(members, dict) and members.keys() <= _MEMBERS else None


def _split_slowly(body: bytes) -> tuple[bytes, dict[str, Any]]:
    members = parse_json(body)
    responses = members.get("Responses") if isinstance(members, dict) else None
    if not isinstance(responses, dict) or not all(isinstance(each, list) for each in responses.values()):
        raise DecodeError("the body is not the response of a BatchGetItem: it has no Responses")
    items = [item for listed in responses.values() for item in listed]
    try:
        return compact_json(items).encode()[1:-1], members
    except UnicodeEncodeError:
        raise DecodeError("the body holds half of a surrogate pair, which is not UTF-8") from None


def _missing(items: bytes, keys: Sequence[bytes], unprocessed: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the keys that have no item; none if the items do not show their keys."""
    asked = {key_identity(key, sorted(key)): text for text in keys for key in (parse_json(text),)}
    names = sorted(parse_json(keys[0]))
    found = parse_json(b"[" + items + b"]")
    if any(name not in item for item in found for name in names):
        return ()
    gone = {key_identity(item, names) for item in found}
    gone |= {key_identity(parse_json(text), names) for text in unprocessed}
    return tuple(text for identity, text in asked.items() if identity not in gone)
