"""Lake tables in Iceberg's own REST catalog: what we name there, Spark and pyiceberg read by name, at each snapshot."""

from __future__ import annotations

import boto3
import pytest
from pyiceberg.catalog.rest import RestCatalog as RestClient

import ddbio
from ddbio.errors import TargetError
from ddbio.files.local_store import LocalStore
from ddbio.ops.job.lake_tables import open_lake_table
from ddbio.options import ApplyOptions
from tests.ops.lake.test_maintain import aged
from tests.ops.lake.virtual_log import VirtualLog, Writer, columns, expected, items_of
from tests.versions.jars import fetch
from tests.versions.rest_server import rest_catalog

POSITION = "ddbio/0/job/1000"
NAME = "iceberg://real/shop.orders"


@pytest.fixture(scope="module")
def uri(need, tmp_path_factory):
    """Return where the catalog is served."""
    need("lakes")
    need("rest_catalog")
    with rest_catalog(fetch("rest_catalog")[0], tmp_path_factory.mktemp("names")) as served:
        yield served


@pytest.fixture
def session(uri, need, monkeypatch):
    """Return the session, which has the catalog as ``served``; ddbio has it as ``real``."""
    monkeypatch.setenv("PYICEBERG_CATALOG__REAL__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__REAL__URI", uri)
    session = need("lakes")
    session.conf.set("spark.sql.catalog.served", "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set("spark.sql.catalog.served.type", "rest")
    session.conf.set("spark.sql.catalog.served.uri", uri)
    session.conf.set("spark.sql.catalog.served.cache-enabled", "false")
    return session


@pytest.fixture
def client(uri):
    """Return a client of somebody else; what it is named at the end is dropped, and its files stay."""
    found = RestClient("other", uri=uri)
    yield found
    for namespace in found.list_namespaces():
        for name in found.list_tables(namespace):
            found.drop_table(name)


def newest_of(place):
    """Return the newest state of a table as its folder has it."""
    return table_at(place).load()


def table_at(place):
    """Return our own view of a table."""
    return open_lake_table(str(place), "iceberg", ApplyOptions(source="log", table=str(place)))


def names_of(state):
    """Return the attribute of each column."""
    fields = state.schema
    return {field.name: (field.metadata or {}).get(b"ddb:name", field.name.encode()).decode() for field in fields}


def rows_of(session, suffix=""):
    """Return the rows that Spark finds by the name, now or at a snapshot."""
    rows = session.sql(f"SELECT * FROM served.shop.orders {suffix}").collect()
    return [row.asDict(recursive=True) for row in rows]


def test_each_run_is_read_by_name(session, client, tmp_path):
    """Runs register the table, and commit snapshots, columns and properties: by name every reader has them all."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(31), tmp_path / "lake"
    for attributes in ((), ("a",), ("a", "A", "b c")):
        if attributes:
            log.declare(columns(*attributes))
        for _ in range(2):
            log.append(writer.batch(attributes))
        ddbio.apply(tmp_path / "log", lake, format="iceberg", buckets=2, catalog=NAME)
        names = names_of(newest_of(lake))
        assert items_of(rows_of(session), names) == expected(log.model())
        read = client.load_table("shop.orders").scan().to_arrow().to_pylist()
        assert items_of(read, names) == expected(log.model())
    table, state = table_at(lake), newest_of(lake)
    served, seen = client.load_table("shop.orders"), 0
    assert served.properties == state.properties
    assert [each.snapshot_id for each in served.snapshots()] == [each.snapshot_id for each in state.handle.snapshots()]
    for version in range(1, state.version + 1):
        then = table.load(version)
        snapshot = then.handle.current_snapshot()
        if snapshot is not None:
            rows = rows_of(session, f"VERSION AS OF {snapshot.snapshot_id}")
            assert items_of(rows, names) == expected(log.model(table.position(then, POSITION)))
            seen += 1
    assert seen >= 3


def test_a_base_and_changes_by_one_command(session, client, fake, tmp_path):
    """``bootstrap`` names its base and what is applied over it; ``verify`` finds the table equal, and so does Spark."""
    given = {"endpoint_url": fake.endpoint_url, "region": "eu-west-1"}
    dynamodb = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name="eu-west-1")
    dynamodb.create_table(
        TableName="shop",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    for number in range(20):
        dynamodb.put_item(TableName="shop", Item={"pk": {"S": f"k{number}"}, "n": {"N": str(number)}})
    wanted = {f"k{number}": number for number in range(20)}
    for step in range(3):
        report = ddbio.bootstrap(
            "shop", tmp_path / "lake", log=str(tmp_path / "log"), format="iceberg", buckets=2, catalog=NAME, **given
        )
        assert (report.base_rows is None) == (step > 0)
        assert {row["pk"]: row["n"] for row in rows_of(session) if not row["_is_deleted"]} == wanted
        assert ddbio.verify("shop", tmp_path / "lake", **given).equal
        dynamodb.put_item(TableName="shop", Item={"pk": {"S": f"k{step}"}, "n": {"N": "1000"}})
        dynamodb.delete_item(TableName="shop", Key={"pk": {"S": f"k{10 + step}"}})
        wanted[f"k{step}"] = 1000
        del wanted[f"k{10 + step}"]
    dynamodb.close()


def test_what_expires_goes_from_the_catalog(session, client, tmp_path):
    """The server forgets the snapshots whose files are deleted, and readers by name go on."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(32), tmp_path / "lake"
    for _ in range(4):
        log.append(writer.batch())
        ddbio.apply(tmp_path / "log", lake, format="iceberg", buckets=2, catalog=NAME)
    aged(lake, 30)
    ages = {"vacuum_older_than": "7d", "expire_snapshots_older_than": "7d"}
    assert ddbio.maintain(lake, format="iceberg", catalog=NAME, **ages).deleted_files > 0
    state = newest_of(lake)
    served = client.load_table("shop.orders")
    assert {each.snapshot_id for each in served.snapshots()} == {each.snapshot_id for each in state.handle.snapshots()}
    log.append(writer.batch())
    ddbio.apply(tmp_path / "log", lake, format="iceberg", catalog=NAME)
    assert items_of(rows_of(session), names_of(newest_of(lake))) == expected(log.model())


def test_rows_that_came_through_the_catalog(session, client, tmp_path):
    """A table that Spark wrote by its name is refused: the folder would not know those rows."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(33), tmp_path / "lake"
    log.append(writer.batch())
    ddbio.apply(tmp_path / "log", lake, format="iceberg", buckets=2, catalog=NAME)
    session.sql("INSERT INTO served.shop.orders SELECT * FROM served.shop.orders LIMIT 1")
    log.append(writer.batch())
    with pytest.raises(TargetError, match="was written through its catalog"):
        ddbio.apply(tmp_path / "log", lake, format="iceberg", catalog=NAME)
    client.drop_table("shop.orders")
    ddbio.apply(tmp_path / "log", lake, format="iceberg", catalog=NAME)
    assert items_of(rows_of(session), names_of(newest_of(lake))) == expected(log.model())
