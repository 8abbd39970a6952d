"""Read and write with a budget, second by second: skewed keys, an index, tasks that join and leave.

On Spark two tasks run at a time: when one ends, the next one joins. Then an executor is killed during the run, and
another replaces it. Goals: any 10 s ≤ 102 % of the budget; the last tenth of the run ≥ 90 %. The server's record is
measured.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

import ddbio
from bench import serving
from bench.e2e import budget, matrix, processes, record
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Run = Callable[[FakeDynamoDB, float, float], int]
    """Processes rows at a rate for some seconds, and returns their number."""

KEY = "pk:S,sk:S"
REGION = "eu-west-1"
# A read unit is 8 KB of eventually consistent reads; a write unit is 1 KB.
READ_ITEM_BYTES, WRITE_ITEM_BYTES = 4_000, 700
HOT_SHARE = 0.5
LATENCY_SECONDS = 0.005
# More tasks than run at a time, so that some leave and others join.
SPARK_TASKS = 8
LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"


def main() -> None:
    """Append a row with each run's series."""
    arguments = record.parser("series")
    arguments.add_argument("--seconds", type=float, default=30.0, help="how long each run should take at the rate")
    arguments.add_argument("--units-per-second", type=float, default=400.0)
    arguments.add_argument("--only", default="", metavar="TEXT", help="the runs whose name has this; keeps no row")
    asked = arguments.parse_args()
    serving.isolate()
    runs = {}
    for master, named in ((None, RUNS), (LOCAL, RUNS_ON_SPARK), (CLUSTER, RUNS_ON_A_CLUSTER)):
        chosen = {name: run for name, run in named.items() if asked.only in name}
        if chosen:
            with _session(master):
                runs |= {name: measure(run, asked.units_per_second, asked.seconds) for name, run in chosen.items()}
    record.append("series", asked, {"runs": runs})


def measure(run: Run, rate: float, seconds: float) -> dict[str, Any]:
    """Return the consumption of a run per second, and its ratio to the budget."""
    with FakeDynamoDB(process=True, latency_seconds=LATENCY_SECONDS) as fake, Watch() as watch:
        rows = run(fake, rate, seconds)
        consumed = [(at, read + write, 0.0) for at, read, write in fake.consumed("rows")]
    units = budget.intervals(consumed)
    tail = units[-max(1, len(units) // 10) :]
    highest = budget.window(units, 10, max)
    first = consumed[0][0]
    return {
        "rows": rows,
        "units_by_second": budget.by_second(units),
        "tasks_by_second": watch.tasks(first, len(units)),
        "highest_10s_ratio": None if highest is None else round(highest / rate, 4),
        "mean_ratio": round(sum(units) / len(units) * 10 / rate, 4),
        "tail_ratio": round(sum(tail) / len(tail) * 10 / rate, 4),
    }


class Watch:
    """Counter of Spark's running tasks, twice a second, from the start of the server's answers."""

    def __init__(self) -> None:
        self._seen = list[tuple[float, int]]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join()

    def tasks(self, first: float, count: int) -> list[int]:
        """Return the running tasks in each second after the first unit; none if there never was a task."""
        seconds = -(-count // 10)
        counts = [0] * seconds
        for at, running in self._seen:
            second = int(at - first)
            if 0 <= second < seconds:
                counts[second] = max(counts[second], running)
        return counts if any(counts) else []

    def _look(self) -> None:
        while not self._stop.wait(0.5):
            self._seen.append((time.monotonic() - self._began, running_tasks()))


def running_tasks() -> int:
    """Return the number of running tasks in the session of this process."""
    from ddbio.spark.session import running_session  # noqa: PLC0415 - asv imports this module, and needs no Spark

    session = running_session()
    if session is None:
        return 0
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


@contextlib.contextmanager
def _session(master: str | None) -> Iterator[None]:
    """Return a session for some runs, whose workers have loaded the dependencies of a task."""
    if master is None:
        yield
        return
    session = matrix.start(master)
    try:
        with FakeDynamoDB(process=True) as fake:
            scan(fake, 10_000.0, 0.2, hot_share=0.0, engine="spark")
        yield
    finally:
        session.stop()


def scan(fake: FakeDynamoDB, rate: float, seconds: float, hot_share: float, engine: str = "local") -> int:
    """Scan a table that costs as much as the time allows. A part of it may have one partition key."""
    count = max(100, round(rate * seconds * 8_192 / READ_ITEM_BYTES))
    rows = rows_of(count, READ_ITEM_BYTES, hot_share)
    fake.load("rows", ddbio.to_dynamodb_json(rows), KEY)
    with tempfile.TemporaryDirectory() as folder:
        report = ddbio.scan_to_files(
            "rows", folder, mode="append", endpoint_url=fake.endpoint_url, region=REGION, rcu_per_second=rate,
            **words_of(engine),
        )  # fmt: skip
    assert report.rows == count
    return report.rows


def words_of(engine: str) -> dict[str, Any]:
    """Return the options of an engine: on Spark more tasks than run at a time, with this machine's folders."""
    spark = {"engine": "spark", "tasks": SPARK_TASKS, "segments": 4 * SPARK_TASKS, "shared_paths": True}
    return spark if engine == "spark" else {"engine": "local"}


def load(fake: FakeDynamoDB, rate: float, seconds: float, hot_share: float, gsi: str | None = None) -> int:
    """Load files on Spark that cost as much as the time allows."""
    count = max(100, round(rate * seconds / (2 if gsi else 1)))
    ddbio.create_table("rows", key=KEY, gsi=gsi, endpoint_url=fake.endpoint_url, region=REGION)
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(rows_of(count, WRITE_ITEM_BYTES, hot_share), Path(folder, "rows.parquet"), row_group_size=2_000)
        report = ddbio.load_files(
            folder, "rows", endpoint_url=fake.endpoint_url, region=REGION, wcu_per_second=rate, engine="spark",
            tasks=SPARK_TASKS, shared_paths=True,
        )  # fmt: skip
    assert report.written == count
    return report.written


def scan_while_one_is_killed(fake: FakeDynamoDB, rate: float, seconds: float) -> int:
    """Scan on a cluster, and kill an executor after a third of the time."""
    timer = threading.Timer(seconds / 3, kill_an_executor)
    timer.start()
    try:
        return scan(fake, rate, seconds, hot_share=0.0, engine="spark")
    finally:
        timer.cancel()


def kill_an_executor() -> None:
    """Kill one of the executors of this process's cluster. Another one will replace it."""
    for pid in processes.descendants():
        with contextlib.suppress(OSError):
            if "CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_text("utf-8"):
                os.kill(pid, signal.SIGKILL)
                return
    raise RuntimeError("no executor runs")


def write(fake: FakeDynamoDB, rate: float, seconds: float, hot_share: float, gsi: str | None = None) -> int:
    """Write rows that cost as much as the time allows. An index doubles the cost of each."""
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
    "scan": lambda *arguments: scan(*arguments, hot_share=0.0),
    "scan, half of it under one key": lambda *arguments: scan(*arguments, hot_share=HOT_SHARE),
    "write": lambda *arguments: write(*arguments, hot_share=0.0),
    "write, half of it under one key": lambda *arguments: write(*arguments, hot_share=HOT_SHARE),
    "write, with a global index": lambda *arguments: write(*arguments, hot_share=0.0, gsi="by_day=day:S,sk:S"),
}
"""Runs on threads, by name."""

RUNS_ON_SPARK: dict[str, Run] = {
    "scan, tasks join and leave": functools.partial(scan, hot_share=0.0, engine="spark"),
    "scan, tasks join and leave, half of it under one key": functools.partial(
        scan, hot_share=HOT_SHARE, engine="spark"
    ),
    "load, tasks join and leave, with a global index": functools.partial(load, hot_share=0.0, gsi="by_day=day:S,sk:S"),
}
"""Runs with two concurrent tasks of Spark."""

RUNS_ON_A_CLUSTER: dict[str, Run] = {"scan, an executor is killed and another joins": scan_while_one_is_killed}
"""Runs with two executors."""


if __name__ == "__main__":
    main()
