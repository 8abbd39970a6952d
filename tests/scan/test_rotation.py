"""Segments read in rotation: every page once, with requests in flight; a failed segment does not delay others."""

import json
import socket
import threading
from collections import deque
from contextlib import closing

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, ConnectTimeoutError

from ddbio.aws import retry
from ddbio.aws.retry import RetryPolicy
from ddbio.budget import BudgetClosedError, LocalBudget
from ddbio.errors import AccessDeniedError, EndpointError, ServiceError, ThrottledError
from ddbio.scan.pages import ReadRequest
from ddbio.scan.stream import rotated_pages

BROKEN = ConnectionClosedError(endpoint_url="http://x")


def refusal(code, **more):
    """Return an error of the service."""
    response = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": 400}, **more}
    return ClientError(response, "Scan")


def body(segment, number, last):
    """Return the response with a page of one item."""
    key = {"pk": {"S": f"{segment}-{number}"}}
    members = {"Items": [key], "Count": 1, "ScannedCount": 1, "ConsumedCapacity": {"CapacityUnits": 0.5}}
    return json.dumps(members if number == last else {**members, "LastEvaluatedKey": key}).encode()


class Answer:
    """A request in flight whose response has arrived."""

    expires_at = float("inf")

    def __init__(self, source, step):
        self.source, self.step, (self.ours, self.theirs) = source, step, socket.socketpair()
        self.link = self.ours
        self.theirs.send(b"!")

    def fileno(self):
        """Return a readable file descriptor."""
        return self.ours.fileno()

    def result(self):
        """Return the body, or raise the error."""
        self.source.in_flight -= 1
        for end in (self.ours, self.theirs):
            end.close()
        if isinstance(self.step, Exception):
            raise self.step
        return self.step


class Scripted:
    """Source that answers requests to each segment by a script, and records them."""

    def __init__(self, *scripts):
        self.scripts, self.requests = [deque(script) for script in scripts], []
        self.in_flight = self.most = 0

    def begin(self, operation, table, text):
        """Send a request; a failed connection raises immediately."""
        assert (operation, table) == ("Scan", "t")
        request = json.loads(text)
        self.requests.append((request["Segment"], request.get("ExclusiveStartKey", {}).get("pk", {}).get("S")))
        step = self.scripts[request["Segment"]].popleft()
        if isinstance(step, ConnectTimeoutError):
            raise step
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        return Answer(self, step)


def scripted(segments, pages):
    """Return a source of segments with this number of pages."""
    return Scripted(*([body(segment, n, pages - 1) for n in range(pages)] for segment in range(segments)))


@pytest.fixture
def policy(monkeypatch):
    """Return a patient policy with short pauses."""
    monkeypatch.setattr(retry, "MAX_PAUSE_SECONDS", 0.001)
    return RetryPolicy(deadline_seconds=60.0, stop=threading.Event())


def pages_of(source, policy, in_flight=1, budget=None):
    """Return the pages of all segments."""
    requests = [ReadRequest("t", segment, len(source.scripts)) for segment in range(len(source.scripts))]
    return rotated_pages(source, requests, budget or LocalBudget(None), policy, in_flight)


def keys(pages):
    """Return the key of each page's item."""
    return [json.loads(page.items)["Items"][0]["pk"]["S"] for page in pages]


def test_segments_take_turns(policy):
    """One page of each segment is read in turn, each starting after the preceding one."""
    source = scripted(3, 2)
    assert keys(pages_of(source, policy)) == ["0-0", "1-0", "2-0", "0-1", "1-1", "2-1"]
    assert source.requests == [(0, None), (1, None), (2, None), (0, "0-0"), (1, "1-0"), (2, "2-0")]


@pytest.mark.parametrize("in_flight", [1, 3, 5, 9])
def test_requests_in_flight_are_limited(policy, in_flight):
    """The next requests are sent before a page is yielded, up to the given number in flight."""
    source = scripted(5, 4)
    with closing(pages_of(source, policy, in_flight)) as pages:
        received = [next(pages)]
        assert source.in_flight == min(in_flight, 5)
        received += pages
    assert sorted(keys(received)) == sorted(f"{segment}-{n}" for segment in range(5) for n in range(4))
    assert source.most == min(in_flight, 5)


@pytest.mark.parametrize(
    "failure", [refusal("ThrottlingException"), BROKEN, ConnectTimeoutError(endpoint_url="http://x")]
)
@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_failed_page_is_asked_again(policy, failure, in_flight):
    """A failed page is requested again with the same start key, after a pause; every page is yielded once."""
    source = scripted(2, 2)
    source.scripts[0].insert(1, failure)
    source.scripts[0].insert(1, failure)
    assert sorted(keys(pages_of(source, policy, in_flight))) == ["0-0", "0-1", "1-0", "1-1"]
    assert source.requests.count((0, "0-0")) == 3


def test_a_segment_that_pauses_holds_up_no_other():
    """A segment whose partition is throttled pauses alone, here forever."""
    source = scripted(2, 3)
    source.scripts[0].appendleft(refusal("ProvisionedThroughputExceededException"))
    now = iter(range(100))
    policy = RetryPolicy(60.0, threading.Event(), lambda: -next(now))
    with closing(pages_of(source, policy, 2)) as pages:
        assert [keys([next(pages)]) for _ in range(3)] == [["1-0"], ["1-1"], ["1-2"]]
        policy.stop.set()
        with pytest.raises(BudgetClosedError):
            next(pages)


def test_requests_are_settled(policy):
    """Requests are settled by their responses; a refusal costs nothing, a broken connection may have cost the page."""
    hot = refusal(
        "ProvisionedThroughputExceededException",
        ThrottlingReasons=[{"reason": "TableReadKeyRangeThroughputExceeded", "resource": "arn"}],
    )
    source, budget = scripted(2, 1), LocalBudget(None)
    source.scripts[0].appendleft(hot)
    source.scripts[1].appendleft(BROKEN)
    assert len(list(pages_of(source, policy, 2, budget))) == 2
    assert (budget.usage().consumed_units, budget.usage().items) == (128 + 2 * 0.5, 2)
    assert budget.usage().throttles == {"key_range": 1}


def test_permanent_errors_are_raised(policy):
    """These errors are raised: a permanent one, no page until the deadline, an unreachable endpoint, a repeated key."""
    with pytest.raises(AccessDeniedError, match="dynamodb:Scan"):
        list(pages_of(Scripted([refusal("AccessDeniedException")]), policy))
    late = RetryPolicy(-1.0, policy.stop)
    with pytest.raises(ThrottledError, match="raise its capacity"):
        list(pages_of(Scripted([refusal("ThrottlingException")]), late))
    with pytest.raises(EndpointError, match="gave up"):
        list(pages_of(Scripted([BROKEN]), late))
    with pytest.raises(ServiceError, match="segment 0 of 't' does not advance"):
        list(pages_of(Scripted([body(0, 0, 9)] * 3), policy))


def test_a_closed_budget_ends_it(policy):
    """A job that is stopping sends no more requests."""
    budget = LocalBudget(None)
    pages = pages_of(scripted(2, 3), policy, 1, budget)
    next(pages)
    budget.close()
    with pytest.raises(BudgetClosedError):
        list(pages)


def test_what_was_sent_is_counted_when_the_rotation_is_left(policy):
    """The units of responses that are no longer read are counted."""
    source, budget = scripted(5, 2), LocalBudget(None)
    pages = pages_of(source, policy, 3, budget)
    next(pages)
    pages.close()
    assert source.in_flight == 0
    assert budget.usage().consumed_units == len(source.requests) * 0.5
