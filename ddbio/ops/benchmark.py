"""Measure ddbio on this machine and against this endpoint; nothing is written unless a table is named for it."""

from __future__ import annotations

import gc
import importlib.resources
import json
import os
import platform
import statistics
import tempfile
import time
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.core.benchmark import BenchFigure, BenchReport, beside_shipped, middle_figures
from ddbio.core.digest_columns import digest_of_batches
from ddbio.core.digest_json import digest_of_json
from ddbio.core.items.decode import Decoder, from_dynamodb_json, infer_schema_of_bodies
from ddbio.core.items.encode import to_dynamodb_json
from ddbio.core.items.item_sizes import item_bytes_of_json
from ddbio.core.sample_orders import order_lines
from ddbio.engine import cluster_of, open_engine, running_spark_parallelism
from ddbio.errors import DdbioError, NotFoundError, OptionError
from ddbio.ops.job.storage import new_job_id, open_store, require_shared
from ddbio.ops.loads.load import write_table
from ddbio.ops.scans.to_files import scan_to_files
from ddbio.options import ConnectionOptions, ScanToFilesOptions, WriteOptions, parse_options
from ddbio.options.locations import local_path
from ddbio.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ddbio.budget import Budget
    from ddbio.options import BenchOptions

_Kind = TypeVar("_Kind")

SHIPPED = "shipped_bench.json"
"""What ``ddbio bench --json`` printed on a quiet machine, beside this module."""

_LIBRARIES = ("botocore", "numba", "numpy", "pyarrow")
_PER_SECOND = "MB per CPU-second"


def run_bench(
    options: BenchOptions, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> BenchReport:
    """Return how fast functions work in memory, and a table is read and written if one is named.

    Parameters
    ----------
    master, conf
        Spark master and configuration, for a session that has to be started.

    Raises
    ------
    DdbioError
        A table cannot be read or written, or a result is wrong.
    NotFoundError, OptionError
        There is no file to compare with, or it is not what ``ddbio bench --json`` prints.
    """
    began = time.monotonic()
    shipped = shipped_report() if options.compare_with is None else _stored_report(options.compare_with)
    name = _engine_of(options, master)
    if options.table is not None and name == "spark":
        places = {"scratch": options.scratch or tempfile.gettempdir()}
        require_shared(cluster_of(master, conf), places, shared_paths=options.shared_paths)
    rcu, wcu = 0.0, 0.0
    with closing(open_engine(name, master=master, conf=conf)) as engine:
        tasks = (options.tasks or engine.parallelism) if name == "spark" else 1
        given = [_Task(options.items, options.rounds)] * tasks
        with closing(LocalBudget(None, job="bench")) as budget:
            measured = engine.run(measure_task, given, budget)
        figures = middle_figures([each.figures for each in measured])
        if name == "spark":
            figures = [replace(each, name=f"{each.name}, by Spark") for each in figures]
        if options.table is not None:
            scanned, rcu = _scan(options.table, name, options)
            figures += scanned
    if options.write_to is not None:
        lines = order_lines(max(1, options.items // 10))
        written, wcu = _write(options.write_to, b"\n".join(lines), options)
        figures += written
    return BenchReport(
        version=__version__,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=this_machine(),
        figures=tuple(beside_shipped(each, shipped) for each in figures),
        rcu_consumed=rcu,
        wcu_consumed=wcu,
        shipped_machine=shipped.get("machine"),
        seconds=round(time.monotonic() - began, 1),
        engine=name,
        tasks=tasks,
        workers=_workers(measured) if name == "spark" else (),
        compare_with=options.compare_with,
    )


@dataclass(frozen=True)
class _Task:
    items: int
    rounds: int


@dataclass(frozen=True)
class _Measured:
    figures: list[BenchFigure]
    host: str
    machine: dict[str, Any]


def measure_task(task: _Task, budget: Budget) -> _Measured:
    """Measure the functions where this runs."""
    del budget
    figures = _in_memory(b"\n".join(order_lines(task.items)), task.rounds)
    return _Measured(figures, platform.node(), this_machine())


def _workers(measured: list[_Measured]) -> tuple[dict[str, Any], ...]:
    hosts = Counter(each.host for each in measured)
    machines = {each.host: each.machine for each in measured}
    return tuple({"host": host, "tasks": count, **machines[host]} for host, count in sorted(hosts.items()))


def _engine_of(options: BenchOptions, master: str | None) -> Literal["local", "spark"]:
    if options.engine != "auto":
        return options.engine
    return "spark" if master is not None or running_spark_parallelism() is not None else "local"


def shipped_report() -> Mapping[str, Any]:
    """Return the report that comes with the package; empty if there is none."""
    place = importlib.resources.files("ddbio.ops") / SHIPPED
    text = place.read_text("utf-8") if place.is_file() else ""
    found: dict[str, Any] = json.loads(text) if text.strip() else {}
    return found


def _stored_report(path: str) -> Mapping[str, Any]:
    """Return what ``ddbio bench --json`` printed earlier."""
    try:
        found = json.loads(local_path(path).read_text("utf-8"))
        known = {(each["name"], each["unit"], float(each["value"])) for each in found["figures"]}
    except FileNotFoundError:
        raise NotFoundError(f"compare_with: there is no file {path}: 'ddbio bench --json > {path}' makes one") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise OptionError(f"compare_with: {path} is not what 'ddbio bench --json' prints: {error!r}") from None
    if not known:
        raise OptionError(f"compare_with: {path} has no figures: give what 'ddbio bench --json' printed")
    report: Mapping[str, Any] = found
    return report


def this_machine() -> dict[str, Any]:
    """Return what figures depend on besides the code."""
    known = {"system": f"{platform.system()} {platform.machine()}", "cpu": _cpu_model(), "cores": os.cpu_count()}
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {
        **known,
        "load_1m": load,
        "python": platform.python_version(),
        **{each: version(each) for each in _LIBRARIES},
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _in_memory(body: bytes, rounds: int) -> list[BenchFigure]:
    """Return the figures of functions that ask nobody, once their results are checked."""
    schema = infer_schema_of_bodies([(body[: body.find(b"\n", len(body) // 10)], "items")]).to_arrow()
    batches = Decoder(schema, nulls="keep").decode_batches(body, "items")
    if digest_of_batches(batches) != digest_of_json(body, "items"):
        raise DdbioError("the columns do not hold what the items do: please report this")
    table = pa.Table.from_batches(batches)
    calls: dict[str, Callable[[], object]] = {
        "from_dynamodb_json, schema given": lambda: from_dynamodb_json(body, schema),
        "from_dynamodb_json": lambda: from_dynamodb_json(body),
        "to_dynamodb_json": lambda: to_dynamodb_json(table),
        "infer_schema": lambda: infer_schema_of_bodies([(body, "items")]),
        "digest of lines": lambda: digest_of_json(body, "items"),
        "digest of columns": lambda: digest_of_batches(batches),
        "item sizes": lambda: item_bytes_of_json(body),
    }
    return [_measured(name, call, len(body) / 1e6, rounds) for name, call in calls.items()]


def _measured(name: str, call: Callable[[], object], megabytes: float, rounds: int) -> BenchFigure:
    call()
    seconds = []
    for _ in range(rounds):
        gc.collect()
        began = time.process_time()
        call()
        seconds.append(max(time.process_time() - began, 1e-9))
    middle = statistics.median(seconds)
    return BenchFigure(
        name, round(megabytes / middle, 1), _PER_SECOND, round((max(seconds) - min(seconds)) / middle, 3)
    )


def _scan(table: str, engine: str, options: BenchOptions) -> tuple[list[BenchFigure], float]:
    """Return the figures of reading a table once into files that are thrown away, and the units that it took."""
    with _scratch(options) as folder:
        asked = {"table": table, "dest": folder, "limit": options.items, "engine": engine, "mode": "append"}
        if engine == "spark":
            # Whether workers have disks of their own was asked before.
            asked |= {"tasks": options.tasks, "shared_paths": True}
        report = scan_to_files(_options(ScanToFilesOptions, options, asked, rcu_per_second=options.rcu_per_second))
    cpu_seconds, seconds = max(report.cpu_seconds, 1e-9), max(report.seconds, 1e-9)
    name = "scan to Parquet, by Spark" if engine == "spark" else "scan to Parquet"
    return [
        BenchFigure(name, round(report.wire_bytes / 1e6 / cpu_seconds, 1), _PER_SECOND, 0.0),
        BenchFigure(f"{name}, wall clock", round(report.rows / seconds), "items per second", 0.0),
    ], report.rcu_consumed


@contextmanager
def _scratch(options: BenchOptions) -> Iterator[str]:
    """Have a folder that is new for a while, in the one that is asked for."""
    if options.scratch is None:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    folder = f"{options.scratch.rstrip('/')}/ddbio-bench-{new_job_id()}"
    try:
        yield folder
    finally:
        store = open_store(folder, options)
        store.delete([each.path for each in store.list()])


def _write(table: str, body: bytes, options: BenchOptions) -> tuple[list[BenchFigure], float]:
    """Return the figures of writing items into a table, and the units that it took."""
    rows = from_dynamodb_json(body)
    report = write_table(rows, _options(WriteOptions, options, {"table": table}, wcu_per_second=options.wcu_per_second))
    cpu_seconds, seconds = max(report.cpu_seconds, 1e-9), max(report.seconds, 1e-9)
    return [
        BenchFigure("write", round(len(body) / 1e6 / cpu_seconds, 1), _PER_SECOND, 0.0),
        BenchFigure("write, wall clock", round(report.written / seconds), "items per second", 0.0),
    ], report.wcu_consumed


def _options(kind: type[_Kind], options: BenchOptions, asked: dict[str, Any], **rates: float | None) -> _Kind:
    given = {name: rate for name, rate in rates.items() if rate is not None}
    connection = {each.name: getattr(options, each.name) for each in fields(ConnectionOptions)}
    return parse_options(kind, {**connection, **asked, **given})
