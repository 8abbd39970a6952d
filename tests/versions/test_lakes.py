"""Delta and Iceberg tables as read by Spark with the formats' jars: the same rows at each version."""

from __future__ import annotations

import shutil

import pytest

import ddbio
from ddbio.lake.options import ApplyOptions
from ddbio.lake_formats.registry import open_lake_table
from ddbio.storage.local_store import LocalStore
from tests.lake.virtual_log import VirtualLog, Writer, columns, expected, is_deleted, items_of

POSITION = "ddbio/0/job/1000"
ATTRIBUTES = ("a", "A", "b c")


@pytest.fixture
def lakes(need):
    """Return the session, which has the jars of Delta and Iceberg."""
    return need("lakes")


def table_at(folder, kind):
    """Return our own view of a table."""
    return open_lake_table(str(folder), kind, ApplyOptions(source="log", table=str(folder)))


def reader_of(session, kind, folder, **options):
    """Return the rows that a format's jar reads in a folder."""
    rows = session.read.format(kind).options(**options).load(str(folder)).collect()
    return [row.asDict(recursive=True) for row in rows]


def names_of(state):
    """Return the attribute of each column."""
    fields = state.schema
    return {field.name: (field.metadata or {}).get(b"ddb:name", field.name.encode()).decode() for field in fields}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
@pytest.mark.parametrize(("kind", "engine"), [("delta", "local"), ("delta", "spark"), ("iceberg", "local")])
def test_spark_reads_every_version(kind, engine, seed, lakes, tmp_path):
    """Rows read by Spark with the format's jar equal the model now, and by time travel at each version."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(seed), tmp_path / "lake"
    for number in range(3):
        attributes = ATTRIBUTES[: number + 1]
        if number == 1:
            log.declare(columns(*attributes))
        for _ in range(2):
            log.append(writer.batch(attributes))
        ddbio.apply(tmp_path / "log", lake, format=kind, engine=engine, buckets=3)
    table = table_at(lake, kind)
    newest = table.load()
    names = names_of(newest)
    assert items_of(reader_of(lakes, kind, lake), names) == expected(log.model())
    seen = 0
    for version in range(newest.version + 1):
        if kind == "iceberg" and (version == 0 or table.load(version).handle.current_snapshot() is None):
            continue
        state = table.load(version)
        options = {"versionAsOf": str(version)}
        if kind == "iceberg":
            options = {"versionAsOf": str(state.handle.current_snapshot().snapshot_id)}
        rows = reader_of(lakes, kind, lake, **options)
        assert items_of(rows, names) == expected(log.model(table.position(state, POSITION)))
        seen += 1
    assert seen >= 3


def test_iceberg_by_a_catalog_of_folders(lakes, tmp_path):
    """Spark's ``hadoop`` catalog finds our table by its hint, and an old hint still leads to the newest metadata."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(4), tmp_path / "house/db/orders"
    lakes.conf.set("spark.sql.catalog.house", "org.apache.iceberg.spark.SparkCatalog")
    lakes.conf.set("spark.sql.catalog.house.type", "hadoop")
    lakes.conf.set("spark.sql.catalog.house.warehouse", str(tmp_path / "house"))
    lakes.conf.set("spark.sql.catalog.house.cache-enabled", "false")
    for number in range(2):
        log.append(writer.batch())
        ddbio.apply(tmp_path / "log", lake, format="iceberg", buckets=2)
        names = names_of(table_at(lake, "iceberg").load())
        rows = [row.asDict(recursive=True) for row in lakes.table("house.db.orders").collect()]
        assert items_of(rows, names) == expected(log.model())
        if number == 0:
            # A run that died between metadata and hint.
            shutil.copy(lake / "metadata/version-hint.text", tmp_path / "hint")
    shutil.copy(tmp_path / "hint", lake / "metadata/version-hint.text")
    rows = [row.asDict(recursive=True) for row in lakes.table("house.db.orders").collect()]
    assert items_of(rows, names) == expected(log.model())


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_spark_reads_a_base_load(kind, lakes, fake, tmp_path):
    """Files of a first load, which lack the numbers of Iceberg's columns, are read by names."""
    fake.load("based", [{"pk": {"S": f"k{n}"}, "n": {"N": str(n)}} for n in range(50)], "pk:S")
    options = {"endpoint_url": fake.endpoint_url, "region": "eu-west-1", "mode": "overwrite"}
    ddbio.scan_to_files("based", tmp_path / "lake", format=kind, **options)
    rows = [row for row in reader_of(lakes, kind, tmp_path / "lake") if not is_deleted(row)]
    assert {row["pk"]: int(row["n"]) for row in rows} == {f"k{n}": n for n in range(50)}


def test_merge_by_the_rule_of_versions(lakes, tmp_path):
    """Spark's ``MERGE`` may write a Delta table of ours, and then both engines can continue."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(8), tmp_path / "lake"
    log.append(writer.batch())
    ddbio.apply(tmp_path / "log", lake, buckets=2)
    # Rows of the second batch, as a table in another folder has them.
    log.append(writer.batch())
    ddbio.apply(tmp_path / "log", tmp_path / "other", buckets=2)
    lakes.read.format("delta").load(str(tmp_path / "other")).createOrReplaceTempView("changes")
    lakes.sql(f"""
        MERGE INTO delta.`{lake}` t USING changes s ON t._b = s._b AND t._key = s._key
        WHEN MATCHED AND s._ver > t._ver THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
    """)
    names = names_of(table_at(lake, "delta").load())
    assert items_of(reader_of(lakes, "delta", lake), names) == expected(log.model())
    log.append(writer.batch())
    ddbio.apply(tmp_path / "log", lake)
    assert items_of(reader_of(lakes, "delta", lake), names) == expected(log.model())
