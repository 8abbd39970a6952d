"""Many lanes in one thread, against a service that misbehaves and answers in any order."""

from __future__ import annotations

import itertools
import random
import socket
import threading
import time
from bisect import bisect_left
from functools import partial

import pyarrow as pa
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from ddbio.aws.connection_pool import ResponsePoller
from ddbio.aws.table_description import TableDescription
from ddbio.budget import BudgetClosedError, LocalBudget
from ddbio.errors import AccessDeniedError
from ddbio.load.checkpoint import Checkpoint
from ddbio.load.encode import RowEncoder
from ddbio.load.options import WriteOptions
from ddbio.load.plan import plan_write
from ddbio.load.write import InlineRunner, ThreadRunner, WriteScheduler
from ddbio.load.write_retries import Lane
from tests.aws.virtual_service import Clock, Service, error_of, storm, writes_of


class Sent:
    """Request that the service has, or will have before it is answered."""

    expires_at = float("inf")

    def __init__(self, act):
        self.act, self.outcome = act, None

    def happen(self):
        """Let the service act on it, once."""
        if self.outcome is None:
            try:
                self.outcome = (self.act(), None)
            except (BotoCoreError, ClientError) as error:
                self.outcome = (b"", error)

    def result(self):
        """Return the response of the service, or raise it."""
        self.happen()
        body, error = self.outcome
        if error is not None:
            raise error
        return body


class VirtualNetwork:
    """Network to a service in virtual time. Requests in flight arrive, and are answered, in any order."""

    def __init__(self, service, draw):
        self.service, self.draw, self.on_its_way, self.most, self.begun = service, draw, [], 0, 0

    def begin(self, operation, table, body):
        """Send a request. Sometimes the service acts immediately."""
        self.begun += 1
        sent = Sent(lambda: self.service.call(operation, table, body))
        if self.draw.random() < 0.3:
            sent.happen()
        return sent

    def add(self, pending):
        """Also wait for this one."""
        self.on_its_way.append(pending)
        self.most = max(self.most, len(self.on_its_way))

    def wait(self, seconds):
        """Let time pass, or some responses arrive."""
        if seconds is not None and (not self.on_its_way or self.draw.random() < 0.5):
            self.service.clock.now += max(seconds, 1e-6)
            return []
        come = self.draw.sample(self.on_its_way, self.draw.randint(1, len(self.on_its_way)))
        self.on_its_way = [pending for pending in self.on_its_way if pending not in come]
        return come


def scheduler_on(service, seed, lanes, rate=None):
    """Return a scheduler in virtual time, and its network."""
    network = VirtualNetwork(service, random.Random(seed))
    budget = LocalBudget(rate, clock=service.clock)
    members = [Lane("rows", ["pk"], budget, 3600, clock=service.clock) for _ in range(lanes)]
    return WriteScheduler(members, network, budget, network, nulls=False, clock=service.clock), network


def dealt(keys, lanes, first):
    """Return the puts of rows with these keys for each lane, all of a key in one. Rows are numbered from ``first``."""
    writes_of_lanes = []
    for lane in range(lanes):
        indices = [index for index, key in enumerate(keys) if key % lanes == lane]
        writes = writes_of([keys[index] for index in indices], numbers=[first + index for index in indices])
        writes_of_lanes.append(writes)
    chunk = pa.record_batch({"pk": [f"k{key}" for key in keys]})
    return writes_of_lanes, chunk, first


@pytest.mark.timeout(3600)
def test_every_acknowledged_row_is_written(seeds):
    """The final state is that of the rows in order, no key returns to an older state, and checkpoints stay in order."""
    for seed in seeds(300, 3_000):
        draw = random.Random(-seed - 1)
        lanes = draw.randint(1, 9)
        misbehave, bad = storm(seed)
        service = Service(Clock(), misbehave)
        scheduler, _ = scheduler_on(service, seed, lanes, rate=draw.choice([None, None, 40.0]))
        passed, keys = [], []
        chunks = draw.randint(1, 6)
        for _ in range(chunks):
            new = [draw.choice([draw.randrange(200), draw.randrange(3)]) for _ in range(draw.randint(1, 150))]
            scheduler.add(*dealt(new, lanes, len(keys)))
            while scheduler.is_full:
                scheduler.step()
            for _ in range(draw.choice([0, 0, 5])):
                # As while more rows are read.
                scheduler.attend()
            keys += new
            scheduler.add_checkpoint(Checkpoint(partial(passed.append, len(keys))))
            for checkpoint in scheduler.take_reached():
                checkpoint.reached()
                good = {f"k{key}": n for n, key in enumerate(keys[: passed[-1]]) if f"k{key}" not in bad}
                assert all(service.items[key] >= n for key, n in good.items()), seed
        while scheduler.is_busy:
            scheduler.step()
        good = [n for n, key in enumerate(keys) if f"k{key}" not in bad]
        assert service.items == {f"k{keys[n]}": n for n in good}, seed
        assert sorted(reject.row for reject in scheduler.rejects) == sorted(set(range(len(keys))) - set(good)), seed
        assert sum(lane.counts.written for lane in scheduler.lanes) == len(good), seed
        assert len(passed) + len(scheduler.take_reached()) == chunks, seed
        for key in set(keys):
            seen = [n for value, n in service.history if value == f"k{key}"]
            assert seen == sorted(seen), seed


def test_deferred_rows_hold_up_checkpoints_and_no_rows():
    """Rows of later chunks are sent before them.

    A checkpoint waits for earlier ones, and a deferred row can be rejected.
    """
    is_hot = True

    def misbehave(service, writes):
        keys = [int(write["PutRequest"]["Item"]["pk"]["S"][1:]) for write in writes]
        if not is_hot and 3 in keys:
            raise error_of("ValidationException")
        return [write for write, key in zip(writes, keys, strict=True) if is_hot and key < 10]

    service = Service(Clock(), misbehave)
    scheduler, _ = scheduler_on(service, 7, 3)
    first, second = (Checkpoint(lambda: None) for _ in range(2))
    for keys, checkpoint in ((range(200), first), (range(200, 500), second)):
        scheduler.add(*dealt(list(keys), 3, keys[0]))
        scheduler.add_checkpoint(checkpoint)
    while len(service.items) < 490:
        scheduler.step()
    assert set(service.items) == {f"k{key}" for key in range(10, 500)}
    assert scheduler.take_reached() == []
    assert (scheduler.is_busy, scheduler.is_full) == (True, False)
    is_hot = False
    while scheduler.is_busy:
        scheduler.step()
    assert scheduler.take_reached() == [first, second]
    assert len(service.items) == 499
    assert [(reject.row, reject.item) for reject in scheduler.rejects] == [(3, '{"pk":{"S":"k3"}}')]


def test_lanes_wait_together():
    """While one lane waits for its response, the others have sent theirs."""
    scheduler, network = scheduler_on(Service(Clock()), 1, 6)
    runner = InlineRunner(scheduler)
    runner.put(*dealt(list(range(900)), 6, 0))
    runner.finish()
    assert network.most == 6


def test_requests_are_sent_while_rows_are_read(seeds):
    """When rows are added, no lane has an unsent request: without another response there is nothing to send."""
    for seed in seeds(20, 200):
        scheduler, network = scheduler_on(Service(Clock()), seed, 6)
        runner = InlineRunner(scheduler)
        for first in range(0, 1200, 300):
            runner.put(*dealt(list(range(first, first + 300)), 6, first))
            begun, on_its_way, network.on_its_way = network.begun, network.on_its_way, []
            scheduler.attend()
            assert network.begun == begun > 0, seed
            network.on_its_way = on_its_way
        runner.finish()
        assert sum(lane.counts.written for lane in scheduler.lanes) == 1200, seed


def test_an_error_ends_all_lanes_and_awaits_all_responses():
    """The first error is raised. Requests in flight are counted, and nothing else is sent."""

    def misbehave(service, writes):
        if any(write["PutRequest"]["Item"]["pk"]["S"] == "k7" for write in writes):
            raise error_of("AccessDeniedException")

    service = Service(Clock(), misbehave)
    scheduler, network = scheduler_on(service, 3, 5)
    runner = InlineRunner(scheduler)
    runner.put(*dealt(list(range(600)), 5, 0))
    with pytest.raises(AccessDeniedError):
        runner.finish()
    begun = network.begun
    runner.abandon()
    assert service.calls == network.begun == begun
    assert sum(lane.counts.written for lane in scheduler.lanes) == len(service.items)


def test_rejects_of_an_abandoned_lane_are_reported():
    """Rows that the service had refused before the end are reported, though the work of their lane was not finished."""

    def misbehave(service, writes):
        keys = [write["PutRequest"]["Item"]["pk"]["S"] for write in writes]
        if "k0" in keys:
            raise error_of("ValidationException")
        if service.calls > 12:
            raise error_of("AccessDeniedException")

    scheduler, _ = scheduler_on(Service(Clock(), misbehave), 5, 1)
    runner = InlineRunner(scheduler)
    with pytest.raises(AccessDeniedError):
        runner.put(*dealt(list(range(900)), 1, 0))
    runner.abandon()
    assert [(reject.row, reject.rule, reject.item) for reject in scheduler.rejects] == [
        (0, "ValidationException", '{"pk":{"S":"k0"}}')
    ]


def test_a_closed_budget_stops_the_scheduler():
    """A job that is being stopped sends no more requests."""
    service = Service(Clock())
    network = VirtualNetwork(service, random.Random(0))
    budget = LocalBudget(1.0, clock=service.clock)
    lanes = [Lane("rows", ["pk"], budget, 600, clock=service.clock)]
    scheduler = WriteScheduler(lanes, network, budget, network, nulls=False, clock=service.clock)
    scheduler.add(*dealt(list(range(100)), 1, 0))
    budget.close()
    with pytest.raises(BudgetClosedError):
        scheduler.step()
    scheduler.abandon()
    assert service.calls == 0


WAIT_SECONDS = 300


class Gate:
    """Source that releases its responses on request, by pipes."""

    expires_at = float("inf")

    def __init__(self):
        self.begun, self.may = threading.Semaphore(0), threading.Event()

    def begin(self, operation, table, body):
        """Send a request that is answered when it is released."""
        bell = Bell(self.may)
        self.begun.release()
        return bell


class Bell:
    """Request whose descriptor is readable after a thread has seen that it may be answered."""

    expires_at = float("inf")

    def __init__(self, may):
        self.ends = socket.socketpair()
        self.thread = threading.Thread(target=lambda: may.wait() and self.ends[1].send(b"!"))
        self.thread.start()

    @property
    def link(self):
        """Return the key of a descriptor."""
        return self.ends

    def fileno(self):
        """Return the readable descriptors."""
        return self.ends[0].fileno()

    def result(self):
        """Return a response without unprocessed rows."""
        self.thread.join()
        for end in self.ends:
            end.close()
        return b'{"UnprocessedItems":{}}'


def background(source, lanes):
    """Return a runner in a separate thread, and its poller."""
    budget, poller = LocalBudget(None), ResponsePoller(can_wake=True)
    members = [Lane("rows", ["pk"], budget, 600) for _ in range(lanes)]
    return ThreadRunner(WriteScheduler(members, source, budget, poller, nulls=False), poller), poller


def test_a_scheduler_in_a_thread_works_while_rows_are_read():
    """Added rows are sent without a waiting caller, and more are accepted only when a lane is idle."""
    gate = Gate()
    runner, poller = background(gate, 2)
    runner.put(*dealt([0, 1], 2, 0))
    assert gate.begun.acquire(timeout=WAIT_SECONDS)
    assert gate.begun.acquire(timeout=WAIT_SECONDS)
    taken = []

    def feed():
        for n in range(1, 10):
            runner.put(*dealt([0, 1], 2, 2 * n))
            taken.append(n)

    feeder, ends_at = threading.Thread(target=feed), time.monotonic() + WAIT_SECONDS
    feeder.start()
    while not runner._is_full:
        assert time.monotonic() < ends_at
        time.sleep(0.01)
    assert len(taken) < 9
    gate.may.set()
    feeder.join(WAIT_SECONDS)
    runner.finish()
    poller.close()
    assert sum(lane.counts.written for lane in runner.scheduler.lanes) == 20


def test_a_scheduler_in_a_thread_is_stopped():
    """When abandoned, it receives the responses to sent requests and starts nothing else."""
    gate = Gate()
    runner, poller = background(gate, 1)
    runner.put(*dealt(list(range(60)), 1, 0))
    assert gate.begun.acquire(timeout=WAIT_SECONDS)
    wake = poller.wake

    def answer():
        gate.may.set()
        wake()

    # The response arrives when the thread is woken to be stopped.
    poller.wake = answer
    runner.abandon()
    poller.close()
    assert (runner.scheduler.lanes[0].counts.written, gate.begun.acquire(blocking=False)) == (25, False)


def put_forever(runner):
    """Add rows until that fails."""
    for n in itertools.count():
        runner.put(*dealt([n], 3, n))


def test_an_error_in_the_thread_is_raised_where_rows_are_handed_over():
    """The error that ended a lane is raised by the next put, or at the end."""

    class Refusing:
        def begin(self, operation, table, body):
            raise error_of("AccessDeniedException")

    for _ in range(2):
        runner, poller = background(Refusing(), 3)
        with pytest.raises(AccessDeniedError):
            put_forever(runner)
        runner.abandon()
        poller.close()
    runner, poller = background(Refusing(), 3)
    runner.put(*dealt([0], 3, 0))
    with pytest.raises(AccessDeniedError):
        runner.finish()
    poller.close()


def test_an_answer_that_does_not_come_is_taken_when_its_time_is_over():
    """The caller of its result then gets an error. A response in time is received first."""
    poller, may = ResponsePoller(), [threading.Event(), threading.Event()]
    late, other = map(Bell, may)
    poller.add(late)
    poller.add(other)
    may[1].set()
    assert poller.wait(None) == [other]
    poller.add(Bell(may[0]))
    assert poller.wait(0.01) == []
    late.expires_at = time.monotonic() + 0.01
    assert poller.wait(None) == [late]
    may[0].set()
    (third,) = poller.wait(None)
    for pending in (late, other, third):
        pending.result()


WINDOW_SECONDS = 4.0


class SlowNetwork:
    """Network that answers every request after the same virtual time, in the order of sending."""

    def __init__(self, clock, latency_seconds):
        self.clock, self.latency_seconds, self.due, self.most = clock, latency_seconds, {}, 0
        self.sent_at = []

    def begin(self, operation, table, body):
        """Send a request."""
        return Sent(lambda: b'{"ConsumedCapacity":{"CapacityUnits":1.0}}')

    def add(self, pending):
        """Also wait for this one."""
        self.due[pending] = self.clock.now + self.latency_seconds
        self.sent_at.append(self.clock.now)
        self.most = max(self.most, len(self.due))

    def wait(self, seconds):
        """Let time pass until the first response arrives, or the time is over."""
        until = min([*self.due.values(), *([] if seconds is None else [self.clock.now + max(seconds, 1e-6)])])
        self.clock.now = max(self.clock.now, until)
        come = [pending for pending, due in self.due.items() if due <= until]
        for pending in come:
            del self.due[pending]
        return come


@pytest.mark.parametrize(("wcu_per_second", "latency_seconds"), [(400, 0.02), (2000, 0.02), (2000, 0.04)])
def test_requests_of_one_row_reach_the_budget(wcu_per_second, latency_seconds):
    """For any latency, enough updates are in flight to use the budget, except for its margin of 1 %."""
    facts = TableDescription("rows", "arn", "id", "ACTIVE", (("pk", "S"),), 0, 0, on_demand=True)
    options = WriteOptions(table="rows", mode="update", wcu_per_second=wcu_per_second)
    plan = plan_write(facts, options)
    clock = Clock()
    network, budget = SlowNetwork(clock, latency_seconds), LocalBudget(wcu_per_second, clock=clock)
    members = [Lane("rows", ["pk"], budget, 3600, clock=clock) for _ in range(plan.lanes)]
    scheduler = WriteScheduler(members, network, budget, network, nulls=True, clock=clock)
    runner, seconds = InlineRunner(scheduler), 10
    numbers = list(range(seconds * wcu_per_second))
    rows = pa.record_batch({"pk": [f"k{n}" for n in numbers], "n": numbers})
    writer = RowEncoder(rows.schema, plan)
    for first in numbers[::wcu_per_second]:
        batch = rows.slice(first, wcu_per_second)
        runner.put(writer.encode(batch, first).lanes, batch, first)
    runner.finish()
    assert sum(lane.counts.written for lane in members) == seconds * wcu_per_second
    assert seconds <= clock.now < 1.1 * seconds
    assert network.most >= wcu_per_second * latency_seconds
    # From the time with this number in flight, until the first lane has no row.
    first, last = network.sent_at[0] + 2.0, network.sent_at[-1] - 3.0
    begins = [first + number / 10 for number in range(int((last - first - WINDOW_SECONDS) * 10))]
    sums = [
        bisect_left(network.sent_at, value + WINDOW_SECONDS) - bisect_left(network.sent_at, value) for value in begins
    ]
    assert sums
    assert min(sums) >= 0.985 * WINDOW_SECONDS * wcu_per_second
    assert max(sums) <= 1.02 * WINDOW_SECONDS * wcu_per_second
