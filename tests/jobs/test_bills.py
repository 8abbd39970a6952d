"""Published monthly bills, computed from ddbio's prices; docs/bills.md has their arithmetic."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from ddbio.jobs import prices
from ddbio.jobs.prices import PriceBook

BOOK = PriceBook.from_json((Path(prices.__file__).parent / "us-east-1.json").read_text("utf-8"), "us-east-1.json")
PAGE = (Path(__file__).parents[2] / "docs/bills.md").read_text("utf-8")

BILLS = {
    1: {"write_request_units": 650_000, "read_request_units": 550_000},
    2: {"write_capacity_unit_hours": 100 * 720, "read_capacity_unit_hours": 100 * 720},
    3: {"write_request_units": 3e6, "read_request_units": 8e6, "storage": 230},
    4: {"recovery_storage": 2_300, "backup_storage": 460, "restore": 230, "stream_reads": 2e6},
    5: {"write_capacity_unit_hours": 20 * 730, "read_capacity_unit_hours": 30 * 730},
    6: {"backup_storage": 30 * 500},
    7: {"s3_storage": 1_024},
    8: {"s3_writes": 1e6, "s3_reads": 10e6},
    9: {"kinesis_shard_hours": 4 * 744, "kinesis_puts": 2 * 100 * 31 * 86_400},
    10: {"firehose": 5_000},
    11: {"firehose_conversion": 5_000},
    12: {"lambda_gb_seconds": 3e6 * 0.5 - 400_000, "lambda_requests": 3e6 - 1e6},
    13: {"glue_dpu_hours": 30 * 6 * 0.25},
    14: {"emr_serverless_vcpu_hours": 25 * 3 * 16, "emr_serverless_gb_hours": 25 * 3 * 128},
    15: {"emr_serverless_vcpu_hours": 22.1403, "emr_serverless_gb_hours": 39.8497},
}


@pytest.mark.parametrize("number", BILLS)
def test_published_bills(number):
    """The price book comes within 2 % of the published bill of the scenario."""
    row = re.search(rf"^\| {number} \|.*\| \$([\d,.]+) \|$", PAGE, re.MULTILINE)
    assert row is not None
    cost = BOOK.cost([(name, name, quantity) for name, quantity in BILLS[number].items()], None, date(2024, 11, 15))
    assert cost.usd == pytest.approx(float(row[1].replace(",", "")), rel=0.02)


def test_every_bill_of_the_page_is_computed():
    """Every row of docs/bills.md has a test."""
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)} == set(BILLS)
