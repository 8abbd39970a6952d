"""Simulate 80 TB over 1,000 tasks, and 100 TB over 4,000; goals: ≤ 30 CPU seconds, job ≤ 1.1 × ideal with leases.

``tests/advice/test_simulate_real.py`` compares simulations with runs on the fake.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import ddbio
from bench.e2e import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio import SimulationReport

LEASES, SHARES, LOST, HOT, LARGE, LOAD = (
    "leases", "fixed shares", "a tenth lost", "a hot key", "100 TB", "load of 100 TB"
)  # fmt: skip
WAYS: dict[str, Callable[[], SimulationReport]] = {
    LEASES: lambda: ddbio.simulate_scan("long-tail"),
    SHARES: lambda: ddbio.simulate_scan("long-tail", static_shares=True),
    LOST: lambda: ddbio.simulate_scan("long-tail", lose="25@7200"),
    HOT: lambda: ddbio.simulate_scan("long-tail", hot_key=0.01),
    LARGE: lambda: ddbio.simulate_scan(table_bytes=10**14, tasks=4_000, rcu_per_second=400_000),
    LOAD: lambda: ddbio.simulate_load(source_bytes=10**14, item_bytes=1_000, tasks=4_000, wcu_per_second=400_000),
}

SHOWN = {
    SHARES: "`--static-shares`: one segment and one thousandth of the budget for each task",
    LEASES: "leases: one budget for all tasks",
    LOST: "leases, a tenth of the executors lost after 2 h (`--lose 25@7200`)",
    HOT: "leases, one hundredth of the table under one key (`--hot-key 0.01`)",
}
"""Simulations on the page, with their options."""


def main() -> None:
    """Append a row."""
    asked = record.parser("simulate").parse_args()
    record.append("simulate", asked, measure(WAYS))


def measure(ways: dict[str, Callable[[], SimulationReport]]) -> dict[str, Any]:
    """Return the CPU seconds of each simulation, and the ratio of its job's time to the ideal."""
    # The first one would include imports.
    ddbio.simulate_scan(table_bytes=10**9)
    seconds, ratios, progress = {}, {}, {}
    for name, simulate in ways.items():
        began = time.process_time()
        report = simulate()
        seconds[name] = round(time.process_time() - began, 2)
        ratios[name] = report.ratio
        # After 80, 90 and 100 % of the units.
        progress[name] = [round(at_seconds) for at_seconds in report.progress[-3:]]
    return {"cpu_seconds": seconds, "ratios": ratios, "progress": progress}


if __name__ == "__main__":
    main()
