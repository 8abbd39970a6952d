"""Simulate 80 TB over 1,000 tasks, and 100 TB over 4,000; goals: ≤ 30 processor seconds, job ≤ 1.1 × ideal by leases.

What a simulation says is held to runs on the fake by ``tests/ops/test_simulation_real.py``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import ddbio
from bench.e2e import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio import SimulationReport

LEASES, SHARES, LOST, LARGE, LOAD = "leases", "fixed shares", "a tenth lost", "100 TB", "load of 100 TB"
WAYS: dict[str, Callable[[], SimulationReport]] = {
    LEASES: lambda: ddbio.simulate_scan("long-tail"),
    SHARES: lambda: ddbio.simulate_scan("long-tail", static_shares=True),
    LOST: lambda: ddbio.simulate_scan("long-tail", lose="25@7200"),
    LARGE: lambda: ddbio.simulate_scan(table_bytes=10**14, tasks=4_000, rcu_per_second=400_000),
    LOAD: lambda: ddbio.simulate_load(source_bytes=10**14, item_bytes=1_000, tasks=4_000, wcu_per_second=400_000),
}


def main() -> None:
    """Append one row."""
    asked = record.parser("simulate").parse_args()
    record.append("simulate", asked, measure(WAYS))


def measure(ways: dict[str, Callable[[], SimulationReport]]) -> dict[str, Any]:
    """Return the processor seconds of each simulation, and how much longer than the ideal its job takes."""
    # The first one would pay for imports.
    ddbio.simulate_scan(table_bytes=10**9)
    seconds, ratios = {}, {}
    for name, simulate in ways.items():
        began = time.process_time()
        report = simulate()
        seconds[name] = round(time.process_time() - began, 2)
        ratios[name] = report.ratio
    return {"cpu_seconds": seconds, "ratios": ratios}


if __name__ == "__main__":
    main()
