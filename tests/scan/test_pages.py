"""Reads of a segment: every page is read once and within the budget, for any behaviour of the endpoint."""

import sys
import threading

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, ConnectTimeoutError

from ddbio.aws import retry
from ddbio.aws.retry import RetryPolicy
from ddbio.budget import BudgetClosedError, LocalBudget
from ddbio.errors import AccessDeniedError, EndpointError, ServiceError, ThrottledError
from ddbio.items.page import Page
from ddbio.scan.pages import ReadRequest, scan_pages

REQUEST = ReadRequest(table="t", segment=1, total_segments=4)


def _page(count=1, key=None, units=0.5, scanned=None):
    return Page(b"{}", count, count if scanned is None else scanned, key, units, 100)


def _refusal(code, status=400, **more):
    response = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}, **more}
    return ClientError(response, "Scan")


class Scripted:
    """Source that answers requests by a script, and records them."""

    endpoint_url = "http://127.0.0.1:1"

    def __init__(self, *steps):
        self.steps = list(steps)
        self.requests = []

    def read(self, _, parameters):
        """Return or raise the next step."""
        self.requests.append(dict(parameters))
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


@pytest.fixture
def policy(monkeypatch):
    """Return a patient policy with short pauses."""
    monkeypatch.setattr(retry, "MAX_PAUSE_SECONDS", 0.001)
    return RetryPolicy(deadline_seconds=60.0, stop=threading.Event())


def _read(source, policy, request=REQUEST, budget=None):
    return list(scan_pages(source, request, budget or LocalBudget(None), policy))


def test_pages_follow_their_keys(policy):
    """Each request starts at the end of the last page; an empty page with a key is not the last one."""
    source = Scripted(_page(key={"pk": {"S": "a"}}), _page(0, key={"pk": {"S": "b"}}), _page())
    assert [page.count for page in _read(source, policy)] == [1, 0, 1]
    assert [request.get("ExclusiveStartKey") for request in source.requests] == [
        None,
        {"pk": {"S": "a"}},
        {"pk": {"S": "b"}},
    ]
    assert {(request["Segment"], request["TotalSegments"]) for request in source.requests} == {(1, 4)}


def test_a_segment_that_waits_holds_no_page(policy):
    """A page is referenced only by its consumer: a copy has hundreds of segments that wait for their next turn."""
    pages = scan_pages(Scripted(_page(key={"pk": {"S": "a"}}), _page()), REQUEST, LocalBudget(None), policy)
    page = next(pages)
    # One reference is this function's, the other that of the call.
    assert sys.getrefcount(page) == 2


@pytest.mark.parametrize(
    "failure",
    [
        _refusal("ProvisionedThroughputExceededException"),
        _refusal("InternalServerError", 500),
        ConnectTimeoutError(endpoint_url="http://x"),
    ],
)
def test_failed_page_is_asked_again_with_the_same_key(policy, failure):
    """After a throttle, a server error or a broken connection, no page is lost or duplicated."""
    source = Scripted(_page(key={"pk": {"S": "a"}}), failure, failure, _page(2))
    assert [page.count for page in _read(source, policy)] == [1, 2]
    assert [request.get("ExclusiveStartKey") for request in source.requests][1:] == [{"pk": {"S": "a"}}] * 3


def test_a_broken_answer_is_charged(policy):
    """A refusal costs nothing; after a broken connection the page may have been charged, and it is requested again."""
    budget = LocalBudget(None)
    broken = ConnectionClosedError(endpoint_url="http://x")
    _read(Scripted(broken, _refusal("InternalServerError", 500), _page(units=2.0)), policy, budget=budget)
    assert budget.usage().consumed_units == 128 + 0 + 2


def test_throttles_are_counted_by_reason(policy):
    """The budget gets the reason of a throttle: key range, table or account."""
    hot = {"reason": "TableReadKeyRangeThroughputExceeded", "resource": "arn"}
    refusals = [
        _refusal("ProvisionedThroughputExceededException", ThrottlingReasons=[hot]),
        _refusal("RequestLimitExceeded"),
    ]
    budget = LocalBudget(None)
    _read(Scripted(*refusals, _page()), policy, budget=budget)
    assert budget.usage().throttles == {"key_range": 1, "account": 1}


def test_consumed_units_are_settled(policy):
    """The budget counts the units that the service charged; refused requests count nothing."""
    budget = LocalBudget(None)
    source = Scripted(_page(units=3.5, key={"k": {"S": "a"}}), _refusal("ThrottlingException"), _page(units=0.5))
    _read(source, policy, budget=budget)
    assert budget.usage().consumed_units == 4.0


def test_permanent_errors_are_raised_immediately(policy):
    """A permanent error ends the segment immediately."""
    source = Scripted(_refusal("AccessDeniedException"))
    with pytest.raises(AccessDeniedError, match="dynamodb:Scan"):
        _read(source, policy)
    assert len(source.requests) == 1


def test_throttling_ends_at_the_deadline(policy):
    """If there is no page until the deadline, the error suggests a solution."""
    source = Scripted(*[_refusal("ThrottlingException")] * 3)
    with pytest.raises(ThrottledError, match="raise its capacity"):
        _read(source, RetryPolicy(-1.0, policy.stop))


def test_unreachable_endpoint_ends(policy):
    """If the endpoint is unreachable until the deadline, the read fails."""
    with pytest.raises(EndpointError, match="gave up"):
        _read(Scripted(ConnectTimeoutError(endpoint_url="http://x")), RetryPolicy(-1.0, policy.stop))


def test_waiting_for_the_budget_is_no_failure(policy):
    """A failure after waiting for the budget longer than the deadline counts as the first one."""
    seconds = [0.0]

    class Scarce(LocalBudget):
        def acquire(self, units):
            seconds[0] += 600.0
            return super().acquire(units)

    source = Scripted(ConnectTimeoutError(endpoint_url="http://x"), _page())
    late = RetryPolicy(60.0, policy.stop, clock=lambda: seconds[0])
    assert [page.count for page in _read(source, late, budget=Scarce(None))] == [1]


def test_key_that_does_not_advance_is_an_error(policy):
    """The same start key twice is an error, since the read would never end."""
    source = Scripted(*[_page(key={"pk": {"S": "a"}})] * 3)
    with pytest.raises(ServiceError, match="does not advance"):
        _read(source, policy)


def test_stopping_ends_the_wait(policy):
    """A job that is stopping does not wait for the next attempt."""
    policy.stop.set()
    with pytest.raises(BudgetClosedError):
        _read(Scripted(_refusal("ThrottlingException")), policy)


def test_names_are_aliased_and_pages_bounded(policy):
    """Any attribute name can be requested; small budgets request small pages, based on the cost of the last page."""
    request = ReadRequest(table="t", columns=("a.b", "#size"), page_units=10, item_units=0.5)
    source = Scripted(_page(count=20, units=40.0, key={"k": {"S": "a"}}), _page())
    _read(source, policy, request)
    assert source.requests[0]["ExpressionAttributeNames"] == {"#n0": "a.b", "#n1": "#size"}
    assert [request["Limit"] for request in source.requests] == [20, 5]


def test_max_items_bounds_pages_and_ends(policy):
    """A limited segment requests only the remaining items and stops there."""
    request = ReadRequest(table="t", max_items=5)
    source = Scripted(_page(count=3, key={"k": {"S": "a"}}), _page(count=2, key={"k": {"S": "b"}}))
    _read(source, policy, request)
    assert [request["Limit"] for request in source.requests] == [5, 2]
