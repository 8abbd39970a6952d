from __future__ import annotations

import pytest

from ddbio.items.capacity import (
    SecondaryIndex,
    batch_get_units,
    change_units,
    expired_cost,
    get_units,
    item_size_bytes,
    page_limit,
    query_units,
    read_units,
    scan_pages,
    scan_units,
    stream_read_units,
    transact_get_units,
    write_cost,
    write_units,
)

KIB = 1024
TEXT = SecondaryIndex("by-text", ("text",))
TRANSACTED = write_cost(None, {"pk": {"S": "x" * 498}}, ["pk"], transactional=True)


@pytest.mark.parametrize(
    ("value", "size_bytes"),
    [
        ({"S": ""}, 0),
        ({"S": "abc"}, 3),
        ({"S": "é"}, 2),
        ({"N": "0"}, 1),
        ({"N": "1"}, 2),
        ({"N": "-1"}, 3),
        ({"N": "12"}, 2),
        ({"N": "123"}, 3),
        ({"N": "1200"}, 2),
        ({"N": "0.0012"}, 2),
        ({"N": "-12.5"}, 4),
        ({"N": "12e5"}, 2),
        ({"N": "9" * 38}, 20),
        ({"B": ""}, 0),
        ({"B": "YQ=="}, 1),
        ({"B": "YWI="}, 2),
        ({"B": "YWJj"}, 3),
        ({"BOOL": False}, 1),
        ({"NULL": True}, 1),
        ({"SS": ["a", "bc"]}, 3),
        ({"NS": ["1", "-1"]}, 5),
        ({"BS": ["YQ==", "YWJj"]}, 4),
        ({"L": []}, 3),
        ({"M": {}}, 3),
        ({"L": [{"S": "a"}, {"NULL": True}]}, 3 + 2 + 2),
        ({"M": {"k": {"S": "abc"}}}, 3 + 1 + 1 + 3),
        ({"L": [{"M": {"k": {"L": []}}}]}, 3 + 1 + 3 + 1 + 1 + 3),
    ],
)
def test_the_size_of_a_value_follows_the_rule(value, size_bytes):
    """The size of an item is the sum of its names and values, each by the documented rule."""
    assert item_size_bytes({"né": value}) == 3 + size_bytes


@pytest.mark.parametrize(
    ("size_bytes", "consistent", "units"),
    [(0, True, 1), (1, False, 0.5), (4096, True, 1), (4097, True, 2), (4097, False, 1), (1 << 20, False, 128)],
)
def test_reads_cost_a_unit_per_4_kib(size_bytes, consistent, units):
    """A read is rounded up to whole units once, and halved when eventually consistent."""
    assert read_units(size_bytes, consistent) == units


@pytest.mark.parametrize("consistent", [True, False])
@pytest.mark.parametrize("rcu_per_second", [50, 400, 2559])
@pytest.mark.parametrize("item_bytes", [1, 100, 5000])
def test_a_bounded_page_costs_a_twentieth(rcu_per_second, item_bytes, consistent):
    """A page with that limit costs at most a twentieth of the budget. One item is always allowed."""
    limit = page_limit(rcu_per_second, item_bytes, consistent)
    assert limit is not None
    assert limit == 1 or read_units(limit * item_bytes, consistent) <= rcu_per_second / 20


def test_a_large_item_still_gets_through():
    """An item that costs more than a twentieth of the budget is read alone."""
    assert page_limit(1, 400_000, consistent=True) == 1


def test_large_budgets_bound_no_page():
    """From 2,560 units a second, or twice that for consistent reads, the service's pages are not limited."""
    assert page_limit(2560, 100, consistent=False) is None
    assert page_limit(2559, 100, consistent=False) is not None
    assert page_limit(5120, 100, consistent=True) is None
    assert page_limit(5119, 100, consistent=True) is not None


# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
@pytest.mark.parametrize(
    ("units", "expected"),
    [
        pytest.param(get_units(int(3.5 * KIB), consistent=True), 1, id="GetItem rounds 3.5 KB to 4"),
        pytest.param(get_units(0, consistent=True), 1, id="an absent item costs one"),
        pytest.param(get_units(0), 0.5, id="an absent item costs a half"),
        pytest.param(batch_get_units([1536, 6656], consistent=True), 3, id="BatchGetItem rounds 1.5 + 6.5 KB to 12"),
        pytest.param(query_units(int(40.8 * KIB), consistent=True), 11, id="Query rounds 40.8 KB to 44"),
        pytest.param(query_units(1500 * 64), 12, id="Query of 1,500 items of 64 bytes: 96 KB"),
        pytest.param(query_units(0), 0.5, id="an empty page costs the least"),
        pytest.param(transact_get_units([500, 5 * KIB]), 6, id="a transaction reads twice"),
        pytest.param(write_units(500), 1, id="PutItem rounds 500 bytes to 1 KB"),
        pytest.param(write_units(3584), 4, id="3.5 KB are 4"),
        pytest.param(write_units(512, 1536), 2, id="the larger of both images counts"),
        pytest.param(write_units(0, 3 * KIB), 3, id="DeleteItem counts the deleted item"),
        pytest.param(write_units(0), 1, id="deleting an absent item costs one"),
        pytest.param(write_units(10, 2560), 3, id="a failed condition costs what the item that is there does"),
        pytest.param(2 * TRANSACTED.total, 4, id="TransactWriteItems of two items of 500 bytes"),
        pytest.param(expired_cost().total, 0, id="an expiry is free"),
        pytest.param(stream_read_units(7), 7, id="GetRecords costs one, whatever it returns"),
        pytest.param(change_units(300, 2049), 3, id="a change for Kinesis counts the larger image by the KB"),
    ],
)
def test_operations_cost_as_in_the_guide(units, expected):
    """The guide's examples, and the smallest cost of each operation."""
    assert units == expected


def test_the_known_bug_of_8096_for_8192_bytes():
    """A well-known calculator divides by 8,096. Eventual reads of 8,192 bytes cost one unit, not a little more."""
    assert query_units(8192) == 1
    assert query_units(8193) == 1.5


# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.html#GSI.ThroughputConsiderations.Writes
@pytest.mark.parametrize(
    ("old", "new", "units"),
    [
        pytest.param(None, {"text": {"S": "a"}}, 1, id="a new indexed attribute puts one entry"),
        pytest.param({"text": {"S": "a"}}, {"text": {"S": "b"}}, 2, id="a changed key deletes one and puts one"),
        pytest.param({"text": {"S": "a"}}, {}, 1, id="a removed key deletes one"),
        pytest.param({}, {"other": {"S": "a"}}, 0, id="absent before and after: nothing"),
        pytest.param(
            {"text": {"S": "a"}}, {"text": {"S": "a"}, "o": {"S": "b"}}, 1, id="a projected attribute changed"
        ),
        pytest.param({"text": {"S": "a"}}, {"text": {"S": "a"}}, 0, id="an unchanged entry: nothing"),
        pytest.param({"text": {"S": "a"}}, None, 1, id="a deleted item deletes its entry"),
    ],
)
def test_an_index_costs_as_in_the_guide(old, new, units):
    """The guide's list of the effects of a write on a global secondary index."""
    keyed = [None if item is None else {"pk": {"S": "k"}, **item} for item in (old, new)]
    assert write_cost(*keyed, ["pk"], [TEXT]).indexes == ({"by-text": units} if units else {})


def test_only_what_an_index_projects_counts():
    """An index without the large attribute costs little, and nothing when only that attribute changes."""
    keys_only = SecondaryIndex("keys", ("text",), projected=())
    small, large = ({"pk": {"S": "k"}, "text": {"S": "t"}, "body": {"S": "x" * size}} for size in (10, 5000))
    assert write_cost(None, large, ["pk"], [keys_only, TEXT]).indexes == {"keys": 1, "by-text": 5}
    assert write_cost(small, large, ["pk"], [keys_only]).indexes == {}


def test_transactions_cost_twice():
    """Writes to table and indexes cost twice as much in a transaction."""
    cost = write_cost(None, {"pk": {"S": "k"}, "text": {"S": "t"}}, ["pk"], [TEXT], transactional=True)
    assert (cost.table, cost.indexes, cost.total) == (2, {"by-text": 2}, 4)


@pytest.mark.parametrize("consistent", [True, False])
def test_full_pages_cost_a_unit_more(consistent):
    """A page ends with the item that reaches 1 MiB: one of 1,042 bytes takes 257 units, or 128.5."""
    pages = 1000
    units = scan_units(pages * (1024 * KIB + 521), 1042, consistent=consistent)
    assert units == pytest.approx(pages * (257 if consistent else 128.5), rel=0.001)


def test_every_segment_costs_at_least_a_page():
    """A scan of an empty table, or of more segments than items, costs the minimum for each segment."""
    assert scan_units(0, 100) == 0.5
    assert scan_units(0, 100, segments=8, consistent=True) == 8


def test_pages_are_counted_by_segment():
    """Each segment ends with a partial page. A limit of items makes more pages, also if no item was sampled."""
    assert scan_pages(3 * 1024 * KIB, 1024) == 3
    assert scan_pages(3 * 1024 * KIB, 1024, segments=4) == 4
    assert scan_pages(100 * KIB, 1024, page_items=10) == 10
    assert scan_pages(100, 0.0, page_items=10) == 10
    assert scan_units(100, 0.0, page_items=10) == pytest.approx(5, abs=0.5)
