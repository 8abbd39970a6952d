"""Killed scans with a page journal read at most one page of each segment again."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.errors import OptionError
from ddbio.testing import MotoServer
from tests.scan.long_tables import COUNT, long_tables
from tests.scan.recording import recording

SEGMENTS, WAIT_SECONDS = 4, 300


@pytest.fixture(scope="module")
def fake():
    """Serve a table with several pages in each of four segments."""
    with long_tables() as fake:
        yield fake


@pytest.fixture
def recorder(fake):
    """Record the requests."""
    with recording(fake.endpoint_url) as recorder:
        yield recorder


def options_of(recorder, folder, **extra):
    """Return the options of the job, whose pages have a few dozen items."""
    return {
        "table": "long",
        "dest": str(folder / "out"),
        "page_journal": str(folder / "pages"),
        "endpoint_url": recorder.endpoint_url,
        "region": "eu-west-1",
        "job_id": "long_job",
        "engine": "local",
        "segments": SEGMENTS,
        "rcu_per_second": 150,
        "sample_items": 50,
        "digest": True,
        **extra,
    }


def kill_in_the_middle(recorder, options, pages, environment=None):
    """Run the job in a process that is killed after this number of pages, while it waits for another one."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if name not in {"table", "dest"}]
    words[words.index("--digest=True")] = "--digest"
    command = [sys.executable, "-m", "ddbio", "scan", options["table"], options["dest"], *words, "--quiet"]
    recorder.hold_after(pages, SEGMENTS)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as child:
        assert recorder.holds.wait(WAIT_SECONDS)
        child.kill()
    recorder.release()


SELECTIONS = {
    "whole": {},
    "where": {"where": "n >= 1000 AND n < 5000"},
    "partitions": {"partition_by": "day"},
}


@pytest.mark.parametrize("chosen", SELECTIONS)
def test_a_killed_scan_asks_for_few_pages_again(fake, recorder, tmp_path, chosen):
    """After each of two SIGKILLs, at most one page of each segment is read again, and each item is written once."""
    options = options_of(recorder, tmp_path, **SELECTIONS[chosen])
    for kill in (1, 2):
        kill_in_the_middle(recorder, options, 25)
        assert not [*(tmp_path / "out").glob("*.parquet")]
        assert all(count <= kill for count in recorder.asked_again(SEGMENTS).values())
    report = ddbio.scan_to_files(**{**options, "rcu_per_second": 50_000})
    reference = ddbio.scan_to_files(**{
        **options, "endpoint_url": fake.endpoint_url, "dest": str(tmp_path / "whole"), "job_id": None,
        "page_journal": None, "rcu_per_second": 50_000,
    })  # fmt: skip
    assert all(count <= 2 for count in recorder.asked_again(SEGMENTS).values())
    # A page has at most 100 items: all pages but the last one of each segment came from the journal.
    assert report.resumed_items > 0
    assert (report.items, report.rows, report.digest) == (reference.items, reference.rows, reference.digest)
    numbers = pq.read_table(tmp_path / "out")["n"].to_pylist()
    assert len(set(numbers)) == len(numbers) == report.rows
    assert not (tmp_path / "pages").exists()


def test_without_it_pages_are_asked_for_again(recorder, tmp_path):
    """Without the option, a scan that is killed early restarts."""
    options = {**options_of(recorder, tmp_path), "job_id": "other_job"}
    del options["page_journal"]
    kill_in_the_middle(recorder, options, 12)
    report = ddbio.scan_to_files(**options | {"rcu_per_second": 50_000})
    assert (report.resumed_items, report.rows) == (0, COUNT)


def test_queries_are_kept(recorder, tmp_path):
    """Pages of item collections are found in the journal too."""
    keys = ", ".join(repr(f"c{number}") for number in range(40))
    options = options_of(recorder, tmp_path, table="orders", where=f"pk IN ({keys}) AND n < 90")
    kill_in_the_middle(recorder, options, 30)
    report = ddbio.scan_to_files(**{**options, "rcu_per_second": 50_000})
    assert report.resumed_items > 0
    assert report.items == report.rows == 40 * 90
    assert len({tuple(row.values()) for row in pq.read_table(tmp_path / "out").select(["pk", "n"]).to_pylist()}) == 3600


def test_on_s3(recorder, tmp_path):
    """A bucket can store pages like a folder, and at the end there are no pages."""
    with MotoServer() as s3:
        client = ClientSpec(endpoint_url=s3.endpoint_url, region="eu-west-1").client("s3")
        client.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        locations = {"dest": "s3://lake/out", "page_journal": "s3://lake/out", "s3_endpoint_url": s3.endpoint_url}
        options = options_of(recorder, tmp_path, **locations)
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", **os.environ}
        kill_in_the_middle(recorder, options, 20, keys)
        report = ddbio.scan_to_files(**{**options, "rcu_per_second": 50_000})
        assert report.resumed_items > 0
        assert report.rows == COUNT
        assert all(count <= 1 for count in recorder.asked_again(SEGMENTS).values())
        assert report.digest == ddbio.digest("s3://lake/out", region="eu-west-1", s3_endpoint_url=s3.endpoint_url)
        assert not [entry for entry in client.list_objects_v2(Bucket="lake")["Contents"] if "pages" in entry["Key"]]


def test_a_damaged_page_is_asked_for(recorder, tmp_path):
    """A truncated page and the pages after it are requested again."""
    options = options_of(recorder, tmp_path)
    kill_in_the_middle(recorder, options, 20)
    kept = [path for path in (tmp_path / "pages").glob("*/*/0*") if path.is_file()]
    assert kept
    for path in kept:
        path.write_bytes(path.read_bytes()[:-20])
    report = ddbio.scan_to_files(**{**options, "rcu_per_second": 50_000})
    assert (report.resumed_items, report.rows) == (0, COUNT)
    assert sorted(pq.read_table(tmp_path / "out")["n"].to_pylist()) == list(range(COUNT))


@pytest.mark.parametrize(
    ("options", "message"), [({}, "job_id"), ({"job_id": "a", "format": "delta"}, "restarts from the beginning")]
)
def test_it_needs_a_resumable_job(tmp_path, options, message):
    """The option is refused for jobs that cannot be resumed."""
    with pytest.raises(OptionError, match=message):
        ddbio.scan_to_files("long", str(tmp_path / "out"), page_journal=str(tmp_path), **options)
