"""Move the same rows by one executor of Spark and by two: how many times as fast, and what limits it.

Goal: ≥ 1.8 × for every verb that no budget bounds. Answers of the tables come late and each task has one request on its
way, so that executors wait for the service as they do there: server and executors share the cores of this machine.
Reading of exports and compaction ask no service: two executors of a core each have what driver and JVM leave of two.
"""

from __future__ import annotations

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
from ddbio.testing.export import ExportWriter

if TYPE_CHECKING:
    from collections.abc import Callable

EXECUTORS = (1, 2)
TASKS = 4
LATENCY_SECONDS = 0.05
WAITING = {"lanes": 1}
# Of the cores, by the job and the servers beside it, from where the machine is what limits.
BUSY = 0.85
COPIES = 8


@dataclass(frozen=True)
class Job:
    """Name a verb, how many orders it moves, and words for it."""

    items: int
    words: dict[str, Any] = field(default_factory=dict)
    copies: int = 1


JOBS = {
    "scan": Job(150_000, WAITING),
    "frame": Job(150_000, WAITING),
    "load": Job(4_000, WAITING),
    "export": Job(50_000, copies=COPIES),
    "compact": Job(50_000, copies=COPIES),
}


def main() -> None:
    """Append one row: each verb by one executor, then by two."""
    arguments = record.parser("scaling")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--only", default="", metavar="TEXT", help="the verbs whose name has this; keeps no row")
    asked = arguments.parse_args()
    serving.isolate()
    verbs = [verb for verb in JOBS if asked.only in verb]
    record.append("scaling", asked, measure(verbs, asked.rounds))


def measure(verbs: list[str], rounds: int) -> dict[str, Any]:
    """Return seconds, speed-up and limit of each verb."""
    with tempfile.TemporaryDirectory() as home:
        sources = {verb: prepare(verb, Path(home)) for verb in verbs}
        # Before Spark's first session, whose JVM stays for the second.
        servers = processes.children()
        clock = processes.TreeClock()
        taken = {executors: by_executors(executors, sources, rounds, clock, servers) for executors in EXECUTORS}
    serving.stop()
    one, two = (taken[executors] for executors in EXECUTORS)
    return {
        verb: figures_of(sources[verb].count * JOBS[verb].copies, one[verb], two[verb], late=bool(JOBS[verb].words))
        for verb in verbs
    }


def prepare(verb: str, home: Path) -> jobs.Source:
    """Make what a verb reads, larger than one file of it where no table limits."""
    job, folder = JOBS[verb], home / verb
    folder.mkdir()
    words = {"engine": "spark", "shared_paths": True, "tasks": TASKS, **job.words}
    source = jobs.Source(folder, data.scaled(job.items), run_by=words, latency_seconds=LATENCY_SECONDS)
    match verb:
        case "export":
            items = orders.items("mixed", source.count) * job.copies
            source.__dict__["export"] = ExportWriter(folder / "exports", files=2 * TASKS, empty_files=0).full(items)
        case "compact":
            for path in jobs.data_files(source.small_files):
                for number in range(1, job.copies):
                    path.with_name(f"{number}-{path.name}").hardlink_to(path)
        case "load":
            by_threads = jobs.Source(folder, source.count, latency_seconds=LATENCY_SECONDS)
            source.__dict__["files"] = in_parts(by_threads.files)
            assert source.endpoint_url
        case _:
            assert source.endpoint_url
    return source


def in_parts(folder: Path) -> Path:
    """Cut the only file of a folder into as many as there are tasks, so that each has one."""
    (path,) = jobs.data_files(folder)
    table, parts = pq.read_table(path), folder.with_name("parts")
    parts.mkdir()
    step = -(-table.num_rows // TASKS)
    for number in range(TASKS):
        pq.write_table(table.slice(number * step, step), parts / f"part-{number}.parquet")
    return parts


def by_executors(
    executors: int, sources: dict[str, jobs.Source], rounds: int, clock: processes.TreeClock, servers: list[int]
) -> dict[str, list[matrix.Taken]]:
    """Run each verb by so many executors of one core, once to warm up."""
    session = matrix.start(f"local-cluster[{executors},1,1024]")
    try:
        taken: dict[str, list[matrix.Taken]] = {}
        for verb, source in sources.items():
            run = runner(verb)
            done = run(source)
            wanted = source.count * JOBS[verb].copies
            if done.rows != wanted:
                raise AssertionError(f"{verb} moved {done.rows} of {wanted} rows")
            taken[verb] = [timed(run, source, clock, servers) for _ in range(rounds)]
    finally:
        session.stop()
    return taken


def runner(verb: str) -> Callable[[jobs.Source], jobs.Done]:
    """Return the job of a verb; files are compacted in folders, so that there is something for each task."""
    return compact if verb == "compact" else jobs.JOBS[verb]


def compact(source: jobs.Source) -> jobs.Done:
    """Compact links to the small files, an equal part of them in each folder."""
    home = source.folder / "compacted"
    shutil.rmtree(home, ignore_errors=True)
    for number, path in enumerate(jobs.data_files(source.small_files)):
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


def figures_of(rows: int, one: list[matrix.Taken], two: list[matrix.Taken], *, late: bool) -> dict[str, Any]:
    """Return what a verb took by one executor and by two."""
    before, after = (statistics.median(each.seconds for each in taken) for taken in (one, two))
    job, servers = (
        statistics.median(getattr(each, name) / each.seconds for each in two)
        for name in ("cpu_seconds", "server_cpu_seconds")
    )
    return {
        "rows": rows,
        "seconds": {
            str(executors): [round(each.seconds, 3) for each in taken]
            for executors, taken in zip(EXECUTORS, (one, two), strict=True)
        },
        "times_as_fast": round(before / after, 3),
        "busy_cores": round(job, 2),
        "busy_cores_with_server": round(job + servers, 2),
        "limited_by": limit(job, servers, os.cpu_count() or 1, late=late),
    }


def limit(job: float, servers: float, cores: int, *, late: bool) -> str:
    """Say what a job waited for: the machine's processors, late answers, or its own start and commit."""
    if job + servers >= BUSY * cores:
        return f"the processors of this machine, of which the server takes {servers:.1f}"
    if late:
        return "answers that come late"
    return f"what one task does after the other: {job + servers:.1f} of {cores} processors were busy"


if __name__ == "__main__":
    main()
