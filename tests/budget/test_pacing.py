from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.budget import LocalBudget
from ddbio.budget.pacing import (
    DOUBLING_SECONDS,
    Pacer,
    Ramp,
    ThrottleResponse,
    ThrottleScope,
    TokenBucket,
    parse_throttle_reason,
)
from ddbio.errors import OptionError

# --- the bucket -------------------------------------------------------------------------------------------------------

units = st.floats(min_value=0.0, max_value=200.0)
pauses = st.floats(min_value=0.0, max_value=2.0)
rates = st.floats(min_value=1.0, max_value=10_000.0)
capacities = st.floats(min_value=0.0, max_value=0.1)


def due_at(bucket: TokenBucket, position: float, now: float) -> float:
    """Return when a position is due if nothing is settled until then."""
    return now + bucket.wait_seconds(position, now)


@given(rates, capacities, st.lists(st.tuples(units, pauses), min_size=1, max_size=40))
def test_any_interval_is_within_rate_capacity_and_one_grant(
    rate: float, capacity: float, requests: list[tuple[float, float]]
) -> None:
    """Between any two grants the units are at most rate × time + capacity + one grant, in order of arrival."""
    bucket = TokenBucket(rate, capacity)
    now, due = 0.0, []
    for cost, pause in requests:
        now += pause
        due.append((due_at(bucket, bucket.reserve(cost, now), now), cost))
    assert [at for at, _ in due] == pytest.approx(sorted(at for at, _ in due))
    largest = max(cost for _, cost in due)
    for first, (begin, _) in enumerate(due):
        for (end, _), spent in zip(due[first:], accumulate(cost for _, cost in due[first:]), strict=True):
            assert spent <= rate * (end - begin + capacity) + largest + 1e-6


@given(rates, capacities, st.lists(st.tuples(units, units, pauses), min_size=1, max_size=40))
def test_spend_is_within_rate_and_one_overshoot_with_corrections(
    rate: float, capacity: float, requests: list[tuple[float, float, float]]
) -> None:
    """A lane that settles every page consumes at most burst + rate × time + the last page's overshoot."""
    bucket = TokenBucket(rate, capacity)
    now, spent = 0.0, 0.0
    for charged, consumed, latency in requests:
        now = due_at(bucket, bucket.reserve(charged, now), now)
        spent += consumed
        assert spent <= rate * (now + capacity) + max(0.0, consumed - charged) + 1e-6
        now += latency
        bucket.settle(consumed - charged, now)


@given(rates, st.lists(st.tuples(units, units), min_size=1, max_size=40))
def test_later_requests_pay_for_settlements_immediately(rate: float, costs: list[tuple[float, float]]) -> None:
    """The last request waits for exactly the units consumed before it: nothing is idle, nothing is free."""
    bucket, owed = TokenBucket(rate, capacity_seconds=0.0), 0.0
    for charged, _ in costs:
        bucket.reserve(charged, 0.0)
    last = bucket.reserve(1000.0, 0.0)
    for charged, consumed in costs:
        bucket.settle(consumed - charged, 0.0)
        owed += consumed
    assert bucket.wait_seconds(last, 0.0) == pytest.approx((owed + 1000.0) / rate)


def test_the_bucket_starts_empty_and_saves_only_its_capacity() -> None:
    """The first grant is paid in full. A long idle time shortens the next wait only by the capacity."""
    bucket = TokenBucket(100.0, capacity_seconds=0.05)
    assert bucket.wait_seconds(bucket.reserve(10.0, 1000.0), 1000.0) == pytest.approx(0.1)
    assert bucket.wait_seconds(bucket.reserve(10.0, 2000.0), 2000.0) == pytest.approx(0.05)


def test_a_new_rate_holds_for_those_in_line() -> None:
    """Half the rate doubles the remaining wait."""
    bucket = TokenBucket(100.0)
    position = bucket.reserve(100.0, 0.0)
    bucket.set_rate(50.0, 0.5)
    assert bucket.wait_seconds(position, 0.5) == pytest.approx(1.0)


def test_a_reservation_that_is_never_used_holds_up_nobody() -> None:
    """The next request is due on time although the one before it vanished."""
    bucket = TokenBucket(100.0)
    bucket.reserve(10.0, 0.0)
    position = bucket.reserve(10.0, 0.0)
    assert bucket.wait_seconds(position, 0.2) == pytest.approx(0.0)


# --- throttling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [ThrottleScope.TABLE, ThrottleScope.ACCOUNT])
def test_a_throttle_cuts_the_rate_and_time_brings_it_back(scope: ThrottleScope) -> None:
    """A table or account throttle leaves 70 % of the rate, which recovers by 5 % of the requested rate per second."""
    cut = ThrottleResponse.asked(100.0).after(scope, 10.0)
    assert [cut.rate_per_second(10.0 + s) for s in (0, 2, 6, 60)] == pytest.approx([70.0, 80.0, 100.0, 100.0])


def test_throttles_of_one_second_are_one_event() -> None:
    """30 lanes throttled together cut the rate once."""
    response = ThrottleResponse.asked(100.0)
    for lane in range(30):
        response = response.after(ThrottleScope.TABLE, lane / 100)
    assert response.rate_per_second(0.0) == pytest.approx(70.0)


def test_a_hot_key_range_leaves_the_job_alone() -> None:
    """A key range throttle does not change the job's rate."""
    response = ThrottleResponse.asked(100.0)
    assert response.after(ThrottleScope.KEY_RANGE, 1.0) is response


def test_the_on_demand_maximum_lowers_the_ceiling_for_good() -> None:
    """After reaching the on-demand maximum the rate settles below it and stays there."""
    response, maximum = ThrottleResponse.asked(100.0), 62.0
    for second in range(600):
        if response.rate_per_second(second) > maximum:
            response = response.after(ThrottleScope.ON_DEMAND_MAX, second)
    assert 0.9 * maximum <= response.rate_per_second(1e6) <= maximum


@given(st.lists(st.tuples(st.sampled_from(ThrottleScope), pauses), max_size=60))
def test_the_rate_stays_between_nothing_and_the_asked_one(throttles: list[tuple[ThrottleScope, float]]) -> None:
    """No sequence of throttles raises the rate above the requested one or stops it."""
    response, now = ThrottleResponse.asked(100.0), 0.0
    for scope, pause in throttles:
        now += pause
        before = response.rate_per_second(now)
        response = response.after(scope, now)
        assert 0 < response.rate_per_second(now) <= before <= 100.0


def test_unbroken_table_throttling_settles_above_a_tenth() -> None:
    """A throttle every second leaves more than a tenth of the requested rate."""
    response = ThrottleResponse.asked(100.0)
    for second in range(600):
        response = response.after(ThrottleScope.TABLE, second)
    assert response.rate_per_second(600.0) > 10.0


@pytest.mark.parametrize(
    ("reasons", "code", "scope"),
    [
        (["TableReadProvisionedThroughputExceeded"], "ThrottlingException", ThrottleScope.TABLE),
        (["IndexReadProvisionedThroughputExceeded"], "ThrottlingException", ThrottleScope.TABLE),
        (["TableReadKeyRangeThroughputExceeded"], "ThrottlingException", ThrottleScope.KEY_RANGE),
        (["IndexWriteAccountLimitExceeded"], "ThrottlingException", ThrottleScope.ACCOUNT),
        (["TableWriteMaxOnDemandThroughputExceeded"], "ThrottlingException", ThrottleScope.ON_DEMAND_MAX),
        (
            ["TableReadKeyRangeThroughputExceeded", "IndexReadProvisionedThroughputExceeded"],
            "ProvisionedThroughputExceededException",
            ThrottleScope.TABLE,
        ),
        (["SomethingNew"], "ProvisionedThroughputExceededException", ThrottleScope.TABLE),
        ([], "ProvisionedThroughputExceededException", ThrottleScope.TABLE),
        ([], "RequestLimitExceeded", ThrottleScope.ACCOUNT),
        ([], "ThrottlingException", ThrottleScope.TABLE),
    ],
)
def test_a_throttle_is_read_by_its_reason_else_by_its_code(reasons: list[str], code: str, scope: ThrottleScope) -> None:
    """The widest known reason decides; without one the error code does."""
    assert parse_throttle_reason(reasons, code) is scope


@pytest.mark.parametrize("asked", [0.0, -1.0, float("inf"), float("nan")])
def test_a_budget_must_be_a_positive_number(asked: float) -> None:
    """An invalid budget is an option error."""
    with pytest.raises(OptionError, match="positive"):
        Pacer(asked)


Seeds = Callable[[int, int], range]


# --- a whole job on a virtual clock -----------------------------------------------------------------------------------


@dataclass
class Job:
    """Lanes with a pacer on a virtual clock. It records what the service receives per 100 ms."""

    asked: float
    seed: int
    latency_seconds: Callable[[random.Random], float]
    stalls: tuple[tuple[float, float], ...] = ()
    page_seconds: float = 0.05
    slots: list[float] = field(default_factory=lambda: [0.0] * 3000)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.pacer = Pacer(self.asked)
        self.events: list[tuple[float, int, Callable[[float], None]]] = []

    def at(self, instant: float, action: Callable[[float], None]) -> None:
        """Run an action at an instant, or at the end of the stall that covers it."""
        instant = next((end for begin, end in self.stalls if begin <= instant < end), instant)
        heapq.heappush(self.events, (instant, len(self.events) + self.chance.randrange(1 << 60), action))

    def lane(self, begins_at: float, ends_at: float) -> None:
        """Add a lane that fetches pages from one instant until another."""
        page = self.asked * self.page_seconds
        estimate = page

        def ask(now: float) -> None:
            if now < ends_at:
                wait(now, self.pacer.reserve(estimate, now), estimate)

        def wait(now: float, position: float, charged: float) -> None:
            seconds = self.pacer.wait_seconds(position, now)
            if seconds > 0:
                late = self.chance.expovariate(1 / 0.002)
                self.at(now + min(seconds, 0.25) + late, lambda then: wait(then, position, charged))
            else:
                send(now, charged)

        def send(now: float, charged: float) -> None:
            half = self.latency_seconds(self.chance) / 2
            self.at(now + half, lambda served: serve(served, charged, half))

        def serve(now: float, charged: float, half: float) -> None:
            short = self.chance.random() < 0.05
            consumed = page * (self.chance.uniform(0.05, 0.5) if short else self.chance.uniform(0.7, 1.0))
            self.slots[int(now * 10)] += consumed
            self.at(now + half, lambda answered: settle(answered, charged, consumed))

        def settle(now: float, charged: float, consumed: float) -> None:
            nonlocal estimate
            self.pacer.settle(charged, consumed, now)
            estimate = consumed
            self.at(now + self.chance.uniform(0.0, 0.01), ask)

        self.at(begins_at, ask)

    def run(self) -> None:
        """Run all events in order."""
        while self.events:
            now, _, action = heapq.heappop(self.events)
            action(now)

    def ratios(self, seconds: int, until: float) -> list[float]:
        """Return the units of every sliding window divided by its share of the budget."""
        window = seconds * 10
        sums = [0.0, *accumulate(self.slots[: int(until * 10)])]
        return [(b - a) / (seconds * self.asked) for a, b in zip(sums, sums[window:], strict=False)]


def steady(chance: random.Random) -> float:
    """Return a latency around 20 ms with a tail."""
    return 0.015 + chance.expovariate(1 / 0.005)


def uneven(chance: random.Random) -> float:
    """Return a latency between 20 ms and 200 ms, one in fifty a second."""
    return 1.0 if chance.random() < 0.02 else chance.uniform(0.02, 0.2)


LEAST = {steady: 0.97, uneven: 0.965}
"""In 200 jobs with uneven latencies the worst minute had 96.9 %: few lanes, of which several waited for a second."""


@pytest.mark.parametrize("asked", [50.0, 400.0, 20_000.0])
@pytest.mark.parametrize(
    ("tasks", "lanes", "latency"), [(1, 1, steady), (1, 8, uneven), (2, 4, steady), (2, 8, uneven), (8, 4, uneven)]
)
def test_a_busy_job_spends_its_budget_and_not_more(
    tasks: int, lanes: int, latency: Callable[[random.Random], float], asked: float, seeds: Seeds
) -> None:
    """With enough work every 10 s are below 102 % and every minute above 97 % of the rate, except by chance."""
    for seed in seeds(2, 20):
        job = Job(asked, seed, latency)
        for _ in range(tasks * lanes):
            job.lane(begins_at=0.0, ends_at=200.0)
        job.run()
        assert max(job.ratios(10, until=200)) <= 1.02, seed
        assert min(job.ratios(60, until=200)) >= LEAST[latency], seed


def test_what_ended_tasks_leave_is_spent_by_the_others(seeds: Seeds) -> None:
    """Tasks that start late or end early do not change the bounds: nothing is idle at the end."""
    for seed in seeds(5, 50):
        job = Job(400.0, seed, uneven)
        chance = random.Random(seed)
        for task in range(8):
            begins_at, ends_at = (0.0, 200.0) if task == 0 else (chance.uniform(0, 60), chance.uniform(70, 150))
            for _ in range(6):
                job.lane(begins_at, ends_at)
        job.run()
        assert max(job.ratios(10, until=200)) <= 1.02, seed
        assert min(job.ratios(60, until=200)) >= LEAST[uneven], seed


@pytest.mark.parametrize("stall_seconds", [0.3, 0.6, 1.5])
def test_a_stalled_machine_does_not_catch_up_in_a_burst(stall_seconds: float, seeds: Seeds) -> None:
    """After a pause of the machine, the accumulated requests do not exceed the 10 s bound."""
    stalls = tuple((begin, begin + stall_seconds) for begin in (25.0, 85.0, 145.0))
    for seed in seeds(5, 50):
        job = Job(400.0, seed, steady, stalls)
        for _ in range(32):
            job.lane(begins_at=0.0, ends_at=200.0)
        job.run()
        # About one schedule in 100 has 2.0 to 2.2 %.
        assert max(job.ratios(10, until=200)) <= 1.03, seed
        assert min(job.ratios(60, until=200)) >= 0.99 - 0.0125 - stall_seconds / 60, seed


def test_coarse_pages_err_on_the_low_side() -> None:
    """If a page costs more than a second of budget, most of the budget is still spent, and no more than it."""
    job = Job(50.0, 1, steady, page_seconds=2.5)
    for _ in range(4):
        job.lane(begins_at=0.0, ends_at=280.0)
    job.run()
    assert 0.85 <= sum(job.slots[:2500]) / (250 * 50.0) <= 1.0


# --- the ramp ---------------------------------------------------------------------------------------------------------


@given(at=st.floats(0, 50_000), start=st.floats(1, 1e5))
def test_the_rate_doubles_every_half_hour(at, start):
    """At any time, the rate is twice as high half an hour later, and not more."""
    ramp = Ramp(start)
    assert ramp.rate_per_second(at + DOUBLING_SECONDS) == pytest.approx(2 * ramp.rate_per_second(at))


def test_the_pacer_keeps_below_the_ramp():
    """A job with a higher budget is limited to the ramp's rate, then to its own."""
    pacer = Pacer(3_000.0, Ramp(1_000.0))
    granted, now = 0.0, 0.0
    while now < 10.0:
        position = pacer.reserve(100.0, now)
        now += pacer.wait_seconds(position, now)
        granted += 100.0
    assert granted == pytest.approx(10 * 990, rel=0.03)
    late = 2 * DOUBLING_SECONDS
    position = pacer.reserve(6_000.0, late)
    assert pacer.wait_seconds(position, late) == pytest.approx(2.0, rel=0.1)


def test_a_budget_takes_the_ramp():
    """The budget of a job applies its ramp."""
    now = [0.0]
    budget = LocalBudget(10_000.0, ramp=Ramp(1_000.0), clock=lambda: now[0])
    wait_seconds, _ = budget.check(budget.enqueue(990.0))
    assert wait_seconds == pytest.approx(1.0, rel=0.1)
