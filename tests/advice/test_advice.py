"""Methods to keep a copy of a table: their calculated bills, reasons against a method, and break-even points."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from ddbio.advice.advice import GIB, METHOD_NAMES, Workload, advise, method_of
from ddbio.jobs import prices
from ddbio.jobs.prices import PriceBook

BOOK = PriceBook.from_json((Path(prices.__file__).parent / "us-east-1.json").read_text("utf-8"), "us-east-1.json")
TODAY = date(2024, 12, 1)
# A table of 1 TiB on demand that is copied daily, with 100 changes per second of items of 512 bytes.
DAILY = Workload("orders", 1024.0**4, 512.0, 100.0, 86_400.0, 12_000.0, shards=110)
DAYS, MONTH_SECONDS = 730 / 24, 730 * 3600


def lines(name: str, workload: Workload = DAILY) -> dict[str, float | None]:
    """Return the USD of each line of a method."""
    method = method_of(name, workload, BOOK)
    return {line.what: line.usd for line in method.lines}


def test_the_monthly_bill_of_scans():
    """A TiB is 134,217,728 pages of 8 KiB, at 0.125 USD per million, 30.4 times a month."""
    assert lines("scan")["reads"] == pytest.approx(1024**4 / 8192 * 0.125e-6 * DAYS, rel=0.005)


def test_the_monthly_bill_of_exports():
    """Exports cost 0.10 USD per GB each day, and recovery 0.20 USD per GB-month unless it is already enabled."""
    assert lines("full exports")["exports"] == pytest.approx(1024 * 0.10 * DAYS)
    assert lines("full exports")["point-in-time recovery"] == pytest.approx(1024 * 0.20)
    assert lines("full exports", replace(DAILY, recovery=True))["point-in-time recovery"] == 0
    changed = 100 * MONTH_SECONDS * 512 / GIB
    assert lines("incremental exports")["incremental exports"] == pytest.approx(changed * 0.10)
    assert method_of("incremental exports", DAILY, BOOK).usd_once == pytest.approx(102.40)


def test_each_increment_costs_ten_megabytes_at_least():
    """An export of few changes every half hour is billed for the minimum size."""
    few = replace(DAILY, changes_per_second=0.001, freshness_seconds=1800.0)
    runs = MONTH_SECONDS / 1800
    assert lines("incremental exports", few)["incremental exports"] == pytest.approx(runs * 10 / 1024 * 0.10)


def test_the_monthly_bill_of_kinesis():
    """A change of 512 bytes is one capture unit, 2 KB into the stream, and 5 KB for Firehose."""
    changes, bill = 100 * MONTH_SECONDS, lines("Kinesis Data Streams")
    assert bill["changes captured"] == pytest.approx(changes * 0.1e-6)
    assert bill["stream"] == pytest.approx(730 * 0.04)
    assert bill["into the stream"] == pytest.approx(changes * 2048 / GIB * 0.08)
    assert bill["Firehose, in steps of 5 KB"] == pytest.approx(changes * 5120 / GIB * 0.029)


def test_the_monthly_bills_of_glue_and_emr_serverless():
    """Machines are billed by the second: DPU-hours of four processors, or processors with four GB each."""
    glue, emr = method_of("Glue", DAILY, BOOK), method_of("EMR Serverless", DAILY, BOOK)
    cores = 5 + 4  # 98 MB per second at 20 MiB per second and core, and a driver of four
    hours = glue.seconds / 3600 * DAYS
    assert {line.what: line.usd for line in glue.lines}["Glue"] == pytest.approx(hours * 3 * 0.44)
    bill = {line.what: line.usd for line in emr.lines}
    assert bill["EMR Serverless, processors"] == pytest.approx(hours * cores * 0.052624)
    assert emr.seconds > method_of("scan", DAILY, BOOK).seconds


def test_provisioned_reads_are_paid_already():
    """A scan of spare capacity adds nothing to the bill; the advice shows its share of the capacity and its hours."""
    table = replace(DAILY, on_demand=False, table_rcu=100_000.0, rcu_per_second=50_000.0)
    advice = advise(table, BOOK, "us-east-1", TODAY)
    assert lines("scan", table)["reads"] == 0
    assert advice.road("scan").load == pytest.approx(0.5)
    small = advise(replace(table, size_bytes=1e9, changes_per_second=50_000.0), BOOK, "us-east-1", TODAY)
    assert small.recommended == "scan"
    assert any("50% of the table's read capacity" in reason for reason in small.why)


@pytest.mark.parametrize(
    ("freshness", "possible"),
    [
        (86_400.0, set(METHOD_NAMES)),
        (3600.0, set(METHOD_NAMES) - {"scan", "Glue", "EMR Serverless"}),
        (60.0, {"streams + Firehose", "Kinesis Data Streams"}),
        (1.0, set()),
    ],
)
def test_freshness_decides_what_is_possible(freshness, possible):
    """A method whose runs take longer than the freshness is not possible, with the reason."""
    advice = advise(replace(DAILY, freshness_seconds=freshness), BOOK, "us-east-1", TODAY)
    assert {method.name for method in advice.roads if method.possible} == possible
    assert all(method.why_not for method in advice.roads if not method.possible)
    assert (advice.recommended is None) == (not possible)
    assert {method.name for method in advice.roads} == set(METHOD_NAMES)


def test_one_point_in_time_excludes_scans():
    """Exports produce a copy as of one time, scans do not."""
    advice = advise(replace(DAILY, point_in_time=True), BOOK, "us-east-1", TODAY)
    assert not {"scan", "Glue", "EMR Serverless"} & {method.name for method in advice.roads if method.possible}


def test_both_methods_cost_the_same_at_a_break_even_point():
    """At each point both bills are equal, and the cheaper method below and above it is the reported one."""
    advice = advise(DAILY, BOOK, "us-east-1", TODAY)
    points = [point for point in advice.break_evens if point.at is not None]
    assert len(points) >= 4
    for point in points:
        for factor in (0.5, 1.0, 2.0):
            value = point.at * factor
            varied = (
                replace(DAILY, size_bytes=value)
                if point.by == "size_bytes"
                else replace(DAILY, changes_per_second=value)
            )
            usd = {name: method_of(name, varied, BOOK).usd for name in point.compared}
            if factor == 1.0:
                assert usd[point.below] == pytest.approx(usd[point.above], rel=0.01)
            else:
                assert min(usd, key=usd.get) == (point.below if factor < 1 else point.above), point


def test_incremental_exports_pay_until_all_has_changed():
    """Without a cost of recovery, both exports cost the same if a day's changes equal the size of the table."""
    table = replace(DAILY, recovery=True, item_bytes=1024.0)
    advice = advise(table, BOOK, "us-east-1", TODAY)
    point = next(
        break_even
        for break_even in advice.break_evens
        if break_even.compared == ("incremental exports", "full exports")
    )
    assert point.at is not None
    assert point.at * 86_400 * 1024 == pytest.approx(table.size_bytes, rel=0.02)


def test_zero_etl_is_priced_as_what_its_target_uses():
    """Each refresh is at least a minute of two DPUs. A price per GB of changes in a book has precedence."""
    workload = replace(DAILY, freshness_seconds=3600.0)
    (line,) = [cost_line for cost_line in method_of("zero-ETL", workload, BOOK).lines if "compute" in cost_line.what]
    assert line.usd == pytest.approx(730 * 2 / 60 * 0.44)
    own = replace(BOOK, prices={**BOOK.prices, "zero_etl": replace(BOOK.prices["export"], usd=0.5)})
    (line,) = [cost_line for cost_line in method_of("zero-ETL", workload, own).lines if "compute" in cost_line.what]
    assert line.usd == pytest.approx(0.5 * workload.changed_gb)


def test_what_has_no_price_is_not_recommended():
    """A method with an unpriced line is reported with that line, and not recommended by its partial sum."""
    poor = replace(BOOK, prices={name: price for name, price in BOOK.prices.items() if name != "glue_dpu_hours"})
    advice = advise(replace(DAILY, freshness_seconds=3600.0), poor, "us-east-1", TODAY)
    assert advice.road("zero-ETL").unpriced == ("compute that applies the changes",)
    assert advice.recommended not in {"zero-ETL", "Glue"}
    assert any("zero-ETL has no price" in reason for reason in advice.why)
    empty = advise(DAILY, PriceBook("nowhere"), "nowhere", TODAY)
    assert empty.recommended is None


def test_old_prices_have_a_single_note():
    """Any number of old prices is reported in one note with their dates."""
    notes = advise(DAILY, BOOK, "eu-west-1", date(2026, 11, 22)).notes
    assert len([note for note in notes if "180 days" in note]) == 1
    assert any("no book for eu-west-1" in note for note in notes)


def test_an_advice_is_plain_json():
    """The advice is JSON, including the assumptions."""
    values = json.loads(advise(DAILY, BOOK, "us-east-1", TODAY).to_json())
    assert {"recommended", "why", "roads", "break_evens", "assumptions", "workload"} <= values.keys()
    assert values["roads"][0]["lines"][0].keys() == {"what", "quantity", "unit", "usd"}
