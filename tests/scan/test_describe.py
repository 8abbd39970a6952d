"""Samples have the requested size, and cost no more than the pages that are read."""

import json
from threading import Event

import pyarrow as pa
import pytest

import ddbio
from ddbio.aws.retry import RetryPolicy
from ddbio.aws.table_description import TableDescription
from ddbio.budget import LocalBudget
from ddbio.errors import NotFoundError
from ddbio.options import parse_options
from ddbio.scan.describe import request_of
from ddbio.scan.options import ScanToFilesOptions
from ddbio.scan.pages import scan_pages
from ddbio.scan.plan import Resources, Sample, plan_scan
from ddbio.testing import FakeDynamoDB

COUNT = 5000


@pytest.fixture(scope="module")
def server():
    """Serve a small table."""
    with FakeDynamoDB() as running:
        lines = [json.dumps({"Item": {"pk": {"S": f"{n:05}"}, "v": {"N": str(n)}}}) for n in range(COUNT)]
        running.load("small", "\n".join(lines).encode(), "pk:S")
        yield running


@pytest.mark.parametrize("asked", [100, 1000, 2000, 4000, 5000, 20_000])
def test_a_sample_is_as_large_as_asked(server, asked):
    """The sample has the requested number of items or all items; hash ranges are never of exactly equal size."""
    schema = ddbio.infer_schema("small", endpoint_url=server.endpoint_url, sample_items=asked)
    assert 0.9 * min(asked, COUNT) <= schema.item_count <= min(asked, COUNT) + 4


@pytest.mark.parametrize("consistent", [False, True])
@pytest.mark.parametrize("rate", [3, 47, 405, 2559, 2560, 4000, 5119, 5120])
def test_the_page_limit_of_a_plan_is_that_of_the_first_request(rate, consistent):
    """The planned page limit is also the limit of the first request, at any rate."""
    table = TableDescription("t", "arn", "id", "ACTIVE", (("pk", "S"),), 10**6, 731 * 10**6, on_demand=True)
    values = {"table": "t", "dest": "d", "rcu_per_second": rate, "consistent": consistent, "engine": "local"}
    options = parse_options(ScanToFilesOptions, values)
    plan = plan_scan(table, Sample(pa.schema([]), 0, 731.0, 0.0, complete=False), options, Resources(2, 2))
    asked = []

    class Source:
        def read(self, operation, parameters):
            asked.append(parameters.get("Limit"))
            raise NotFoundError("that was all")

    with pytest.raises(NotFoundError):
        next(scan_pages(Source(), request_of(table, options, 731.0), LocalBudget(None), RetryPolicy(1.0, Event())))
    assert asked == [plan.page_limit]


def test_few_items_need_no_large_sample(server, tmp_path):
    """A limit also bounds the sample, which then consists of the items to read."""
    report = ddbio.scan_to_files("small", tmp_path, endpoint_url=server.endpoint_url, limit=3)
    assert (report.items, report.rescued) == (3, 0)
    assert report.rcu_consumed <= 2


def test_jobs_log_their_start_and_their_end(server, tmp_path, caplog):
    """Without a terminal, the log contains the start of a job, its id, and its end."""
    caplog.set_level("INFO", "ddbio")
    report = ddbio.scan_to_files("small", tmp_path / "out", endpoint_url=server.endpoint_url)
    server.load("other", b"", "pk:S")
    loaded = ddbio.load_files(str(tmp_path / "out"), "other", endpoint_url=server.endpoint_url)
    lines = [record.getMessage() for record in caplog.records if record.name in {"ddbio.scan", "ddbio.load"}]
    assert len(lines) == 4
    assert lines[0].startswith(f"scan small to {tmp_path}/out: job {report.job_id}, ")
    assert lines[1].startswith("scan small: 5000 rows in ")
    assert lines[2].startswith(f"load {tmp_path}/out into other: job {loaded.job_id}, ")
    assert lines[3] == "load other: 5000 rows, 5000 written, 0 rejected"
