"""Read one segment of a table, item collections of it, or items by their keys, page by page, within the budget.

Each page is yielded exactly once. A request that fails is repeated with the same start key, as ``retry`` says.
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

# An answer ends before the item that would make it larger: keys that it leaves beyond were not throttled.
_FULL_ANSWER_BYTES = (16 << 20) - (400 << 10)
# Small answers are decoded together.
_GATHERED_BYTES = 512 << 10


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


_AnswerT = TypeVar("_AnswerT", Page, LookupAnswer)


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


@dataclass(frozen=True)
class Rest:
    """Say what of a request is left: what follows a key, so many of its last queries, or some of its keys."""

    start_key: Item | None = None
    queries: int = 0
    keys: tuple[bytes, ...] = ()


def rest_after(page: Page) -> Rest | None:
    """Return what a request leaves behind the page that was taken last; None if that is nothing."""
    if page.last_evaluated_key is None and not page.queries_left and not page.keys_left:
        return None
    return Rest(page.last_evaluated_key, page.queries_left, tuple(page.keys_left))


@dataclass(frozen=True)
class ReadRequest:
    """What to read of a segment or of item collections, and how large its pages may be.

    ``queries`` ask for item collections, one after the other, instead of a segment, ``keys`` for the items with these
    keys, DynamoDB JSON of which none occurs twice; ``condition`` is what the items must meet besides, and they are read
    and paid all the same. ``page_units`` is the most that a page should cost,
    ``item_units`` what one item is expected to cost, by the sample. ``max_items`` ends it early. A page with a
    LastEvaluatedKey is followed by another, even if it is empty.
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
    start_key: Item | None = None
    """Where a segment of a Scan, or the first query, that was stopped goes on."""

    def of_segment(self, segment: int, total_segments: int) -> ReadRequest:
        """Return the same request for one of ``total_segments`` segments."""
        return replace(self, segment=segment, total_segments=total_segments)

    def after(self, rest: Rest, items: int) -> ReadRequest:
        """Return the request for what is left when so many items were read."""
        return replace(
            self,
            start_key=rest.start_key,
            queries=self.queries[len(self.queries) - rest.queries :],
            keys=rest.keys,
            max_items=None if self.max_items is None else self.max_items - items,
        )

    def parameters(self, query: Query | None = None) -> dict[str, Any]:
        """Return the parameters of the first Scan, or Query; names and values are placeholders in its expressions."""
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
        asked = f'{{"RequestItems":{{{compact_json(self.table)}:{head},"Keys":['.encode()
        return b"".join((asked, b",".join(keys), b']}},"ReturnConsumedCapacity":"TOTAL"}'))


def scan_pages(source: PageSource, request: ReadRequest, budget: Budget, policy: RetryPolicy) -> Iterator[Page]:
    """Yield the pages of one segment, of item collections, or of items by key, in order, each exactly once.

    Throttled requests and broken connections are repeated; an error that cannot pass is raised at once.

    Raises
    ------
    ThrottledError
        If every request was throttled for ``policy.deadline_seconds``.
    EndpointError
        If the endpoint could not be reached for ``policy.deadline_seconds``.
    BudgetClosedError
        If the job is being stopped.
    """
    if request.keys:
        yield from _looked_up(source, request, budget, policy)
    elif not request.queries:
        yield from _pages(source, request, None, budget, policy)
    left, start_key = request.max_items, request.start_key
    for number, query in enumerate(request.queries, 1):
        if left is not None and left <= 0:
            return
        for page in _pages(source, replace(request, max_items=left, start_key=start_key), query, budget, policy):
            left = None if left is None else left - page.count
            unread = len(request.queries) - number + (page.last_evaluated_key is not None)
            yield replace(page, queries_left=unread)
        start_key = None


class Reading:
    """Know what to ask next of one segment, or of one item collection."""

    def __init__(self, request: ReadRequest, query: Query | None = None) -> None:
        self._request, self._query = request, query
        self.operation, self.parameters = "Scan" if query is None else "Query", request.parameters(query)
        if request.start_key is not None:
            self.parameters["ExclusiveStartKey"] = request.start_key
        self._item_units, self._left, self._scanned = request.item_units, request.max_items, 0
        self.is_done = self._is_stuck = False

    def ask(self) -> float:
        """Complete the parameters of the next request; return the units that it is expected to cost."""
        request, query = self._request, self._query
        if self._is_stuck:
            place = f"segment {request.segment}" if query is None else f"partition key {query.partition_key}"
            raise ServiceError(f"{place} of {request.table!r} does not advance: same key twice")
        # Of items that need not meet a condition, any number may have to be read until enough do.
        limit = _page_limit(request.page_units, self._item_units, self._left if request.condition is None else None)
        if limit is not None:
            self.parameters["Limit"] = limit
        return _estimate(request, self._item_units, limit)

    def take(self, page: Page) -> Page:
        """Note what a page leaves; return what of it was asked for."""
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


def _looked_up(source: PageSource, request: ReadRequest, budget: Budget, policy: RetryPolicy) -> Iterator[Page]:
    """Yield the items with the keys of a request; keys that an answer leaves are asked for again."""
    reader, waiting, left = AnswerReader(), deque(request.keys), request.max_items
    item_units, attempt = request.item_units or (1.0 if request.consistent else 0.5), 0
    gathered, began = list[LookupAnswer](), policy.clock()
    while waiting and (left is None or left > 0):
        most = _page_limit(request.page_units, item_units, BATCH_KEYS) or BATCH_KEYS
        keys = [waiting.popleft() for _ in range(min(most, len(waiting)))]
        read = partial(_look_up, source, reader, request, keys)
        estimate = max(0.5, len(keys) * item_units)
        answer = _fetch(read, ("BatchGetItem", request.table), estimate, budget, policy)
        if answer.scanned_count:
            attempt, began = 0, policy.clock()
            if answer.consumed_units is not None:
                item_units = answer.consumed_units / answer.scanned_count
        waiting.extend(answer.unprocessed)
        left = None if left is None else left - answer.count
        gathered.append(answer)
        is_throttled_in_part = answer.unprocessed and answer.wire_bytes < _FULL_ANSWER_BYTES
        is_last = not waiting or (left is not None and left <= 0)
        if is_last or is_throttled_in_part or sum(len(each.items) for each in gathered) >= _GATHERED_BYTES:
            page, gathered = replace(page_of_answers(gathered), keys_left=waiting), []
            yield page if left is None or left >= 0 else first_items(page, page.count + left)
        if is_throttled_in_part and not is_last:
            budget.throttled(ThrottleScope.TABLE, "unprocessed")
            if (idle_seconds := policy.clock() - began) > policy.deadline_seconds:
                raise throttled_too_long(f"looking up items of table {request.table!r}", "an item", idle_seconds)
            policy.pause(attempt)
            attempt += 1


def _look_up(source: PageSource, reader: AnswerReader, request: ReadRequest, keys: Sequence[bytes]) -> LookupAnswer:
    return reader.read(source.begin("BatchGetItem", request.table, request.lookup_body(keys)).result(), keys)


def _page_limit(page_units: float | None, item_units: float | None, left: int | None) -> int | None:
    bounds = [] if left is None else [left]
    if page_units is not None and item_units:
        bounds.append(max(1, int(page_units / item_units)))
    return min(bounds) if bounds else None


def _estimate(request: ReadRequest, item_units: float | None, limit: int | None) -> float:
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Scan.html: 1 MB a page, 4 KiB a unit.
    full_page = 256.0 if request.consistent else 128.0
    if limit is None or item_units is None:
        return full_page
    return min(full_page, max(0.5, limit * item_units))


def _fetch(
    read: Callable[[], _AnswerT], of: tuple[str, str], estimate: float, budget: Budget, policy: RetryPolicy
) -> _AnswerT:
    """Return the answer to a request, an operation on a table, that is repeated until there is one."""
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
    raise AssertionError("unreachable: attempts are bounded by time alone")


def settle_page(budget: Budget, grant: Grant, estimate: float, page: Page | LookupAnswer) -> None:
    """Settle a request by what its page says."""
    consumed = estimate if page.consumed_units is None else page.consumed_units
    budget.settle(grant, consumed, items=page.scanned_count, wire_bytes=page.wire_bytes)


def settle_failed(budget: Budget, grant: Grant, estimate: float, error: ClientError | BotoCoreError) -> None:
    """Settle a request that has failed, and let the budget know of a throttle."""
    # A rejected request costs nothing; a broken response may have cost the page.
    budget.settle(grant, 0.0 if isinstance(error, ClientError) or not was_sent(error) else estimate)
    if is_throttled(error):
        report_throttle(budget, error)
