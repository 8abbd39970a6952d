"""Peak resident memory of one task above its start; goal: ≤ 256 MiB at any table size."""

from __future__ import annotations

import functools
import tempfile
from multiprocessing import get_context
from typing import Any

import ddbio
from bench import data, serving
from bench.e2e import processes, record

ITEMS = (100_000, 400_000)


def main() -> None:
    """Append a row: the same job on two sizes, as the first task of a process and as a later one."""
    arguments = record.parser("memory")
    arguments.add_argument("--lanes", type=int, default=8)
    asked = arguments.parse_args()
    figures = []
    for count in map(data.scaled, ITEMS):
        table = serving.serve("orders", count)
        for warm in (False, True):
            with get_context("spawn").Pool(1) as pool:
                figures.append(pool.apply(measure, (table, asked.lanes), {"warm": warm}))
        serving.stop()
    record.append("memory", asked, {"runs": figures})


def measure(table: serving.Table, lanes: int, *, warm: bool) -> dict[str, Any]:
    """Write the table as one task of the local engine and return its peak memory."""
    serving.isolate()
    # These imports happen before any task starts.
    scan = functools.partial(
        ddbio.scan_to_files, table.name, mode="append", endpoint_url=table.endpoint_url, engine="local"
    )
    with tempfile.TemporaryDirectory() as folder:
        if warm:
            scan(folder, limit=2_000)
        processes.reset_peak()
        before = processes.resident_mebibytes()
        report = scan(folder, lanes=lanes, segments=lanes)
        peak = processes.peak_mebibytes()
    assert (report.rows, report.tasks) == (table.count, 1)
    return {
        "items": report.items,
        "wire_bytes": report.wire_bytes,
        "lanes": report.lanes,
        "first_task": not warm,
        "start_mebibytes": round(before, 1),
        "growth_mebibytes": round(peak - before, 1),
    }


if __name__ == "__main__":
    main()
