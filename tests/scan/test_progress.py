"""Stopped scans resume, and their files become visible together or not at all."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.budget import LocalBudget
from ddbio.errors import EndpointError, OptionError
from ddbio.items.digest import Digest
from ddbio.jobs.staging import open_staging
from ddbio.options import parse_options
from ddbio.scan.describe import describe_scan, plan_of, scan_tasks
from ddbio.scan.options import ScanToFilesOptions
from ddbio.scan.progress import open_progress
from ddbio.scan.to_files import FilesTask, write_task
from ddbio.testing import MotoServer
from tests.jobs.killing import WHOLE, killing
from tests.scan.long_tables import COUNT, ITEMS, long_tables
from tests.scan.recording import recording

KEYS = ["pk", "n"]


@pytest.fixture(scope="module")
def fake():
    """Serve a table with several pages in each of four segments."""
    with long_tables() as fake:
        yield fake


class BrokenBudget(LocalBudget):
    """Budget that fails after a number of requests, like a failing endpoint."""

    def __init__(self, requests):
        super().__init__(None)
        self._left = requests

    def acquire(self, units):
        """Return a grant, or fail."""
        self._left -= 1
        if self._left < 0:
            raise EndpointError("the endpoint is gone", "there")
        return super().acquire(units)


def options_of(fake, folder, **extra):
    """Return the options of the job, whose pages have a few hundred items."""
    at = {"table": "long", "dest": str(folder), "endpoint_url": fake.endpoint_url, "region": "eu-west-1"}
    return {
        **at,
        "job_id": "long_job",
        "engine": "local",
        "segments": 4,
        "rcu_per_second": 500,
        "sample_items": 50,
        **extra,
    }


def run_until(options, requests):
    """Run the tasks of a job until a request fails; return the progress that the runs have stored."""
    table = describe_scan(options)
    staging = open_staging(options, "parquet", ["pk"])
    progress = open_progress(options, staging, table)
    plan = progress.planned(plan_of(options, None, table))
    (scan,) = scan_tasks(plan, options, table)
    with pytest.raises(EndpointError):
        write_task(FilesTask(scan, staging, progress.of_task(scan)), BrokenBudget(requests))
    return open_progress(options, staging, table)


@pytest.mark.parametrize("seed", range(3))
def test_a_scan_resumes_after_its_last_page(fake, tmp_path, seed):
    """After any number of failures, each item is in the files once, and at most one page of each lane is read again."""
    values = options_of(fake, tmp_path / "out")
    options, chosen = parse_options(ScanToFilesOptions, values), random.Random(seed)
    stored_items = 0
    for _ in range(3):
        progress = run_until(options, chosen.randrange(3, 7))
        assert progress.counts["items"] >= stored_items
        assert sum(file.rows for file in progress.files) == progress.counts["items"]
        stored_items = progress.counts["items"]
    assert stored_items > 0
    before = sum(row[1] for row in fake.consumed("long"))
    report = ddbio.scan_to_files(**{**values, "rcu_per_second": 20_000})
    assert (report.resumed_items, report.items, report.rows) == (stored_items, COUNT, COUNT)
    table = pq.read_table(tmp_path / "out")
    assert sorted(table["pk"].to_pylist()) == [item["pk"]["S"] for item in ITEMS]
    # Only the remaining items, and the sample, were read.
    left = (COUNT - stored_items) / COUNT * sum(len(str(item)) for item in ITEMS) / 8192
    assert sum(row[1] for row in fake.consumed("long")) - before < left * 1.2 + 300
    assert [path.name for path in (tmp_path / "out" / "_ddbio").iterdir() if ".scan" in path.name] == []


def scan_quickly(options):
    """Scan to files with options as JSON."""
    ddbio.scan_to_files(**json.loads(options))


def test_a_scan_that_is_killed_in_its_commit_reads_nothing_again(fake, tmp_path):
    """The progress is kept until the commit, which the next run of the job finishes."""
    values = options_of(fake, tmp_path / "out", rcu_per_second=20_000)
    with killing(scan_quickly) as kill:
        assert kill("long_job.intent", [tmp_path / "out"], json.dumps(values)) != WHOLE
    report = ddbio.scan_to_files(**values)
    assert (report.resumed_items, report.items, report.rows) == (COUNT, COUNT, COUNT)
    assert sorted(pq.read_table(tmp_path / "out")["pk"].to_pylist()) == [item["pk"]["S"] for item in ITEMS]


SELECTIONS = {
    "where": {"where": "n >= 1000 AND n < 5000"},
    "item collections": {"table": "orders", "where": f"pk IN ({', '.join(repr(f'c{n}') for n in range(40))})"},
    "a filter of item collections": {
        "table": "orders",
        "where": f"pk IN ({', '.join(repr(f'c{n}') for n in range(40))}) AND n < 40",
    },
    "partition keys": {"table": "orders", "keys": [f"c{n}" for n in range(50)]},
    "whole keys": {"keys": [f"k{number:06}" for number in range(0, COUNT + 500, 3)], "lanes": 1},
    "limit": {"limit": 4000},
    "limit of a condition": {"where": "n >= 3000", "limit": 2000},
    "digest": {"digest": True},
    "partitions": {"partition_by": ["day"], "digest": True},
}


@pytest.mark.parametrize("chosen", SELECTIONS)
def test_every_selection_resumes(fake, tmp_path, chosen):
    """Scans with conditions, keys, limits, digests and partitions resume with the rows of an uninterrupted job."""
    values = {**options_of(fake, tmp_path / "out"), **SELECTIONS[chosen]}
    options, stored_items = parse_options(ScanToFilesOptions, values), 0
    for _ in range(2):
        # Responses of lookups are combined into pages.
        progress = run_until(options, 8 if chosen == "whole keys" else 4)
        assert sum(file.rows for file in progress.files) == progress.counts["items"]
        assert progress.counts["scanned_items"] > stored_items
        stored_items = progress.counts["scanned_items"]
    report = ddbio.scan_to_files(**{**values, "rcu_per_second": 50_000})
    reference = ddbio.scan_to_files(
        **{**values, "rcu_per_second": 50_000, "dest": str(tmp_path / "whole"), "job_id": None}
    )
    assert report.resumed_items == progress.counts["items"]
    for name in ("items", "rows", "missing_keys"):
        assert getattr(report, name) == getattr(reference, name)
    if "limit" not in values:
        assert (report.scanned_items, report.digest) == (reference.scanned_items, reference.digest)
        assert ddbio.digest(str(tmp_path / "out")) == ddbio.digest(str(tmp_path / "whole"))
    keys = [tuple(row.values()) for row in pq.read_table(tmp_path / "out").select(KEYS).to_pylist()]
    assert len(set(keys)) == len(keys) == report.rows
    folders = [{path.parent.name for path in (tmp_path / name).glob("*/*.parquet")} for name in ("out", "whole")]
    assert (
        folders[0] == folders[1] == ({f"day=d{number}" for number in range(7)} if "partition_by" in values else set())
    )


def test_a_job_on_s3_resumes(fake, tmp_path):
    """Completed uploads stay invisible until they are published with the others; no upload is left."""
    with MotoServer() as s3:
        locations = {"dest": "s3://lake/out", "s3_endpoint_url": s3.endpoint_url}
        client = ClientSpec(endpoint_url=s3.endpoint_url, region="eu-west-1").client("s3")
        client.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        values = {**options_of(fake, tmp_path, partition_by=["day"], digest=True), **locations}
        options = parse_options(ScanToFilesOptions, values)
        for _ in range(2):
            progress = run_until(options, 5)
            paths = [entry["Key"] for entry in client.list_objects_v2(Bucket="lake")["Contents"]]
            assert paths
            assert not [key for key in paths if key.endswith(".parquet")]
        report = ddbio.scan_to_files(**{**values, "rcu_per_second": 50_000})
        assert (report.resumed_items, report.rows) == (progress.counts["items"], COUNT)
        assert report.digest == ddbio.digest("s3://lake/out", region="eu-west-1", s3_endpoint_url=s3.endpoint_url)
        assert "Uploads" not in client.list_multipart_uploads(Bucket="lake")
        assert not [entry for entry in client.list_objects_v2(Bucket="lake")["Contents"] if ".scan" in entry["Key"]]


def test_an_attempt_resumes_where_another_ended(fake, tmp_path):
    """A repeated task resumes after the staged rows of its first attempt, and its result includes both."""
    options = parse_options(ScanToFilesOptions, options_of(fake, tmp_path / "out", digest=True))
    table, staging = describe_scan(options), open_staging(options, "parquet", ["pk"])
    progress = open_progress(options, staging, table)
    (scan,) = scan_tasks(progress.planned(plan_of(options, None, table)), options, table)
    task = FilesTask(scan, staging, progress.of_task(scan))
    with pytest.raises(EndpointError):
        write_task(task, BrokenBudget(6))
    first, used = open_progress(options, staging, table), LocalBudget(None)
    result = write_task(task, used)
    assert first.counts["items"] > 0
    assert (result.read.items, sum(file.rows for file in result.staged), result.read.digest.count) == (
        COUNT,
        COUNT,
        COUNT,
    )
    assert {file.path for file in first.files} < {file.path for file in result.staged}
    expected = Digest()
    expected.add_items(ITEMS)
    assert result.read.digest == expected
    assert used.usage().items == COUNT - first.counts["items"]


def test_what_two_attempts_have_read_counts_once(fake, tmp_path):
    """An attempt that Spark considered lost, but that continued, does not duplicate rows."""
    values = options_of(fake, tmp_path / "out")
    options = parse_options(ScanToFilesOptions, values)
    table, staging = describe_scan(options), open_staging(options, "parquet", ["pk"])
    runs = [open_progress(options, staging, table) for _ in range(3)]
    (scan,) = scan_tasks(runs[0].planned(plan_of(options, None, table)), options, table)
    # The attempts do not know of each other, since none has stored anything when they start.
    for requests, run in zip((5, 7, 6), runs, strict=True):
        with pytest.raises(EndpointError):
            write_task(FilesTask(scan, staging, run.of_task(scan)), BrokenBudget(requests))
    progress = open_progress(options, staging, table)
    assert 0 < sum(file.rows for file in progress.files) == progress.counts["items"]
    report = ddbio.scan_to_files(**{**values, "rcu_per_second": 50_000})
    assert (report.resumed_items, report.rows) == (progress.counts["items"], COUNT)
    assert sorted(pq.read_table(tmp_path / "out")["n"].to_pylist()) == list(range(COUNT))


@pytest.mark.parametrize("other", [{"where": "n > 1"}, {"limit": 10}, {"keys": ["k000001"]}, {"partition_by": ["day"]}])
def test_another_selection_is_refused(fake, tmp_path, other):
    """With the same id, a scan of other items or into other folders is refused."""
    run_until(parse_options(ScanToFilesOptions, options_of(fake, tmp_path / "out")), 5)
    with pytest.raises(OptionError, match="cannot be resumed"):
        ddbio.scan_to_files(**options_of(fake, tmp_path / "out", **other))


def test_another_job_is_refused(fake, tmp_path):
    """With the same id, a scan of other columns is refused."""
    run_until(parse_options(ScanToFilesOptions, options_of(fake, tmp_path / "out")), 5)
    with pytest.raises(OptionError, match="cannot be resumed"):
        ddbio.scan_to_files(**options_of(fake, tmp_path / "out", columns=["pk"]))


def test_what_was_staged_is_gone(fake, tmp_path):
    """If another job has cleaned up meanwhile, the job fails with that reason, and restarts the next time."""
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
    """After a signal nothing is visible, and the same command finishes the job; after SIGTERM it resumes."""
    values = options_of(fake, tmp_path / "out", rcu_per_second=150)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if name not in {"table", "dest"}]
    command = [sys.executable, "-m", "ddbio", "scan", values["table"], values["dest"], *words, "--json", "--quiet"]
    with recording(fake.endpoint_url) as recorder:
        recorder.hold_after(25, values["segments"])
        command += ["--endpoint-url", recorder.endpoint_url]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            assert recorder.holds.wait(300)
            child.send_signal(with_signal)
            recorder.release()
    assert child.returncode
    assert not [*(tmp_path / "out").glob("*.parquet")]
    report = ddbio.scan_to_files(**{**values, "rcu_per_second": 50_000})
    assert (report.items, report.rows) == (COUNT, COUNT)
    assert sorted(pq.read_table(tmp_path / "out")["n"].to_pylist()) == list(range(COUNT))
    if with_signal == signal.SIGTERM:
        assert report.resumed_items > 0
    manifests = [*(tmp_path / "out" / "_ddbio").glob("*.json")]
    assert [json.loads(path.read_text("utf-8"))["job_id"] for path in manifests] == ["long_job"]


def test_a_job_that_is_done_leaves_nothing(fake, tmp_path):
    """Files left by a run that was killed just after its commit are deleted by the next run, which reads nothing."""
    values = options_of(fake, tmp_path / "out", rcu_per_second=50_000)
    first = ddbio.scan_to_files(**values)
    left = tmp_path / "out" / "_ddbio" / "long_job.scan.json"
    left.write_text("{}")
    assert ddbio.scan_to_files(**values).rows == first.rows
    assert not left.exists()
