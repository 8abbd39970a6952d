"""The rate of a warm-up: where it begins, and how fast it grows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.budget import LocalBudget
from ddbio.core.pacing import Pacer
from ddbio.core.ramp import DOUBLING_SECONDS, Ramp


@given(at=st.floats(0, 50_000), start=st.floats(1, 1e5))
def test_the_rate_doubles_every_half_hour(at, start):
    """Whatever the moment, half an hour later the rate is twice as high and not more."""
    ramp = Ramp(start)
    assert ramp.rate_per_second(at + DOUBLING_SECONDS) == pytest.approx(2 * ramp.rate_per_second(at))


def test_the_pacer_keeps_below_the_ramp():
    """A job that asks for more is held to the ramp's rate, then to its own."""
    pacer = Pacer(3_000.0, Ramp(1_000.0))
    granted, now = 0.0, 0.0
    while now < 10.0:
        place = pacer.reserve(100.0, now)
        now += pacer.wait_seconds(place, now)
        granted += 100.0
    assert granted == pytest.approx(10 * 990, rel=0.03)
    late = 2 * DOUBLING_SECONDS
    place = pacer.reserve(6_000.0, late)
    assert pacer.wait_seconds(place, late) == pytest.approx(2.0, rel=0.1)


def test_a_budget_takes_the_ramp():
    """The budget of a job hands its ramp on."""
    now = [0.0]
    budget = LocalBudget(10_000.0, ramp=Ramp(1_000.0), clock=lambda: now[0])
    wait_seconds, _ = budget.check(budget.reserve(990.0))
    assert wait_seconds == pytest.approx(1.0, rel=0.1)
