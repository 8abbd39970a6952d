"""Entry of a Hudi table in a Hive metastore, by Hudi's own sync in the Spark session that writes it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from ddbio.catalog.lake import HUDI_INPUT, hudi_schema
from ddbio.errors import EndpointError, OptionError, TargetError
from ddbio.formats.lake_columns import BUCKET
from ddbio.spark.hudi import message_of, running_hudi_session, spark_uri
from ddbio.spark.types import to_spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ddbio.catalog.definition import TableName

_URIS = "hive.metastore.uris"


def require_metastore(name: TableName, uri: str) -> None:
    """Raise if the session's metastore cannot give a name to the Hudi table in a folder.

    Raises
    ------
    OptionError
        If the session has no metastore, or no classes of Hive.
    EndpointError
        If the metastore does not answer.
    TargetError
        If the name belongs to another table.
    """
    session = running_hudi_session()
    with _metastore_client(session, name, "does not answer") as client:
        if not client.tableExists(name.database, name.table):
            return
        table = client.getTable(name.database, name.table)
        there, kind = str(table.getSd().getLocation()), str(table.getSd().getInputFormat())
        # Hudi's sync would drop a table with another location, and take the name.
        if kind != HUDI_INPUT or _common_location(session, there) != _common_location(session, spark_uri(session, uri)):
            raise TargetError(
                f"{name} is the table of {there} ({kind.rpartition('.')[2]}), not the Hudi "
                f"table of {uri}: give another name",
                str(name),
            )


def publish(name: TableName, uri: str) -> None:
    """Have Hudi's sync create or update the table of a name: its columns, its partitions, its last commit.

    Raises
    ------
    DdbioError
        As :func:`require_metastore`. The lake table is committed, and the next run names it.
    """
    require_metastore(name, uri)
    session = running_hudi_session()
    # https://hudi.apache.org/docs/1.2.0/syncing_metastore
    sync = "hoodie.datasource.hive_sync"
    settings = {
        "hoodie.datasource.meta.sync.base.path": spark_uri(session, uri),
        "hoodie.metadata.enable": "false",
        f"{sync}.database": name.database,
        f"{sync}.table": name.table,
        f"{sync}.mode": "hms",
        f"{sync}.partition_fields": BUCKET,
        f"{sync}.metastore.uris": _uris(session),
    }
    with _metastore_client(session, name, "the lake table is committed, but its name is not: the next run tries again"):
        jvm = _jvm(session)
        properties = jvm.java.util.Properties()
        for key, value in settings.items():
            properties.setProperty(key, value)
        tool = jvm.org.apache.hudi.hive.HiveSyncTool(properties, _hadoop(session))
        try:
            tool.syncHoodieTable()
        finally:
            tool.close()


def spark_schema(schema: pa.Schema) -> str:
    """Return the columns of a Hudi table as the JSON that Spark keeps in catalogs."""
    return str(to_spark_schema(hudi_schema(schema, BUCKET)).json())


@contextmanager
def _metastore_client(session: SparkSession, name: TableName, what: str) -> Iterator[Any]:
    """Open a client of the metastore, and convert its errors and those of Hudi's sync to ours."""
    uris, hive = _uris(session), _jvm(session).org.apache.hadoop.hive
    try:
        conf = hive.conf.HiveConf(_hadoop(session), hive.conf.HiveConf().getClass())
        client = hive.metastore.HiveMetaStoreClient(conf)
        try:
            yield client
        finally:
            client.close()
    except TypeError as error:
        raise OptionError(f"catalog: {name} needs the jars of spark-hive, which this session lacks") from error
    except Py4JJavaError as error:
        raise EndpointError(f"the metastore at {uris}: {what} ({message_of(error)})", uris) from error


def _uris(session: SparkSession) -> str:
    uris = _hadoop(session).get(_URIS) or ""
    if not uris:
        raise OptionError(
            "catalog: the session knows no Hive metastore: set spark.hadoop.hive.metastore.uris=thrift://host:9083 in "
            "its configuration"
        )
    return str(uris)


def _common_location(session: SparkSession, location: str) -> tuple[str, str]:
    """Return the common part of all URIs of one folder, which may have the scheme s3 or s3a, or none."""
    uri = _jvm(session).org.apache.hadoop.fs.Path(location).toUri()
    return str(uri.getAuthority() or ""), str(uri.getPath()).rstrip("/")


def _jvm(session: SparkSession) -> Any:
    return session.sparkContext._jvm  # noqa: SLF001 - PySpark's access to the JVM


def _hadoop(session: SparkSession) -> Any:
    return session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - PySpark's access to the JVM
