"""Counts of the items of a table."""

from __future__ import annotations

import json
from contextlib import closing

import boto3
import pytest

import ddbio
from ddbio.errors import LimitError, NotFoundError, OptionError
from ddbio.testing import FakeDynamoDB, Faults, MotoServer

ITEMS = 60
INDEX = {
    "IndexName": "by_day",
    "KeySchema": [{"AttributeName": "day", "KeyType": "HASH"}],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
}


@pytest.fixture(scope="module", params=[FakeDynamoDB, MotoServer])
def orders(request):
    """Serve a table of 60 items in 12 item collections, 40 of them in an index; return its connection."""
    with request.param() as server:
        connection = {"endpoint_url": server.endpoint_url, "region": "us-east-1"}
        with closing(boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="us-east-1")) as client:
            client.create_table(
                TableName="orders",
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "day")],
                KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
                GlobalSecondaryIndexes=[INDEX],
            )
            for number in range(ITEMS):
                item = {"pk": {"S": f"p{number % 12}"}, "sk": {"S": f"{number:02d}"}, "n": {"N": str(number)}}
                day = {"day": {"S": f"d{number % 4}"}} if number < 40 else {}
                client.put_item(TableName="orders", Item=item | day)
        yield connection


@pytest.mark.parametrize("segments", [1, 7])
def test_all_items_are_counted(orders, segments):
    """The segments together have each item once, and each segment is reported."""
    report = ddbio.count_table("orders", segments=segments, **orders)
    assert (report.items, report.items_low, report.items_high, report.scanned_items) == (ITEMS,) * 4
    assert [count.segment for count in report.segments] == list(range(segments))
    assert sum(count.items for count in report.segments) == ITEMS
    assert report.skew.max_items == max(count.items for count in report.segments)


def test_a_filter_reads_all_items(orders):
    """A condition of another attribute counts matching items, and the service reads all."""
    report = ddbio.count_table("orders", where="n < 25", segments=3, **orders)
    assert (report.items, report.scanned_items) == (25, ITEMS)


def test_a_condition_of_the_partition_key_reads_its_item_collections(orders):
    """A Query counts each item collection separately, also a missing one."""
    report = ddbio.count_table("orders", where="pk IN ('p3', 'p4', 'none') AND n > 20", **orders)
    counts = [(count.key["pk"]["S"], count.items, count.scanned_items) for count in report.segments]
    assert counts == [("p3", 3, 5), ("p4", 3, 5), ("none", 0, 0)]
    assert (report.items, report.scanned_items, report.planned) == (6, 10, None)


def test_an_index_is_counted(orders):
    """An index has only items with its key."""
    assert ddbio.count_table("orders", index="by_day", **orders).items == 40
    assert ddbio.count_table("orders", index="by_day", where="day = 'd1'", **orders).items == 10


def test_a_report_is_read_from_its_json(orders):
    """JSON has all counts."""
    report = ddbio.count_table("orders", segments=2, **orders)
    assert type(report).from_dict(json.loads(report.to_json())) == report


def test_a_sample_reads_some_segments(fake):
    """A sample reads its share of at least 60 segments, and multiplies their mean."""
    before = fake.requests().get("Scan", 0)
    report = ddbio.count_table("flights", sample=0.5, endpoint_url=fake.endpoint_url)
    assert fake.requests()["Scan"] - before == 30 == report.counted_segments
    assert report.total_segments == 60
    assert report.counted_items == report.scanned_items == sum(count.items for count in report.segments)
    assert report.items == 2 * report.counted_items
    assert report.items_low < report.items < report.items_high
    # Far outside of any interval of a correct sample of 20,000 items.
    assert 10_000 < report.items < 30_000


def test_samples_differ(fake):
    """The segments are chosen at random in each run."""
    chosen = {
        tuple(
            count.segment
            for count in ddbio.count_table("types", sample=0.5, segments=40, endpoint_url=fake.endpoint_url).segments
        )
        for _ in range(4)
    }
    assert len(chosen) > 1


def test_a_sample_of_everything_is_exact(fake):
    """A share of 1 counts all segments."""
    report = ddbio.count_table("types", sample=1, endpoint_url=fake.endpoint_url)
    assert (report.items_low, report.items, report.items_high, report.counted_segments) == (500, 500, 500, 30)


def test_the_units_are_those_of_a_scan(fake):
    """The service charges a count like a scan, and transfers less than 1 KB for each page."""
    report = ddbio.count_table("flights", segments=4, endpoint_url=fake.endpoint_url)
    size = fake.requests()["Scan"]
    assert report.actual.units == report.rcu_consumed == pytest.approx(report.planned.units, rel=0.1)
    assert report.rcu_consumed > 100
    assert report.wire_bytes < 1_000 * size


def test_the_budget_limits_pages(fake):
    """With a budget, pages are small, and the units do not change by more than the rounding of pages."""
    report = ddbio.count_table("flights", rcu_per_second=5_000, segments=1, endpoint_url=fake.endpoint_url)
    assert (report.items, report.rcu_asked_per_second) == (20_000, 5_000)
    assert report.planned.units == pytest.approx(report.rcu_consumed, rel=0.2)


def test_an_empty_table_has_no_items(fake):
    """An empty table is counted in one page per segment."""
    report = ddbio.count_table("empty", endpoint_url=fake.endpoint_url)
    assert (report.items, report.skew.max_ratio) == (0, None)


def test_progress_is_reported(fake):
    """The last report has the number of scanned items."""
    seen = []
    ddbio.count_table("flights", progress=seen.append, endpoint_url=fake.endpoint_url)
    assert [(progress.job, progress.items, progress.goal) for progress in seen if progress.is_done] == [
        ("count flights", 20_000, 20_000)
    ]


def test_a_plan_reads_no_item(fake):
    """A plan describes the table only; its figures are those of the share that is read."""
    before = fake.requests().get("Scan", 0)
    complete = ddbio.plan_count("flights", segments=40, endpoint_url=fake.endpoint_url)
    half = ddbio.plan_count("flights", segments=40, sample=0.5, endpoint_url=fake.endpoint_url)
    assert fake.requests()["Scan"] == before
    assert half.estimate.units == complete.estimate.units / 2 > 50
    assert (half.segments, half.counted_segments, complete.counted_segments) == (40, 20, 40)
    assert half.outline.goal == 10_000


def test_the_cost_of_queries_is_unknown(fake):
    """DescribeTable has no size of an item collection: the plan has no figures instead of wrong ones."""
    plan = ddbio.plan_count("types", where="pk = 'item-00001'", endpoint_url=fake.endpoint_url).to_dict()
    assert [plan[name] for name in ("units", "requests", "bytes", "seconds", "usd")] == [None] * 5
    assert (plan["queries"], plan["item_count"]) == (1, 500)


def test_a_limit_refuses_and_stops(fake):
    """A plan above a limit is refused before a read. A Query above a limit is stopped by its budget."""
    before = fake.requests().get("Scan", 0)
    with pytest.raises(LimitError, match="more than max_units 10"):
        ddbio.count_table("flights", max_units=10, endpoint_url=fake.endpoint_url)
    with pytest.raises(LimitError, match=r"more than max_usd 1e-06"):
        ddbio.count_table("flights", max_usd=1e-6, endpoint_url=fake.endpoint_url)
    assert fake.requests()["Scan"] == before
    where = "pk IN ('item-00001', 'item-00002', 'item-00003', 'item-00004')"
    with pytest.raises(LimitError, match="the job was stopped"):
        ddbio.count_table("types", where=where, max_units=1, lanes=1, endpoint_url=fake.endpoint_url)


def test_wrong_options_are_one_error(fake):
    """A sample of a Query, two budgets, a missing index and a missing table are errors of the call."""
    here = {"endpoint_url": fake.endpoint_url}
    with pytest.raises(OptionError, match="leave sample out"):
        ddbio.count_table("types", where="pk = 'a'", sample=0.5, **here)
    with pytest.raises(OptionError, match="not both"):
        ddbio.count_table("types", rcu_per_second=5, read_ratio=0.5, **here)
    with pytest.raises(OptionError, match="sample"):
        ddbio.count_table("types", sample=0, **here)
    with pytest.raises(OptionError, match="no index 'x'"):
        ddbio.count_table("types", index="x", **here)
    with pytest.raises(NotFoundError):
        ddbio.count_table("missing", **here)


def test_failed_pages_are_requested_again():
    """Each item is counted once, although a third of the requests fail, before or after the service read the page."""
    faults = Faults(error_before_ratio=0.2, error_after_ratio=0.2, seed=1)
    with FakeDynamoDB(faults=faults) as server:
        server.load("faulty", b"".join(b'{"Item":{"pk":{"S":"%d"}}}\n' % number for number in range(60)), "pk:S")
        report = ddbio.count_table("faulty", segments=60, endpoint_url=server.endpoint_url)
        assert server.requests()["Scan"] > 60
    assert report.items == report.scanned_items == 60
