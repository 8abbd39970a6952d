"""Capacity by consumption: simulated auto scaling, and calculated modes, classes and reservations."""

from __future__ import annotations

import json
from datetime import date
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ddbio.advice.provisioning import Consumption, TableUse, plan_capacity, replay
from ddbio.jobs import prices
from ddbio.jobs.prices import PriceBook

BOOK = PriceBook.from_json((Path(prices.__file__).parent / "us-east-1.json").read_text("utf-8"), "us-east-1.json")
WEEK = 7 * 1440


def plan(*parts: Consumption, **more: object):
    """Return the plan of a table with periods of a minute."""
    return plan_capacity(TableUse("t", 60.0, parts, **more), BOOK, 0.7, "us-east-1", date(2024, 12, 1))


def steady(units: float, what: str = "reads", name: str = "table", now: float | None = None) -> Consumption:
    """Return a constant consumption."""
    return Consumption(name, what, np.full(WEEK, units), None if now is None else np.full(WEEK, now))


def test_scaling_out_takes_two_minutes_and_in_fifteen():
    """Capacity scales out after two minutes above the target, and in after 15 minutes at 20 points below it."""
    consumed = np.array([70.0] * 10 + [140.0] * 10 + [70.0] * 30)
    replayed = replay(consumed, 60.0, (100, 400), 0.7)
    assert replayed.capacity[11] == 100
    assert replayed.capacity[12] == 200
    assert replayed.capacity[20 + 14] == 200
    # 70 of 200 is below the half.
    assert replayed.capacity[20 + 15] == 100
    # The savings of ten minutes serve two minutes of 40 above the capacity.
    assert replayed.throttled_ratio == 0


def test_what_burst_capacity_does_not_carry_is_throttled():
    """At most five minutes of unused capacity accumulate."""
    consumed = np.array([0.0] * 60 + [1000.0])
    replayed = replay(consumed, 60.0, (100, 100), 0.7)
    assert replayed.throttled_ratio == pytest.approx((900 * 60 - 300 * 100) / 60_000)


def test_capacity_is_lowered_four_times_a_day_and_once_an_hour():
    """After four decreases within about an hour, the next one is possible after an hour without a decrease."""
    consumed = np.array(([1000.0] * 3 + [1.0] * 16) * 12)
    capacity = replay(consumed, 60.0, (1, 2000), 0.7).capacity
    drops = np.flatnonzero(np.diff(capacity) < 0)
    assert len(drops) >= 5
    assert all(later - former >= 60 for former, later in pairwise(drops[3:]))


def test_a_steady_table_is_cheaper_provisioned():
    """700 reads per second are 1,000 provisioned: 94.90 USD a month, compared with 229.95 on demand."""
    recommended = plan(steady(700.0))
    need = recommended.needs[0]
    assert (recommended.mode, need.least, need.most) == ("provisioned", 1000, 1000)
    assert need.provisioned_usd == pytest.approx(1000 * 730 * 0.00013)
    assert need.on_demand_usd == pytest.approx(700 * 730 * 3600 * 0.125e-6)
    assert recommended.mode_break_even["reads"] == pytest.approx(0.289, abs=0.0005)


def test_a_table_of_peaks_is_cheaper_on_demand():
    """Capacity for a minute's peak every twelve hours would be paid all day."""
    consumed = np.zeros(WEEK)
    consumed[::720] = 3000
    assert plan(Consumption("table", "reads", consumed)).mode == "on-demand"


def test_the_recommended_mode_changes_at_the_break_even_point():
    """Above a consumption of 28.9 % of the provisioned capacity, provisioned is cheaper; below it, on demand."""
    for target, mode in ((0.35, "provisioned"), (0.25, "on-demand")):
        use = TableUse("t", 60.0, (Consumption("table", "writes", np.full(WEEK, 1000.0)),))
        recommended = plan_capacity(use, BOOK, target, "us-east-1", date(2024, 12, 1))
        cheapest = recommended.choices[0]
        assert cheapest.mode == mode


def test_the_savings_of_reservations():
    """A unit for a year costs 54 % less and pays above 46 % of the hours; for three years 77 % less, above 23 %."""
    reservations = {
        (reservation.what, reservation.years): reservation
        for reservation in plan(steady(700.0), steady(70.0, "writes")).reserved
    }
    one, three = reservations["reads", 1], reservations["reads", 3]
    assert one.break_even == pytest.approx(0.4557, abs=0.001)
    assert three.break_even == pytest.approx(0.2285, abs=0.001)
    assert (one.units, one.usd_upfront) == (1000, 300)
    assert one.usd_saved == pytest.approx(1000 * 730 * 0.00013 - 10 * (30 / 8760 + 0.0025) * 730)
    assert reservations["writes", 1].units == 100


def test_the_class_follows_size_and_use():
    """Standard-IA costs 0.15 USD per GB less for storage and more for reads. The break-even size is computed."""
    small, large = (plan(steady(700.0), table_gb=size) for size in (1.0, 10_000.0))
    assert (small.table_class, large.table_class) == ("standard", "standard-ia")
    dearer = 1000 * 730 * (0.00016 - 0.00013)
    assert small.class_break_even_gb == pytest.approx(dearer / 0.15, abs=0.01)
    assert plan(steady(700.0)).class_break_even_gb is None


def test_shares_headroom_and_risk():
    """Each index has its share and the headroom of its busiest period. Throttled requests are a high risk."""
    recommended = plan(
        steady(100.0, "writes", now=200.0),
        steady(300.0, "writes", "by-date", now=310.0),
        Consumption("by-name", "writes", np.full(WEEK, 10.0), np.full(WEEK, 100.0), 5.0),
    )
    table, by_date, by_name = recommended.needs
    assert (table.share, by_date.share) == (pytest.approx(0.2439, abs=1e-4), pytest.approx(0.7317, abs=1e-4))
    assert (table.headroom, table.risk) == (0.5, "none")
    assert (by_date.full_periods, by_date.risk) == (WEEK, "low")
    assert by_name.risk == "high"
    assert any("5 writes of the index by-name were throttled" in reason for reason in recommended.why)
    assert recommended.mode_now == "provisioned"
    assert recommended.usd_now == pytest.approx(610 * 730 * 0.00065)
    assert json.loads(recommended.to_json())["needs"][0]["what"] == "writes"
