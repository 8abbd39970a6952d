"""The check of every asv benchmark, and nightly every benchmark once, on little data.

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
    # What asv measures the memory of is what it times.
    for each in discovery.benchmarks(("time_", "track_")):
        words = (*each.words[:2], *map(str, each.parameters))
        timer = getattr(each.subject, "timer", time.process_time)
        timed = pytest.mark.benchmark(group=".".join(words), timer=timer)
        yield pytest.param(each.subject, each.method, each.parameters, id=each.name, marks=timed)


@pytest.fixture(scope="module", autouse=True)
def _little_data(request) -> Iterator[None]:
    """Keep smoke runs small."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("benchmark_enable"):
            patch.setenv("BENCH_SCALE", SMOKE_SCALE)
        yield


def test_the_page_names_what_asv_finds():
    """Every class that asv would run, an imported one too, is found in one module and named on the page."""
    found = [
        f"{module.__name__.removeprefix('bench.')}.{cls.__name__}"
        for module in map(
            importlib.import_module, (each.name for each in pkgutil.walk_packages(bench.__path__, "bench."))
        )
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if any(name.startswith(discovery.PREFIXES) for name, _ in inspect.getmembers(cls, callable))
    ]
    page = (Path(__file__).parents[2] / "docs/benchmarks.md").read_text("utf-8")
    (table,) = re.findall(r"## asv classes\n(.*?)\n\n[^|\n]", page, re.DOTALL)
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert sorted(found) == sorted(name for row in rows for name in re.findall(r"`(\w+\.\w+)`", row))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_checks_accept_what_is_measured(cls):
    """With each combination of parameters the class is set up, which runs its check."""
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
    """Each benchmark runs once; what it tracks is a positive number with a unit."""
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
    """pytest-benchmark looks for the smallest step of a clock, so that of children's time goes on without a child."""
    clock = Import.timer
    first, tries = clock(), 0
    while clock() == first:
        tries += 1
        assert tries < 10**8


@pytest.mark.nightly
def test_pytest_benchmark_times_what_asv_times():
    """The way of timing that the page names works, also by a clock that counts the time of children."""
    words = ["--benchmark-enable", "--benchmark-min-rounds=1", "--benchmark-max-time=0", "-k", "Import and nothing"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words, __file__]
    # A worker of xdist hands its name down, and pytest-benchmark times nothing in one.
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
