"""Read and write under a budget, second by second: skewed keys, an index, lanes that have nothing left to do.

Goals: any 10 s ≤ 102 % of what was asked for; the last tenth of the run ≥ 90 % of it. Measured by the server's record.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import ddbio
from bench import serving
from bench.e2e import budget, record
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[[FakeDynamoDB, float, float], int]

KEY = "pk:S,sk:S"
REGION = "eu-west-1"
# A read unit is 8 KB of eventually consistent reads; a write unit is 1 KB.
READ_ITEM_BYTES, WRITE_ITEM_BYTES = 4_000, 700
HOT_SHARE = 0.5
LATENCY_SECONDS = 0.005


def main() -> None:
    """Append one row with each run's series."""
    arguments = record.parser("series")
    arguments.add_argument("--seconds", type=float, default=60.0, help="how long each run should take at the rate")
    arguments.add_argument("--units-per-second", type=float, default=400.0)
    arguments.add_argument("--only", default="", metavar="TEXT", help="the runs whose name has this; keeps no row")
    asked = arguments.parse_args()
    serving.isolate()
    runs = {
        name: measure(run, asked.units_per_second, asked.seconds) for name, run in RUNS.items() if asked.only in name
    }
    record.append("series", asked, {"runs": runs})


def measure(run: Run, rate: float, seconds: float) -> dict[str, Any]:
    """Return what a run consumed in each second, and how near that is to what was asked for."""
    with FakeDynamoDB(process=True, latency_seconds=LATENCY_SECONDS) as fake:
        rows = run(fake, rate, seconds)
        consumed = [(at, read + write, 0.0) for at, read, write in fake.consumed("rows")]
    units = budget.intervals(consumed)
    tail = units[-max(1, len(units) // 10) :]
    highest = budget.window(units, 10, max)
    return {
        "rows": rows,
        "units_by_second": budget.by_second(units),
        "highest_10s_ratio": None if highest is None else round(highest / rate, 4),
        "mean_ratio": round(sum(units) / len(units) * 10 / rate, 4),
        "tail_ratio": round(sum(tail) / len(tail) * 10 / rate, 4),
    }


def scan(fake: FakeDynamoDB, rate: float, seconds: float, hot_share: float) -> int:
    """Scan a table that costs as much as the time allows; a part of it may lie under one partition key."""
    count = max(100, round(rate * seconds * 8_192 / READ_ITEM_BYTES))
    rows = rows_of(count, READ_ITEM_BYTES, hot_share)
    fake.load("rows", ddbio.to_dynamodb_json(rows), KEY)
    with tempfile.TemporaryDirectory() as folder:
        report = ddbio.scan_to_files(
            "rows", folder, mode="append", engine="local", endpoint_url=fake.endpoint_url, region=REGION,
            rcu_per_second=rate,
        )  # fmt: skip
    assert report.rows == count
    return report.rows


def write(fake: FakeDynamoDB, rate: float, seconds: float, hot_share: float, gsi: str | None = None) -> int:
    """Write rows that cost as much as the time allows; an index doubles what each costs."""
    count = max(100, round(rate * seconds / (2 if gsi else 1)))
    ddbio.create_table("rows", key=KEY, gsi=gsi, endpoint_url=fake.endpoint_url, region=REGION)
    report = ddbio.write_table(
        rows_of(count, WRITE_ITEM_BYTES, hot_share), "rows", endpoint_url=fake.endpoint_url, region=REGION,
        wcu_per_second=rate,
    )  # fmt: skip
    assert report.written == count
    return report.written


def rows_of(count: int, item_bytes: int, hot_share: float) -> pa.Table:
    """Return rows of about that size, of which a share has one partition key."""
    hot = round(count * hot_share)
    return pa.table(
        {
            "pk": ["hot" if number < hot else f"customer-{number}" for number in range(count)],
            "sk": [f"{number:010}" for number in range(count)],
            "day": [f"2026-11-{number % 28 + 1:02}" for number in range(count)],
            "text": ["x" * (item_bytes - 60)] * count,
        }
    )


RUNS: dict[str, Run] = {
    "scan": lambda *given: scan(*given, hot_share=0.0),
    "scan, half of it under one key": lambda *given: scan(*given, hot_share=HOT_SHARE),
    "write": lambda *given: write(*given, hot_share=0.0),
    "write, half of it under one key": lambda *given: write(*given, hot_share=HOT_SHARE),
    "write, with a global index": lambda *given: write(*given, hot_share=0.0, gsi="by_day=day:S,sk:S"),
}
"""What is run, by its name."""


if __name__ == "__main__":
    main()
