"""Statements that register a lake table in a catalog: for Athena, Hive, Spark SQL, Unity, DuckDB and Trino."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.catalog.definition import columns_of, nameable
from ddbio.catalog.glue import hive_columns
from ddbio.catalog.quotes import back_quoted, dotted, double_quoted, hive_text, location_uri, sql_text
from ddbio.catalog.warehouse_ddl import trino_procedure, trino_quoted
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from ddbio.catalog.ddl import Dialect
    from ddbio.catalog.definition import TableName


def hudi_ddl(name: TableName, table: Mapping[str, Any], partitions: Iterable[str], dialect: Dialect) -> str:
    """Return the statements that register a Hudi table, each with a semicolon at its end.

    Parameters
    ----------
    table
        Its definition, as of ``hudi_input``.
    partitions
        The values of its partitions: Athena reads only registered partitions.

    Raises
    ------
    OptionError
        If the dialect cannot register a Hudi table.
    """
    storage, keys = table["StorageDescriptor"], table["PartitionKeys"]
    uri = location_uri(storage["Location"])
    if dialect == "spark":
        # Spark reads the columns from the timeline of the table.
        quoted = f"{dotted(name.database)}.{back_quoted(name.table)}"
        return (
            f"CREATE DATABASE IF NOT EXISTS {dotted(name.database)};\n\n"
            f"CREATE TABLE IF NOT EXISTS {quoted} USING HUDI\nLOCATION {hive_text(uri)};\n"
        )
    if dialect not in {"athena", "hive"}:
        readers = {
            "duckdb": "DuckDB has no reader of Hudi",
            "unity": "Unity takes no Hudi tables of others",
            "trino": "Trino's Hudi connector creates no tables",
        }
        reader = readers.get(dialect, f"ddbio has no {dialect} DDL of Hudi tables")
        raise OptionError(f"{reader}: give athena, hive or spark, or apply with format delta")
    database, quoted = back_quoted(name.database), f"{back_quoted(name.database)}.{back_quoted(name.table)}"
    columns, partitioned = (
        ",\n".join(f"  {back_quoted(column['Name'])} {column['Type']}" for column in columns_of_kind)
        for columns_of_kind in (storage["Columns"], keys)
    )
    text = (
        f"CREATE DATABASE IF NOT EXISTS {database};\n\n"
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {quoted} (\n{columns}\n)\nPARTITIONED BY (\n{partitioned}\n)\n"
        f"ROW FORMAT SERDE {hive_text(storage['SerdeInfo']['SerializationLibrary'])}\n"
        f"STORED AS INPUTFORMAT {hive_text(storage['InputFormat'])} OUTPUTFORMAT {hive_text(storage['OutputFormat'])}\n"
        f"LOCATION {hive_text(uri)};\n"
    )
    key = keys[0]["Name"]
    added = "".join(
        f"\n  PARTITION ({key} = {value}) LOCATION {hive_text(f'{uri}/{key}={value}')}" for value in partitions
    )
    return f"{text}\nALTER TABLE {quoted} ADD IF NOT EXISTS{added};\n" if added else text


def delta_ddl(name: TableName, schema: pa.Schema, location: str, dialect: Dialect) -> str:
    """Return the statements that register a Delta table, each with a semicolon at its end, without redundant columns.

    Raises
    ------
    SchemaError
        If Hive has no type for a column.
    """
    if dialect == "duckdb":
        return _duckdb(name, "delta_scan", location)
    if dialect == "trino":
        # https://trino.io/docs/current/connector/delta-lake.html#register-table
        return _trino(name, location, "delta.register-table-procedure.enabled=true")
    if dialect in {"redshift", "snowflake"}:
        raise _no_lake_ddl(dialect, "Delta")
    uri = hive_text(location_uri(location))
    if dialect in {"spark", "unity"}:
        # Both read the columns from the log of the table.
        database, quoted = dotted(name.database), f"{dotted(name.database)}.{back_quoted(name.table)}"
        kind = "SCHEMA" if dialect == "unity" else "DATABASE"
        return (
            f"CREATE {kind} IF NOT EXISTS {database};\n\n"
            f"CREATE TABLE IF NOT EXISTS {quoted} USING DELTA\nLOCATION {uri};\n"
        )
    database, quoted = back_quoted(name.database), f"{back_quoted(name.database)}.{back_quoted(name.table)}"
    begin = f"CREATE DATABASE IF NOT EXISTS {database};\n\nCREATE EXTERNAL TABLE IF NOT EXISTS {quoted}"
    if dialect == "athena":
        # https://docs.aws.amazon.com/athena/latest/ug/delta-lake-tables-getting-started.html
        return f"{begin}\nLOCATION {uri}\nTBLPROPERTIES ('table_type' = 'DELTA');\n"
    # https://github.com/delta-io/delta/tree/master/connectors/hive
    columns_and_types = hive_columns(columns_of(nameable(schema), [])[0])
    columns = ",\n".join(f"  {back_quoted(column)} {kind}" for column, kind in columns_and_types)
    return f"{begin} (\n{columns}\n)\nSTORED BY 'io.delta.hive.DeltaStorageHandler'\nLOCATION {uri};\n"


def iceberg_ddl(name: TableName, location: str, dialect: Dialect, metadata_location: str) -> str:
    """Return the statements that register an Iceberg table, each with a semicolon at its end.

    Parameters
    ----------
    metadata_location
        The newest metadata of the table.

    Raises
    ------
    OptionError
        If the dialect cannot register an Iceberg table.
    """
    if dialect == "duckdb":
        # The folder has a hint of its newest version.
        return _duckdb(name, "iceberg_scan", location)
    if dialect == "trino":
        # https://trino.io/docs/current/connector/iceberg.html#register-table
        return _trino(name, location, "iceberg.register-table-procedure.enabled=true")
    if dialect in {"redshift", "snowflake"}:
        raise _no_lake_ddl(dialect, "Iceberg")
    if dialect == "athena":
        raise OptionError(
            "Athena finds tables of Iceberg in Glue, by their metadata: give catalog=glue://database.table to apply or "
            "maintain"
        )
    if dialect == "unity":
        raise OptionError("Unity takes no Iceberg tables of others, only of Delta: apply with format delta for it")
    if dialect == "hive":
        # https://iceberg.apache.org/docs/latest/hive/#path-based-hadoop-tables
        database, quoted = back_quoted(name.database), f"{back_quoted(name.database)}.{back_quoted(name.table)}"
        return (
            f"CREATE DATABASE IF NOT EXISTS {database};\n\n"
            f"CREATE EXTERNAL TABLE IF NOT EXISTS {quoted}\n"
            "STORED BY 'org.apache.iceberg.mr.hive.HiveIcebergStorageHandler'\n"
            f"LOCATION {hive_text(location_uri(location))}\n"
            "TBLPROPERTIES ('iceberg.catalog' = 'location_based_table');\n"
        )
    catalog, _, database = name.database.rpartition(".")
    database, catalog = dotted(database), dotted(catalog or "spark_catalog")
    table = hive_text(f"{name.database.rpartition('.')[2]}.{name.table}")
    # https://iceberg.apache.org/docs/latest/spark-procedures/#register_table
    return (
        f"CREATE DATABASE IF NOT EXISTS {catalog}.{database};\n\n"
        f"CALL {catalog}.system.register_table(table => {table}, metadata_file => {hive_text(metadata_location)});\n"
    )


def _duckdb(name: TableName, reader: str, location: str) -> str:
    database, own = double_quoted(name.database), double_quoted(name.table)
    return (
        f"CREATE SCHEMA IF NOT EXISTS {database};\n\n"
        f"CREATE OR REPLACE VIEW {database}.{own} AS\nSELECT * FROM {reader}({sql_text(location)});\n"
    )


def _trino(name: TableName, location: str, setting: str) -> str:
    schema, own = sql_text(name.database.rpartition(".")[2]), sql_text(name.table)
    procedure = trino_procedure(name.database, "register_table")
    return (
        f"-- The catalog needs {setting}.\n"
        f"CREATE SCHEMA IF NOT EXISTS {trino_quoted(name.database)};\n\n"
        f"CALL {procedure}(schema_name => {schema}, table_name => {own}, "
        f"table_location => {sql_text(location_uri(location))});\n"
    )


def _no_lake_ddl(dialect: Dialect, table_format: str) -> OptionError:
    return OptionError(
        f"{dialect} reads {table_format} tables through a catalog: give catalog=glue://database.table to apply or "
        "maintain, and connect that catalog"
    )
