"""Split the body of a Scan or Query response into its items, still as bytes, and the few members around them.

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

# A quote ends a JSON string unless escaped, and an attribute value is an object: only the response's member matches.
ITEMS_MEMBER = re.compile(rb'"Items"\s*:\s*\[')

_EMPTY = b'{"Items":[]}'
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Scan.html#API_Scan_ResponseSyntax
_COUNTS = {"Count", "ScannedCount"}
_OTHER_MEMBERS = _COUNTS | {"ConsumedCapacity", "LastEvaluatedKey"}
_ENDS_WITH_ITEMS = re.compile(rb"\]\s*\}\s*\Z")
_NEXT_MEMBER = re.compile(rb'\]\s*,\s*"')
_LONGEST_END_BYTES = 64
_MAX_CANDIDATES = 16
# No request consumes nearly as many.
_MOST_UNITS = 1e9


@dataclass(frozen=True, slots=True)
class Page:
    """Hold one response of Scan or Query."""

    items: bytes
    """The items as ``{"Items":[…]}``."""

    count: int
    scanned_count: int
    last_evaluated_key: Item | None
    """The start key of the next page; None after the last page."""

    consumed_units: float | None
    """The capacity units that the service charged, if the request asked for them."""

    wire_bytes: int
    """Bytes of the whole body."""

    missing: int = 0
    """Keys that were looked up, and for which there is no item."""

    missing_keys: tuple[bytes, ...] = ()
    """Those of them that are known, as DynamoDB JSON."""

    queries_left: int = 0
    """How many queries of the request are not read to their end."""

    keys_left: Collection[bytes] = ()
    """Keys of the request that were not looked up yet; it changes when the next page is taken."""

    is_resumed: bool = False
    """Whether an earlier run of the job had read it."""


def split_page(body: bytes) -> Page:
    """Return the page of a response body; the content of the items is not looked at.

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
    """Return a page with only the first ``count`` of its items; what it cost stays."""
    items = parse_json(page.items)["Items"][:count]
    return replace(page, items=compact_json({"Items": items}).encode(), count=count)


def items_of_page(body: bytes) -> bytes:
    """Return the items of a response as ``{"Items":[…]}``, whatever other members there are.

    Raises
    ------
    DecodeError
        The body is no JSON object, or has something else for its items.
    """
    return _split(body)[0]


def _split(body: bytes) -> tuple[bytes, dict[str, Any]]:
    start = ITEMS_MEMBER.search(body)
    if start is not None:
        head = _members(body[: start.start()].rstrip().removesuffix(b",") + b"}")
        found = _tail(body, start.end() - 1)
        if head is not None and found is not None:
            end, tail = found
            return b"".join((b"{", memoryview(body)[start.start() : end], b"}")), {**head, **tail}
    return _split_slowly(body)


def _tail(body: bytes, first: int) -> tuple[int, dict[str, Any]] | None:
    """Return the end of the items and the members after them, or None if that takes a parser."""
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
        count=_whole(members, "Count"),
        scanned_count=_whole(members, "ScannedCount"),
        last_evaluated_key=members.get("LastEvaluatedKey"),
        consumed_units=units_in(members.get("ConsumedCapacity")),
        wire_bytes=wire_bytes,
    )


def units_in(consumed: Any) -> float | None:
    """Return the units that a response says were consumed, of one table or several; None if it says nothing.

    Raises
    ------
    DecodeError
        If that is no count of units.
    """
    each = consumed if isinstance(consumed, list) else [consumed] if consumed else []
    said = [one.get("CapacityUnits") if isinstance(one, dict) else one for one in each]
    units = [one for one in said if one is not None]
    for one in units:
        if type(one) not in {int, float} or not 0 <= one <= _MOST_UNITS:
            raise DecodeError(f"the response says that {one!r} capacity units were consumed, which is no count")
    return float(sum(units)) if units else None


def _whole(members: dict[str, Any], name: str) -> int:
    value = members.get(name)
    if type(value) is not int:
        raise DecodeError(f"the body is not the response of a Scan or Query: {name} is {value!r}, not a whole number")
    return value
