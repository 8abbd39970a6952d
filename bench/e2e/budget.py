"""Consumption recorded by the table's server, compared with the requested budget.

Goals: over any 10 s at most 102 % of it, over any minute at least 97 % while there is data.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from typing import TYPE_CHECKING, Any

import ddbio
from bench import serving
from bench.e2e import record
from ddbio.testing import FakeDynamoDB, flights

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

READERS = (1, 2, 8)

_PER_SECOND = 10
# Cost of all flights in a strongly consistent scan.
_ALL_FLIGHTS_UNITS = 18_500


def main() -> None:
    """Append a row: each engine with one, two and eight readers."""
    arguments = record.parser("budget")
    arguments.add_argument("--seconds", type=float, default=75.0, help="how long each run reads; above 60 for a minute")
    arguments.add_argument("--rcu-per-second", type=float, default=200.0)
    arguments.add_argument("--latency-ms", type=float, default=5.0, help="of the server's replies")
    arguments.add_argument("--engines", default="local,spark")
    asked = arguments.parse_args()
    serving.isolate()
    runs = []
    for engine in asked.engines.split(","):
        with _session() if engine == "spark" else contextlib.nullcontext():
            runs += [measure(asked, engine, readers) for readers in READERS]
    record.append("budget", asked, {"runs": runs})


def measure(asked: argparse.Namespace, engine: str, readers: int) -> dict[str, Any]:
    """Read for the requested time with a number of concurrent lanes or Spark tasks."""
    rate = asked.rcu_per_second
    count = math.ceil(flights.ITEM_COUNT * min(1.0, rate * asked.seconds / _ALL_FLIGHTS_UNITS))
    tasks: dict[str, Any] = {"tasks": readers} if engine == "spark" else {}
    with FakeDynamoDB(process=True, latency_seconds=asked.latency_ms / 1000) as fake, _folder() as folder:
        fake.load(flights.TABLE, flights.flight_lines(count), flights.KEY)
        report = ddbio.scan_to_files(
            flights.TABLE, folder, mode="append", engine=engine, endpoint_url=fake.endpoint_url, consistent=True,
            rcu_per_second=rate, lanes=readers, segments=2 * readers, **tasks,
        )  # fmt: skip
        units = intervals(fake.consumed(flights.TABLE))
    assert report.items == count
    assert math.isclose(sum(units), report.rcu_consumed)
    lowest = window(units, 60, min)
    return {
        "engine": engine,
        "tasks": report.tasks,
        "lanes": report.lanes,
        "seconds": len(units) / _PER_SECOND,
        "rcu_consumed": report.rcu_consumed,
        "rcu_by_second": by_second(units),
        "highest_10s_ratio": round((window(units, 10, max) or math.nan) / rate, 4),
        "lowest_60s_ratio": None if lowest is None else round(lowest / rate, 4),
        "reported_peak_10s_ratio": report.rcu_peak_10s_ratio and round(report.rcu_peak_10s_ratio, 4),
    }


def intervals(consumed: list[tuple[float, float, float]]) -> list[float]:
    """Return the read units of every 100 ms, from the first to the last non-zero one, including those of the sample."""
    by_number = {round(at * _PER_SECOND): read for at, read, _ in consumed}
    return [by_number.get(number, 0.0) for number in range(min(by_number), max(by_number) + 1)]


def by_second(units: list[float]) -> list[float]:
    """Return the read units of every second; the last one may be shorter."""
    return [round(sum(units[first : first + _PER_SECOND]), 1) for first in range(0, len(units), _PER_SECOND)]


def window(units: list[float], seconds: int, choose: Any) -> float | None:
    """Return the highest or lowest units per second over any ``seconds``, or None if the run was shorter."""
    width = seconds * _PER_SECOND
    sums = [sum(units[first : first + width]) for first in range(len(units) - width + 1)]
    return choose(sums) / seconds if sums else None


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@contextlib.contextmanager
def _session() -> Iterator[None]:
    """Start Spark, and load the dependencies of a task in every worker, because they are not part of the budget."""
    from ddbio.spark.session import start_session  # noqa: PLC0415 - only this engine needs Spark

    most = max(READERS)
    session = start_session(f"local[{most}]", {})
    try:
        with FakeDynamoDB(process=True) as fake, _folder() as folder:
            fake.load(flights.TABLE, flights.flight_lines(20_000), flights.KEY)
            ddbio.scan_to_files(
                flights.TABLE, folder, mode="append", engine="spark", endpoint_url=fake.endpoint_url,
                tasks=most, lanes=most, segments=most,
            )  # fmt: skip
        yield
    finally:
        session.stop()


if __name__ == "__main__":
    main()
