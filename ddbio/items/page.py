"""Splitting of a Scan or Query response into its items, still as bytes, and the other members.

No Python object is made per attribute. A body that is not such a response is a DecodeError.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ddbio.errors import DecodeError
from ddbio.items.json_text import compact_json, parse_json

if TYPE_CHECKING:
    from collections.abc import Collection

    from ddbio.items.attribute import Item

# A quote ends a JSON string unless escaped, and an attribute value is an object, so only the response's member matches.
ITEMS_MEMBER = re.compile(rb'"Items"\s*:\s*\[')

_EMPTY = b'{"Items":[]}'
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Scan.html#API_Scan_ResponseSyntax
_COUNTS = {"Count", "ScannedCount"}
_OTHER_MEMBERS = _COUNTS | {"ConsumedCapacity", "LastEvaluatedKey"}
_ENDS_WITH_ITEMS = re.compile(rb"\]\s*\}\s*\Z")
_NEXT_MEMBER = re.compile(rb'\]\s*,\s*"')
_LONGEST_END_BYTES = 64
_MAX_CANDIDATES = 16
# Far more than any request can consume.
_MAX_UNITS = 1e9


@dataclass(frozen=True, slots=True)
class Page:
    """Response of one Scan or Query request."""

    items: bytes
    """The items as ``{"Items":[…]}``."""

    count: int
    scanned_count: int
    last_evaluated_key: Item | None
    """The start key of the next page, or None after the last page."""

    consumed_units: float | None
    """The capacity units that the service charged, if the request asked for them."""

    wire_bytes: int
    """The size of the whole body in bytes."""

    missing: int = 0
    """The number of looked-up keys without an item."""

    missing_keys: tuple[bytes, ...] = ()
    """Those of these keys that are known, as DynamoDB JSON."""

    queries_left: int = 0
    """The number of the request's queries that are not read to their end."""

    keys_left: Collection[bytes] = ()
    """Keys of the request that were not looked up yet. It changes when the next page is taken."""

    is_resumed: bool = False
    """Whether an earlier run of the job read it."""


def split_page(body: bytes) -> Page:
    """Return the page of a response body. The content of the items is not examined.

    Raises
    ------
    DecodeError
        The body is not the response of a Scan or Query.
    """
    items, members = _split(body)
    if not members.keys() >= _COUNTS:
        items, members = _split_slowly(body)
    return _page(items, members, len(body))


def first_items(page: Page, count: int) -> Page:
    """Return a page with only the first ``count`` of its items. Its cost is unchanged."""
    items = parse_json(page.items)["Items"][:count]
    return replace(page, items=compact_json({"Items": items}).encode(), count=count)


def items_of_page(body: bytes) -> bytes:
    """Return the items of a response as ``{"Items":[…]}``, regardless of other members.

    Raises
    ------
    DecodeError
        The body is not a JSON object, or its items are not a list.
    """
    return _split(body)[0]


def _split(body: bytes) -> tuple[bytes, dict[str, Any]]:
    start = ITEMS_MEMBER.search(body)
    if start is not None:
        head = _members(body[: start.start()].rstrip().removesuffix(b",") + b"}")
        tail_and_end = _tail(body, start.end() - 1)
        if head is not None and tail_and_end is not None:
            end, tail = tail_and_end
            return b"".join((b"{", memoryview(body)[start.start() : end], b"}")), {**head, **tail}
    return _split_slowly(body)


def _tail(body: bytes, first: int) -> tuple[int, dict[str, Any]] | None:
    """Return the end of the items and the members after them, or None if finding them needs a parser."""
    end_of_body = _ENDS_WITH_ITEMS.search(body, max(first, len(body) - _LONGEST_END_BYTES))
    if end_of_body is not None:
        return end_of_body.start() + 1, {}
    position = len(body)
    for _ in range(_MAX_CANDIDATES):
        position = body.rfind(b"]", first, position)
        if position < 0:
            return None
        candidate = _NEXT_MEMBER.match(body, position)
        if candidate is not None and (tail := _members(b'{"' + body[candidate.end() :])) is not None:
            return position + 1, tail
    return None


def _members(text: bytes) -> dict[str, Any] | None:
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return members if isinstance(members, dict) and members.keys() <= _OTHER_MEMBERS else None


def _split_slowly(body: bytes) -> tuple[bytes, dict[str, Any]]:
    members = parse_json(body)
    if not isinstance(members, dict) or not isinstance(members.get("Items", []), list):
        raise DecodeError("the body is not the response of a Scan or Query: it has no list of Items")
    try:
        items = compact_json({"Items": members["Items"]}).encode() if "Items" in members else _EMPTY
    except UnicodeEncodeError:
        raise DecodeError("the body holds half of a surrogate pair, which is not UTF-8") from None
    return items, members


def _page(items: bytes, members: dict[str, Any], wire_bytes: int) -> Page:
    return Page(
        items=items,
        count=_integer(members, "Count"),
        scanned_count=_integer(members, "ScannedCount"),
        last_evaluated_key=members.get("LastEvaluatedKey"),
        consumed_units=units_in(members.get("ConsumedCapacity")),
        wire_bytes=wire_bytes,
    )


def units_in(consumed: Any) -> float | None:
    """Return the consumed units in a response, of one table or several, or None if it has none.

    Raises
    ------
    DecodeError
        A value is not a number of units.
    """
    entries = consumed if isinstance(consumed, list) else [consumed] if consumed else []
    capacity_units = [value.get("CapacityUnits") if isinstance(value, dict) else value for value in entries]
    units = [value for value in capacity_units if value is not None]
    for value in units:
        if type(value) not in {int, float} or not 0 <= value <= _MAX_UNITS:
            raise DecodeError(f"the response has {value!r} consumed capacity units, which is not a valid number")
    return float(sum(units)) if units else None


def _integer(members: dict[str, Any], name: str) -> int:
    value = members.get(name)
    if type(value) is not int:
        raise DecodeError(f"the body is not the response of a Scan or Query: {name} is {value!r}, not a whole number")
    return value
