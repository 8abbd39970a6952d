"""Reads of one segment of a table, of item collections, or of items by key, page by page, within the budget.

Each page is yielded exactly once. A failed request is repeated with the same start key (see ``aws/retry.py``).
"""

from __future__ import annotations

import itertools
import json
import re
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ddbio.aws.error_codes import BotoCoreError, ClientError, is_throttled, was_sent
from ddbio.aws.retry import report_throttle, throttled_too_long
from ddbio.budget.pacing import ThrottleScope
from ddbio.errors import DecodeError, ServiceError
from ddbio.items.capacity import BATCH_KEYS
from ddbio.items.item_key import key_identity
from ddbio.items.json_text import compact_json, parse_json
from ddbio.items.page import Page, first_items, units_in
from ddbio.items.raw_items import PageSplitter
from ddbio.scan.conditions import Expressions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ddbio.aws.retry import RetryPolicy
    from ddbio.aws.transport import PageSource
    from ddbio.budget import Budget, Grant
    from ddbio.items.attribute import Item
    from ddbio.scan.conditions import Condition, Query

# An answer ends before an item that would exceed this size: in a larger answer, unprocessed keys are not throttled.
_FULL_ANSWER_BYTES = (16 << 20) - (400 << 10)
# Small answers are decoded together, up to this size.
_GATHERED_BYTES = 512 << 10


# Only an escaped quote can occur within a JSON string, and no type name is as long as a table name.
_RESPONSES = re.compile(rb'"Responses"\s*:\s*\{\s*"[^"]{3,}"\s*:\s*\[')
_END = re.compile(rb'\]\s*\}\s*(?:,\s*(?=")|(?=\}\s*\Z))')
_MEMBERS = {"ConsumedCapacity", "UnprocessedKeys"}
_MAX_CANDIDATES = 16


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """One answer of BatchGetItem: the items as the content of a JSON list, and the unprocessed keys."""

    items: bytes
    count: int
    scanned_count: int
    """The number of processed keys, with and without an item."""
    consumed_units: float | None
    wire_bytes: int
    unprocessed: tuple[bytes, ...]
    missing: tuple[bytes, ...]
    """Keys without an item, if the items contain their keys."""


_AnswerT = TypeVar("_AnswerT", Page, LookupAnswer)


class AnswerReader:
    """Reader of the answers of one lane."""

    def __init__(self) -> None:
        self._splitter = PageSplitter()

    def read(self, body: bytes, keys: Sequence[bytes]) -> LookupAnswer:
        """Return the answer to a request for some keys.

        Raises
        ------
        DecodeError
            If the body is not the response of a BatchGetItem.
        """
        items, members = _split(body)
        unprocessed = tuple(
            compact_json(key).encode()
            for table_keys in (members.get("UnprocessedKeys") or {}).values()
            for key in table_keys["Keys"]
        )
        (lines,) = self._splitter.decode_batches(page_of([items]), "page")
        looked_up = len(keys) - len(unprocessed)
        missing = () if lines.items >= looked_up else _missing(items, keys, unprocessed)
        units = units_in(members.get("ConsumedCapacity"))
        return LookupAnswer(items, lines.items, looked_up, units, len(body), unprocessed, missing)


def page_of(answers: Sequence[bytes]) -> bytes:
    """Return the items of several answers in the format of a page."""
    return b'{"Items":[' + b",".join(filter(None, answers)) + b"]}"


def page_of_answers(answers: Sequence[LookupAnswer]) -> Page:
    """Return the page of several answers."""
    units = [answer.consumed_units for answer in answers if answer.consumed_units is not None]
    count, scanned = sum(answer.count for answer in answers), sum(answer.scanned_count for answer in answers)
    return Page(
        items=page_of([answer.items for answer in answers]),
        count=count,
        scanned_count=scanned,
        last_evaluated_key=None,
        consumed_units=sum(units) if units else None,
        wire_bytes=sum(answer.wire_bytes for answer in answers),
        missing=scanned - count,
        missing_keys=tuple(key for answer in answers for key in answer.missing),
    )


def _split(body: bytes) -> tuple[bytes, dict[str, Any]]:
    start = _RESPONSES.search(body)
    if start is not None:
        head = _members(body[: start.start()].rstrip().removesuffix(b",") + b"}")
        position = len(body)
        for _ in range(_MAX_CANDIDATES if head is not None else 0):
            position = body.rfind(b"]", start.end(), position)
            if position < 0:
                break
            match = _END.match(body, position)
            tail = None if match is None else _members(b"{" + body[match.end() :])
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
    if not isinstance(responses, dict) or not all(isinstance(listed, list) for listed in responses.values()):
        raise DecodeError("the body is not the response of a BatchGetItem: it has no Responses")
    items = [item for listed in responses.values() for item in listed]
    try:
        return compact_json(items).encode()[1:-1], members
    except UnicodeEncodeError:
        raise DecodeError("the body contains half of a surrogate pair, which is not UTF-8") from None


def _missing(items: bytes, keys: Sequence[bytes], unprocessed: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the keys that have no item; empty if the items do not contain their keys."""
    requested = {key_identity(key, sorted(key)): text for text in keys for key in (parse_json(text),)}
    names = sorted(parse_json(keys[0]))
    parsed_items = parse_json(b"[" + items + b"]")
    if any(name not in item for item in parsed_items for name in names):
        return ()
    answered = {key_identity(item, names) for item in parsed_items}
    answered |= {key_identity(parse_json(text), names) for text in unprocessed}
    return tuple(text for identity, text in requested.items() if identity not in answered)


@dataclass(frozen=True)
class Remainder:
    """The unread part of a request: a start key, the number of its last queries to read, or its keys to read."""

    start_key: Item | None = None
    queries: int = 0
    keys: tuple[bytes, ...] = ()


def remainder_after(page: Page) -> Remainder | None:
    """Return the unread part of a request after a page; None if the page was the last one."""
    if page.last_evaluated_key is None and not page.queries_left and not page.keys_left:
        return None
    return Remainder(page.last_evaluated_key, page.queries_left, tuple(page.keys_left))


@dataclass(frozen=True)
class ReadRequest:
    """A read of a segment, of item collections or of items by key, with limits of its pages.

    ``queries`` are item collections, read one after another instead of a segment. ``keys`` are the distinct keys of the
    items to read, as DynamoDB JSON. ``condition`` filters the items; those that do not match are read and charged too.
    ``page_units`` is the maximum cost of a page, and ``item_units`` the expected cost of an item, from the sample.
    ``max_items`` ends the read early. After a page with a LastEvaluatedKey, another one is read, even if it is empty.
    """

    table: str
    segment: int = 0
    total_segments: int = 1
    index: str | None = None
    consistent: bool = False
    columns: tuple[str, ...] | None = None
    page_units: float | None = None
    item_units: float | None = None
    max_items: int | None = None
    condition: Condition | None = None
    queries: tuple[Query, ...] = ()
    keys: tuple[bytes, ...] = ()
    counts_only: bool = False
    """Whether answers contain only the number of items (Select=COUNT). Then ``columns`` is None."""
    start_key: Item | None = None
    """The start key at which a stopped Scan of a segment, or the first query, resumes."""

    def of_segment(self, segment: int, total_segments: int) -> ReadRequest:
        """Return the same request for one of ``total_segments`` segments."""
        return replace(self, segment=segment, total_segments=total_segments)

    def after(self, remainder: Remainder, items: int) -> ReadRequest:
        """Return the request for the unread part after ``items`` items were read."""
        return replace(
            self,
            start_key=remainder.start_key,
            queries=self.queries[len(self.queries) - remainder.queries :],
            keys=remainder.keys,
            max_items=None if self.max_items is None else self.max_items - items,
        )

    def parameters(self, query: Query | None = None) -> dict[str, Any]:
        """Return the parameters of the first Scan or Query, with placeholders for names and values."""
        parameters: dict[str, Any] = {
            "TableName": self.table,
            "ConsistentRead": self.consistent,
            "ReturnConsumedCapacity": "TOTAL",
        }
        expressions = Expressions()
        if query is None:
            parameters |= {"Segment": self.segment, "TotalSegments": self.total_segments}
        else:
            parameters["KeyConditionExpression"] = query.write(expressions)
        if self.index is not None:
            parameters["IndexName"] = self.index
        if self.counts_only:
            parameters["Select"] = "COUNT"
        if self.columns is not None:
            parameters["ProjectionExpression"] = ", ".join(map(expressions.name, self.columns))
        if self.condition is not None:
            parameters["FilterExpression"] = self.condition.write(expressions)
        return parameters | expressions.members()

    def lookup_body(self, keys: Sequence[bytes]) -> bytes:
        """Return the body of a BatchGetItem for some keys."""
        expressions, members = Expressions(), dict[str, Any]({"ConsistentRead": self.consistent})
        if self.columns is not None:
            members["ProjectionExpression"] = ", ".join(map(expressions.name, self.columns))
        head = compact_json(members | expressions.members())[:-1]
        start = f'{{"RequestItems":{{{compact_json(self.table)}:{head},"Keys":['.encode()
        return b"".join((start, b",".join(keys), b']}},"ReturnConsumedCapacity":"TOTAL"}'))


def scan_pages(source: PageSource, request: ReadRequest, budget: Budget, policy: RetryPolicy) -> Iterator[Page]:
    """Yield the pages of a segment, of item collections, or of items by key, in order, each exactly once.

    Throttled requests and broken connections are retried. Permanent errors are raised immediately.

    Raises
    ------
    ThrottledError
        If every request was throttled for ``policy.deadline_seconds``.
    EndpointError
        If the endpoint could not be reached for ``policy.deadline_seconds``.
    BudgetClosedError
        If the job is stopping.
    """
    if request.keys:
        yield from _lookup_pages(source, request, budget, policy)
    elif not request.queries:
        yield from _pages(source, request, None, budget, policy)
    remaining, start_key = request.max_items, request.start_key
    for number, query in enumerate(request.queries, 1):
        if remaining is not None and remaining <= 0:
            return
        for page in _pages(source, replace(request, max_items=remaining, start_key=start_key), query, budget, policy):
            remaining = None if remaining is None else remaining - page.count
            unread = len(request.queries) - number + (page.last_evaluated_key is not None)
            yield replace(page, queries_left=unread)
        start_key = None


class Reading:
    """State of the read of one segment or item collection, from which the next request is made."""

    def __init__(self, request: ReadRequest, query: Query | None = None) -> None:
        self._request, self._query = request, query
        self.operation, self.parameters = "Scan" if query is None else "Query", request.parameters(query)
        if request.start_key is not None:
            self.parameters["ExclusiveStartKey"] = request.start_key
        self._item_units, self._left, self._scanned = request.item_units, request.max_items, 0
        self.is_done = self._is_stuck = False

    def ask(self) -> float:
        """Complete the parameters of the next request and return its expected units."""
        request, query = self._request, self._query
        if self._is_stuck:
            target = f"segment {request.segment}" if query is None else f"partition key {query.partition_key}"
            raise ServiceError(f"{target} of {request.table!r} does not advance: same key twice")
        # With a condition, any number of items may have to be read to find the remaining ones.
        limit = _page_limit(request.page_units, self._item_units, self._left if request.condition is None else None)
        if limit is not None:
            self.parameters["Limit"] = limit
        return _estimate(request, self._item_units, limit)

    def take(self, page: Page) -> Page:
        """Update the state after a page, and return the page without items beyond ``max_items``."""
        if page.scanned_count and page.consumed_units is not None:
            self._item_units = page.consumed_units / page.scanned_count
        if self._left is not None:
            if page.count > self._left:
                page = first_items(page, self._left)
            self._left -= page.count
        self._scanned += page.scanned_count
        key = page.last_evaluated_key
        if self._query is not None and not self._scanned and key is None and self._request.start_key is None:
            page = replace(page, missing=1, missing_keys=(compact_json(self._query.key()).encode(),))
        self.is_done = key is None or (self._left is not None and self._left <= 0)
        self._is_stuck = key is not None and key == self.parameters.get("ExclusiveStartKey")
        self.parameters["ExclusiveStartKey"] = key
        return page


def _pages(
    source: PageSource, request: ReadRequest, query: Query | None, budget: Budget, policy: RetryPolicy
) -> Iterator[Page]:
    reading = Reading(request, query)
    while not reading.is_done:
        estimate, read = reading.ask(), partial(source.read, reading.operation, reading.parameters)
        yield reading.take(_fetch(read, (reading.operation, request.table), estimate, budget, policy))


def _lookup_pages(source: PageSource, request: ReadRequest, budget: Budget, policy: RetryPolicy) -> Iterator[Page]:
    """Yield the items with the keys of a request; unprocessed keys are requested again."""
    reader, waiting, remaining = AnswerReader(), deque(request.keys), request.max_items
    item_units, attempt = request.item_units or (1.0 if request.consistent else 0.5), 0
    gathered, began = list[LookupAnswer](), policy.clock()
    while waiting and (remaining is None or remaining > 0):
        batch_size = _page_limit(request.page_units, item_units, BATCH_KEYS) or BATCH_KEYS
        keys = [waiting.popleft() for _ in range(min(batch_size, len(waiting)))]
        read = partial(_look_up, source, reader, request, keys)
        estimate = max(0.5, len(keys) * item_units)
        answer = _fetch(read, ("BatchGetItem", request.table), estimate, budget, policy)
        if answer.scanned_count:
            attempt, began = 0, policy.clock()
            if answer.consumed_units is not None:
                item_units = answer.consumed_units / answer.scanned_count
        waiting.extend(answer.unprocessed)
        remaining = None if remaining is None else remaining - answer.count
        gathered.append(answer)
        is_throttled_in_part = answer.unprocessed and answer.wire_bytes < _FULL_ANSWER_BYTES
        is_last = not waiting or (remaining is not None and remaining <= 0)
        if is_last or is_throttled_in_part or sum(len(answer.items) for answer in gathered) >= _GATHERED_BYTES:
            page, gathered = replace(page_of_answers(gathered), keys_left=waiting), []
            yield page if remaining is None or remaining >= 0 else first_items(page, page.count + remaining)
        if is_throttled_in_part and not is_last:
            budget.throttled(ThrottleScope.TABLE, "unprocessed")
            if (idle_seconds := policy.clock() - began) > policy.deadline_seconds:
                raise throttled_too_long(f"looking up items of table {request.table!r}", "an item", idle_seconds)
            policy.pause(attempt)
            attempt += 1


def _look_up(source: PageSource, reader: AnswerReader, request: ReadRequest, keys: Sequence[bytes]) -> LookupAnswer:
    return reader.read(source.begin("BatchGetItem", request.table, request.lookup_body(keys)).result(), keys)


def _page_limit(page_units: float | None, item_units: float | None, remaining: int | None) -> int | None:
    bounds = [] if remaining is None else [remaining]
    if page_units is not None and item_units:
        bounds.append(max(1, int(page_units / item_units)))
    return min(bounds) if bounds else None


def _estimate(request: ReadRequest, item_units: float | None, limit: int | None) -> float:
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Scan.html: 1 MB per page, 4 KiB per unit.
    full_page = 256.0 if request.consistent else 128.0
    if limit is None or item_units is None:
        return full_page
    return min(full_page, max(0.5, limit * item_units))


def _fetch(
    read: Callable[[], _AnswerT], of: tuple[str, str], estimate: float, budget: Budget, policy: RetryPolicy
) -> _AnswerT:
    """Return the answer to a request for the operation and table ``of``; a failed request is retried."""
    began: float | None = None
    for attempt in itertools.count():
        grant = budget.acquire(estimate)
        # Time spent waiting for the budget does not count as lack of progress.
        began = policy.clock() if began is None else began
        try:
            page = read()
        except (ClientError, BotoCoreError) as error:
            settle_failed(budget, grant, estimate, error)
            policy.check_read(error, *of, policy.clock() - began)
            policy.pause(attempt)
        else:
            settle_page(budget, grant, estimate, page)
            return page
    raise AssertionError("unreachable: attempts are limited only by time")


def settle_page(budget: Budget, grant: Grant, estimate: float, page: Page | LookupAnswer) -> None:
    """Settle a request by the units and bytes of its page."""
    consumed = estimate if page.consumed_units is None else page.consumed_units
    budget.settle(grant, consumed, items=page.scanned_count, wire_bytes=page.wire_bytes)


def settle_failed(budget: Budget, grant: Grant, estimate: float, error: ClientError | BotoCoreError) -> None:
    """Settle a failed request, and report a throttled one to the budget."""
    # A rejected request costs nothing. If the response was cut off, its page may have been charged.
    budget.settle(grant, 0.0 if isinstance(error, ClientError) or not was_sent(error) else estimate)
    if is_throttled(error):
        report_throttle(budget, error)
