"""Lake tables merged by Spark's tasks: the table equals the model, regardless of the next engine."""

from __future__ import annotations

import deltalake
import pytest
from pyiceberg.table import StaticTable

import ddbio
from ddbio.errors import SchemaError
from ddbio.spark import apply_batch, register
from ddbio.storage.local_store import LocalStore
from tests.lake.virtual_log import VirtualLog, Writer, is_deleted


def live(folder, kind):
    """Return the number of each live item by its key, without those in the rescue column."""
    if kind == "delta":
        table = deltalake.DeltaTable(folder).to_pyarrow_table()
    else:
        newest = (folder / "metadata/version-hint.text").read_text()
        table = StaticTable.from_metadata(str(folder / f"metadata/v{newest}.metadata.json")).scan().to_arrow()
    return {row["pk"]: row["n"] for row in table.to_pylist() if not is_deleted(row)}


def expected(log):
    """Return the same for the model."""
    return {key: (change.item or {}).get("n") for key, change in log.model().items()}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_by_either_engine(kind, spark, tmp_path):
    """Spark and this process alternate in merging batches with late and repeated changes and new attributes."""
    assert spark.version
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(11), tmp_path / "lake"
    for number, engine in enumerate(["spark", "local", "spark"]):
        for _ in range(2):
            log.append(writer.batch(("a", "A")[:number]))
        report = ddbio.apply(tmp_path / "log", lake, format=kind, engine=engine, buckets=3)
        assert report.changes == report.inserted + report.updated + report.deleted + report.stale
        assert report.changes == sum(map(len, log.batches[-2:]))
        assert live(lake, kind) == expected(log)
    assert ddbio.apply(tmp_path / "log", lake, format=kind, engine="spark").changes == 0


def test_micro_batches_once_each(spark, tmp_path):
    """A stream over the log merges each micro-batch once, even if it is repeated. Frames are merged too."""
    register(spark)
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(5), tmp_path / "lake"
    for _ in range(3):
        log.append(writer.batch())
    merge = apply_batch(str(lake), key=["pk"], buckets=2)
    seen = []

    def twice(frame, number):
        seen.append(number)
        merge(frame, number)
        before = deltalake.DeltaTable(lake).version()
        merge(frame, number)
        assert deltalake.DeltaTable(lake).version() == before

    source = spark.readStream.format("dynamodb-log").option("maxRecordsPerBatch", 5)
    stream = source.load(str(tmp_path / "log")).writeStream.foreachBatch(twice)
    query = stream.option("checkpointLocation", str(tmp_path / "place")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.exception() is None
    table = deltalake.DeltaTable(lake)
    assert table.transaction_version(f"ddbio/0/rows/{query.id}") == len(seen) >= 1
    assert live(lake, "delta") == expected(log)
    frame = spark.createDataFrame([(1, "k|0", 7)], "_sequence long, pk string, n long")
    with pytest.raises(SchemaError, match="no column _event_time"):
        ddbio.apply(frame, lake)
    all_columns = frame.selectExpr("_sequence", "pk", "n", "timestamp'2026-11-01 00:00:00' as _event_time")
    for engine in ("spark", "local"):
        report = ddbio.apply(all_columns, tmp_path / engine, key=["pk"], engine=engine)
        assert (report.changes, report.inserted) == (1, 1)
        assert live(tmp_path / engine, "delta") == {"k|0": 7}
    bad = all_columns.selectExpr("_sequence", "cast(null as string) as pk", "n", "_event_time")
    with pytest.raises(SchemaError, match="pk is missing"):
        ddbio.apply(bad, tmp_path / "spark", engine="spark")
