"""Schedules of lake tables, as in ``tests/ops/lake``, with merges by Spark's own tasks, whose workers also die."""

from __future__ import annotations

import pytest

from ddbio.lake.merging import SpreadMerging
from ddbio.spark.engine import SparkEngine
from tests.lake.test_schedules import sweep


@pytest.fixture
def merging(spark):
    """Return a factory of mergings on the session of all tests."""
    engine = SparkEngine(None, {})
    yield lambda: SpreadMerging(engine)
    engine.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_equals_the_model_after_any_schedule(kind, merging, seeds):
    """At each version of the table the live rows are the newest states of the version's batches."""
    sweep(seeds(2, 20), kind, merging, fates=True)
