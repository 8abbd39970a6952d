"""Lake tables in Iceberg's REST catalog and in Hive's metastore: other readers find our registered tables by name.

The readers are Spark, with Iceberg's jar, and pyiceberg, at each snapshot.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from pyiceberg.catalog import load_catalog

import ddbio
from ddbio.errors import EndpointError, OptionError, TargetError
from ddbio.lake.options import ApplyOptions
from ddbio.lake_formats.registry import open_lake_table
from ddbio.storage.local_store import LocalStore
from tests.lake.test_maintain import aged
from tests.lake.virtual_log import VirtualLog, Writer, columns, expected, items_of
from tests.versions.catalog_servers import hive_metastore, rest_catalog
from tests.versions.jars import fetch

POSITION = "ddbio/0/job/1000"
NAME = "iceberg://real/shop.orders"


@pytest.fixture(scope="module", params=["rest", "hive"])
def served(request, need, tmp_path_factory):
    """Return a kind of catalog, and its URI."""
    need("lakes")
    folder = tmp_path_factory.mktemp("names")
    if request.param == "rest":
        need("catalogs")
        catalog = rest_catalog(fetch("catalogs")[0], folder)
    else:
        catalog = hive_metastore(folder)
    with catalog as uri:
        yield request.param, uri


@pytest.fixture
def session(served, need, monkeypatch):
    """Return the session, which has the catalog under the name of its kind. ddbio has it as ``real``."""
    kind, uri = served
    monkeypatch.setenv("PYICEBERG_CATALOG__REAL__TYPE", kind)
    monkeypatch.setenv("PYICEBERG_CATALOG__REAL__URI", uri)
    session = need("lakes")
    session.conf.set(f"spark.sql.catalog.{kind}", "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set(f"spark.sql.catalog.{kind}.type", kind)
    session.conf.set(f"spark.sql.catalog.{kind}.uri", uri)
    session.conf.set(f"spark.sql.catalog.{kind}.cache-enabled", "false")
    session.sql(f"USE {kind}")
    yield session
    session.sql("USE spark_catalog")


@pytest.fixture
def client(served):
    """Return another program's client. At the end the registered tables are dropped, and their files remain."""
    kind, uri = served
    catalog = load_catalog("other", type=kind, uri=uri)
    yield catalog
    for namespace in catalog.list_namespaces():
        for name in catalog.list_tables(namespace):
            catalog.drop_table(name)


def newest_of(folder):
    """Return the newest state of a table in its folder."""
    return table_at(folder).load()


def table_at(folder):
    """Return our own view of a table."""
    return open_lake_table(str(folder), "iceberg", ApplyOptions(source="log", table=str(folder)))


def names_of(state):
    """Return the attribute of each column."""
    fields = state.schema
    return {field.name: (field.metadata or {}).get(b"ddb:name", field.name.encode()).decode() for field in fields}


def rows_of(session, suffix=""):
    """Return the rows that Spark reads by name, now or at a snapshot."""
    rows = session.sql(f"SELECT * FROM shop.orders {suffix}").collect()
    return [row.asDict(recursive=True) for row in rows]


def test_each_run_is_read_by_name(session, client, tmp_path):
    """Runs register the table, and commit snapshots, columns and properties. All readers by name have them."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(31), tmp_path / "lake"
    for attributes, engine in ((), "local"), (("a",), "spark"), (("a", "A", "b c"), "local"):
        if attributes:
            log.declare(columns(*attributes))
        for _ in range(2):
            log.append(writer.batch(attributes))
        ddbio.apply(tmp_path / "log", lake, format="iceberg", engine=engine, buckets=2, catalog=NAME)
        names = names_of(newest_of(lake))
        assert items_of(rows_of(session), names) == expected(log.model())
        read = client.load_table("shop.orders").scan().to_arrow().to_pylist()
        assert items_of(read, names) == expected(log.model())
    table, state = table_at(lake), newest_of(lake)
    named, seen = client.load_table("shop.orders"), 0
    assert named.properties == state.properties
    assert [snapshot.snapshot_id for snapshot in named.snapshots()] == [
        snapshot.snapshot_id for snapshot in state.handle.snapshots()
    ]
    for version in range(1, state.version + 1):
        then = table.load(version)
        snapshot = then.handle.current_snapshot()
        if snapshot is not None:
            rows = rows_of(session, f"VERSION AS OF {snapshot.snapshot_id}")
            assert items_of(rows, names) == expected(log.model(table.position(then, POSITION)))
            seen += 1
    assert seen >= 3


def test_a_base_and_changes_by_one_command(session, client, fake, tmp_path):
    """``bootstrap`` registers its base and the applied changes. ``verify`` and Spark find the table equal."""
    shop = tmp_path.name  # one for each catalog
    options = {"endpoint_url": fake.endpoint_url, "region": "eu-west-1"}
    dynamodb = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name="eu-west-1")
    dynamodb.create_table(
        TableName=shop,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    for number in range(20):
        dynamodb.put_item(TableName=shop, Item={"pk": {"S": f"k{number}"}, "n": {"N": str(number)}})
    wanted = {f"k{number}": number for number in range(20)}
    for step in range(3):
        report = ddbio.bootstrap(
            shop, tmp_path / "lake", log=str(tmp_path / "log"), format="iceberg", buckets=2, catalog=NAME, **options
        )
        assert (report.base_rows is None) == (step > 0)
        assert {row["pk"]: row["n"] for row in rows_of(session) if not row["_is_deleted"]} == wanted
        assert ddbio.verify(shop, tmp_path / "lake", **options).equal
        dynamodb.put_item(TableName=shop, Item={"pk": {"S": f"k{step}"}, "n": {"N": "1000"}})
        dynamodb.delete_item(TableName=shop, Key={"pk": {"S": f"k{10 + step}"}})
        wanted[f"k{step}"] = 1000
        del wanted[f"k{10 + step}"]
    dynamodb.close()


def test_expired_snapshots_are_removed_from_the_catalog(session, client, tmp_path):
    """The server removes the snapshots whose files are deleted, and readers by name still work."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(32), tmp_path / "lake"
    for _ in range(4):
        log.append(writer.batch())
        ddbio.apply(tmp_path / "log", lake, format="iceberg", buckets=2, catalog=NAME)
    aged(lake, 30)
    ages = {"vacuum_older_than": "7d", "expire_snapshots_older_than": "7d"}
    assert ddbio.maintain(lake, format="iceberg", catalog=NAME, **ages).deleted_files > 0
    state = newest_of(lake)
    named = client.load_table("shop.orders")
    assert {snapshot.snapshot_id for snapshot in named.snapshots()} == {
        snapshot.snapshot_id for snapshot in state.handle.snapshots()
    }
    log.append(writer.batch())
    ddbio.apply(tmp_path / "log", lake, format="iceberg", catalog=NAME)
    assert items_of(rows_of(session), names_of(newest_of(lake))) == expected(log.model())


def test_rows_that_came_through_the_catalog(session, client, tmp_path):
    """A table that Spark wrote by its name is refused: the folder would not have those rows."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(33), tmp_path / "lake"
    log.append(writer.batch())
    ddbio.apply(tmp_path / "log", lake, format="iceberg", buckets=2, catalog=NAME)
    session.sql("INSERT INTO shop.orders SELECT * FROM shop.orders LIMIT 1")
    log.append(writer.batch())
    with pytest.raises(TargetError, match="was written through its catalog"):
        ddbio.apply(tmp_path / "log", lake, format="iceberg", catalog=NAME)
    client.drop_table("shop.orders")
    ddbio.apply(tmp_path / "log", lake, format="iceberg", catalog=NAME)
    assert items_of(rows_of(session), names_of(newest_of(lake))) == expected(log.model())


def test_a_wide_table(session, client, tmp_path):
    """A catalog accepts the columns and properties of a table with hundreds of attributes."""
    attributes = tuple(f"attribute_{number}" for number in range(480))
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(34), tmp_path / "lake"
    for _ in range(2):
        log.append(writer.batch(attributes))
        ddbio.apply(tmp_path / "log", lake, format="iceberg", buckets=2, catalog=NAME)
    assert len(newest_of(lake).schema) > len(attributes)
    assert items_of(rows_of(session), names_of(newest_of(lake))) == expected(log.model())


def test_two_concurrent_runs(session, client, tmp_path):
    """Concurrent runs of a registered table wait for the catalog, which has the last commit in the end."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(35), tmp_path / "lake"
    for _ in range(3):
        for _ in range(2):
            log.append(writer.batch())
        with ThreadPoolExecutor(3) as runs:
            options = {"format": "iceberg", "buckets": 2, "catalog": NAME, "max_records_per_batch": 1}
            futures = [runs.submit(ddbio.apply, tmp_path / "log", lake, **options) for _ in range(3)]
        assert sum(future.result().changes for future in futures) == sum(map(len, log.batches[-2:]))
        assert items_of(rows_of(session), names_of(newest_of(lake))) == expected(log.model())


def test_a_failed_registration_merges_nothing(served, session, tmp_path, monkeypatch):
    """A name that the catalog refuses, and a catalog that does not answer, end a run before it has merged anything."""
    log = VirtualLog(LocalStore(tmp_path / "log"))
    log.append(Writer(36).batch())
    options = {"format": "iceberg", "buckets": 2}
    if served[0] == "hive":
        with pytest.raises(OptionError, match="hierarchical namespaces are not supported"):
            ddbio.apply(tmp_path / "log", tmp_path / "lake", **options, catalog="iceberg://real/shop.eu.orders")
    monkeypatch.setenv("PYICEBERG_CATALOG__REAL__URI", f"{served[1].partition(':')[0]}://127.0.0.1:9")
    with pytest.raises(EndpointError, match="the catalog real at"):
        ddbio.apply(tmp_path / "log", tmp_path / "lake", **options, catalog=NAME)
    assert not (tmp_path / "lake").exists()
