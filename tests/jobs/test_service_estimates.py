"""Estimates of jobs that AWS runs, and of a month of captured changes."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from ddbio.advice.options import PlanCaptureOptions
from ddbio.aws.table_description import IndexDescription, TableDescription
from ddbio.errors import OptionError
from ddbio.export.bulk_puts import BulkPlan
from ddbio.jobs import prices
from ddbio.jobs.estimate import GB, Prices, compute_parts, input_parts, output_parts, upload_requests
from ddbio.jobs.prices import PriceBook
from ddbio.jobs.service_estimates import (
    backup_estimate,
    bulk_estimate,
    export_estimate,
    plan_capture,
    restore_estimate,
)
from ddbio.options import parse_options

BOOK = PriceBook.from_json((Path(prices.__file__).parent / "us-east-1.json").read_text("utf-8"), "us-east-1.json")
PRICES = Prices(BOOK, "us-east-1", date(2024, 11, 15))
LOCAL = IndexDescription("local", False, ("pk", "day"), 10, GB)
GLOBAL = IndexDescription("global", True, ("day",), 10, GB)
TABLE = TableDescription("t", "t", "", "ACTIVE", (("pk", "S"),), 1000, 10 * GB, True, indexes=(LOCAL, GLOBAL))


def usd_of(estimate):
    """Return the USD of each line by its purpose."""
    return {line.what: line.usd for line in estimate.cost.lines}


def test_a_full_export_is_billed_by_table_and_local_indexes():
    """11 GB cost $0.10 per GB. Global indexes are not exported. Recovery enabled for the export is also billed."""
    made = export_estimate(TABLE, PRICES, is_full=True, is_encrypted=True, enables_recovery=True)
    usd = usd_of(made)
    assert made.bytes == 11 * GB
    assert usd["export"] == pytest.approx(1.10)
    assert usd["point-in-time recovery for a month"] == pytest.approx(2.20)
    assert {"S3 writes", "S3 storage for a month", "KMS"} < usd.keys()
    assert (made.units, made.seconds) == (0, 600)


def test_an_increment_costs_the_billed_minimum():
    """The number of changes is unknown: the minimum of 10 MB is assumed."""
    made = export_estimate(TABLE, PRICES, is_full=False, is_encrypted=False, enables_recovery=False)
    assert usd_of(made)["export of 10 MB at least"] == pytest.approx(0.1 * 10 / 1024)


def test_a_bulk_put_costs_its_writes_in_table_and_indexes():
    """1,000 items of two units, in a table with two indexes."""
    plan = BulkPlan("t", "b", "p", "b", "r", "dynamodb_json", "none", 2000, "standard", None, None, "x", 4, 2_500_000, 1000)  # fmt: skip # noqa: E501
    made = bulk_estimate(plan, TABLE, PRICES)
    assert (made.units, made.seconds) == (6000, 3.0)
    assert usd_of(made)["writes"] == pytest.approx(6000 * 0.625e-6)


def test_backups_and_restores_are_billed_by_size():
    """10 GB cost $0.10 per GB-month as a backup, and $0.15 per GB as a restore."""
    assert backup_estimate(TABLE, PRICES).cost.usd == pytest.approx(1.0)
    assert restore_estimate(10 * GB, PRICES).cost.usd == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("through", "lines"),
    [
        ("streams", {"reads of the stream": 730 * 3600 * 2e-7}),
        ("lambda", {"Lambda calls": 2_628_000 * 2e-7, "Lambda time": 2_628_000 * 0.05 * 1.66667e-5}),
        ("kinesis", {"changes for Kinesis": 26.28, "Kinesis stream": 29.2}),
        ("firehose", {"Firehose": 262_800_000 * 5 * 1024 / GB * 0.029}),
    ],
)
def test_a_month_of_changes(through, lines):
    """100 changes per second of 400 bytes: each method is billed by its own quantities."""
    plan = plan_capture(PlanCaptureOptions(records_per_second=100, through=through), PRICES)
    assert plan.records == 262_800_000
    usd = usd_of(plan.estimate)
    assert {name: usd[name] for name in lines} == pytest.approx(lines, rel=0.01)
    assert plan.to_dict()["usd"] == pytest.approx(sum(usd.values()))


@pytest.mark.parametrize(
    ("compute", "usd"),
    [
        ("glue:G.1X*10", 10 * 0.25 * 0.44),
        ("glue-flex:G.2X*5", 10 * 0.25 * 0.29),
        ("emr-serverless:4vCPU-16GB*10", 10 * 0.25 * (4 * 0.052624 + 16 * 0.0057785)),
        ("emr:m5.xlarge*10", 10 * 0.25 * (0.192 + 0.048)),
        ("ec2:m5.xlarge*10", 10 * 0.25 * 0.192),
    ],
)
def test_compute_is_priced_by_its_hours(compute, usd):
    """Ten workers run for 15 minutes. Less than a minute is billed as one."""
    parse_options(PlanCaptureOptions, {"records_per_second": 1, "compute": compute})
    assert PRICES.cost(compute_parts(compute, 900)).usd == pytest.approx(usd)
    assert PRICES.cost(compute_parts(compute, 1)).usd == pytest.approx(usd / 15)


def test_unknown_compute_is_refused():
    """The message lists the valid words."""
    with pytest.raises(OptionError, match=r"give glue:G\.1X\*10"):
        parse_options(PlanCaptureOptions, {"records_per_second": 1, "compute": "ten large ones"})


def test_files_cost_requests_and_storage_on_s3_only():
    """A file of 100 MB takes 12 parts, a start and an end."""
    assert upload_requests(2, 200e6) == 2 * 14
    assert upload_requests(3, 3e6) == 3
    assert {name: quantity for _, name, quantity in output_parts("s3://b/p", 2, GB, is_encrypted=True)} == {
        "s3_writes": 2 * 66 + 10,
        "s3_storage": 1.0,
        "kms_requests": 2,
    }
    assert output_parts("/tmp/out", 2, GB) == input_parts("/tmp/in", 2) == []
