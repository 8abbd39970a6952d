"""Scans that are killed ask for no more than a page of each segment again, if their pages are kept."""

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
    """Serve a table of some pages in each of four segments."""
    with long_tables() as fake:
        yield fake


@pytest.fixture
def recorder(fake):
    """Note what is asked for."""
    with recording(fake.endpoint_url) as recorder:
        yield recorder


def options_of(recorder, folder, **given):
    """Return the options of the job, whose pages have some dozen items."""
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
        **given,
    }


def kill_in_the_middle(recorder, given, pages, environment=None):
    """Run the job in a process that is killed when it has so many pages and waits for another one."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if name not in {"table", "dest"}]
    words[words.index("--digest=True")] = "--digest"
    command = [sys.executable, "-m", "ddbio", "scan", given["table"], given["dest"], *words, "--quiet"]
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
    """Killed twice by SIGKILL, it asks for at most a page of each segment again each time, and has each item once."""
    given = options_of(recorder, tmp_path, **SELECTIONS[chosen])
    for kill in (1, 2):
        kill_in_the_middle(recorder, given, 25)
        assert not [*(tmp_path / "out").glob("*.parquet")]
        assert all(count <= kill for count in recorder.asked_again(SEGMENTS).values())
    report = ddbio.scan_to_files(**{**given, "rcu_per_second": 50_000})
    whole = ddbio.scan_to_files(**{
        **given, "endpoint_url": fake.endpoint_url, "dest": str(tmp_path / "whole"), "job_id": None,
        "page_journal": None, "rcu_per_second": 50_000,
    })  # fmt: skip
    assert all(count <= 2 for count in recorder.asked_again(SEGMENTS).values())
    # Pages of a hundred items at most: all but the last one of each segment came of the journal.
    assert report.resumed_items > 0
    assert (report.items, report.rows, report.digest) == (whole.items, whole.rows, whole.digest)
    numbers = pq.read_table(tmp_path / "out")["n"].to_pylist()
    assert len(set(numbers)) == len(numbers) == report.rows
    assert not (tmp_path / "pages").exists()


def test_without_it_pages_are_asked_for_again(recorder, tmp_path):
    """What the last test shows is due to the option: without it a scan that is killed early begins anew."""
    given = {**options_of(recorder, tmp_path), "job_id": "other_job"}
    del given["page_journal"]
    kill_in_the_middle(recorder, given, 12)
    report = ddbio.scan_to_files(**given | {"rcu_per_second": 50_000})
    assert (report.resumed_items, report.rows) == (0, COUNT)


def test_queries_are_kept(recorder, tmp_path):
    """Pages of item collections are found again, too."""
    keys = ", ".join(repr(f"c{number}") for number in range(40))
    given = options_of(recorder, tmp_path, table="orders", where=f"pk IN ({keys}) AND n < 90")
    kill_in_the_middle(recorder, given, 30)
    report = ddbio.scan_to_files(**{**given, "rcu_per_second": 50_000})
    assert report.resumed_items > 0
    assert report.items == report.rows == 40 * 90
    assert len({tuple(row.values()) for row in pq.read_table(tmp_path / "out").select(["pk", "n"]).to_pylist()}) == 3600


def test_on_s3(recorder, tmp_path):
    """A bucket keeps pages as a folder does, and has none of them at the end."""
    with MotoServer() as s3:
        client = ClientSpec(endpoint_url=s3.endpoint_url, region="eu-west-1").client("s3")
        client.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        place = {"dest": "s3://lake/out", "page_journal": "s3://lake/out", "s3_endpoint_url": s3.endpoint_url}
        given = options_of(recorder, tmp_path, **place)
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", **os.environ}
        kill_in_the_middle(recorder, given, 20, keys)
        report = ddbio.scan_to_files(**{**given, "rcu_per_second": 50_000})
        assert report.resumed_items > 0
        assert report.rows == COUNT
        assert all(count <= 1 for count in recorder.asked_again(SEGMENTS).values())
        assert report.digest == ddbio.digest("s3://lake/out", region="eu-west-1", s3_endpoint_url=s3.endpoint_url)
        assert not [each for each in client.list_objects_v2(Bucket="lake")["Contents"] if "pages" in each["Key"]]


def test_a_damaged_page_is_asked_for(recorder, tmp_path):
    """A page that is cut off is no page: it is asked for, and so are those behind it."""
    given = options_of(recorder, tmp_path)
    kill_in_the_middle(recorder, given, 20)
    kept = [path for path in (tmp_path / "pages").glob("*/*/0*") if path.is_file()]
    assert kept
    for path in kept:
        path.write_bytes(path.read_bytes()[:-20])
    report = ddbio.scan_to_files(**{**given, "rcu_per_second": 50_000})
    assert (report.resumed_items, report.rows) == (0, COUNT)
    assert sorted(pq.read_table(tmp_path / "out")["n"].to_pylist()) == list(range(COUNT))


@pytest.mark.parametrize(("given", "said"), [({}, "job_id"), ({"job_id": "a", "format": "delta"}, "begins anew")])
def test_it_is_for_jobs_that_go_on(tmp_path, given, said):
    """Where no later run could go on, the option is refused."""
    with pytest.raises(OptionError, match=said):
        ddbio.scan_to_files("long", str(tmp_path / "out"), page_journal=str(tmp_path), **given)
