"""Lake tables on S3 with concurrent writers, but only one kind of writer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import boto3
import botocore.session
import pytest
from botocore.credentials import RefreshableCredentials
from pyiceberg.catalog.glue import GlueCatalog

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.aws.glue import read_table
from ddbio.catalog.definition import TableName
from ddbio.errors import OptionError, TargetError
from ddbio.formats.lake_columns import shown_schema
from ddbio.lake.options import ApplyOptions
from ddbio.lake_formats.registry import open_lake_table
from ddbio.lake_formats.table import WRITER
from ddbio.storage.local_store import LocalStore
from ddbio.testing import MotoServer
from tests.lake.virtual_log import VirtualLog, Writer, is_deleted

# A running Spark session of PySpark leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

BUCKET = "lake"


@pytest.fixture(scope="module")
def connection():
    """Return the options for access to S3."""
    with MotoServer() as server:
        ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3").create_bucket(Bucket=BUCKET)
        yield {"s3_endpoint_url": server.endpoint_url, "region": "us-east-1"}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_concurrent_writers_lose_nothing(kind, connection, tmp_path):
    """Three concurrent runs with one log: each batch is committed once, and the table equals the model."""
    log, writer = VirtualLog(LocalStore(tmp_path)), Writer(7)
    for _ in range(4):
        log.append(writer.batch())
    uri, options = f"s3://{BUCKET}/{kind}", {"format": kind, "buckets": 2, "max_records_per_batch": 8, **connection}
    ddbio.apply(tmp_path, uri, **options)
    for _ in range(4):
        log.append(writer.batch())
    with ThreadPoolExecutor(3) as threads:
        reports = list(threads.map(lambda _: ddbio.apply(tmp_path, uri, **options), range(3)))
    assert sum(report.changes for report in reports) >= sum(map(len, log.batches[4:]))
    table = open_lake_table(uri, kind, ApplyOptions(source=str(tmp_path), table=uri, **connection))
    rows = [row for row in rows_of(table) if not is_deleted(row)]
    assert {row["pk"]: row["n"] for row in rows} == {
        key: (change.item or {}).get("n") for key, change in log.model().items()
    }


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_environment_variables_do_not_redirect_lake_tables(kind, connection, tmp_path, monkeypatch):
    """Endpoints, a proxy and a session token in the environment do not change how the libraries reach a table."""
    log = VirtualLog(LocalStore(tmp_path))
    log.append(Writer(5).batch())
    unreachable = "http://127.0.0.1:9"
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, unreachable)
    monkeypatch.setenv("NO_PROXY", "localhost")  # moto, not the address at which deltalake reaches this process
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another-session")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    reached = {**connection, "s3_endpoint_url": connection["s3_endpoint_url"].replace("127.0.0.1", "localhost")}
    report = ddbio.apply(tmp_path, f"s3://{BUCKET}/environment-{kind}", format=kind, buckets=1, **reached)
    assert report.changes == len(log.batches[0])


def test_another_kind_of_writer_is_left_alone(connection, tmp_path):
    """A table on S3 with Spark as its writer is refused, since neither writer would see the other's commits."""
    log = VirtualLog(LocalStore(tmp_path))
    log.append(Writer(1).batch())
    uri = f"s3://{BUCKET}/guarded"
    ddbio.apply(tmp_path, uri, **connection)
    table = open_lake_table(uri, "delta", ApplyOptions(source=str(tmp_path), table=uri, **connection))
    table.alter(table.load(), (), {WRITER: "spark"})
    with pytest.raises(OptionError, match="two kinds of writers"):
        ddbio.apply(tmp_path, uri, **connection)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_catalog_names_the_table(kind, connection, tmp_path):
    """Glue has the table after the first run, and its newest state after each; pyiceberg's own catalog reads it."""
    log, writer = VirtualLog(LocalStore(tmp_path)), Writer(3)
    uri, name = f"s3://{BUCKET}/named-{kind}", f"glue://lake.orders_{kind}"
    options = {"format": kind, "buckets": 2, "catalog": name, "glue_endpoint_url": connection["s3_endpoint_url"]}
    with pytest.raises(OptionError, match="is not on S3"):
        ddbio.apply(tmp_path, tmp_path / "lake", **options)
    for attributes in ((), ("more",)):
        log.append(writer.batch(attributes))
        ddbio.apply(tmp_path, uri, **options, **connection)
        ddbio.apply(tmp_path, uri, **options, **connection)
    spec = ClientSpec(endpoint_url=connection["s3_endpoint_url"], region="us-east-1")
    glue_table = read_table(spec, TableName("lake", f"orders_{kind}"))
    columns = [column["Name"] for column in glue_table["StorageDescriptor"]["Columns"]]
    state = open_lake_table(uri, kind, ApplyOptions(source=str(tmp_path), table=uri, **connection)).load()
    assert columns == [name_.lower() for name_ in shown_schema(state.schema, kind).names]
    assert ("_is_deleted" in columns, "_deleted" in columns) == (kind == "iceberg", kind == "delta")
    assert glue_table["StorageDescriptor"]["Location"] == uri
    if kind == "delta":
        assert glue_table["Parameters"]["table_type"] == "DELTA"
        return
    endpoint = connection["s3_endpoint_url"]
    catalog = GlueCatalog(
        "glue",
        **{"glue.endpoint": endpoint, "glue.region": "us-east-1", "s3.endpoint": endpoint, "s3.region": "us-east-1"},
        **{"client.access-key-id": "x", "client.secret-access-key": "x"},
    )
    rows = catalog.load_table("lake.orders_iceberg").scan().to_arrow().to_pylist()
    assert {row["pk"] for row in rows if not is_deleted(row)} == set(log.model())
    with pytest.raises(TargetError, match="give another name"):
        ddbio.apply(tmp_path, f"s3://{BUCKET}/other", **{**options, "format": "delta"}, **connection)


def test_credentials_of_a_table_are_refreshed(connection, tmp_path):
    """A table that is open longer than its credentials are valid uses new ones; no library keeps the first ones."""
    log, names = VirtualLog(LocalStore(tmp_path)), []
    log.append(Writer(1).batch())
    session = boto3.Session(botocore_session=botocore.session.Session())

    def fresh():
        names.append(f"AKIA{len(names)}")
        return {"access_key": names[-1], "secret_key": "s", "token": "t", "expiry_time": "2000-01-01T00:00:00Z"}

    keys = RefreshableCredentials.create_from_metadata(
        {**fresh(), "expiry_time": "2099-01-01T00:00:00Z"},
        lambda: {**fresh(), "expiry_time": "2099-01-01T00:00:00Z"},
        "test",
    )
    session._session._credentials = keys
    uri, options = f"s3://{BUCKET}/refreshed", {**connection, "session": session}
    ddbio.apply(tmp_path, uri, **options)
    table = open_lake_table(uri, "delta", ApplyOptions(source=str(tmp_path), table=uri, **options))
    assert table.load().version >= 0
    keys._expiry_time = keys._expiry_time.replace(year=2000)
    signed = []
    table.store.listing()[0].meta.events.register(
        "before-send.s3", lambda request, **_: signed.append(request.headers["Authorization"])
    )
    table.alter(table.load(), (), {"ddbio.note": "1"})
    assert len(names) == 2
    assert signed
    assert all(f"Credential={names[-1]}/".encode() in header for header in signed)


def rows_of(table):
    """Return the rows of the newest version, read by the library of the format."""
    state = table.load()
    if hasattr(state.handle, "to_pyarrow_table"):
        return state.handle.to_pyarrow_table().to_pylist()
    return state.handle.scan().to_arrow().to_pylist()
