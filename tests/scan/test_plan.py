"""Scan plans: segments, lanes, tasks and engine depend only on given facts."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.aws.table_description import IndexDescription, TableDescription
from ddbio.errors import OptionError
from ddbio.items.schema.arrow import tagged_field
from ddbio.jobs.estimate import START_SECONDS
from ddbio.jobs.prices import Cost, CostLine
from ddbio.options import parse_options
from ddbio.scan.options import ScanOptions, ScanToFilesOptions
from ddbio.scan.plan import Resources, Sample, budget_of, check_scan, plan_scan, spread_order

MIB = 1024**2
SCHEMA = pa.schema([tagged_field("pk", pa.string(), "S")])


def _facts(size_bytes=0, item_count=0, rcu=None, indexes=()):
    return TableDescription(
        "t", "arn", "id", "ACTIVE", (("pk", "S"),), item_count, size_bytes, rcu is None, rcu, indexes
    )


def _plan(size_bytes=0, spark=None, complete=False, cores=2, **options):
    table = _facts(size_bytes, size_bytes // 200, options.pop("rcu", None))
    sample = Sample(SCHEMA, options.pop("sampled", 100), 200.0, 5.0, complete)
    asked = parse_options(ScanToFilesOptions, {"table": "t", "dest": "d", **options})
    return plan_scan(table, sample, asked, Resources(cores, spark))


@pytest.mark.parametrize(("size_mib", "segments"), [(0, 4), (1, 1), (100, 2), (255, 4)])
def test_small_tables_get_few_segments(size_mib, segments):
    """Below 256 MiB, or with unknown size, a table is read with at most four segments."""
    assert _plan(size_mib * MIB).segments == segments


def test_an_answer_without_units_can_be_planned():
    """A sample whose response has no units has no item size, but a number of sent bytes."""
    asked = parse_options(ScanToFilesOptions, {"table": "t", "dest": "d"})
    sample = Sample(SCHEMA, 5, 0.0, 0.0, complete=True, sent_bytes=200.0)
    assert plan_scan(_facts(), sample, asked, Resources(2, None)).bytes == 0


def test_a_whole_sample_needs_one_segment():
    """A table that one sampled page contains completely is not split."""
    made = _plan(0, complete=True)
    assert (made.segments, made.item_count, made.engine) == (1, 100, "local")


def test_a_size_that_is_out_of_date_is_at_least_the_sample():
    """The service reports 0 bytes for hours after a table was filled; the plan uses at least the size of the sample."""
    made = _plan(0, sampled=10_000)
    assert made.estimated_units == pytest.approx(10_000 * 200 / 8192, rel=0.1)
    assert made.estimated_seconds > 0


def test_large_tables_follow_size_lanes_and_budget():
    """The number of segments is the maximum of size / 512 MiB, four per lane and budget / 250."""
    assert _plan(1024**4, engine="local").segments == 2048
    assert _plan(300 * MIB, engine="local", lanes=30).segments == 120
    assert _plan(300 * MIB, engine="local", lanes=2, rcu_per_second=40_000).segments == 160


def test_explicit_numbers_win():
    """Explicit segments and lanes are used."""
    made = _plan(MIB, segments=7, lanes=3)
    assert (made.segments, made.lanes) == (7, 3)


def test_limit_reads_one_segment():
    """A limited scan reads one segment, which also bounds its cost."""
    assert _plan(1024**3, limit=10).segments == 1


@pytest.mark.parametrize(
    ("size_mib", "session", "asked", "engine"),
    [
        (10, None, "auto", "local"),
        (255, None, "auto", "local"),
        (256, None, "auto", "spark"),
        (10, 8, "auto", "spark"),
        (10, None, "spark", "spark"),
        (10_000, 8, "local", "local"),
    ],
)
def test_engine_follows_size_and_session(size_mib, session, asked, engine):
    """A small table does not wait for Spark unless a session is running; an explicit engine takes precedence."""
    made = _plan(size_mib * MIB, spark=session, engine=asked)
    assert made.engine == engine
    assert made.engine_reason


def test_without_pyspark_auto_is_local():
    """Without Spark, a large table is read by threads, and the plan gives the reason."""
    asked = parse_options(ScanToFilesOptions, {"table": "t", "dest": "d"})
    sample = Sample(SCHEMA, 100, 200.0, 5.0, complete=False)
    made = plan_scan(_facts(1024**4, 10**9), sample, asked, Resources(2, None, can_start_spark=False))
    assert made.engine == "local"
    assert "pip install 'ddbio[spark]'" in made.engine_reason


def test_reading_into_arrow_is_local():
    """Options without an engine run in this process, in one task."""
    asked = parse_options(ScanOptions, {"table": "t"})
    made = plan_scan(_facts(1024**4, 10**9), Sample(SCHEMA, 1, 200.0, 1.0, complete=False), asked, Resources(2, 8))
    assert (made.engine, made.tasks) == ("local", 1)


@given(st.integers(1, 3000), st.integers(1, 64))
def test_groups_cover_every_segment_once(segments, tasks):
    """The tasks read each segment exactly once, in an order that separates neighbours."""
    made = _plan(1024**3, spark=tasks, segments=segments)
    read = [segment for group in made.groups() for segment in group]
    assert sorted(read) == list(range(segments))
    assert all(made.groups())


@given(st.integers(1, 5000))
def test_spread_order_is_a_permutation(count):
    """Every number occurs once."""
    assert sorted(spread_order(count)) == list(range(count))


def test_small_budgets_bound_the_page():
    """Below 2,560 units per second, a page costs at most 5 % of the budget; above, it is not limited."""
    assert _plan(300 * MIB, rcu_per_second=400).page_limit == 819
    assert _plan(300 * MIB, rcu_per_second=4000).page_limit is None


def test_budget_from_ratio():
    """A ratio applies to the rate of the table, or of the global index."""
    index = IndexDescription("g", is_global=True, key_names=("k",), item_count=1, size_bytes=1, rcu=50.0)
    asked = parse_options(ScanOptions, {"table": "t", "read_ratio": 0.5})
    assert budget_of(_facts(rcu=100.0), asked) == 50.0
    asked = parse_options(ScanOptions, {"table": "t", "read_ratio": 0.5, "index": "g"})
    assert budget_of(_facts(rcu=100.0, indexes=(index,)), asked) == 25.0


def test_ratio_needs_a_rate():
    """A ratio of an unlimited on-demand table is refused, and the message suggests an absolute rate."""
    with pytest.raises(OptionError, match="give rcu_per_second instead"):
        budget_of(_facts(), parse_options(ScanOptions, {"table": "t", "read_ratio": 0.5}))


def test_unknown_index_is_refused_with_the_known_ones():
    """The message lists the existing indexes."""
    index = IndexDescription("by_date", is_global=True, key_names=("d",), item_count=0, size_bytes=0)
    table = _facts(indexes=(index,))
    with pytest.raises(OptionError, match="it has: by_date"):
        check_scan(table, parse_options(ScanOptions, {"table": "t", "index": "nope"}))
    with pytest.raises(OptionError, match="strongly consistent"):
        check_scan(table, parse_options(ScanOptions, {"table": "t", "index": "by_date", "consistent": True}))


def test_a_plan_goes_by_the_capacity_of_the_table():
    """651 units of a table with 20 units per second take half a minute, even with a larger budget."""
    made = _plan(651 * 2 * 4096, rcu=20, rcu_per_second=5000)
    assert made.estimated_units == pytest.approx(651, rel=0.01)
    assert made.estimated_seconds == pytest.approx(32.5, rel=0.02)
    assert (made.limited_by, made.table_rcu, made.on_demand) == ("the provisioned capacity", 20, False)


def test_a_provisioned_table_is_shared_with_its_application():
    """By default, a job uses half of a provisioned table's rate; an on-demand table has no limit."""
    made = _plan(651 * 2 * 4096, rcu=20)
    assert made.rcu_per_second == 10
    assert made.estimated_seconds == pytest.approx(65, rel=0.05)
    assert made.limited_by == "the budget"
    assert _plan(MIB, rcu=20, read_ratio=1.0).rcu_per_second == 20
    assert _plan(MIB).rcu_per_second is None


def test_a_plan_names_what_limits_it():
    """A low budget, a new on-demand table, and the requests in flight are each reported as bottleneck."""
    assert _plan(1024**3, rcu_per_second=100, engine="local").limited_by == "the budget"
    assert _plan(64 * 1024**3, engine="local", lanes=1024, cores=64).limited_by == "an on-demand table"
    assert _plan(64 * 1024**3, engine="local", lanes=1, cores=64).limited_by == "requests in flight"


def test_a_plan_in_json_has_units_requests_seconds_and_usd():
    """The JSON for scripts has the totals, and each line with quantity, unit and price."""
    cost = Cost((CostLine("reads", 131_072.0, "RRU", 0.016384),), ("a note",))
    made = replace(_plan(1024**3, engine="local"), cost=cost).to_dict()
    assert made["units"] == pytest.approx(131_072, rel=0.005)
    assert made["requests"] >= 1024
    assert made["seconds"] > 1
    assert made["usd"] == 0.016384
    assert made["lines"] == [{"what": "reads", "quantity": 131_072.0, "unit": "RRU", "usd": 0.016384}]
    assert made["notes"] == ["a note"]
    assert _plan(1024**3, rcu=100, engine="local").to_dict()["usd"] is None


def test_a_sample_takes_its_part_of_what_the_table_serves():
    """A sample of 100 units takes two seconds of a table with 50 per second, even with a larger budget."""
    sample = Sample(SCHEMA, 1000, 1000.0, 100.0, complete=False)
    asked = ScanOptions(table="t", rcu_per_second=500.0)
    made = plan_scan(_facts(8 * 2**20, 8_000, rcu=50.0), sample, asked, Resources(2))
    assert made.seconds == pytest.approx((made.estimated_units + 100) / 50 + START_SECONDS)


def test_a_limited_scan_costs_what_its_items_cost():
    """Ten items of 200 bytes are one page, regardless of the table's size."""
    assert _plan(1024**3, limit=10).estimated_units == 0.5
