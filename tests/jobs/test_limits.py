"""Limits of a job: its plan refuses it before it starts, and its budget stops it while it runs."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.budget.job_limits import JobLimits, check_actual
from ddbio.errors import LimitError
from ddbio.export.options import ExportToFilesOptions
from ddbio.export.read import read_export_to_files
from ddbio.jobs.estimate import Estimate, Figures
from ddbio.jobs.file_estimates import run_limits
from ddbio.jobs.prices import Cost, CostLine
from ddbio.scan import to_files
from ddbio.testing import FakeDynamoDB
from ddbio.testing.export import ExportWriter

ITEMS = [{"pk": str(number), "text": "x" * 1500} for number in range(2000)]


@pytest.fixture(scope="module")
def server():
    """Serve a table of 3 MB, which takes 375 units to read, and an empty one."""
    with FakeDynamoDB() as running:
        lines = ddbio.to_dynamodb_json(pa.Table.from_pylist(ITEMS))
        running.load("full", lines, "pk:S")
        for name in ("written", "copied"):
            running.load(name, b"", "pk:S")
        yield running


@pytest.fixture
def connection(server):
    """Return the options to connect to the server."""
    return {"endpoint_url": server.endpoint_url, "region": "us-east-1"}


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"max_units": 100}, "capacity units, more than max_units 100"),
        ({"max_usd": 1e-6}, "more than max_usd 1e-06"),
        ({"max_seconds": 0.5, "rcu_per_second": 100, "sample_items": 20}, "s, more than max_seconds 0.5"),
    ],
)
def test_a_scan_above_a_limit_is_refused(connection, tmp_path, limit, message):
    """The error has the plan's figure and the limit. Nothing is written to the target."""
    with pytest.raises(LimitError, match=message):
        ddbio.scan_to_files("full", tmp_path / "out", **connection, **limit)
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_scan_below_its_limits_runs(connection, tmp_path):
    """Limits above the plan have no effect."""
    report = ddbio.scan_to_files("full", tmp_path, **connection, max_units=1000, max_usd=1, max_seconds=600)
    assert report.rows == len(ITEMS)


def test_a_scan_that_costs_too_much_publishes_nothing(connection, tmp_path, monkeypatch):
    """A cost that is only known when the files are staged also stops a scan."""
    monkeypatch.setattr(to_files._ScanJob, "figures", lambda *_: Figures(usd=2.0))
    with pytest.raises(LimitError, match="nothing was published"):
        ddbio.scan_to_files("full", tmp_path / "out", **connection, max_usd=1)
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_load_above_a_limit_is_refused_before_it_writes(connection, server, tmp_path):
    """2,000 items of two units each exceed 1,000: no row is sent, and no table is created."""
    (tmp_path / "rows.jsonl").write_bytes(ddbio.to_dynamodb_json(pa.Table.from_pylist(ITEMS)))
    before = server.requests()
    for table, more in (("written", {}), ("new", {"create_table": True, "key": "pk:S"})):
        with pytest.raises(LimitError, match="max_units 1000"):
            ddbio.load_files(tmp_path / "rows.jsonl", table, **connection, **more, max_units=1000)
    after = server.requests()
    assert [after.get(name, 0) - before.get(name, 0) for name in ("BatchWriteItem", "CreateTable")] == [0, 0]


@pytest.mark.parametrize(
    "read", [ddbio.read_table, lambda *args, **options: list(ddbio.scan_batches(*args, **options))]
)
def test_a_scan_that_takes_too_long_is_stopped(tmp_path, read):
    """A scan whose pages are slower than planned ends with an error, never with a part of the rows."""
    with FakeDynamoDB(latency_seconds=0.2) as slow:
        slow.load("full", ddbio.to_dynamodb_json(pa.Table.from_pylist(ITEMS)), "pk:S")
        options = {"endpoint_url": slow.endpoint_url, "region": "us-east-1", "sample_items": 10, "lanes": 1}
        options |= {"segments": 16, "max_seconds": 1.6}
        with pytest.raises(LimitError, match="the job was stopped: it has run for"):
            read("full", **options)
        with pytest.raises(LimitError, match="the job was stopped: it has run for"):
            ddbio.scan_to_files("full", tmp_path / "out", **options)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("limit", [{"max_units": 1000}, {"max_usd": 0.000625}], ids=str)
def test_a_write_of_unknown_length_is_stopped(connection, server, limit):
    """Rows of an iterator have no plan: the write stops at 10 % above its limit, or at the price of that."""
    before = server.requests().get("BatchWriteItem", 0)
    with pytest.raises(LimitError, match=r"the job was stopped: .* units are consumed, more than 1,100"):
        ddbio.write_table(ITEMS, "written", **connection, **limit, lanes=1)
    sent = server.requests()["BatchWriteItem"] - before
    assert 22 <= sent <= 30


def test_a_copy_counts_reads_and_writes(connection, server):
    """375 units of reads and 4,000 of writes exceed 4,000: nothing is written."""
    before = server.requests().get("BatchWriteItem", 0)
    with pytest.raises(LimitError, match="max_units 4000"):
        ddbio.copy_table("full", "copied", **connection, max_units=4000)
    assert server.requests().get("BatchWriteItem", 0) == before
    report = ddbio.copy_table("full", "copied", **connection, max_units=5000)
    assert report.written == len(ITEMS)


def test_custom_prices(connection, tmp_path):
    """A file with a price book determines the cost of a job."""
    book = tmp_path / "mine.json"
    price = '{"usd": 1, "per": 1, "unit": "RRU", "usage_type": "x", "source": "x", "date": "2026-11-01"}'
    book.write_text(f'{{"region": "us-east-1", "prices": {{"read_request_units": {price}}}}}', "utf-8")
    plan = ddbio.plan_scan("full", **connection, prices=str(book))
    assert plan.cost is not None
    assert plan.cost.usd == pytest.approx(plan.units)
    with pytest.raises(LimitError, match="max_usd"):
        ddbio.plan_scan("full", **connection, prices=str(book), max_usd=5)


def test_a_validation_counts_both_sides(connection):
    """Reading two tables of 375 units exceeds 700. A run has its planned figures next to the actual ones."""
    with pytest.raises(LimitError, match="max_units 700"):
        ddbio.validate("full", "full", **connection, max_units=700, sample_items=20)
    report = ddbio.validate("full", "full", **connection, max_units=900, max_usd=1, sample_items=20)
    assert report.planned is not None
    assert report.actual is not None
    assert report.planned.units == pytest.approx(750, rel=0.02)
    assert report.actual.usd == pytest.approx(report.rcu_consumed * 0.125e-6)


@pytest.fixture
def folder(tmp_path):
    """Write a folder of three small files."""
    (tmp_path / "in").mkdir()
    for number in range(3):
        pq.write_table(pa.table({"pk": [f"{number}-{row}" for row in range(100)]}), tmp_path / f"in/{number}.parquet")
    return tmp_path / "in"


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """Write an export of 500 items."""
    writer = ExportWriter(tmp_path_factory.mktemp("exports"))
    return writer.full([{name: {"S": text} for name, text in item.items()} for item in ITEMS[:500]])


def _fold(source, dest, **options):
    return ddbio.fold_exports_to_files(source, [], dest, **options)


@pytest.mark.parametrize("read", [ddbio.read_export_to_files, _fold])
def test_reading_an_export_within_its_time(export, tmp_path, read):
    """A plan above max_seconds is refused before any read."""
    with pytest.raises(LimitError, match="more than max_seconds 1e-09"):
        read(export, tmp_path / "out", max_seconds=1e-9)
    assert read(export, tmp_path / "out", max_seconds=600, max_usd=1).rows == 500


class _Impatient:
    """Watch that limits a job to zero seconds."""

    @contextmanager
    def running(self, plan, budget):
        """Limit the budget."""
        budget.bound(JobLimits(seconds=0.0))
        yield


def test_reading_an_export_that_takes_too_long_is_stopped(export, tmp_path):
    """A run beyond its limit ends, and publishes nothing."""
    options = ExportToFilesOptions(source=str(export), dest=str(tmp_path / "out"))
    with pytest.raises(LimitError, match="the job was stopped: it has run for"):
        read_export_to_files(options, watch=_Impatient())
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_job_on_files_is_stopped_by_its_time_or_its_cluster():
    """A job stops at 10 % above max_seconds, or when the cluster has cost 10 % more than its share of max_usd."""
    options = {"source": "in", "dest": "out", "compute": "glue:G.1X*10"}
    estimate = Estimate(seconds=60.0, cost=Cost((CostLine("Glue", 1 / 6, "DPU-hour", 10 * 0.44 / 60),)))
    assert run_limits(ExportToFilesOptions(**options, max_seconds=100), estimate).seconds == pytest.approx(110)
    assert run_limits(ExportToFilesOptions(**options, max_usd=0.44), estimate).seconds == pytest.approx(396)
    with pytest.raises(LimitError, match="nothing was published"):
        check_actual(ExportToFilesOptions(**options, max_usd=0.1), Figures(usd=0.12))
    check_actual(ExportToFilesOptions(**options, max_usd=0.1), Figures(usd=0.11))


def test_publishing_within_its_limits(folder, tmp_path):
    """A publication has a plan with the keys of every plan, is refused by it, and contains it in its report."""
    plan = ddbio.plan_publish(folder, tmp_path / "known", expect_rows=300)
    assert plan.to_dict().keys() >= {"units", "requests", "bytes", "seconds", "usd", "lines", "notes"}
    with pytest.raises(LimitError, match="max_seconds"):
        ddbio.publish(folder, tmp_path / "known", max_seconds=plan.estimate.seconds / 2)
    assert not (tmp_path / "known").exists()
    report = ddbio.publish(folder, tmp_path / "known", max_seconds=60, max_usd=1)
    assert report.planned is not None
    assert report.planned.seconds == pytest.approx(plan.estimate.seconds, rel=0.01)


def test_import_files_within_their_limits(folder, tmp_path):
    """Files for an import have a plan. A run above max_seconds is refused or stopped, and nothing becomes visible."""
    plan = ddbio.plan_import_files(folder, tmp_path / "out", key="pk:S")
    assert (plan.rows, plan.files) == (300, 3)
    with pytest.raises(LimitError, match="max_seconds"):
        ddbio.write_import_files(folder, tmp_path / "out", key="pk:S", max_seconds=plan.estimate.seconds / 2)
    with pytest.raises(LimitError, match="the job was stopped"):
        ddbio.write_import_files(ITEMS, tmp_path / "out", key="pk:S", max_seconds=1e-9)
    assert not list(tmp_path.rglob("out/data/*"))
    report = ddbio.write_import_files(folder, tmp_path / "out", key="pk:S", max_seconds=600)
    assert report.planned is not None
    assert report.planned.seconds is not None


def test_the_cost_of_files_on_s3_is_bounded(folder):
    """Requests to S3 and storage have a cost: a plan above max_usd is refused with it."""
    dest = "s3://bucket/known"
    plan = ddbio.plan_publish(folder, dest)
    assert plan.estimate.cost.usd > 0
    with pytest.raises(LimitError, match="max_usd"):
        ddbio.plan_publish(folder, dest, max_usd=plan.estimate.cost.usd / 2)
    with pytest.raises(LimitError, match="max_usd"):
        ddbio.plan_import_files(folder, dest, key="pk:S", max_usd=1e-9)


def test_a_validation_of_a_table_that_does_not_exist(tmp_path, folder):
    """A file describes the table: units and seconds follow from it, and no service is called."""
    stats = tmp_path / "stats.json"
    keys = {"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}]}
    types = {"AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}]}
    stats.write_text(json.dumps({"TableSizeBytes": 80 * 2**20, "ItemCount": 80_000, **keys, **types}))
    plan = ddbio.plan_validate("nowhere", folder, from_file=stats)
    assert plan.estimated_units == pytest.approx(80 * 128, rel=0.01)
    assert plan.to_dict()["seconds"] > 0
    restore = ddbio.plan_restore("nowhere", "new", from_file=stats)
    assert restore.estimate.seconds == 3600
