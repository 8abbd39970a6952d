"""Assignment of a load's units to tasks, and the serialized size of a task."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddbio.aws.table_description import TableDescription
from ddbio.load.load import assign_units
from ddbio.load.options import LoadOptions
from ddbio.load.plan import SPARK_BYTES, SourceDescription, plan_load, plan_write
from ddbio.load.sources import Unit
from ddbio.options import parse_options
from ddbio.scan.plan import Resources
from ddbio.storage.staged import StoredObject

FACTS = TableDescription("rows", "arn", "id", "ACTIVE", (("pk", "S"),), 0, 0, on_demand=True)


def units_of(sizes):
    """Return units of these sizes."""
    return [Unit(number, StoredObject(f"{number}.parquet", size), 0, size) for number, size in enumerate(sizes)]


@settings(deadline=None)
@given(st.lists(st.integers(1, 1000), max_size=60), st.integers(1, 9))
def test_every_unit_is_dealt_once_and_evenly(sizes, tasks):
    """Each task has units in order, none is empty, and no task has more than its share plus one unit."""
    units = units_of(sizes)
    dealt = assign_units(units, tasks)
    assert sorted((unit for part in dealt for unit in part), key=lambda unit: unit.number) == units
    assert all(part and list(part) == sorted(part, key=lambda unit: unit.number) for part in dealt)
    assert len(dealt) == min(tasks, len(units))
    for part in dealt:
        assert sum(unit.size_bytes for unit in part) <= sum(sizes) / len(dealt) + max(sizes)


def test_a_task_carries_its_own_units_only():
    """A task of few units is small for any total number of units."""
    dealt = assign_units(units_of([100] * 5000), 1000)
    assert len(pickle.dumps(dealt[0])) < 2000


@pytest.mark.parametrize(
    ("size", "options", "spark", "engine", "key_partitions"),
    [
        (SPARK_BYTES, {}, True, "spark", 32),
        (SPARK_BYTES, {"unique_keys": True}, True, "spark", None),
        (SPARK_BYTES, {"mode": "delete"}, True, "spark", None),
        (SPARK_BYTES, {"newer_by": "v"}, True, "spark", None),
        (SPARK_BYTES, {"operation_by": "op"}, True, "spark", 32),
        (SPARK_BYTES, {"wcu_per_second": 20_000}, True, "local", None),
        (SPARK_BYTES, {"engine": "local"}, True, "local", None),
        (SPARK_BYTES, {}, False, "local", None),
        (SPARK_BYTES - 1, {}, True, "local", None),
        (1, {"engine": "spark"}, True, "spark", 1),
        (1, {"engine": "spark", "tasks": 7, "mode": "update"}, True, "spark", 7),
    ],
)
def test_size_budget_and_order_choose_the_engine(size, options, spark, engine, key_partitions):
    """Spark is used if one process is not enough, and rows are shuffled if their order matters."""
    asked = parse_options(LoadOptions, {"source": "s", "table": "rows", **options})
    source = SourceDescription(1, 1, size, None, exact=False, row_units=None, columns=())
    plan = plan_load(asked, plan_write(FACTS, asked), FACTS, source, Resources(2, None, spark))
    assert (plan.engine, plan.key_partitions) == (engine, key_partitions)
    assert plan.estimated_seconds is None
