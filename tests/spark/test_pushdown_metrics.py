"""Spark's UI shows the reads of the tasks of ``dynamodb-pushdown``, and their cost."""

from __future__ import annotations

import json

import pytest

from ddbio.spark.javac import find_javac

pytestmark = pytest.mark.skipif(find_javac() is None, reason="no JDK compiles the jar of push-down")

COUNT, COLLECTIONS, ODD = 3_000, 30, 7


@pytest.fixture(scope="module")
def table(fake):
    """Return a table of item collections, in which some values fit no column."""
    items = (
        {
            "pk": {"S": f"k{number % COLLECTIONS}"},
            "sk": {"N": str(number)},
            "n": {"S": "odd"} if number < ODD else {"N": str(number)},
            "pad": {"S": "p" * 700},
        }
        for number in range(COUNT)
    )
    fake.load("shown", (json.dumps(item) for item in items), "pk:S,sk:N")
    return "shown"


@pytest.fixture
def units(fake, table):
    """Return a function that returns the read units since its last call."""
    before = 0.0

    def since():
        nonlocal before
        total = sum(read for _, read, _ in fake.consumed(table))
        difference, before = total - before, total
        return difference

    return since


def metrics_of(spark):
    """Return description and value of each metric of the last query."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(250_000)
    store = spark._jsparkSession.sharedState().statusStore()
    queries = store.executionsList()
    last = max((queries.apply(at) for at in range(queries.size())), key=lambda query: query.executionId())
    values = store.executionMetrics(last.executionId())
    names = {
        metric.accumulatorId(): metric.name() for metric in map(last.metrics().apply, range(last.metrics().size()))
    }
    return [(name, values.apply(number)) for number, name in names.items() if values.contains(number)]


def test_metrics_of_a_query(spark, fake, table, units):
    """Items, bytes, units, throttles and rescued rows are those of the query, over all of its tasks."""
    frame = spark.read.format("dynamodb-pushdown").options(endpointUrl=fake.endpoint_url, tasks="2").load(table)
    units()
    rows = frame.select("pk", "_rescue").collect()
    metrics = dict(metrics_of(spark))
    assert sum(row["_rescue"] is not None for row in rows) == ODD
    assert metrics["items read"] == f"{COUNT:,}"
    assert metrics["rows with rescued values"] == str(ODD)
    assert metrics["throttled requests"] == "0"
    assert float(metrics["read units consumed"].replace(",", "")) == pytest.approx(units(), abs=0.06)
    assert int(metrics["bytes received"].replace(",", "")) > COUNT * 700
    # Spark's own metrics still exist.
    assert "data returned from Python workers" in metrics

    assert frame.where("pk = 'k1'").count() == COUNT // COLLECTIONS
    metrics = dict(metrics_of(spark))
    assert metrics["items read"] == str(COUNT // COLLECTIONS)
    assert float(metrics["read units consumed"]) == pytest.approx(units(), abs=0.06)


def test_a_task_that_ends_early(spark, fake, table, units):
    """Reads also count if Spark needs no more rows: a limit ends the task before its segment."""
    frame = spark.read.format("dynamodb-pushdown").options(endpointUrl=fake.endpoint_url).load(table)
    units()
    assert len(frame.where("upper(pk) like 'K%'").limit(3).collect()) == 3
    metrics = dict(metrics_of(spark))
    assert 3 <= int(metrics["items read"].replace(",", "")) <= COUNT
    assert 0 < float(metrics["read units consumed"].replace(",", "")) <= units() + 0.06


def test_tables_side_by_side(spark, fake, table, units):
    """Two scans in one task count their own items, over all of their partitions."""
    frame = spark.read.format("dynamodb-pushdown").options(endpointUrl=fake.endpoint_url).load(table)
    one, other = frame.where("pk = 'k1'").select("sk"), frame.where("pk in ('k2', 'k3')").select("sk")
    assert one.union(other).coalesce(1).count() == 3 * COUNT // COLLECTIONS
    read = [int(value) for name, value in metrics_of(spark) if name == "items read"]
    assert sorted(read) == [COUNT // COLLECTIONS, 2 * COUNT // COLLECTIONS]
