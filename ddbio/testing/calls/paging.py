"""Answer Scan and Query page by page; refuses to look into items beyond their keys and the wanted attributes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddbio.core.capacity import READ_UNIT_BYTES
from ddbio.testing.calls.source import Shape, Source, parsed, read_ratio, shape_of
from ddbio.testing.expressions.key_condition import key_range
from ddbio.testing.expressions.names import Placeholders
from ddbio.testing.expressions.projection import pick
from ddbio.testing.refusal import invalid
from ddbio.testing.tables.capacity import Draw
from ddbio.testing.tables.database import Database, consumed_member
from ddbio.testing.tables.schema import Key, base_key, hash_bounds, part_of_hash
from ddbio.testing.values import to_wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.core.attribute import Item
    from ddbio.testing.reply import Chunks
    from ddbio.testing.request import Request
    from ddbio.testing.tables.shelf import Frozen

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Scan.html#Scan.Pagination
MAX_PAGE_BYTES = 1 << 20
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Scan.html
MAX_SEGMENTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Page:
    """Hold the places ``first … last - 1`` that one request reads, and whether it stops before the end."""

    first: int
    last: int
    stops_early: bool


def forward_page(frozen: Frozen, first: int, end: int, limit: int | None) -> Page:
    """Return the page that begins at a place: it stops after the item that reaches 1 MiB, or at the limit."""
    reach = int(np.searchsorted(frozen.sizes, frozen.sizes[first] + MAX_PAGE_BYTES))
    last = min(end, reach, end if limit is None else first + limit)
    return Page(first, last, last < end)


def backward_page(frozen: Frozen, begin: int, last: int, limit: int | None) -> Page:
    """Return the page that ends before a place, by the same rules."""
    reach = int(np.searchsorted(frozen.sizes, frozen.sizes[last] - MAX_PAGE_BYTES, side="right")) - 1
    first = max(begin, reach, begin if limit is None else last - limit)
    return Page(first, last, first > begin)


def read_units(size_bytes: int, ratio: float) -> float:
    """Return the read units of bytes read in one partition by one request."""
    return ratio * max(1, math.ceil(size_bytes / READ_UNIT_BYTES))


def scan(database: Database, request: Request) -> Chunks:
    """Read a table, an index or one segment of it in hash order."""
    source = Source.asked(database.table(request), request)
    low, high = _segment(request)
    placeholders = Placeholders(request, has_expression="ProjectionExpression" in request.members)
    shape = shape_of(source, request, placeholders)
    placeholders.check_all_used()
    limit = request.integer("Limit", 1)
    start = source.start_key(request)
    frozen = source.frozen
    first = frozen.position((low,))
    if start is not None:
        if not low <= start[0] < high:
            raise invalid(
                "The provided starting key is invalid: Invalid ExclusiveStartKey. Please use ExclusiveStartKey with "
                f"correct Segment. TotalSegments: {request.members['TotalSegments']} "
                f"Segment: {request.members['Segment']}"
            )
        first = _after(frozen, start)
        low = start[0]
    page = forward_page(frozen, first, frozen.position((high,)), limit)
    if page.stops_early:
        high = frozen.keys[page.last - 1][0] + 1
    draws = list(_scan_draws(source, frozen, page, (low, high), read_ratio(request)))
    return _Reader(database, request, source, shape).reply(frozen, page, draws)


def _segment(request: Request) -> tuple[int, int]:
    segments = request.integer("TotalSegments", 1, MAX_SEGMENTS)
    segment = request.integer("Segment", 0, MAX_SEGMENTS - 1)
    if segments is None and segment is None:
        return hash_bounds(0, 1)
    if segments is None or segment is None:
        missing, present = ("Segment", "TotalSegments") if segment is None else ("TotalSegments", "Segment")
        raise invalid(
            f"The {missing} parameter is required but was not present in the request when {present} parameter "
            "is present"
        )
    if segment >= segments:
        raise invalid(
            "The Segment parameter is zero-based and must be less than parameter TotalSegments: "
            f"Segment: {segment} is not less than TotalSegments: {segments}"
        )
    return hash_bounds(segment, segments)


def _after(frozen: Frozen, key: Key) -> int:
    at = frozen.position(key)
    return at + (at < len(frozen.keys) and frozen.keys[at] == key)


def _scan_draws(source: Source, frozen: Frozen, page: Page, hashes: tuple[int, int], ratio: float) -> Iterator[Draw]:
    """Yield one draw per physical partition that a page visits; an empty one still costs a unit."""
    partitions = source.partitions
    low, high = hashes
    first = page.first
    for partition in range(part_of_hash(low, partitions), part_of_hash(max(low, high - 1), partitions) + 1):
        end = min(page.last, frozen.position((hash_bounds(partition, partitions)[1],)))
        units = read_units(frozen.size_bytes(first, max(first, end)), ratio)
        yield Draw(source.resource, "Read", partition, units, source.local_index)
        first = max(first, end)


def query(database: Database, request: Request) -> Chunks:
    """Read items of one partition key in sort order, either way."""
    source = Source.asked(database.table(request), request)
    expression = request.text("KeyConditionExpression")
    if expression is None:
        raise invalid("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
    placeholders = Placeholders(request, has_expression=True)
    wanted = key_range(expression, placeholders, source.keys)
    shape = shape_of(source, request, placeholders)
    placeholders.check_all_used()
    limit = request.integer("Limit", 1)
    start = source.start_key(request)
    backward = request.members.get("ScanIndexForward") is not None and not request.boolean("ScanIndexForward")
    frozen = source.frozen
    first, last = wanted.positions(frozen.keys)
    if start is not None:
        if not wanted.contains(start) or (source.keys.sort is None and source.index is None):
            raise invalid("The provided starting key is outside query boundaries based on provided conditions")
        first, last = (first, frozen.position(start)) if backward else (_after(frozen, start), last)
    page = (backward_page if backward else forward_page)(frozen, first, last, limit)
    partition = part_of_hash(wanted.hash_value, source.partitions)
    units = read_units(frozen.size_bytes(page.first, page.last), read_ratio(request))
    draws = [Draw(source.resource, "Read", partition, units, source.local_index)]
    return _Reader(database, request, source, shape).reply(frozen, page, draws, backward=backward)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Turn a page into a reply, once its capacity is taken."""

    database: Database
    request: Request
    source: Source
    shape: Shape

    def reply(self, frozen: Frozen, page: Page, draws: list[Draw], *, backward: bool = False) -> Chunks:
        places = range(page.first, page.last)
        if backward:
            places = places[::-1]
        if self.shape.fetches_base:
            draws += self._base_draws(frozen, places)
        self.database.take(draws)
        count = str(len(places)).encode()
        consumed = to_wire(consumed_member(self.request, self.source.table, draws))[1:-1]
        last = b""
        if page.stops_early:
            last = b',"LastEvaluatedKey":' + to_wire(self.source.paging_key(parsed(frozen.wire(places[-1]))))
        head = b"{" + consumed + b"," * bool(consumed) + b'"Count":' + count
        tail = last + b',"ScannedCount":' + count + b"}"
        if self.shape.counts_only:
            return [head, tail]
        if self.shape.tree is None and not self.shape.fetches_base and not backward:
            items: bytes | memoryview = frozen.wires(page.first, page.last)
        else:
            items = b",".join(self._item(frozen, at) for at in places)
        return [head + b',"Items":[', items, b"]" + tail]

    def _item(self, frozen: Frozen, at: int) -> bytes:
        wire = frozen.wire(at)
        if self.shape.tree is None and not self.shape.fetches_base:
            return wire
        item: Item = parsed(wire)
        if self.shape.fetches_base:
            item = self.source.table.read_item(base_key(frozen.keys[at])) or {}
        return to_wire(item if self.shape.tree is None else pick(item, self.shape.tree))

    def _base_draws(self, frozen: Frozen, places: range) -> Iterator[Draw]:
        table, ratio = self.source.table, read_ratio(self.request)
        for at in places:
            stored = table.shelf.get(base_key(frozen.keys[at]))
            units = read_units(stored.size_bytes if stored else 0, ratio)
            yield Draw(table.arn, "Read", table.partition_of(frozen.keys[at]), units)
