"""Read one segment of a table, or item collections of it, page by page, within the budget.

Each page is yielded exactly once. A request that fails is repeated with the same start key, as ``retry`` says.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from ddbio.aws.error_codes import error_code, is_throttled, throttling_reasons, was_sent
from ddbio.core.conditions import Expressions
from ddbio.core.pacing import parse_throttle_reason
from ddbio.core.text.page import first_items
from ddbio.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.aws.retry import RetryPolicy
    from ddbio.aws.transport import PageSource
    from ddbio.budget import Budget
    from ddbio.core.conditions import Condition, Query
    from ddbio.core.text.page import Page


@dataclass(frozen=True)
class ReadRequest:
    """What to read of a segment or of item collections, and how large its pages may be.

    ``queries`` ask for item collections, one after the other, instead of a segment; ``condition`` is what the items
    must meet besides, and they are read and paid all the same. ``page_units`` is the most that a page should cost,
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

    def of_segment(self, segment: int, total_segments: int) -> ReadRequest:
        """Return the same request for one of ``total_segments`` segments."""
        return replace(self, segment=segment, total_segments=total_segments)

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


def scan_pages(source: PageSource, request: ReadRequest, budget: Budget, policy: RetryPolicy) -> Iterator[Page]:
    """Yield the pages of one segment, or of item collections, in order, each exactly once.

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
    if not request.queries:
        yield from _pages(source, request, None, budget, policy)
    left = request.max_items
    for query in request.queries:
        if left is not None and left <= 0:
            return
        for page in _pages(source, replace(request, max_items=left), query, budget, policy):
            left = None if left is None else left - page.count
            yield page


def _pages(
    source: PageSource, request: ReadRequest, query: Query | None, budget: Budget, policy: RetryPolicy
) -> Iterator[Page]:
    operation, parameters = "Scan" if query is None else "Query", request.parameters(query)
    item_units = request.item_units
    left = request.max_items
    while True:
        # Of items that need not meet a condition, any number may have to be read until enough do.
        limit = _page_limit(request.page_units, item_units, left if request.condition is None else None)
        if limit is not None:
            parameters["Limit"] = limit
        page = _fetch(source, (operation, parameters), _estimate(request, item_units, limit), budget, policy)
        if page.scanned_count and page.consumed_units is not None:
            item_units = page.consumed_units / page.scanned_count
        if left is not None:
            if page.count > left:
                page = first_items(page, left)
            left -= page.count
        next_key, pages = page.last_evaluated_key, [page]
        # Segments that are read in rotation wait here by the hundred: none of them holds its page meanwhile.
        del page
        yield pages.pop()
        if next_key is None or (left is not None and left <= 0):
            return
        if next_key == parameters.get("ExclusiveStartKey"):
            place = f"segment {request.segment}" if query is None else f"partition key {query.partition_key}"
            raise ServiceError(f"{place} of {request.table!r} does not advance: same key twice")
        parameters["ExclusiveStartKey"] = next_key


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
    source: PageSource, request: tuple[str, dict[str, Any]], estimate: float, budget: Budget, policy: RetryPolicy
) -> Page:
    operation, parameters = request
    began: float | None = None
    for attempt in itertools.count():
        grant = budget.acquire(estimate)
        # Time spent waiting for the budget does not count as lack of progress.
        began = policy.clock() if began is None else began
        try:
            page = source.read(operation, parameters)
        except (ClientError, BotoCoreError) as error:
            # A rejected request costs nothing; a broken response may have cost the page.
            budget.settle(grant, 0.0 if isinstance(error, ClientError) or not was_sent(error) else estimate)
            if is_throttled(error):
                _slow_down(error, budget)
            policy.check_read(error, operation, parameters["TableName"], policy.clock() - began)
            policy.pause(attempt)
        else:
            consumed = estimate if page.consumed_units is None else page.consumed_units
            budget.settle(grant, consumed, items=page.scanned_count, wire_bytes=page.wire_bytes)
            return page
    raise AssertionError("unreachable: attempts are bounded by time alone")


def _slow_down(error: ClientError | BotoCoreError, budget: Budget) -> None:
    reasons, code = throttling_reasons(error), error_code(error)
    budget.throttled(parse_throttle_reason(reasons, code), ", ".join(reasons) or code)
