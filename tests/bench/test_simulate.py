"""The case of simulations, on little data."""

from __future__ import annotations

import ddbio
from bench import report
from bench.e2e import simulate


def test_simulations_are_timed_and_shown():
    """Each method has its processor time and its ratio. The report shows those with goals."""
    figures = simulate.measure(
        dict.fromkeys(simulate.WAYS, lambda: ddbio.simulate_scan(table_bytes=10**8, rcu_per_second=5_000))
    )
    assert figures["ratios"][simulate.LEASES] > 1
    goals = [line.goal for line in report.CASES["simulate"]({"figures": figures})]
    assert goals == [("≤", 30), ("≤", 1.1), None, None]
