"""Scans that were stopped go on where they stopped, and their files appear whole or not at all."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.budget import LocalBudget
from ddbio.errors import EndpointError, OptionError
from ddbio.ops.job.storage import open_staging
from ddbio.ops.scans.plan import describe_scan, plan_of, scan_tasks
from ddbio.ops.scans.progress import open_progress
from ddbio.ops.scans.to_files import FilesTask, write_task
from ddbio.options import ScanToFilesOptions, parse_options
from ddbio.testing import FakeDynamoDB

COUNT = 6_000
ITEMS = [{"pk": {"S": f"k{number:06}"}, "n": {"N": str(number)}, "text": {"S": "x" * 900}} for number in range(COUNT)]


@pytest.fixture(scope="module")
def fake():
    """Serve a table of some pages in each of four segments."""
    with FakeDynamoDB(process=True) as fake:
        fake.load("long", ITEMS, "pk")
        yield fake


class BrokenBudget(LocalBudget):
    """End after some requests, as an endpoint that fails does."""

    def __init__(self, requests):
        super().__init__(None)
        self._left = requests

    def acquire(self, units):
        """Grant, or fail."""
        self._left -= 1
        if self._left < 0:
            raise EndpointError("the endpoint is gone", "there")
        return super().acquire(units)


def options_of(fake, folder, **given):
    """Return the options of the job, whose pages have some hundred items."""
    at = {"table": "long", "dest": str(folder), "endpoint_url": fake.endpoint_url, "region": "eu-west-1"}
    return {
        **at,
        "job_id": "long_job",
        "engine": "local",
        "segments": 4,
        "rcu_per_second": 500,
        "sample_items": 50,
        **given,
    }


def run_until(options, requests):
    """Run the tasks of a job until a request fails; return what the runs so far have stored."""
    table = describe_scan(options)
    staging = open_staging(options, "parquet", ["pk"])
    progress = open_progress(options, staging, table)
    plan = progress.planned(plan_of(options, None, table))
    (scan,) = scan_tasks(plan, options, table)
    with pytest.raises(EndpointError):
        write_task(FilesTask(progress.rest_of(scan), staging, progress), BrokenBudget(requests))
    return open_progress(options, staging, table)


@pytest.mark.parametrize("seed", range(3))
def test_a_scan_goes_on_behind_its_last_page(fake, tmp_path, seed):
    """However often it ends early, each item is in the files once, and at most a page of each lane is read again."""
    given = options_of(fake, tmp_path / "out")
    options, chosen = parse_options(ScanToFilesOptions, given), random.Random(seed)
    known = 0
    for _ in range(3):
        progress = run_until(options, chosen.randrange(3, 7))
        assert progress.counts["items"] >= known
        assert sum(file.rows for file in progress.files) == progress.counts["items"]
        known = progress.counts["items"]
    assert known > 0
    before = sum(row[1] for row in fake.consumed("long"))
    report = ddbio.scan_to_files(**{**given, "rcu_per_second": 20_000})
    assert (report.resumed_items, report.items, report.rows) == (known, COUNT, COUNT)
    found = pq.read_table(tmp_path / "out")
    assert sorted(found["pk"].to_pylist()) == [item["pk"]["S"] for item in ITEMS]
    # The rest of the table, and the sample, were read, and nothing else.
    left = (COUNT - known) / COUNT * sum(len(str(item)) for item in ITEMS) / 8192
    assert sum(row[1] for row in fake.consumed("long")) - before < left * 1.2 + 300
    assert [path.name for path in (tmp_path / "out" / "_ddbio").iterdir() if ".scan" in path.name] == []


def test_another_job_is_refused(fake, tmp_path):
    """Under the same id, a scan of other columns does not go on."""
    run_until(parse_options(ScanToFilesOptions, options_of(fake, tmp_path / "out")), 5)
    with pytest.raises(OptionError, match="cannot go on"):
        ddbio.scan_to_files(**options_of(fake, tmp_path / "out", columns=["pk"]))


def test_what_was_staged_is_gone(fake, tmp_path):
    """If another job has cleaned up meanwhile, the job says so, and begins anew the next time."""
    progress = run_until(parse_options(ScanToFilesOptions, options_of(fake, tmp_path / "out")), 6)
    for path in (tmp_path / "out" / "_ddbio" / "staging" / "long_job").iterdir():
        path.unlink()
    assert progress.files
    with pytest.raises(ddbio.NotFoundError, match="run the job again"):
        ddbio.scan_to_files(**options_of(fake, tmp_path / "out", rcu_per_second=50_000))
    report = ddbio.scan_to_files(**options_of(fake, tmp_path / "out", rcu_per_second=50_000))
    assert (report.resumed_items, report.rows) == (0, COUNT)


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_was_stopped(fake, tmp_path, with_signal):
    """After a signal nothing is visible, and the same command finishes the job; after SIGTERM it goes on."""
    given = options_of(fake, tmp_path / "out", rcu_per_second=150)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if name not in {"table", "dest"}]
    command = [sys.executable, "-m", "ddbio", "scan", given["table"], given["dest"], *words, "--json", "--quiet"]
    before = sum(row[1] for row in fake.consumed("long"))
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while sum(row[1] for row in fake.consumed("long")) - before < 350 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(child.pid, with_signal)
    child.communicate()
    assert child.returncode
    assert not [*(tmp_path / "out").glob("*.parquet")]
    report = ddbio.scan_to_files(**{**given, "rcu_per_second": 50_000})
    assert (report.items, report.rows) == (COUNT, COUNT)
    assert sorted(pq.read_table(tmp_path / "out")["n"].to_pylist()) == list(range(COUNT))
    if with_signal == signal.SIGTERM:
        assert report.resumed_items > 0
    manifests = [*(tmp_path / "out" / "_ddbio").glob("*.json")]
    assert [json.loads(path.read_text("utf-8"))["job_id"] for path in manifests] == ["long_job"]


def test_a_job_that_is_done_leaves_nothing(fake, tmp_path):
    """What a run left that ended just behind its commit is deleted by the next one, which reads nothing."""
    given = options_of(fake, tmp_path / "out", rcu_per_second=50_000)
    first = ddbio.scan_to_files(**given)
    left = tmp_path / "out" / "_ddbio" / "long_job.scan.json"
    left.write_text("{}")
    assert ddbio.scan_to_files(**given).rows == first.rows
    assert not left.exists()
