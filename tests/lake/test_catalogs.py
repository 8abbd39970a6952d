"""Lake tables in Iceberg catalogs: the catalog equals the folder after each run, and other readers use it."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.rest import RestCatalog as RestClient
from pyiceberg.catalog.sql import SqlCatalog

import ddbio
from ddbio.errors import EndpointError, OptionError, TargetError
from ddbio.lake_formats.iceberg import IcebergLakeTable
from ddbio.storage.local_store import LocalStore
from tests.lake.rest_catalog import RestCatalog
from tests.lake.test_maintain import aged
from tests.lake.test_schedules import expected, items_of
from tests.lake.virtual_log import VirtualLog, Writer

NAME = "iceberg://lake/shop.orders"


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    """Return a served catalog that is configured as ``lake``."""
    (tmp_path / "catalog").mkdir()
    with RestCatalog(tmp_path / "catalog") as served:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", served.uri)
        yield served


def client_of(catalog):
    """Return a client of another user of the catalog."""
    return RestClient("other", uri=catalog.uri)


def shown(client):
    """Return the rows of the catalog's table."""
    table = client.load_table(("shop", "orders"))
    names = {field.name: field.doc or field.name for field in table.schema().fields}
    return items_of(table.scan().to_arrow().to_pylist(), {name: name for name in names})


def test_a_catalog_of_rest_has_each_run(catalog, tmp_path):
    """The first run registers the table, each later one commits the new snapshots, columns and positions."""
    log, writer = VirtualLog(LocalStore(tmp_path / "log")), Writer(5)
    options = {"format": "iceberg", "buckets": 2, "catalog": NAME}
    for attributes in ((), (), ("a",)):
        log.append(writer.batch(attributes))
        ddbio.apply(tmp_path / "log", tmp_path / "lake", **options)
        assert shown(client_of(catalog)) == expected(log.model())
    assert [path for method, path in catalog.calls if method == "POST"] == [
        "/v1/namespaces",
        "/v1/namespaces/shop/register",
        *["/v1/namespaces/shop/tables/orders"] * 2,
    ]
    table = client_of(catalog).load_table(("shop", "orders"))
    ours = IcebergLakeTable(LocalStore(tmp_path / "lake")).load()
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [
        snapshot.snapshot_id for snapshot in ours.handle.snapshots()
    ]
    assert table.properties == ours.properties
    assert table.schema() == ours.handle.schema()
    # Known snapshots are not committed again.
    before = len(catalog.calls)
    ddbio.apply(tmp_path / "log", tmp_path / "lake", **options)
    assert {method for method, _ in catalog.calls[before:]} == {"GET"}


def test_a_run_that_could_not_reach_its_catalog_is_made_good(catalog, tmp_path, monkeypatch):
    """The next run with the catalog publishes all versions of runs without it."""
    log, writer = VirtualLog(LocalStore(tmp_path / "log")), Writer(6)
    options = {"format": "iceberg", "buckets": 2}
    log.append(writer.batch())
    ddbio.apply(tmp_path / "log", tmp_path / "lake", **options, catalog=NAME)
    for _ in range(2):
        log.append(writer.batch(("b",)))
        ddbio.apply(tmp_path / "log", tmp_path / "lake", **options)
    assert shown(client_of(catalog)) != expected(log.model())
    with monkeypatch.context() as patch:
        patch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://127.0.0.1:9")
        with pytest.raises(EndpointError, match="the catalog lake at"):
            ddbio.apply(tmp_path / "log", tmp_path / "lake", **options, catalog=NAME)
    ddbio.apply(tmp_path / "log", tmp_path / "lake", **options, catalog=NAME)
    assert shown(client_of(catalog)) == expected(log.model())


def test_what_maintenance_expires_is_not_in_the_catalog(catalog, tmp_path):
    """The catalog is updated before files are deleted, so that readers are not referred to them."""
    log, writer = VirtualLog(LocalStore(tmp_path / "log")), Writer(7)
    for _ in range(5):
        log.append(writer.batch())
        ddbio.apply(tmp_path / "log", tmp_path / "lake", format="iceberg", buckets=2, catalog=NAME)
    aged(tmp_path / "lake", 30)
    ages = {"vacuum_older_than": "7d", "expire_snapshots_older_than": "7d"}
    report = ddbio.maintain(tmp_path / "lake", format="iceberg", catalog=NAME, **ages)
    assert report.deleted_files > 0
    assert report.deleted_log_files > 0
    table = client_of(catalog).load_table(("shop", "orders"))
    ours = IcebergLakeTable(LocalStore(tmp_path / "lake")).load()
    assert {snapshot.snapshot_id for snapshot in table.snapshots()} == {
        snapshot.snapshot_id for snapshot in ours.handle.snapshots()
    }
    assert shown(client_of(catalog)) == expected(log.model())


def test_other_tables_are_left_alone(catalog, tmp_path):
    """The name of another table, and a table that was written through the catalog, are refused."""
    log, writer = VirtualLog(LocalStore(tmp_path / "log")), Writer(8)
    options = {"format": "iceberg", "buckets": 2, "catalog": NAME}
    log.append(writer.batch())
    ddbio.apply(tmp_path / "log", tmp_path / "lake", **options)
    with pytest.raises(TargetError, match="give another name"):
        ddbio.apply(tmp_path / "log", tmp_path / "other", **options)
    table = client_of(catalog).load_table(("shop", "orders"))
    table.append(table.scan().to_arrow())
    log.append(writer.batch())
    with pytest.raises(TargetError, match="was written through its catalog"):
        ddbio.apply(tmp_path / "log", tmp_path / "lake", **options)


def test_a_catalog_in_sql(tmp_path, monkeypatch):
    """Any catalog in pyiceberg's configuration is supported: here one in SQL, with a namespace of two parts."""
    uri = f"sqlite:///{tmp_path}/catalog.db"
    for name, value in (("TYPE", "sql"), ("URI", uri), ("WAREHOUSE", str(tmp_path))):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MINE__{name}", value)
    log, writer = VirtualLog(LocalStore(tmp_path / "log")), Writer(9)
    kept = SqlCatalog("mine", uri=uri, warehouse=str(tmp_path))
    kept.create_tables()
    for _ in range(2):
        log.append(writer.batch())
        options = {"format": "iceberg", "catalog": "iceberg://mine/a.b.orders"}
        ddbio.apply(tmp_path / "log", tmp_path / "lake", **options)
        rows = kept.load_table(("a", "b", "orders")).scan().to_arrow().to_pylist()
        assert items_of(rows, {name: name for name in rows[0]}) == expected(log.model())
    kept.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"catalog": "iceberg://nowhere/shop.orders", "format": "iceberg"}, "no catalog 'nowhere'.*PYICEBERG_CATALOG"),
        ({"catalog": "iceberg://lake/orders", "format": "iceberg"}, "write iceberg://catalog/namespace.table"),
        ({"catalog": NAME, "format": "delta"}, "is for Iceberg tables, but this table is delta"),
    ],
)
def test_invalid_catalog_names(options, problem, tmp_path):
    """Nothing is merged if the catalog cannot have the table."""
    log = VirtualLog(LocalStore(tmp_path / "log"))
    log.append(Writer(1).batch())
    with pytest.raises(OptionError, match=problem):
        ddbio.apply(tmp_path / "log", tmp_path / "lake", **options)
    assert not (tmp_path / "lake").exists()


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Return a folder with a table of each format."""
    folder = tmp_path_factory.mktemp("tables")
    log = VirtualLog(LocalStore(folder / "log"))
    log.append(Writer(2).batch())
    for kind in ("delta", "iceberg"):
        ddbio.apply(folder / "log", folder / kind, format=kind)
    return folder


@pytest.mark.parametrize(
    ("kind", "dialect", "wanted"),
    [
        ("delta", "spark", "CREATE TABLE IF NOT EXISTS `main`.`shop`.`orders` USING DELTA\nLOCATION 'file://{}';"),
        ("delta", "unity", "CREATE SCHEMA IF NOT EXISTS `main`.`shop`;"),
        ("delta", "athena", "LOCATION 'file://{}'\nTBLPROPERTIES ('table_type' = 'DELTA');"),
        ("delta", "hive", "  `_deleted` boolean,"),
        ("delta", "duckdb", "SELECT * FROM delta_scan('{}');"),
        (
            "iceberg",
            "spark",
            "system.register_table(table => 'shop.orders', metadata_file => '{}/metadata/v",
        ),
        ("iceberg", "hive", "TBLPROPERTIES ('iceberg.catalog' = 'location_based_table');"),
        ("iceberg", "duckdb", "SELECT * FROM iceberg_scan('{}');"),
    ],
)
def test_statements(kind, dialect, wanted, tables):
    """The statements contain the table's folder, or its metadata, and leave its columns to its log."""
    text = ddbio.catalog_ddl(tables / kind, dialect, name="main.shop.orders")
    assert wanted.format(tables / kind) in text


def test_unsupported_statements(tables):
    """Athena and Unity support no statement for Iceberg tables, and the error suggests an alternative."""
    with pytest.raises(OptionError, match="glue://"):
        ddbio.catalog_ddl(tables / "iceberg", "athena")
    with pytest.raises(OptionError, match="format delta"):
        ddbio.catalog_ddl(tables / "iceberg", "unity")
    with pytest.raises(OptionError, match="projection"):
        ddbio.catalog_ddl(tables / "delta", "athena", projection=True)
