"""Run every verb for all formats, cluster sizes and latencies: one process and one row per case, resumable.

``--quick`` runs a part of the matrix on less data, below ten minutes on two idle cores; ``--full`` all of it. A case
that has a row of this commit and size is skipped. ``--master`` adds a cluster to those of one machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import jobs, orders, pairs, peers, serving
from bench.e2e import processes, record
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BASE_FORMAT = "parquet zstd"
VERBS = ("scan", "frame", "load", "export", "compact")
CLUSTERS = ("threads", "local[1]", "local[2]", "local-cluster[1,1,1024]", "local-cluster[2,1,1024]")
LATENCIES_MS = (0, 5, 20)
ON_A_TABLE = ("scan", "frame", "load")
# Spark writes Avro with a separate package, and CSV has no nested columns.
OF_SPARK = ("parquet zstd", "parquet snappy", "orc zstd", "json")
QUICK_ITEMS, FULL_ITEMS = 40_000, 300_000
# The fake writes some thousand items per second: for minutes it would be measured instead of the job.
LOADED_SHARE = 5
# In addition to the base of each verb, and to two cores of Spark.
WITH_PEERS = ("threads", "local[2]")
OURS = "ddbio"
# Until then the JVM compiles the code of both.
WARM_UPS = 2
CORES = 2
SMALL_BYTES = 64 * 1024**2
CASE_SECONDS = 1800


@dataclass(frozen=True)
class Case:
    """Cell of the matrix."""

    verb: str
    file_format: str = BASE_FORMAT
    cluster: str = "threads"
    latency_ms: int = 0

    @property
    def named(self) -> str:
        """The distinguishing name of the case for people."""
        return f"{self.verb}, {self.file_format}, {self.cluster}, {self.latency_ms} ms"

    @property
    def is_possible(self) -> bool:
        """Whether such a job exists: only a table has latency, and only Spark has DataFrames."""
        if self.latency_ms and self.verb not in ON_A_TABLE:
            return False
        return self.verb != "frame" or (self.cluster != "threads" and self.file_format in OF_SPARK)

    @property
    def has_peers(self) -> bool:
        """Whether other libraries run the same job for comparison."""
        return (self.file_format, self.latency_ms) == (BASE_FORMAT, 0) and self.cluster in WITH_PEERS

    def rows_of(self, items: int) -> int:
        """Return the number of rows for a size: fewer for a load."""
        return max(1, items // LOADED_SHARE) if self.verb == "load" else items


def main(words: list[str] | None = None) -> int:
    """Run the requested cases. Return the number of failed cases."""
    made = record.parser("matrix")
    size = made.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a part, on less data (the default)")
    size.add_argument("--full", action="store_true", help="all cases")
    made.add_argument("--master", action="append", default=[], help="also this cluster; may be repeated")
    made.add_argument("--only", default="", metavar="TEXT", help="the cases whose description has this; keeps no row")
    made.add_argument("--items", type=int, help=f"rows of each case ({QUICK_ITEMS:,}; {FULL_ITEMS:,} with --full)")
    made.add_argument("--no-peers", action="store_true", help="no other library beside it; keeps no row")
    made.add_argument("--case", help=argparse.SUPPRESS)
    made.add_argument("--given", default="{}", help=argparse.SUPPRESS)
    asked = made.parse_args(words)
    items = asked.items or (FULL_ITEMS if asked.full else QUICK_ITEMS)
    if asked.case:
        inputs = Inputs(**json.loads(asked.given))
        case = Case(**json.loads(asked.case))
        figures = measure(case, items, 3 if asked.full else 2, inputs, with_peers=case.has_peers and not asked.no_peers)
        sys.stdout.write(json.dumps(figures) + "\n")
        return 0
    asked.dry_run |= asked.no_peers
    cases = [case for case in chosen(full=asked.full, masters=asked.master) if asked.only in case.named]
    finished = set() if asked.dry_run else done_before(items)
    failed = 0
    with tempfile.TemporaryDirectory() as folder, closing(Shared(Path(folder), items)) as shared:
        for number, case in enumerate(cases, 1):
            if case in finished:
                report_progress(f"{number} of {len(cases)}: {case.named}: has a row of this commit")
                continue
            began = time.perf_counter()
            # Three tables of the full size do not fit into every machine.
            inputs = Inputs() if asked.full else shared.for_case(case)
            flags = [f"--{name.replace('_', '-')}" for name in ("full", "no_peers") if getattr(asked, name)]
            figures = run_apart(case, items, inputs, flags)
            failed += figures is None
            if figures is not None:
                parameters = argparse.Namespace(dry_run=asked.dry_run, items=items, **asdict(case))
                record.append("matrix", parameters, figures)
            outcome = "failed" if figures is None else f"{figures['rows_per_second']:,} rows/s"
            report_progress(
                f"{number} of {len(cases)}: {case.named}: {outcome} after {time.perf_counter() - began:.0f} s"
            )
    return failed


@dataclass(frozen=True)
class Inputs:
    """Prepared inputs of a case: its table, the servers, and an export."""

    endpoint_url: str | None = None
    servers: tuple[int, ...] = ()
    export: str | None = None


NOTHING = Inputs()


class Shared:
    """Tables per latency, and the export, which cases share and which are created at their first use."""

    def __init__(self, folder: Path, items: int) -> None:
        self._source = jobs.Source(folder, items)
        self._served: dict[int, tuple[FakeDynamoDB, Inputs]] = {}

    def for_case(self, case: Case) -> Inputs:
        """Return the inputs of a case. A load has a separate table."""
        if case.verb == "export":
            return Inputs(export=str(self._source.export))
        if case.verb == "load" or case.verb not in ON_A_TABLE:
            return Inputs()
        if case.latency_ms not in self._served:
            before = processes.children()
            serving.isolate()
            fake = FakeDynamoDB(process=True, latency_seconds=case.latency_ms / 1000)
            fake.start()
            fake.load("orders", orders.lines("mixed", self._source.count), orders.KEY)
            servers = tuple(pid for pid in processes.children() if pid not in before)
            self._served[case.latency_ms] = fake, Inputs(fake.endpoint_url, servers)
        return self._served[case.latency_ms][1]

    def close(self) -> None:
        """Stop the servers of the tables."""
        for fake, _ in self._served.values():
            fake.stop()
        self._served.clear()


def chosen(*, full: bool, masters: Sequence[str] = ()) -> Iterator[Case]:
    """Yield the cases in the order of their runs."""
    clusters = (*CLUSTERS, *masters)
    if full:
        grid = map(Case, *zip(*itertools.product(VERBS, jobs.FORMATS, clusters, LATENCIES_MS), strict=True))
        yield from (case for case in grid if case.is_possible)
        return
    part = [Case(verb, file_format) for verb in VERBS for file_format in jobs.FORMATS]
    part += [Case(verb, latency_ms=latency) for verb in ON_A_TABLE for latency in LATENCIES_MS]
    part += [Case("scan", cluster=cluster) for cluster in clusters]
    part += [Case(verb, cluster=cluster) for verb in VERBS for cluster in ("local[1]", "local[2]", *masters)]
    yield from dict.fromkeys(case for case in part if case.is_possible)


def run_apart(case: Case, items: int, inputs: Inputs, flags: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the figures of a case from a separate process; None if it failed, which is reported."""
    words = ["--dry-run", f"--items={items}", f"--case={json.dumps(asdict(case))}"]
    words += [f"--given={json.dumps(asdict(inputs))}", *flags]
    command = [sys.executable, "-m", "bench.e2e.matrix", *words]
    try:
        done = subprocess.run(
            command, cwd=record.ROOT, capture_output=True, text=True, check=True, timeout=CASE_SECONDS
        )
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, IndexError, json.JSONDecodeError) as error:
        report_progress(f"{error}\n{str(getattr(error, 'stderr', ''))[-2000:]}")
        return None
    return figures


def measure(
    case: Case, items: int, rounds: int, inputs: Inputs = NOTHING, *, with_peers: bool = False
) -> dict[str, Any]:
    """Return the figures of a case: the median of the rounds after one that warms up and is checked."""
    count = case.rows_of(items)
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        source = jobs.Source(Path(home), count, case.file_format, engine_of(case.cluster), case.latency_ms / 1000)
        source.__dict__.update({name: value for name, value in inputs_of(inputs).items() if value is not None})
        prepare(case, source)
        connector = None
        if with_peers and case.cluster != "threads":
            connector = stack.enter_context(peers.open_connector(case.verb, source, CORES))
        # Servers of tables already run, and do not count; neither does a JVM that counts separately.
        servers = [*processes.children(), *inputs.servers]
        clock = processes.TreeClock()
        session = start(case.cluster)
        done = jobs.JOBS[case.verb](source)
        if done.rows != count:
            raise AssertionError(f"{case} moved {done.rows} of {count} rows")
        taken = [timed(case, source, clock, servers) for _ in range(rounds)]
        figures = figures_of(done, taken)
        figures["peak_mebibytes"] = processes.peaks(servers)
        if with_peers:
            found_peers = peers.of(case.verb, source, session, connector)
            figures["peers"] = measure_peers(case, source, found_peers, clock, rounds)
        if session is not None:
            session.stop()
    serving.stop()
    return figures


def inputs_of(inputs: Inputs) -> dict[str, Any]:
    """Return the prepared inputs of a source by attribute."""
    return {"endpoint_url": inputs.endpoint_url, "export": None if inputs.export is None else Path(inputs.export)}


def measure_peers(
    case: Case, source: jobs.Source, found_peers: dict[str, peers.Peer | str], clock: processes.TreeClock, rounds: int
) -> dict[str, Any]:
    """Return the figures of the peers in turns with ddbio, and the ratio of ddbio's rows per CPU second to theirs.

    A peer that is not available, or that refuses the data, has its reason.
    """
    ways: dict[str, Callable[[], tuple[int, float | None]]] = {OURS: lambda: (jobs.JOBS[case.verb](source).rows, None)}
    rows: dict[str, Any] = {}
    for name, peer in found_peers.items():
        if isinstance(peer, str):
            rows[name] = {"missing": peer}
            continue
        try:
            for _ in range(1 if case.cluster == "threads" else WARM_UPS):
                moved, _ = peer.run()
        except Exception as error:  # noqa: BLE001 - any error of a library with this data is reported
            rows[name] = {**peer.recorded, "missing": f"{type(error).__name__}: {error}".partition("\n")[0][:300]}
            continue
        # A paged read may end with its last page.
        if not peer.items <= moved <= source.count:
            raise AssertionError(f"{name} moved {moved} of {peer.items} rows")
        ways[name], rows[name] = peer.run, {**peer.recorded, "items": moved}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in pairs.turned(list(ways), number):
            cpu, began = clock(), time.perf_counter()
            moved, own = ways[name]()
            spent = clock() - cpu if own is None else own
            taken[name].append((spent / moved, (time.perf_counter() - began) / moved))
    for name in ways.keys() - {OURS}:
        of_cpu, of_wall = (
            [theirs[index] / ours[index] for ours, theirs in zip(taken[OURS], taken[name], strict=True)]
            for index in (0, 1)
        )
        rows[name] |= {
            "cpu_microseconds_per_row": [round(1e6 * cpu, 2) for cpu, _ in taken[name]],
            "times_as_fast": spread_of(of_cpu),
            "times_as_fast_by_the_clock": spread_of(of_wall),
        }
    return rows


def spread_of(ratios: list[float]) -> dict[str, float]:
    """Return median, minimum and maximum of the rounds' ratios."""
    return {
        "median": round(statistics.median(ratios), 2),
        "least": round(min(ratios), 2),
        "most": round(max(ratios), 2),
    }


def engine_of(cluster: str) -> dict[str, Any]:
    """Return the options of a verb to use the running session: a task per core, if the name has the number of cores.

    All executors share the folders of this machine.
    """
    if cluster == "threads":
        return {"engine": "local"}
    named = re.fullmatch(r"local(?:-cluster)?\[(\d+)(?:,(\d+),\d+)?\]", cluster)
    cores = {"tasks": int(named[1]) * int(named[2] or 1)} if named else {}
    return {"engine": "spark", "shared_paths": True, **cores}


def start(cluster: str) -> Any:
    """Return a session of a cluster; none for threads."""
    if cluster == "threads":
        return None
    from ddbio.spark.session import start_session  # noqa: PLC0415 - asv imports this module, and needs no Spark

    # Executors import the package from the same path as this process.
    path = os.pathsep.join([str(record.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PYTHONPATH"] = path
    return start_session(cluster, {"spark.executorEnv.PYTHONPATH": path})


def prepare(case: Case, source: jobs.Source) -> None:
    """Create the input of a job, by threads, before anything is measured."""
    if case.verb in ON_A_TABLE:
        assert source.endpoint_url
    if case.verb == "export":
        assert source.export
    if case.verb == "compact":
        assert source.small_files
    if case.verb == "load":
        by_threads = jobs.Source(source.folder, source.count, source.file_format)
        source.__dict__["files"] = by_threads.files


@dataclass(frozen=True)
class Taken:
    """Seconds of a run: wall time, CPU time of the job's processes, and of the servers."""

    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float


def timed(case: Case, source: jobs.Source, clock: processes.TreeClock, servers: list[int]) -> Taken:
    """Run a job once."""
    cpu, server_seconds, began = clock(), processes.cpu_seconds(servers), time.perf_counter()
    jobs.JOBS[case.verb](source)
    return Taken(time.perf_counter() - began, clock() - cpu, processes.cpu_seconds(servers) - server_seconds)


def figures_of(done: jobs.Done, taken: list[Taken]) -> dict[str, Any]:
    """Return the figures of a row."""
    seconds, cpu_seconds, server_seconds = (
        statistics.median(getattr(run, name) for run in taken) for name in Taken.__dataclass_fields__
    )
    size_bytes = sum(done.file_bytes)
    return {
        "rows": done.rows,
        "seconds": [round(run.seconds, 3) for run in taken],
        "rows_per_second": round(done.rows / seconds),
        "megabytes_per_second": round(size_bytes / 1e6 / seconds, 2),
        "cpu_seconds": round(cpu_seconds, 3),
        "cpu_seconds_per_gigabyte": round(cpu_seconds / size_bytes * 1e9, 1),
        "server_cpu_seconds": round(server_seconds, 3),
        "busy_cores": round(cpu_seconds / seconds, 2),
        "busy_cores_with_server": round((cpu_seconds + server_seconds) / seconds, 2),
        "units_asked_per_second": None,
        "read_units": done.read_units,
        "write_units": done.write_units,
        "files": len(done.file_bytes),
        "file_bytes": size_bytes,
        "file_bytes_histogram": histogram(done.file_bytes),
        "small_file_ratio": round(
            sum(file_byte < SMALL_BYTES for file_byte in done.file_bytes) / len(done.file_bytes), 3
        ),
    }


def histogram(sizes: list[int]) -> dict[str, int]:
    """Return the number of files by the power of two of MiB that bounds their size."""
    bounds = [max(0, (size - 1) // 1024**2).bit_length() for size in sizes]
    return {f"≤ {2**bound} MiB": bounds.count(bound) for bound in sorted(set(bounds))}


def done_before(items: int) -> set[Case]:
    """Return the cases with a row of this commit and number of rows."""
    path, commit = record.RESULTS / "matrix.jsonl", record.provenance()["commit"]
    rows = map(json.loads, path.read_text("utf-8").splitlines() if path.exists() else [])
    asked = (row["parameters"] for row in rows if row["commit"] == commit)
    return {
        Case(**{name: row_parameters[name] for name in Case.__dataclass_fields__})
        for row_parameters in asked
        if row_parameters["items"] == items
    }


def report_progress(text: str) -> None:
    """Report the progress to the user."""
    sys.stderr.write(f"matrix: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
