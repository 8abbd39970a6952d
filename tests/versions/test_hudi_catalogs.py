"""Hudi tables by name: in a real Hive metastore, by Hudi's sync, and by our definition for Glue.

A second Spark, which knows only the metastore, reads the names.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import ddbio
from ddbio.catalog.definition import TableName
from ddbio.catalog.lake import hudi_input, hudi_partitions
from ddbio.errors import EndpointError, OptionError, TargetError
from ddbio.formats.lake_columns import BUCKET
from ddbio.lake_formats.hudi import HudiLakeTable
from ddbio.spark.hudi_catalog import spark_schema
from ddbio.storage.local_store import LocalStore
from tests.lake.virtual_log import VirtualLog, Writer, columns, expected, items_of
from tests.versions.catalog_servers import hive_metastore
from tests.versions.conftest import CONF
from tests.versions.jars import fetch

NAME = "hive://shop.orders"
GIVEN = {"format": "hudi", "engine": "spark", "buckets": 3}
READER = """
import json, sys
from pyspark.sql import SparkSession
conf, queries = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[1]").enableHiveSupport()
for name, value in conf.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
print(json.dumps([[row.asDict(recursive=True) for row in session.sql(query).collect()] for query in queries]))
"""


@pytest.fixture(scope="module")
def metastore(tmp_path_factory):
    """Return the URI of a Hive metastore."""
    with hive_metastore(tmp_path_factory.mktemp("names")) as uri:
        yield uri


@pytest.fixture
def session(metastore, need):
    """Return the session, which knows the metastore."""
    session = need("hudi")
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("hive.metastore.uris", metastore)
    yield session
    hadoop.unset("hive.metastore.uris")


@pytest.fixture
def client(session):
    """Return a client of the metastore. At the end its tables are dropped, and their files remain."""
    hive = session._jvm.org.apache.hadoop.hive
    conf = hive.conf.HiveConf(session.sparkContext._jsc.hadoopConfiguration(), hive.conf.HiveConf().getClass())
    client = hive.metastore.HiveMetaStoreClient(conf)
    yield client
    for name in client.getAllTables("shop"):
        client.dropTable("shop", name, False, True)
    client.close()


def read_by_name(metastore, folder, *queries):
    """Return the rows that a separate Spark reads for each query."""
    conf = {name: value for name, value in CONF["hudi"].items() if "driver" not in name}
    conf["spark.jars"] = ",".join(map(str, fetch("hudi")[0]))
    conf |= {"spark.hadoop.hive.metastore.uris": metastore, "spark.ui.enabled": "false"}
    words = [sys.executable, "-c", READER, json.dumps([conf, queries])]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_each_run_is_read_by_name(session, client, metastore, tmp_path):
    """Runs register the table, its new columns and new partitions. Another Spark reads all rows by name."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(41), tmp_path / "lake"
    for attributes in (), ("a", "A"):
        if attributes:
            log.declare(columns(*attributes))
        log.append(writer.batch(attributes))
        ddbio.apply(tmp_path / "log", lake, catalog=NAME, **GIVEN)
    table, state = client.getTable("shop", "orders"), HudiLakeTable(LocalStore(lake)).load()
    assert table.getParameters()["spark.sql.sources.provider"] == "hudi"
    assert table.getSd().getInputFormat() == "org.apache.hudi.hadoop.HoodieParquetInputFormat"
    partitions = {int(partition.getValues()[0]) for partition in client.listPartitions("shop", "orders", 100)}
    assert partitions == {file.bucket for file in state.files}
    rows, counted = read_by_name(
        metastore, tmp_path, "SELECT * FROM shop.orders", "SELECT _b, count(*) n FROM shop.orders GROUP BY _b"
    )
    names = {
        field.name: (field.metadata or {}).get(b"ddb:name", field.name.encode()).decode() for field in state.schema
    }
    own = [{name: value for name, value in row.items() if not name.startswith("_hoodie_")} for row in rows]
    assert items_of(own, names) == expected(log.model())
    assert sum(row["n"] for row in counted) == len(rows)
    assert ddbio.maintain(lake, format="hudi", engine="spark", sort_by=["n"], catalog=NAME).written_files > 0
    newest = HudiLakeTable(LocalStore(lake)).timeline()[-1].number
    assert client.getTable("shop", "orders").getParameters()["last_commit_time_sync"] == str(newest)


def test_a_failed_registration_merges_nothing(session, client, metastore, tmp_path):
    """A name of another table, an invalid one, and a metastore that does not answer end a run before it merges."""
    log = VirtualLog(LocalStore(tmp_path / "log"))
    log.append(Writer(42).batch())
    ddbio.apply(tmp_path / "log", tmp_path / "first", catalog=NAME, **GIVEN)
    second = tmp_path / "second"
    with pytest.raises(TargetError, match=r"hive://shop\.orders is the table of .*first"):
        ddbio.apply(tmp_path / "log", second, catalog=NAME, **GIVEN)
    with pytest.raises(OptionError, match="names no table of Hive"):
        ddbio.apply(tmp_path / "log", second, catalog="hive://shop", **GIVEN)
    with pytest.raises(OptionError, match="is for Hudi tables, but this table is delta"):
        ddbio.apply(tmp_path / "log", second, catalog=NAME)
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("hive.metastore.uris", "thrift://127.0.0.1:9")
    with pytest.raises(EndpointError, match=r"the metastore at thrift://127\.0\.0\.1:9: does not answer"):
        ddbio.apply(tmp_path / "log", second, catalog=NAME, **GIVEN)
    hadoop.unset("hive.metastore.uris")
    with pytest.raises(OptionError, match="knows no Hive metastore"):
        ddbio.apply(tmp_path / "log", second, catalog=NAME, **GIVEN)
    assert not (second / ".hoodie").exists()
    assert client.getTable("shop", "orders").getSd().getLocation().endswith("/first")


def test_our_definition_is_that_of_the_sync(session, client, metastore, tmp_path):
    """Our definition for Glue equals that of Hudi's sync, and Spark reads the table by it alone."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(43), tmp_path / "lake"
    log.declare(columns("a", "A", "b c"))
    log.append(writer.batch(("a", "A", "b c")))
    ddbio.apply(tmp_path / "log", lake, catalog=NAME, **GIVEN)
    state, synced = HudiLakeTable(LocalStore(lake)).load(), client.getTable("shop", "orders")
    ours = hudi_input(TableName("shop", "ours"), state.schema, BUCKET, str(lake), spark_schema(state.schema))
    theirs, parameters = dict(synced.getParameters()), dict(ours["Parameters"])
    part = "spark.sql.sources.schema.part.0"
    assert json.loads(theirs.pop(part)) == json.loads(parameters.pop(part))
    assert parameters.pop("created_by") == "ddbio"
    assert parameters.items() <= theirs.items()
    storage, serde = ours["StorageDescriptor"], synced.getSd().getSerdeInfo()
    assert [(column.getName(), column.getType()) for column in synced.getSd().getCols()] == [
        (column["Name"], column["Type"]) for column in storage["Columns"]
    ]
    assert dict(serde.getParameters()) == storage["SerdeInfo"]["Parameters"]
    assert serde.getSerializationLib() == storage["SerdeInfo"]["SerializationLibrary"]
    assert synced.getSd().getOutputFormat() == storage["OutputFormat"]
    # The metastore accepts the definition for Glue.
    made = session._jvm.org.apache.hadoop.hive.metastore.api.Table(synced)
    made.setTableName("ours")
    made.setParameters(session._jvm.java.util.HashMap(ours["Parameters"]))
    client.createTable(made)
    partitions = hudi_partitions(ours, (str(file.bucket) for file in state.files))
    synced_storage = {
        tuple(partition.getValues()): partition.getSd() for partition in client.listPartitions("shop", "orders", 100)
    }
    assert {values: partition["StorageDescriptor"]["Location"] for values, partition in partitions.items()} == {
        values: storage_of_partition.getLocation().removeprefix("file:")
        for values, storage_of_partition in synced_storage.items()
    }
    rows, other = read_by_name(metastore, tmp_path, "SELECT _key, a FROM shop.ours", "SELECT _key, a FROM shop.orders")
    assert len(rows) == len({change.key for change in log.batches[0]})
    assert sorted(map(str, rows)) == sorted(map(str, other))
