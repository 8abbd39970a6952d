"""Roads to a copy of a table: their bills by hand, what makes one impossible, and break-even points."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from ddbio.advice.advice import GIB, ROADS, Workload, advise, road
from ddbio.jobs import prices
from ddbio.jobs.prices import PriceBook

BOOK = PriceBook.from_json((Path(prices.__file__).parent / "us-east-1.json").read_text("utf-8"), "us-east-1.json")
TODAY = date(2024, 12, 1)
# A TiB on demand, copied each day, of which 100 items of 512 bytes change a second.
DAILY = Workload("orders", 1024.0**4, 512.0, 100.0, 86_400.0, 12_000.0, shards=110)
DAYS, MONTH_SECONDS = 730 / 24, 730 * 3600


def lines(name: str, workload: Workload = DAILY) -> dict[str, float | None]:
    """Return the USD of each line of a road."""
    found = road(name, workload, BOOK)
    return {line.what: line.usd for line in found.lines}


def test_a_month_of_scans_by_hand():
    """A TiB is 134,217,728 pages of 8 KiB, at 0.125 USD a million, each of 30.4 days."""
    assert lines("scan")["reads"] == pytest.approx(1024**4 / 8192 * 0.125e-6 * DAYS, rel=0.005)


def test_a_month_of_exports_by_hand():
    """0.10 USD a GB each day, and 0.20 USD a GB-month for recovery, which costs nothing more if it is on."""
    assert lines("full exports")["exports"] == pytest.approx(1024 * 0.10 * DAYS)
    assert lines("full exports")["point-in-time recovery"] == pytest.approx(1024 * 0.20)
    assert lines("full exports", replace(DAILY, recovery=True))["point-in-time recovery"] == 0
    changed = 100 * MONTH_SECONDS * 512 / GIB
    assert lines("incremental exports")["incremental exports"] == pytest.approx(changed * 0.10)
    assert road("incremental exports", DAILY, BOOK).usd_once == pytest.approx(102.40)


def test_each_increment_costs_ten_megabytes_at_least():
    """An export of few changes each half hour is billed by its least size."""
    few = replace(DAILY, changes_per_second=0.001, freshness_seconds=1800.0)
    runs = MONTH_SECONDS / 1800
    assert lines("incremental exports", few)["incremental exports"] == pytest.approx(runs * 10 / 1024 * 0.10)


def test_a_month_of_kinesis_by_hand():
    """A change of 512 bytes is one capture unit, 2 KB into the stream, and 5 KB for Firehose."""
    changes, bill = 100 * MONTH_SECONDS, lines("Kinesis Data Streams")
    assert bill["changes captured"] == pytest.approx(changes * 0.1e-6)
    assert bill["stream"] == pytest.approx(730 * 0.04)
    assert bill["into the stream"] == pytest.approx(changes * 2048 / GIB * 0.08)
    assert bill["Firehose, in steps of 5 KB"] == pytest.approx(changes * 5120 / GIB * 0.029)


def test_a_month_of_glue_and_of_emr_serverless_by_hand():
    """What runs is billed by the second: DPU-hours of four processors, or processors and four GB for each."""
    glue, emr = road("Glue", DAILY, BOOK), road("EMR Serverless", DAILY, BOOK)
    cores = 5 + 4  # 98 MB a second at 20 MiB a second and core, and a driver of four
    hours = glue.seconds / 3600 * DAYS
    assert {line.what: line.usd for line in glue.lines}["Glue"] == pytest.approx(hours * 3 * 0.44)
    bill = {line.what: line.usd for line in emr.lines}
    assert bill["EMR Serverless, processors"] == pytest.approx(hours * cores * 0.052624)
    assert emr.seconds > road("scan", DAILY, BOOK).seconds


def test_provisioned_reads_are_paid_already():
    """A scan of spare capacity adds nothing to the bill, and says what share it takes for how long."""
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
        (86_400.0, set(ROADS)),
        (3600.0, set(ROADS) - {"scan", "Glue", "EMR Serverless"}),
        (60.0, {"streams + Firehose", "Kinesis Data Streams"}),
        (1.0, set()),
    ],
)
def test_freshness_decides_what_is_possible(freshness, possible):
    """A road whose runs take longer than the copy may be old is said to be impossible, and why."""
    advice = advise(replace(DAILY, freshness_seconds=freshness), BOOK, "us-east-1", TODAY)
    assert {each.name for each in advice.roads if each.possible} == possible
    assert all(each.why_not for each in advice.roads if not each.possible)
    assert (advice.recommended is None) == (not possible)
    assert {each.name for each in advice.roads} == set(ROADS)


def test_one_point_in_time_excludes_scans():
    """A copy as of one time is what exports give, and scans do not."""
    advice = advise(replace(DAILY, point_in_time=True), BOOK, "us-east-1", TODAY)
    assert not {"scan", "Glue", "EMR Serverless"} & {each.name for each in advice.roads if each.possible}


def test_both_roads_cost_the_same_where_they_break_even():
    """At each point the two bills are equal, and below and above it the cheaper road is the one that is named."""
    advice = advise(DAILY, BOOK, "us-east-1", TODAY)
    found = [each for each in advice.break_evens if each.at is not None]
    assert len(found) >= 4
    for each in found:
        for factor in (0.5, 1.0, 2.0):
            place = each.at * factor
            varied = (
                replace(DAILY, size_bytes=place)
                if each.by == "size_bytes"
                else replace(DAILY, changes_per_second=place)
            )
            usd = {name: road(name, varied, BOOK).usd for name in each.compared}
            if factor == 1.0:
                assert usd[each.below] == pytest.approx(usd[each.above], rel=0.01)
            else:
                assert min(usd, key=usd.get) == (each.below if factor < 1 else each.above), each


def test_incremental_exports_pay_until_all_has_changed():
    """Without recovery to pay, both exports cost the same when as many GB change in a day as the table has."""
    table = replace(DAILY, recovery=True, item_bytes=1024.0)
    advice = advise(table, BOOK, "us-east-1", TODAY)
    point = next(each for each in advice.break_evens if each.compared == ("incremental exports", "full exports"))
    assert point.at is not None
    assert point.at * 86_400 * 1024 == pytest.approx(table.size_bytes, rel=0.02)


def test_zero_etl_is_priced_as_what_its_target_uses():
    """Each refresh is a minute of two DPUs at the least; a book's own price for a GB of changes goes first."""
    workload = replace(DAILY, freshness_seconds=3600.0)
    (line,) = [each for each in road("zero-ETL", workload, BOOK).lines if "compute" in each.what]
    assert line.usd == pytest.approx(730 * 2 / 60 * 0.44)
    own = replace(BOOK, prices={**BOOK.prices, "zero_etl": replace(BOOK.prices["export"], usd=0.5)})
    (line,) = [each for each in road("zero-ETL", workload, own).lines if "compute" in each.what]
    assert line.usd == pytest.approx(0.5 * workload.changed_gb)


def test_what_has_no_price_is_not_recommended():
    """A road of which a line has no price is named, and its sum is not taken for all of it."""
    poor = replace(BOOK, prices={name: price for name, price in BOOK.prices.items() if name != "glue_dpu_hours"})
    advice = advise(replace(DAILY, freshness_seconds=3600.0), poor, "us-east-1", TODAY)
    assert advice.road("zero-ETL").unpriced == ("compute that applies the changes",)
    assert advice.recommended not in {"zero-ETL", "Glue"}
    assert any("zero-ETL has no price" in reason for reason in advice.why)
    empty = advise(DAILY, PriceBook("nowhere"), "nowhere", TODAY)
    assert empty.recommended is None


def test_old_prices_are_told_once():
    """However many prices are old, one note has their dates."""
    notes = advise(DAILY, BOOK, "eu-west-1", date(2026, 11, 22)).notes
    assert len([note for note in notes if "180 days" in note]) == 1
    assert any("no book for eu-west-1" in note for note in notes)


def test_an_advice_is_plain_json():
    """All of it goes through JSON, with the assumptions."""
    values = json.loads(advise(DAILY, BOOK, "us-east-1", TODAY).to_json())
    assert {"recommended", "why", "roads", "break_evens", "assumptions", "workload"} <= values.keys()
    assert values["roads"][0]["lines"][0].keys() == {"what", "quantity", "unit", "usd"}
