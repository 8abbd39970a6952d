"""Schedules of lake tables, as in ``tests/ops/lake``, with merges by Spark's own tasks, whose workers die, too."""

from __future__ import annotations

import pytest

from ddbio.ops.lake.merging import SpreadMerging
from ddbio.spark.engine import SparkEngine
from tests.ops.lake.test_schedules import count_of, sweep


@pytest.fixture(scope="module")
def merging(spark):
    """Return what makes a merging on the session of all tests."""
    assert spark.version
    engine = SparkEngine(None, {})
    yield lambda: SpreadMerging(engine)
    engine.close()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_equals_the_model_whatever_happens(kind, merging):
    """At each version of the table the live rows are the newest states of the batches that the version has."""
    sweep(range(3), kind, merging, fates=True)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_many_schedules(kind, merging):
    """The same for 20 schedules of each format, or for as many as ``DDBIO_LAKE_SCHEDULES`` says."""
    sweep(range(1000, 1000 + count_of(20)), kind, merging, fates=True)
