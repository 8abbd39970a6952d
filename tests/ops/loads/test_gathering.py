"""Small batches are joined without changing rows, order or what a milestone stands for."""

import itertools
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddbio.core.loads.write_plan import WritePlan
from ddbio.ops.loads.crew import Milestone
from ddbio.ops.loads.gathering import full_rows, gather

FULL = 50
SIZES = st.integers(0, 3) | st.integers(FULL - 2, FULL + 2)
FEEDS = st.lists(st.none() | st.tuples(SIZES, st.sampled_from("ab")), max_size=12)


def rows_before(feed):
    """Return the rows of a feed, and how many of them come before each milestone, by its name."""
    rows, before = [], {}
    for each in feed:
        if isinstance(each, Milestone):
            before[each.reached] = len(rows)
        else:
            rows += [(each.schema.names[0], value) for value in each.column(0).to_pylist()]
    return rows, before


@settings(deadline=None)
@given(FEEDS)
def test_rows_and_milestones_keep_their_order(sizes):
    """All rows come in their order, and a milestone comes after all that was before it, soon."""
    feed, start = [], 0
    for place, size in enumerate(sizes):
        if size is None:
            feed.append(Milestone(place))
        else:
            feed.append(pa.record_batch({size[1]: list(range(start, start + size[0]))}))
            start += size[0]
    rows, before = rows_before(feed)
    gathered = list(gather(feed, FULL))
    found, later = rows_before(gathered)
    assert found == rows
    assert all(before[name] <= later[name] < before[name] + 2 * FULL + 3 for name in before)
    assert before.keys() == later.keys()
    batches = [each for each in gathered if not isinstance(each, Milestone)]
    for one, other in itertools.pairwise(batches):
        assert one.num_rows >= FULL or one.schema != other.schema or not other.num_rows


def test_the_same_column_as_list_and_set_stays_apart():
    """Batches whose types differ in metadata alone are never joined."""
    plain = pa.schema({"v": pa.list_(pa.string())})
    tagged = plain.set(0, plain.field(0).with_metadata({"ddb:type": "SS"}))
    batches = [pa.record_batch([[["x"]]], schema=schema) for schema in (plain, tagged)]
    assert [each.schema.field(0).metadata for each in gather(batches, FULL)] == [None, {b"ddb:type": b"SS"}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.dictionary(pa.int32(), pa.string()), ["a", "b"]),
        (pa.decimal128(9, 2), [Decimal("1.00"), Decimal("2.50")]),
        (pa.map_(pa.string(), pa.int8()), [[("a", 1)], [("b", 2)]]),
    ],
)
def test_all_types_can_be_joined(kind, values):
    """Dictionaries of different words, and what else needs care, are joined as well."""
    (joined,) = gather([pa.record_batch({"v": pa.array([value], kind)}) for value in values], FULL)
    assert joined.column(0).to_pylist() == values


@pytest.mark.parametrize(("rate", "rows"), [(None, 3200), (1e6, 3200), (1000.0, 1000), (1.0, 200)])
def test_a_second_of_the_budget_is_enough(rate, rows):
    """Rows wait for others as long as the lanes are not filled, but not for minutes where the budget is small."""
    plan = WritePlan("t", (("pk", "S"),), "upsert", None, None, 8, rate)
    assert full_rows(plan) == rows
