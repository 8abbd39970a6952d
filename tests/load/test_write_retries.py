"""One lane against a service that throttles, leaves rows unprocessed, fails after writing and drops connections."""

import contextlib
import json
import random

import numpy as np
import pytest
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError

from ddbio.budget import LocalBudget
from ddbio.errors import AccessDeniedError, EndpointError, ServiceError, ThrottledError
from ddbio.load.requests import single_template
from ddbio.load.write_retries import Lane, Pause
from tests.aws.virtual_service import TEMPLATE, Clock, Service, error_of, laid_out, storm, writes_of


class DrivenLane:
    """Runner of a lane's steps in virtual time."""

    def __init__(self, service, budget, deadline_seconds=600.0):
        self.service, self.budget = service, budget
        self.lane = Lane(
            "rows", ["pk"], budget, deadline_seconds, endpoint_url=service.endpoint_url, clock=service.clock
        )
        self.counts, self.rejects = self.lane.counts, self.lane.rejects

    def write(self, writes):
        """Return when every row was written, skipped or rejected."""
        self.take(self.lane.write(writes))
        while self.lane.deferred:
            self.take(self.lane.retry())

    def take(self, steps):
        """Run steps to their end."""
        answer = None
        with contextlib.suppress(StopIteration):
            while True:
                step = steps.send(answer)
                answer = self.pause(step.attempt) if isinstance(step, Pause) else self.send(step)

    def send(self, step):
        """Return the response of the service after the budget has granted the request."""
        step.grant, step.sent_at = self.budget.acquire(step.units), self.service.clock.now
        try:
            return self.service.call(step.operation, self.lane.table, step.body)
        except (BotoCoreError, ClientError) as error:
            return error

    def pause(self, attempt):
        """Let the longest pause pass."""
        self.service.clock.now += min(5.0, 0.05 * 2 ** min(attempt, 10))


def lane_on(service, deadline_seconds=600.0, rate=None):
    """Return a lane in virtual time."""
    return DrivenLane(service, LocalBudget(rate, clock=service.clock), deadline_seconds)


@pytest.mark.parametrize("tenth", range(10))
def test_every_acknowledged_row_is_written(tenth):
    """In 60 schedules, the final state is that of the rows in order, rejects are exact, no key gets an old state."""
    for seed in range(tenth * 60, tenth * 60 + 60):
        draw = random.Random(-seed - 1)
        misbehave, bad = storm(seed)
        service = Service(Clock(), misbehave)
        keys = [draw.choice([draw.randrange(200), draw.randrange(3)]) for _ in range(draw.randint(1, 120))]
        lane = lane_on(service)
        lane.write(writes_of(keys))
        good = [n for n, key in enumerate(keys) if f"k{key}" not in bad]
        assert service.items == {f"k{keys[n]}": n for n in good}, seed
        assert sorted(reject.row for reject in lane.rejects) == sorted(set(range(len(keys))) - set(good)), seed
        assert lane.counts.written == len(good), seed
        for key in set(keys):
            seen = [n for value, n in service.history if value == f"k{key}"]
            assert seen == sorted(seen), seed


def test_a_poisoned_batch_costs_only_its_bad_row():
    """Halves are sent until the bad row is alone. The reason is recorded, and the other 24 rows are written."""

    def misbehave(service, writes):
        if any(write["PutRequest"]["Item"]["pk"]["S"] == "k7" for write in writes):
            raise error_of("ValidationException")

    service = Service(Clock(), misbehave)
    lane = lane_on(service)
    lane.write(writes_of(range(25)))
    (reject,) = lane.rejects
    assert (reject.row, reject.reason, len(service.items)) == (7, "ValidationException: told", 24)
    assert service.calls <= 1 + 2 * 5


def test_unprocessed_rows_are_identified_by_value():
    """The service may write a number key in another format when it returns a row."""
    writes = laid_out(np.arange(1), np.arange(1, dtype=np.uint64), np.ones(1), [b'{"pk":{"N":"1E1"}}'], TEMPLATE)

    class Speller(Service):
        def call(self, operation, table, body):
            self.calls += 1
            left = {"rows": [{"PutRequest": {"Item": {"pk": {"N": "10"}}}}]} if self.calls == 1 else {}
            return json.dumps({"UnprocessedItems": left}).encode()

    lane = lane_on(Speller(Clock()))
    lane.write(writes)
    assert (lane.counts.written, lane.counts.unprocessed, lane.counts.retries) == (1, 1, 1)


def puts_of(step):
    """Return the rows of a step's request."""
    return json.loads(step.body)["RequestItems"]["rows"]


@pytest.mark.parametrize(("returned", "pauses"), [(2, False), (12, False), (13, True), (25, True)])
def test_a_lane_pauses_when_most_of_a_batch_comes_back(returned, pauses):
    """If most partitions accept more, unprocessed rows are sent again immediately, then new rows."""
    driven = lane_on(Service(Clock(), lambda _, writes: writes[:returned]))
    steps = driven.lane.write(writes_of(range(60)))
    step = steps.send(None)
    sent = puts_of(step)
    step = steps.send(driven.send(step))
    assert isinstance(step, Pause) == pauses
    if not pauses:
        driven.service.misbehave = lambda _, __: []
        again = puts_of(step)
        new = puts_of(steps.send(driven.send(step)))
        assert again == sent[:returned]
        assert [value for value in new if value in sent] == []


def test_rows_of_a_partition_at_its_limit_hold_up_no_others():
    """All other rows are written while they wait, also those of later writes, but no other row of their keys."""
    is_hot = True
    service = Service(Clock(), lambda _, writes: [write for write in writes if is_hot and key_of(write) < 10])
    driven = lane_on(service)
    driven.take(driven.lane.write(writes_of(range(100))))
    driven.take(driven.lane.write(writes_of(range(100, 200))))
    assert set(service.items) == {f"k{key}" for key in range(10, 200)}
    assert (len(driven.lane.deferred), driven.lane.deferred.oldest) == (10, 0)
    is_hot = False
    driven.take(driven.lane.write(writes_of([7, 301], numbers=[202, 203])))
    while driven.lane.deferred:
        driven.take(driven.lane.retry())
    assert [n for key, n in service.history if key == "k7"] == [7, 202]
    assert driven.counts.hot_keys.hottest() == {}


def key_of(write):
    """Return the number in a write's key."""
    return int(write["PutRequest"]["Item"]["pk"]["S"][1:])


def test_units_are_those_of_each_response():
    """The consumption of a batch with unprocessed rows is not used for full batches after it."""
    service = Service(Clock(), lambda service, writes: writes[:10] if service.calls % 3 == 0 else [])
    driven = lane_on(service)
    driven.write(writes_of(range(400)))
    assert (driven.counts.written, driven.budget.usage().consumed_units) == (400, 400.0)


@pytest.mark.parametrize(("returned", "attempts"), [(24, [0, 0, 0]), (25, [0, 1, 2])])
def test_pauses_grow_only_while_nothing_gets_through(returned, attempts):
    """A partition at its limit accepts a few rows of each batch. Long pauses would leave its capacity idle."""
    driven = lane_on(Service(Clock(), lambda _, writes: writes[:returned]))
    steps = driven.lane.write(writes_of(range(250)))
    seen, answer = [], None
    while len(seen) < len(attempts):
        step = steps.send(answer)
        if isinstance(step, Pause):
            seen.append(step.attempt)
            answer = driven.pause(step.attempt)
        else:
            answer = driven.send(step)
    assert seen == attempts


def test_no_count_of_retries_ends_a_job_that_makes_progress():
    """One row per minute for two hours is slow, but not an error."""

    def misbehave(service, writes):
        if service.clock.now < service.allowed:
            raise error_of("ProvisionedThroughputExceededException")
        service.allowed = service.clock.now + 60
        return writes[1:]

    service = Service(Clock(), misbehave)
    service.allowed = 0.0
    lane = lane_on(service, deadline_seconds=100)
    lane.write(writes_of(range(120)))
    assert (lane.counts.written, service.clock.now > 7000) == (120, True)


def test_throttling_without_progress_ends_the_lane():
    """When nothing was written until the deadline, the error has advice."""

    def misbehave(service, writes):
        raise error_of("ProvisionedThroughputExceededException")

    with pytest.raises(ThrottledError, match="raise its capacity, lower the budget") as caught:
        lane_on(Service(Clock(), misbehave), deadline_seconds=30).write(writes_of([1]))
    assert 30 < caught.value.elapsed_seconds < 40


def test_answers_that_leave_everything_end_the_lane():
    """A response without processed rows is no progress."""
    with pytest.raises(ThrottledError):
        lane_on(Service(Clock(), lambda _, writes: writes), deadline_seconds=30).write(writes_of(range(3)))


def test_an_endpoint_out_of_reach_ends_the_lane():
    """Failures that last until the deadline are those of the endpoint. The lane waits for shorter ones."""

    def misbehave(service, writes):
        raise ConnectionClosedError(endpoint_url="simulated")

    service = Service(Clock(), misbehave)
    with pytest.raises(EndpointError, match="gave up after"):
        lane_on(service, deadline_seconds=300).write(writes_of([1]))
    assert 300 < service.clock.now < 310


class SlowBudget(LocalBudget):
    """Budget that grants a request after ten minutes, in virtual time."""

    def acquire(self, units):
        """Let the time pass."""
        self._clock.now += 600
        return super().acquire(units)


def test_waiting_for_the_budget_is_no_failure():
    """A request that fails once after a long wait for a small budget is sent again, any number of times."""

    def misbehave(service, writes):
        if service.calls % 2:
            raise error_of("InternalServerError", 500)

    service = Service(Clock(), misbehave)
    budget = SlowBudget(None, clock=service.clock)
    lane = DrivenLane(service, budget, 650)
    lane.write(writes_of([1, 1, 1]))
    assert (lane.counts.written, lane.counts.retries) == (3, 3)


CONFLICTS = ["TransactionConflictException", "TransactionInProgressException", "ReplicatedWriteConflictException"]


@pytest.mark.parametrize("code", CONFLICTS)
def test_a_conflict_with_another_writer_is_waited_out(code):
    """An item that a transaction or another Region locks is written when it is free.

    If it stays locked, the error has it.
    """

    def misbehave(service, writes):
        if service.calls <= service.held:
            raise error_of(code)

    service = Service(Clock(), misbehave)
    service.held = 3
    lane = lane_on(service)
    lane.write(writes_of([1, 2, 1]))
    assert (service.items, lane.counts.written, lane.counts.retries) == ({"k1": 2, "k2": 1}, 3, 3)
    service.held = 10_000
    with pytest.raises(ServiceError, match=rf"{code}: told\); gave up after"):
        lane_on(service, deadline_seconds=30).write(writes_of([1]))


@pytest.mark.parametrize("reply", [b"<html>sign in</html>", b"[]", b"\xff"])
def test_an_invalid_response_is_an_error(reply):
    """A response that is not of the service, such as a proxy's page, is an error with its text."""
    service = Service(Clock())
    service.endpoint_url = "http://portal"
    service.call = lambda *_: reply
    with pytest.raises(EndpointError, match="http://portal answered a write with a response that is not DynamoDB's"):
        lane_on(service).write(writes_of([1]))


def test_a_refusal_of_the_job_is_raised_immediately():
    """An error that retries cannot fix ends the lane with its own class."""

    def misbehave(service, writes):
        raise error_of("AccessDeniedException")

    service = Service(Clock(), misbehave)
    with pytest.raises(AccessDeniedError):
        lane_on(service).write(writes_of([1]))
    assert service.calls == 1


@pytest.mark.parametrize(
    ("code", "reason", "scope"),
    [
        ("ProvisionedThroughputExceededException", "TableWriteProvisionedThroughputExceeded", "table"),
        ("ProvisionedThroughputExceededException", "TableWriteKeyRangeThroughputExceeded", "key_range"),
        ("ProvisionedThroughputExceededException", "IndexWriteProvisionedThroughputExceeded", "table"),
        ("RequestLimitExceeded", "TableWriteAccountLimitExceeded", "account"),
        ("ThrottlingException", "TableWriteMaxOnDemandThroughputExceeded", "on_demand_max"),
    ],
)
def test_throttles_reach_the_budget_by_their_reason(code, reason, scope):
    """The reason, not only the code, determines the throttle's scope."""

    def misbehave(service, writes):
        if service.calls == 1:
            raise error_of(code, ThrottlingReasons=[{"reason": reason}])

    service = Service(Clock(), misbehave)
    budget = LocalBudget(None, clock=service.clock)
    DrivenLane(service, budget).write(writes_of([1]))
    assert budget.usage().throttles == {scope: 1}


def test_a_lost_condition_is_a_skipped_row():
    """A failed condition is an expected result of a row: counted, billed, not sent again."""

    class Refusing(Service):
        def call(self, operation, table, body):
            self.calls += 1
            raise error_of("ConditionalCheckFailedException")

    service = Refusing(Clock())
    lane = lane_on(service)
    lane.write(writes_of([1, 2], single_template("PutItem", "rows", "Item", {})))
    assert (lane.counts.skipped, lane.counts.written, service.calls) == (2, 0, 2)


def test_real_units_correct_the_charge():
    """If every row also costs an index, the units of later requests follow the consumption."""

    class Indexed(Service):
        def call(self, operation, table, body):
            rows = len(json.loads(body)["RequestItems"]["rows"])
            return json.dumps({"UnprocessedItems": {}, "ConsumedCapacity": [{"CapacityUnits": 3.0 * rows}]}).encode()

    class Watched(LocalBudget):
        def acquire(self, units):
            charges.append(units)
            return super().acquire(units)

    charges = []
    service = Indexed(Clock())
    budget = Watched(None, clock=service.clock)
    DrivenLane(service, budget).write(writes_of(range(500)))
    assert (charges[0], round(charges[-1])) == (25, 74)
    assert budget.usage().consumed_units == 1500


@pytest.mark.parametrize(
    ("fault", "charged"),
    [
        (ConnectionClosedError(endpoint_url="simulated"), 25),
        (error_of("InternalServerError", 500), 25),
        (error_of("ProvisionedThroughputExceededException"), 0),
    ],
    ids=["reset", "5xx", "throttle"],
)
def test_a_broken_answer_is_charged(fault, charged):
    """The service may have written and billed a request without a response. A refused request has cost nothing."""

    def misbehave(service, writes):
        if service.calls == 1:
            service.commit(writes)
            raise fault

    service = Service(Clock(), misbehave)
    budget = LocalBudget(None, clock=service.clock)
    DrivenLane(service, budget).write(writes_of(range(25)))
    assert budget.usage().consumed_units == charged + 25


@pytest.mark.parametrize("returned", [["k99"], ["k1", "k99"]])
def test_unknown_writes_that_come_back_are_refused(returned):
    """A response that returns unsent rows is not the service's. Nothing of it is counted."""
    left = [{"PutRequest": {"Item": {"pk": {"S": key}}}} for key in returned]
    service = Service(Clock())
    service.call = lambda *_: json.dumps({"UnprocessedItems": {"rows": left}}).encode()
    lane = lane_on(service)
    with pytest.raises(
        ServiceError, match=rf"returned {len(returned)} unprocessed writes, of which {len(returned) - 1}"
    ):
        lane.write(writes_of(range(3)))
    assert lane.counts.written == 0


def test_rows_that_come_back_do_not_lower_the_charge():
    """The consumption is measured per written row. The others have not cost anything yet."""

    class Watched(LocalBudget):
        def acquire(self, units):
            charges.append(units)
            return super().acquire(units)

    charges = []
    service = Service(Clock(), lambda service, writes: writes[1:] if len(writes) > 1 else [])
    DrivenLane(service, Watched(None, clock=service.clock)).write(writes_of(range(60)))
    assert service.items == {f"k{n}": n for n in range(60)}
    assert all(charge in range(1, 26) for charge in charges)
