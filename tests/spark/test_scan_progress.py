"""Stopped scans resume on Spark too: between engines, and between attempts of a task."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext

import ddbio
from ddbio.budget import LocalBudget
from ddbio.errors import EndpointError
from ddbio.jobs.staging import open_staging
from ddbio.options import parse_options
from ddbio.scan.describe import describe_scan, plan_of, scan_tasks
from ddbio.scan.options import ScanToFilesOptions
from ddbio.scan.progress import open_progress
from ddbio.scan.to_files import FilesTask, write_task
from ddbio.spark.engine import SparkEngine
from tests.scan.recording import recording

COUNT = 6_000
ITEMS = [{"pk": {"S": f"k{number:06}"}, "n": {"N": str(number)}, "text": {"S": "x" * 900}} for number in range(COUNT)]


@pytest.fixture(scope="module")
def table(fake):
    """Return the name of a table with some pages in each of eight segments."""
    fake.load("resumed", ITEMS, "pk")
    return "resumed"


def options_of(fake, table, folder, **settings):
    """Return the options of the job."""
    options = {"table": table, "dest": str(folder), "endpoint_url": fake.endpoint_url, "region": "eu-west-1"}
    options |= {"job_id": "long_job", "engine": "spark", "segments": 8, "tasks": 2, "sample_items": 50, "digest": True}
    return {**options, **settings}


def begin(options):
    """Return the tasks of a job, and the stored state of its earlier runs."""
    description = describe_scan(options)
    staging = open_staging(options, "parquet", ["pk"])
    progress = open_progress(options, staging, description)
    scans = scan_tasks(progress.planned(plan_of(options, None, description)), options, description)
    return [FilesTask(scan, staging, progress.of_task(scan)) for scan in scans], progress


def test_a_task_that_spark_runs_again_resumes(spark, fake, table, tmp_path):
    """Its second attempt only reads items that the first had not staged, and the results have every item once."""
    # A rate makes pages small: each segment has several.
    options = parse_options(ScanToFilesOptions, options_of(fake, table, tmp_path / "out", rcu_per_second=500))
    tasks, _ = begin(options)

    # Workers cannot import this file: their functions are sent by value.
    def breaking(task, budget):
        class Broken:
            left = 7

            def acquire(self, units):
                self.left -= 1
                if self.left < 0 and TaskContext.get().attemptNumber() == 0:
                    raise EndpointError("the endpoint is gone", "there")
                return budget.acquire(units)

            def __getattr__(self, name):
                return getattr(budget, name)

        return write_task(task, Broken())

    budget = LocalBudget(None)
    results = SparkEngine(None, {}).run(breaking, tasks, budget)
    assert sum(result.read.items for result in results) == COUNT
    assert sum(file.rows for result in results for file in result.staged) == COUNT
    _, progress = begin(options)
    assert (progress.counts["items"], progress.digest.count) == (COUNT, COUNT)
    # At most one page per lane was read twice.
    assert COUNT < budget.usage().items < 1.5 * COUNT


@pytest.mark.parametrize(("first", "then"), [("local", "spark"), ("spark", "local")])
def test_a_job_resumes_on_another_engine(spark, fake, table, tmp_path, first, then):
    """The items that one engine has read are not read again by the other, with other tasks."""
    options = options_of(fake, table, tmp_path / "out", engine=first)
    tasks, _ = begin(parse_options(ScanToFilesOptions, options))
    # Some segments of its first task, as after an interrupted run.
    part = replace(tasks[0], scan=replace(tasks[0].scan, requests=tasks[0].scan.requests[:4]))
    done = write_task(part, LocalBudget(None))
    assert 0 < done.read.items < COUNT
    report = ddbio.scan_to_files(**{**options, "engine": then, "tasks": 3})
    assert (report.resumed_items, report.items, report.rows) == (done.read.items, COUNT, COUNT)
    assert sorted(pq.read_table(tmp_path / "out")["n"].to_pylist()) == list(range(COUNT))
    assert report.digest == ddbio.digest(str(tmp_path / "out"))
    assert not [path for path in (tmp_path / "out" / "_ddbio").iterdir() if ".scan" in path.name]


@pytest.mark.nightly
def test_a_driver_that_was_stopped(fake, table, tmp_path):
    """After SIGTERM nothing is visible. The same command resumes, on threads here, and has every item once."""
    options = options_of(fake, table, tmp_path / "out", rcu_per_second=50)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if name not in {"table", "dest"}]
    words[words.index("--digest=True")] = "--digest"
    command = [sys.executable, "-m", "ddbio", "scan", table, options["dest"], *words, "--master", "local[2]", "--quiet"]
    before = sum(row[1] for row in fake.consumed(table))
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 250
    while sum(row[1] for row in fake.consumed(table)) - before < 400 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(child.pid, signal.SIGTERM)
    _, errors = child.communicate()
    assert child.returncode == 130, errors
    assert not [*(tmp_path / "out").glob("*.parquet")]
    report = ddbio.scan_to_files(**{**options, "engine": "local", "rcu_per_second": 50_000})
    assert report.resumed_items > 0
    assert (report.items, report.rows) == (COUNT, COUNT)
    assert report.digest == ddbio.digest(str(tmp_path / "out"))


@pytest.fixture
def recorder(fake):
    """Record the requested pages."""
    with recording(fake.endpoint_url) as recorder:
        yield recorder


def test_a_worker_that_was_killed(spark, recorder, table, tmp_path):
    """Python workers that die by SIGKILL cost at most one page per segment, if pages are kept."""
    settings = {"rcu_per_second": 300, "page_journal": str(tmp_path / "pages"), "endpoint_url": recorder.endpoint_url}
    options = parse_options(ScanToFilesOptions, options_of(recorder, table, tmp_path / "out", **settings))
    tasks, _ = begin(options)

    def dying(task, budget):
        class Deadly:
            left = 12

            def acquire(self, units):
                self.left -= 1
                if self.left < 0 and TaskContext.get().attemptNumber() == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return budget.acquire(units)

            def __getattr__(self, name):
                return getattr(budget, name)

        return write_task(task, Deadly())

    results = SparkEngine(None, {}).run(dying, tasks, LocalBudget(300))
    assert recorder.pages(8).total() > 30
    assert all(count <= 1 for count in recorder.asked_again(8).values())
    assert sum(result.read.items for result in results) == COUNT
    assert sum(file.rows for result in results for file in result.staged) == COUNT
    # It was read by this run, not by an earlier one.
    assert sum(result.resumed_items for result in results) == 0
    _, progress = begin(options)
    assert (progress.counts["items"], progress.digest.count) == (COUNT, COUNT)


@pytest.mark.nightly
def test_a_driver_that_was_killed(recorder, table, tmp_path):
    """The entire application dies by SIGKILL.

    The same job, on threads here, reads at most one page per segment again.
    """
    more = {"page_journal": str(tmp_path / "pages"), "endpoint_url": recorder.endpoint_url}
    options = options_of(recorder, table, tmp_path / "out", rcu_per_second=10, **more)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if name not in {"table", "dest"}]
    words[words.index("--digest=True")] = "--digest"
    command = [sys.executable, "-m", "ddbio", "scan", table, options["dest"], *words, "--master", "local[2]", "--quiet"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 250
    while recorder.pages(8).total() < 40 and time.monotonic() < deadline:
        time.sleep(0.05)
    # The driver, its JVM, and the daemon with its workers: a worker that outlives them continues to read for a while.
    for process in _session(child.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    child.wait()
    asked = recorder.pages(8).total()
    report = ddbio.scan_to_files(**{**options, "engine": "local", "rcu_per_second": 50_000})
    assert all(count <= 1 for count in recorder.asked_again(8).values())
    assert report.resumed_items > 0
    assert asked > 20
    assert (report.items, report.rows) == (COUNT, COUNT)
    assert report.digest == ddbio.digest(str(tmp_path / "out"))


def _session(leader):
    """Return the processes of a session, its leader first."""
    listing = subprocess.run(["ps", "-o", "pid=", "-s", str(leader)], capture_output=True, text=True, check=True)
    return sorted(map(int, listing.stdout.split()))
