from __future__ import annotations

import pytest

from ddbio.core.capacity import item_size_bytes, page_limit, read_units


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
def test_a_value_weighs_what_the_rule_says(value, size_bytes):
    """An item is its names and values, each by the documented rule."""
    assert item_size_bytes({"né": value}) == 3 + size_bytes


@pytest.mark.parametrize(
    ("size_bytes", "consistent", "units"),
    [(0, True, 1), (1, False, 0.5), (4096, True, 1), (4097, True, 2), (4097, False, 1), (1 << 20, False, 128)],
)
def test_reads_cost_a_unit_per_4_kib(size_bytes, consistent, units):
    """A read is rounded up to whole units once, and halved when eventual."""
    assert read_units(size_bytes, consistent) == units


@pytest.mark.parametrize("consistent", [True, False])
@pytest.mark.parametrize("rcu_per_second", [50, 400, 2559])
@pytest.mark.parametrize("item_bytes", [1, 100, 5000])
def test_a_bounded_page_costs_a_twentieth(rcu_per_second, item_bytes, consistent):
    """A page of that many items costs at most a twentieth of the budget; one item is always allowed."""
    limit = page_limit(rcu_per_second, item_bytes, consistent)
    assert limit is not None
    assert limit == 1 or read_units(limit * item_bytes, consistent) <= rcu_per_second / 20


def test_a_large_item_still_gets_through():
    """An item that costs more than a twentieth of the budget is read alone."""
    assert page_limit(1, 400_000, consistent=True) == 1


def test_large_budgets_bound_no_page():
    """From 2,560 units a second on, pages are as long as the service makes them."""
    assert page_limit(2560, 100, consistent=False) is None
