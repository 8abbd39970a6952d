"""Read one segment of a table page by page, within the budget; emit a page whole or not at all."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from ddbio.aws.error_codes import THROTTLE_CODES, error_code, is_transient, throttling_reasons, to_ddbio_error
from ddbio.budget import BudgetClosedError
from ddbio.core.pacing import full_jitter_seconds, parse_throttle_reason
from ddbio.errors import EndpointError, ServiceError, ThrottledError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from ddbio.aws.transport import PageSource
    from ddbio.budget import Budget
    from ddbio.core.text.page import Page

# The budget as a whole slows down too, and a stopped job should end soon.
LONGEST_PAUSE_SECONDS = 5.0


@dataclass(frozen=True)
class SegmentRequest:
    """State what of a segment is read and how large its pages may be.

    ``page_units`` is the most a page should cost; ``item_units`` what one item is expected to cost, from the sample.
    ``max_items`` ends the segment early. Any page with a LastEvaluatedKey, an empty one too, is followed by another.
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

    def of_segment(self, segment: int, total_segments: int) -> SegmentRequest:
        """Return the same request for one segment of so many."""
        return replace(self, segment=segment, total_segments=total_segments)

    def parameters(self) -> dict[str, Any]:
        """Return the Scan request of the first page, every attribute name aliased by its ordinal."""
        parameters: dict[str, Any] = {
            "TableName": self.table,
            "Segment": self.segment,
            "TotalSegments": self.total_segments,
            "ConsistentRead": self.consistent,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if self.index is not None:
            parameters["IndexName"] = self.index
        if self.columns is not None:
            names = {f"#n{place}": name for place, name in enumerate(self.columns)}
            parameters |= {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}
        return parameters


@dataclass(frozen=True)
class RetryPolicy:
    """Say how long a lane goes on without progress, and what tells it to stop."""

    deadline_seconds: float
    stop: threading.Event

    def pause(self, attempt: int) -> None:
        """Wait with full jitter before the next attempt.

        Raises
        ------
        BudgetClosedError
            If the job is being stopped.
        """
        if self.stop.wait(pause_seconds(attempt)):
            raise BudgetClosedError


def pause_seconds(attempt: int) -> float:
    """Return how long to wait before the next attempt, with full jitter."""
    return full_jitter_seconds(attempt, random.random(), cap_seconds=LONGEST_PAUSE_SECONDS)


def scan_pages(source: PageSource, request: SegmentRequest, budget: Budget, policy: RetryPolicy) -> Iterator[Page]:
    """Yield the pages of one segment, in order, each exactly once.

    A page that fails is asked again with the same start key. Throttling and a broken connection are waited out;
    what cannot succeed is raised at once.

    Raises
    ------
    ThrottledError
        If throttling let nothing through for ``policy.deadline_seconds``.
    EndpointError
        If the endpoint stayed out of reach.
    BudgetClosedError
        If the job is being stopped.
    """
    parameters = request.parameters()
    item_units = request.item_units
    left = request.max_items
    while True:
        limit = _page_limit(request.page_units, item_units, left)
        if limit is not None:
            parameters["Limit"] = limit
        page = _fetch(source, parameters, _estimate(request, item_units, limit), budget, policy)
        if page.scanned_count and page.consumed_units is not None:
            item_units = page.consumed_units / page.scanned_count
        yield page
        if left is not None:
            left -= page.count
        if page.last_evaluated_key is None or (left is not None and left <= 0):
            return
        if page.last_evaluated_key == parameters.get("ExclusiveStartKey"):
            raise ServiceError(f"segment {request.segment} of {request.table!r} does not advance: same key twice")
        parameters["ExclusiveStartKey"] = page.last_evaluated_key


def _page_limit(page_units: float | None, item_units: float | None, left: int | None) -> int | None:
    bounds = [] if left is None else [left]
    if page_units is not None and item_units:
        bounds.append(max(1, int(page_units / item_units)))
    return min(bounds) if bounds else None


def _estimate(request: SegmentRequest, item_units: float | None, limit: int | None) -> float:
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Scan.html: 1 MB a page, 4 KiB a unit.
    full_page = 256.0 if request.consistent else 128.0
    if limit is None or item_units is None:
        return full_page
    return min(full_page, max(0.5, limit * item_units))


def _fetch(
    source: PageSource, parameters: dict[str, Any], estimate: float, budget: Budget, policy: RetryPolicy
) -> Page:
    began: float | None = None
    for attempt in itertools.count():
        grant = budget.acquire(estimate)
        # What the budget made it wait before is no lack of progress.
        began = time.monotonic() if began is None else began
        try:
            page = source.scan(parameters)
        except (ClientError, BotoCoreError) as error:
            # A refused request costs nothing; a broken answer may have cost the page.
            budget.settle(grant, 0.0 if isinstance(error, ClientError) else estimate)
            if error_code(error) in THROTTLE_CODES:
                _slow_down(error, budget)
            _raise_if_hopeless(error, parameters["TableName"], time.monotonic() - began, policy)
            policy.pause(attempt)
        else:
            consumed = estimate if page.consumed_units is None else page.consumed_units
            budget.settle(grant, consumed, items=page.count, wire_bytes=page.wire_bytes)
            return page
    raise AssertionError("unreachable: attempts are bounded by time alone")


def _slow_down(error: ClientError | BotoCoreError, budget: Budget) -> None:
    reasons, code = throttling_reasons(error), error_code(error)
    budget.throttled(parse_throttle_reason(reasons, code), ", ".join(reasons) or code)


def _raise_if_hopeless(
    error: ClientError | BotoCoreError, table: str, waited_seconds: float, policy: RetryPolicy
) -> None:
    where = f"table {table!r}"
    if error_code(error) in THROTTLE_CODES:
        if waited_seconds > policy.deadline_seconds:
            raise ThrottledError(
                f"reading {where} was throttled for {waited_seconds:.0f} s without a page: raise its capacity, "
                "lower the budget, or raise deadline_seconds",
                elapsed_seconds=waited_seconds,
            ) from error
        return
    failure = to_ddbio_error(error, action="dynamodb:Scan", resource=where)
    if not is_transient(error):
        raise failure from error
    if waited_seconds > policy.deadline_seconds:
        raise EndpointError(f"{failure}; gave up after {waited_seconds:.0f} s, deadline_seconds", where) from error
