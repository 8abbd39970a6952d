"""Process rows with one and with two executors of Spark: the speed-up, and its limit.

Goal: ≥ 1.8 × for every verb without a budget. Each executor has one processor of this machine, as in a cluster. Each
verb processes a small number of rows and a large one: the difference is the rate of a long job, and the remaining time
of the small one is the start of every job. Responses of the tables are delayed and each task has one request in flight,
so that executors wait for the service as in reality: they share processors with its server.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import ddbio
from bench import data, jobs, orders, serving
from bench.e2e import matrix, processes, record
from ddbio.testing.export import ExportWriter, put_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

EXECUTORS = (1, 2)
# More tasks than executors, so that the faster one runs more of them.
TASKS = 8
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Scan.html: a page of 1 MB takes about 0.1 s.
READ_LATENCY_SECONDS, WRITE_LATENCY_SECONDS = 0.1, 0.05
WAITING = {"lanes": 1}
SIZES = ("small", "large")
TIMES_AS_LARGE = 4
# Share of the cores used by the job and the servers above which the machine is the limit.
BUSY = 0.85
COPIES = 8
EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Job:
    """Minimum number of orders of a verb, the latency of responses, and its options."""

    items: int
    latency_seconds: float = 0.0
    words: dict[str, Any] = field(default_factory=dict)
    copies: int = 1


JOBS = {
    "scan": Job(60_000, READ_LATENCY_SECONDS, WAITING),
    "frame": Job(60_000, READ_LATENCY_SECONDS, WAITING),
    "load": Job(2_000, WRITE_LATENCY_SECONDS, WAITING),
    "export": Job(50_000, copies=COPIES),
    "compact": Job(50_000, copies=COPIES),
}

Sources = dict[str, dict[str, jobs.Source]]
"""By verb and size."""
Runs = dict[str, dict[str, list[matrix.Taken]]]
"""By verb and size, one per round."""


def main() -> None:
    """Append a row: each verb with one executor, then with two."""
    arguments = record.parser("scaling")
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--only", default="", metavar="TEXT", help="the verbs whose name has this; keeps no row")
    asked = arguments.parse_args()
    serving.isolate()
    verbs = [verb for verb in JOBS if asked.only in verb]
    record.append("scaling", asked, measure(verbs, asked.rounds))


def measure(verbs: list[str], rounds: int) -> dict[str, Any]:
    """Return rates, starts, speed-up and limit of each verb."""
    with tempfile.TemporaryDirectory() as home:
        sources = {verb: {size: prepare(verb, size, Path(home)) for size in SIZES} for verb in verbs}
        # Before Spark's first session, whose JVM is reused by the second.
        servers = processes.children()
        clock = processes.TreeClock()
        taken = [by_executors(executors, sources, rounds, clock, servers) for executors in EXECUTORS]
    serving.stop()
    return {
        verb: figures_of(
            [rows_of(verb, sources[verb][size]) for size in SIZES],
            *(run[verb] for run in taken),
            late=bool(JOBS[verb].latency_seconds),
        )
        for verb in verbs
    }


def rows_of(verb: str, source: jobs.Source) -> int:
    """Return the number of rows of a source that a verb processes."""
    return source.count * copies_of(verb, source)


def copies_of(verb: str, source: jobs.Source) -> int:
    """Return the number of copies of each order. Files are linked, so that creating them takes no time."""
    job = JOBS[verb]
    return 1 if job.copies == 1 else job.copies * (TIMES_AS_LARGE if source.folder.name == "large" else 1)


def prepare(verb: str, size: str, home: Path) -> jobs.Source:
    """Create the input of a verb, in files of equal size for each task if no table is read."""
    job, folder = JOBS[verb], home / verb / size
    folder.mkdir(parents=True)
    words = {"engine": "spark", "shared_paths": True, "tasks": TASKS, **job.words}
    count = data.scaled(job.items) * (TIMES_AS_LARGE if size == "large" and job.copies == 1 else 1)
    source = jobs.Source(folder, count, run_by=words, latency_seconds=job.latency_seconds)
    match verb:
        case "export":
            items = orders.items("mixed", source.count)
            export = ExportWriter(folder / "exports", files=TASKS, empty_files=0).full(items)
            source.__dict__["export"] = repeated(export, copies_of(verb, source))
        case "compact":
            for path in jobs.data_files(source.small_files):
                for number in range(1, copies_of(verb, source)):
                    path.with_name(f"{number}-{path.name}").hardlink_to(path)
        case "load":
            by_threads = jobs.Source(folder, source.count, latency_seconds=job.latency_seconds)
            source.__dict__["files"] = in_parts(by_threads.files)
            assert source.endpoint_url
        case _:
            assert source.endpoint_url
    return source


def repeated(export: Path, copies: int) -> Path:
    """Link each data file of an export ``times``, and add the links to the manifests."""
    files = [json.loads(line) for line in (export / "manifest-files.json").read_text("utf-8").splitlines()]
    entries = []
    for entry in files:
        folder, _, name = entry["dataFileS3Key"].rpartition("/")
        for number in range(copies):
            link = f"{number}-{name}" if number else name
            if number:
                (export / "data" / link).hardlink_to(export / "data" / name)
            entries.append({**entry, "dataFileS3Key": f"{folder}/{link}"})
    summary = json.loads((export / "manifest-summary.json").read_text("utf-8"))
    summary["itemCount"] *= copies
    put_manifest(export, "manifest-files", b"".join(json.dumps(entry).encode() + b"\n" for entry in entries))
    put_manifest(export, "manifest-summary", json.dumps(summary).encode() + b"\n")
    return export


def in_parts(folder: Path) -> Path:
    """Split the only file of a folder into as many files as tasks."""
    (path,) = jobs.data_files(folder)
    table, parts = pq.read_table(path), folder.with_name("parts")
    parts.mkdir()
    step = -(-table.num_rows // TASKS)
    for number in range(TASKS):
        pq.write_table(table.slice(number * step, step), parts / f"part-{number}.parquet")
    return parts


def by_executors(executors: int, sources: Sources, rounds: int, clock: processes.TreeClock, servers: list[int]) -> Runs:
    """Run each verb with a number of executors of one processor, after warm-up runs that are checked."""
    session = matrix.start(f"local-cluster[{executors},1,1024]")
    try:
        taken: Runs = {}
        for verb, by_size in sources.items():
            run = runner(verb)
            wanted = rows_of(verb, by_size["small"])
            for _ in range(matrix.WARM_UPS):
                done = run(by_size["small"])
                if done.rows != wanted:
                    raise AssertionError(f"{verb} moved {done.rows} of {wanted} rows")
            processes.pin(EXECUTOR)
            taken[verb] = {size: [] for size in SIZES}
            for _ in range(rounds):
                for size, source in by_size.items():
                    taken[verb][size].append(timed(run, source, clock, servers))
    finally:
        session.stop()
    return taken


def runner(verb: str) -> Callable[[jobs.Source], jobs.Done]:
    """Return the job of a verb. Files are compacted in folders, so that each task has some."""
    return compact if verb == "compact" else jobs.JOBS[verb]


def compact(source: jobs.Source) -> jobs.Done:
    """Compact links to the small files, an equal part of them in each folder."""
    home = source.folder / "compacted"
    shutil.rmtree(home, ignore_errors=True)
    for number, path in enumerate(sorted(jobs.data_files(source.small_files))):
        folder = home / f"part={number % TASKS}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / path.name).hardlink_to(path)
    report = ddbio.compact(home, **source.run_by)
    return jobs.Done(report.rows, [report.bytes_written])


def timed(
    run: Callable[[jobs.Source], jobs.Done], source: jobs.Source, clock: processes.TreeClock, servers: list[int]
) -> matrix.Taken:
    """Run a job once."""
    cpu, beside, began = clock(), processes.cpu_seconds(servers), time.perf_counter()
    run(source)
    return matrix.Taken(time.perf_counter() - began, clock() - cpu, processes.cpu_seconds(servers) - beside)


@dataclass(frozen=True)
class Slope:
    """Time of the additional rows of the large job, and the start of both."""

    rows: int
    seconds: float
    start_seconds: float
    busy: float
    servers_busy: float

    @classmethod
    def of(cls, rows: list[int], taken: dict[str, list[matrix.Taken]]) -> Slope:
        """Return the slope of the medians of each size."""
        small, large = (median(taken[size]) for size in SIZES)
        more, seconds = rows[1] - rows[0], max(large.seconds - small.seconds, 1e-9)
        return cls(
            more,
            seconds,
            small.seconds - seconds * rows[0] / more,
            (large.cpu_seconds - small.cpu_seconds) / seconds,
            (large.server_cpu_seconds - small.server_cpu_seconds) / seconds,
        )

    @property
    def rows_per_second(self) -> float:
        """The rate of a long job."""
        return self.rows / self.seconds


def median(taken: list[matrix.Taken]) -> matrix.Taken:
    """Return the median of each figure."""
    names = matrix.Taken.__dataclass_fields__
    return matrix.Taken(*(statistics.median(getattr(run, name) for run in taken) for name in names))


def figures_of(
    rows: list[int], one: dict[str, list[matrix.Taken]], two: dict[str, list[matrix.Taken]], *, late: bool
) -> dict[str, Any]:
    """Return the figures of a verb with one executor and with two."""
    slopes = [Slope.of(rows, taken) for taken in (one, two)]
    before, after = slopes
    large_seconds = [median(taken["large"]).seconds for taken in (one, two)]
    return {
        "rows": rows[1],
        "rows_by_size": dict(zip(SIZES, rows, strict=True)),
        "seconds": {
            str(executors): {size: [round(run.seconds, 3) for run in taken[size]] for size in SIZES}
            for executors, taken in zip(EXECUTORS, (one, two), strict=True)
        },
        "rows_per_second": [round(slope.rows_per_second) for slope in slopes],
        "start_seconds": [round(slope.start_seconds, 2) for slope in slopes],
        "times_as_fast": round(after.rows_per_second / before.rows_per_second, 3),
        "times_as_fast_with_start": round(large_seconds[0] / large_seconds[1], 3),
        "busy_cores": round(after.busy, 2),
        "busy_cores_of_one": round(before.busy, 2),
        "busy_cores_with_server": round(after.busy + after.servers_busy, 2),
        "limited_by": limit(after.busy, after.servers_busy, os.cpu_count() or 1, late=late),
    }


def limit(job: float, servers: float, cores: int, *, late: bool) -> str:
    """Return the bottleneck of a job: the machine's processors, late responses, or one of its tasks or its driver."""
    if job + servers >= BUSY * cores:
        share = f", of which the server takes {servers:.1f}" if late else ""
        return f"the processors of this machine{share}"
    if late:
        return "answers that come late"
    return f"what one task does after the other: {job + servers:.1f} of {cores} processors were busy"


if __name__ == "__main__":
    main()
