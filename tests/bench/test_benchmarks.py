"""Checks of every asv benchmark, and nightly a run of every benchmark on little data.

``-m '' --benchmark-enable`` times the benchmarks by pytest-benchmark instead.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import os
import pkgutil
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bench
from bench import discovery
from bench.imports import Import

MODULES = discovery.modules()
CLASSES = list(discovery.classes())
SMOKE_SCALE = "0.002"


def cases() -> Iterator[Any]:
    """Yield each benchmark of each class with each combination of its parameters."""
    # asv measures the memory of the benchmarks that it times.
    for benchmark in discovery.benchmarks(("time_", "track_")):
        words = (*benchmark.words[:2], *map(str, benchmark.parameters))
        timer = getattr(benchmark.subject, "timer", time.process_time)
        timed = pytest.mark.benchmark(group=".".join(words), timer=timer)
        yield pytest.param(benchmark.subject, benchmark.method, benchmark.parameters, id=benchmark.name, marks=timed)


@pytest.fixture(scope="module", autouse=True)
def _little_data(request) -> Iterator[None]:
    """Limit the size of smoke runs."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("benchmark_enable"):
            patch.setenv("BENCH_SCALE", SMOKE_SCALE)
        yield


def test_the_page_names_all_classes_of_asv():
    """Every class that asv would run, also an imported one, is in one module and named on the page."""
    names = [
        f"{module.__name__.removeprefix('bench.')}.{cls.__name__}"
        for module in map(
            importlib.import_module,
            (module_info.name for module_info in pkgutil.walk_packages(bench.__path__, "bench.")),
        )
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if any(name.startswith(discovery.PREFIXES) for name, _ in inspect.getmembers(cls, callable))
    ]
    page = (Path(__file__).parents[2] / "docs/benchmarks.md").read_text("utf-8")
    (table,) = re.findall(r"## asv classes\n(.*?)\n\n[^|\n]", page, re.DOTALL)
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert sorted(names) == sorted(name for row in rows for name in re.findall(r"`(\w+\.\w+)`", row))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_checks_accept_the_measured_data(cls):
    """Setting up the class, with each combination of parameters, runs its check."""
    assert "check(" in inspect.getsource(cls.setup)
    for parameters in itertools.product(*getattr(cls, "params", ())):
        subject = cls()
        try:
            subject.setup(*parameters)
        finally:
            getattr(subject, "teardown", lambda *_: None)(*parameters)


@pytest.mark.nightly
@pytest.mark.parametrize(("cls", "name", "parameters"), list(cases()))
def test_benchmark_runs(cls, name, parameters, request):
    """Each benchmark runs once. A tracked value is a positive number with a unit."""
    subject = cls()
    subject.setup(*parameters)
    method = getattr(subject, name)
    try:
        if name.startswith("track_"):
            assert method(*parameters) > 0
            assert method.unit
        elif request.config.getoption("benchmark_enable"):
            request.getfixturevalue("benchmark")(method, *parameters)
        else:
            method(*parameters)
    finally:
        getattr(subject, "teardown", lambda *_: None)(*parameters)


def test_the_clock_of_imports_can_be_calibrated():
    """pytest-benchmark measures the smallest step of a clock, so the children's clock must advance without a child."""
    clock = Import.timer
    first, tries = clock(), 0
    while clock() == first:
        tries += 1
        assert tries < 10**8


@pytest.mark.nightly
def test_pytest_benchmark_times_what_asv_times():
    """Timing by pytest-benchmark, as the page describes it, works, also with a clock of the time of children."""
    words = ["--benchmark-enable", "--benchmark-min-rounds=1", "--benchmark-max-time=0", "-k", "Import and nothing"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words, __file__]
    # xdist passes the name of its worker on, and pytest-benchmark times nothing in a worker.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(command, cwd=Path(__file__).parents[2], env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^-+ benchmark '.*imports.*Import", done.stdout, re.MULTILINE), done.stdout


def test_no_figure_is_unverified():
    """Every class that times or tracks something has a check."""
    for module in map(importlib.import_module, MODULES):
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ == module.__name__ and any(name.startswith(discovery.PREFIXES) for name in dir(cls)):
                assert callable(cls.check)


def test_importing_all_of_bench_starts_nothing_heavy():
    """Importing every module, as asv does, loads neither Spark nor awswrangler."""
    everything = [module.name for module in pkgutil.walk_packages(bench.__path__, "bench.")]
    script = f"""if True:
        import importlib, sys
        for name in {everything}:
            importlib.import_module(name)
        print(*{{"awswrangler", "pandas", "pyspark"}} & sys.modules.keys())"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "\n"
