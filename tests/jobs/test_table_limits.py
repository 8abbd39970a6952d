"""Capacity of tables, partitions and indexes for plans and simulations."""

from __future__ import annotations

import dataclasses
import math

import pytest

from ddbio.aws.table_description import IndexDescription, TableDescription
from ddbio.jobs.table_limits import TableLimits, largest_share, limits_of

TABLE = TableDescription(
    name="orders", arn="orders", table_id="", status="ACTIVE", key_types=(("pk", "S"),), item_count=0, size_bytes=0,
    on_demand=True,
)  # fmt: skip


def test_partitions_follow_from_size_capacity_and_warm_throughput():
    """The largest requirement determines the number; a new on-demand table has four."""
    assert limits_of(TABLE, "reads").partitions == 4
    assert limits_of(dataclasses.replace(TABLE, size_bytes=10**12), "reads").partitions == 100
    assert limits_of(dataclasses.replace(TABLE, warm_rcu=30_000, warm_wcu=1_000), "writes").partitions == 10
    provisioned = dataclasses.replace(TABLE, on_demand=False, rcu=6_000.0, wcu=3_500.0)
    assert limits_of(provisioned, "reads").partitions == 6


def test_a_provisioned_table_serves_its_rate_and_its_savings():
    """Burst shortens a job, but never below the time of its partitions."""
    limits = TableLimits(2, 1_000.0, table_rate=500.0, burst_seconds=300.0)
    assert limits.serves(200_000) == (400.0, 100.0, False)
    assert limits.serves(100_000).burst_seconds == 50.0
    assert TableLimits(1, 1_000.0).serves(5_000, largest_share=0.0) == (5.0, 5.0, True)


def test_an_on_demand_table_doubles_every_half_hour():
    """The rate starts at 4,000 units per second and grows up to the quota of 40,000."""
    limits = limits_of(TABLE, "writes")
    assert limits.serves(4_000).lasting_seconds == pytest.approx(1.0, rel=1e-3)
    doubled = 4_000 * 1_800 / math.log(2)
    assert limits.serves(doubled).lasting_seconds == pytest.approx(1_800)
    at_most = limits.serves(10**10).lasting_seconds - limits.serves(10**10 - 40_000).lasting_seconds
    assert at_most == pytest.approx(1.0, rel=1e-3)


def test_an_index_has_its_own_rate():
    """Its size, capacity and warm throughput count, not those of the table. A local index has those of the table."""
    indexes = (
        IndexDescription("all", is_global=True, key_names=("kind",), item_count=0, size_bytes=0, wcu=5.0),
        IndexDescription("local", is_global=False, key_names=("pk", "at"), item_count=0, size_bytes=0),
    )
    table = dataclasses.replace(TABLE, on_demand=False, rcu=10.0, wcu=2_000.0, indexes=indexes)
    assert limits_of(table, "writes", "all").table_rate == 5.0
    assert limits_of(table, "writes", "local").table_rate == 2_000.0


def test_few_keys_make_a_partition_hot():
    """One key is one partition. Three keys may share one of four partitions by chance. Many keys are even."""
    assert largest_share([1.0], 4) == 1.0
    assert 0.4 < largest_share([1 / 3] * 3, 4) < 0.6
    assert largest_share([0.001] * 100, 4) == pytest.approx(0.25, abs=0.03)
    assert largest_share([], 4) == 0.0
