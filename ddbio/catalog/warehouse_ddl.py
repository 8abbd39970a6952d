"""DDL of a table's definition for Redshift Spectrum, Trino's Hive connector and Snowflake."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.catalog.definition import hive_type
from ddbio.catalog.quotes import double_quoted, sql_text
from ddbio.errors import OptionError, SchemaError
from ddbio.formats.file_facts import FILE_FACTS
from ddbio.formats.partitions import NULL_FOLDER, escape
from ddbio.items.schema.arrow import fields_within, is_binary, is_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.catalog.definition import Column, TableDefinition, TableName

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_S3 = re.compile(r"^s3[an]?://")


def redshift_ddl(name: TableName, table: TableDefinition) -> str:
    """Return the statements that create an external table of Redshift Spectrum.

    Raises
    ------
    OptionError
        If the files are not on S3, or a partition has no value.
    SchemaError
        If Spectrum has no type for a column in files of the format.

    References
    ----------
    https://docs.aws.amazon.com/redshift/latest/dg/r_CREATE_EXTERNAL_TABLE.html
    https://docs.aws.amazon.com/redshift/latest/dg/r_CREATE_EXTERNAL_SCHEMA.html
    """
    facts, location = FILE_FACTS[table.format], _s3_location(table, "Redshift Spectrum")
    quoted = f"{double_quoted(name.database)}.{double_quoted(name.table)}"
    columns = [
        f"  {double_quoted(column.name.lower())} {_spectrum_type(column, table.format)}" for column in table.columns
    ]
    lines = [
        f"CREATE EXTERNAL SCHEMA IF NOT EXISTS {double_quoted(name.database)}",
        f"FROM DATA CATALOG DATABASE {sql_text(name.database)} IAM_ROLE default",
        "CREATE EXTERNAL DATABASE IF NOT EXISTS;",
        "",
        f"CREATE EXTERNAL TABLE {quoted} (",
        ",\n".join(columns),
        ")",
    ]
    if table.partition_columns:
        typed = (f"{double_quoted(column.name.lower())} {_scalar(column.type, _SPECTRUM)}"
                 for column in table.partition_columns)  # fmt: skip
        lines.append(f"PARTITIONED BY ({', '.join(typed)})")
    lines.append(f"ROW FORMAT SERDE {sql_text(facts.serde)}")
    if facts.serde_parameters:
        lines.append(f"WITH SERDEPROPERTIES ({_pairs(facts.serde_parameters)})")
    lines += [
        f"STORED AS INPUTFORMAT {sql_text(facts.input_format)} OUTPUTFORMAT {sql_text(facts.output_format)}",
        f"LOCATION {sql_text(f'{location}/')}",
    ]
    if facts.table_parameters:
        lines.append(f"TABLE PROPERTIES ({_pairs(facts.table_parameters)})")
    return "\n".join(lines) + ";\n" + "".join(_spectrum_partitions(quoted, table, location))


# With Glue, a statement adds at most 100 partitions.
# https://docs.aws.amazon.com/redshift/latest/dg/r_ALTER_TABLE_external-table.html
_MAX_PARTITIONS = 100
_INTEGERS = {"tinyint", "smallint", "int", "bigint"}


def _spectrum_partitions(quoted: str, table: TableDefinition, location: str) -> Iterable[str]:
    """Yield the statements that add the partitions."""
    partitions = zip(table.partitions, table.folders, strict=True)
    while some := [*itertools.islice(partitions, _MAX_PARTITIONS)]:
        added = [
            f"  PARTITION ({', '.join(map(_spectrum_value, table.partition_columns, values))}) "
            f"LOCATION {sql_text(f'{location}/{folder}/')}"
            for values, folder in some
        ]
        yield "\n" + "\n".join([f"ALTER TABLE {quoted} ADD IF NOT EXISTS", *added]) + ";\n"


def _spectrum_value(column: Column, value: str | None) -> str:
    if value is None and column.type != "string":
        raise OptionError(
            f"partition column {column.name!r} is null in some rows, and Redshift Spectrum has no null of type "
            f"{column.type} in a partition: use another dialect, or partition by a column without nulls"
        )
    text = NULL_FOLDER if value is None else value
    return f"{double_quoted(column.name.lower())} = {int(text) if column.type in _INTEGERS else sql_text(text)}"


# The limits of a text and of binary data are those of Redshift; an item of DynamoDB has at most 400 KB.
_SPECTRUM = {
    "tinyint": "smallint", "smallint": "smallint", "int": "integer", "bigint": "bigint", "float": "real",
    "double": "double precision", "boolean": "boolean", "string": "varchar(65535)", "binary": "varbyte(1024000)",
    "date": "date", "timestamp": "timestamp",
}  # fmt: skip
_COLUMNAR = {"parquet", "orc"}
_NESTED = {"parquet", "orc", "json"}


def _spectrum_type(column: Column, file_format: str) -> str:
    """Return Spectrum's type of a column. Hive's type is made too, because it checks the names of members."""
    hive = column.type
    if not FILE_FACTS[file_format].has_types:
        return _SPECTRUM["string"]
    if hive == "binary" and file_format == "json":
        return f"{_SPECTRUM['string']} /* Base64 */"
    if (hive == "binary" and file_format not in _COLUMNAR) or (hive == "date" and file_format == "avro"):
        raise _no_type("Redshift Spectrum", column.name, f"{hive} in {file_format} files")
    if fields_within(column.arrow_type) and file_format not in _NESTED:
        raise _no_type("Redshift Spectrum", column.name, f"nested data in {file_format} files")
    return _spectrum_nested(column.arrow_type, hive, column.name)


def _spectrum_nested(arrow_type: Any, hive: str, path: str) -> str:
    inside = fields_within(arrow_type)
    if not inside:
        return _scalar(hive, _SPECTRUM)
    if is_list(arrow_type):
        # https://docs.aws.amazon.com/redshift/latest/dg/nested-data-restrictions.html
        if is_list(inside[0].type) or pa.types.is_map(inside[0].type):
            raise _no_type("Redshift Spectrum", path, "lists of lists or maps")
        return f"array<{_member_type(inside[0].type, path)}>"
    if pa.types.is_map(arrow_type):
        return f"map<{_SPECTRUM['string']}, {_member_type(inside[0].type, path)}>"
    return f"struct<{', '.join(f'{member.name}:{_member_type(member.type, path)}' for member in inside)}>"


def _member_type(arrow_type: Any, path: str) -> str:
    return _spectrum_nested(arrow_type, hive_type(arrow_type, path), path)


_TRINO = {
    "tinyint": "tinyint", "smallint": "smallint", "int": "integer", "bigint": "bigint", "float": "real",
    "double": "double", "boolean": "boolean", "string": "varchar", "binary": "varbinary", "date": "date",
    "timestamp": "timestamp(3)",
}  # fmt: skip
_TRINO_FORMATS = {"parquet": "PARQUET", "orc": "ORC", "avro": "AVRO", "json": "OPENX_JSON", "csv": "CSV"}
_TRINO_CSV = ["csv_separator = ','", "csv_quote = '\"'", "skip_header_line_count = 1"]


def trino_ddl(name: TableName, table: TableDefinition) -> str:
    """Return the statements that create an external table of Trino's Hive connector.

    Raises
    ------
    SchemaError
        If Hive, whose metastore stores the table, has no type for a column.

    References
    ----------
    https://trino.io/docs/current/connector/hive.html
    """
    schema, has_types = trino_quoted(name.database), FILE_FACTS[table.format].has_types
    columns = [
        f"  {double_quoted(column.name.lower())} "
        + (_trino_type(column.arrow_type, column.type) if has_types or column in table.partition_columns else "varchar")
        for column in (*table.columns, *table.partition_columns)
    ]
    location = table.location if "://" in table.location else f"file://{table.location}"
    properties = [f"format = '{_TRINO_FORMATS[table.format]}'", f"external_location = {sql_text(f'{location}/')}"]
    if table.format == "csv":
        properties += _TRINO_CSV
    if table.partition_columns:
        names = ", ".join(sql_text(column.name.lower()) for column in table.partition_columns)
        properties.append(f"partitioned_by = ARRAY[{names}]")
    notes = []
    if table.format == "orc":
        notes.append("-- Set hive.orc.use-column-names=true in the catalog: later files may have other columns.")
    if any("timestamp" in column.type for column in table.columns):
        notes.append("-- timestamp(3) is for hive.timestamp-precision=MILLISECONDS, the default.")
    lines = [
        *notes,
        f"CREATE SCHEMA IF NOT EXISTS {schema};",
        "",
        f"CREATE TABLE IF NOT EXISTS {schema}.{double_quoted(name.table.lower())} (",
        ",\n".join(columns),
        ")",
        "WITH (",
        ",\n".join(f"  {text}" for text in properties),
        ");",
    ]
    return "\n".join(lines) + "\n" + _trino_partitions(name, table, location)


def _trino_type(arrow_type: Any, hive: str) -> str:
    inside = fields_within(arrow_type)
    if not inside:
        return _scalar(hive, _TRINO)
    types = [_trino_type(member.type, hive_type(member.type, member.name)) for member in inside]
    if is_list(arrow_type):
        return f"array({types[0]})"
    if pa.types.is_map(arrow_type):
        return f"map(varchar, {types[0]})"
    named = (f"{double_quoted(member.name)} {kind}" for member, kind in zip(inside, types, strict=True))
    return f"row({', '.join(named)})"


def trino_quoted(schema: str) -> str:
    """Return a schema, or a catalog and a schema, each part quoted."""
    return ".".join(map(double_quoted, schema.split(".")))


def trino_procedure(schema: str, procedure: str) -> str:
    """Return the name of a procedure of the schema's catalog; without a catalog, of the session's catalog."""
    catalog = schema.rpartition(".")[0]
    return f"{trino_quoted(catalog)}.system.{procedure}" if catalog else f"system.{procedure}"


def _trino_partitions(name: TableName, table: TableDefinition, location: str) -> str:
    """Return the statements that detect the partitions, or register them if column and folder names differ."""
    if not table.partition_columns:
        return ""
    own = f"schema_name => {sql_text(name.database.rpartition('.')[2])}, table_name => {sql_text(name.table.lower())}"
    if not any(column.folder for column in table.partition_columns):
        is_lower = all(column.name == column.name.lower() for column in table.partition_columns)
        case = "" if is_lower else ", case_sensitive => false"
        return f"\nCALL {trino_procedure(name.database, 'sync_partition_metadata')}({own}, mode => 'FULL'{case});\n"
    names = ", ".join(sql_text(column.name.lower()) for column in table.partition_columns)
    calls = [
        f"CALL {trino_procedure(name.database, 'register_partition')}({own}, partition_columns => ARRAY[{names}], "
        f"partition_values => ARRAY[{', '.join(sql_text(str(int(value or 0))) for value in values)}], "
        f"location => {sql_text(f'{location}/{folder}')});"
        for values, folder in zip(table.partitions, table.folders, strict=True)
    ]
    return "\n".join(["", "-- The catalog needs hive.allow-register-partition-procedure=true.", *calls, ""])


_SNOWFLAKE = {
    "tinyint": "NUMBER(38, 0)", "smallint": "NUMBER(38, 0)", "int": "NUMBER(38, 0)", "bigint": "NUMBER(38, 0)",
    "float": "FLOAT", "double": "FLOAT", "boolean": "BOOLEAN", "string": "VARCHAR", "binary": "BINARY",
    "date": "DATE",
}  # fmt: skip
_SNOWFLAKE_FORMATS = {
    "parquet": "TYPE = PARQUET BINARY_AS_TEXT = FALSE USE_LOGICAL_TYPE = TRUE",
    "orc": "TYPE = ORC",
    "avro": "TYPE = AVRO",
    "json": "TYPE = JSON",
    "csv": "TYPE = CSV SKIP_HEADER = 1 FIELD_OPTIONALLY_ENCLOSED_BY = '\"'",
}


def snowflake_ddl(name: TableName, table: TableDefinition) -> str:
    """Return the statements that create a stage of the folder, and an external table over it.

    Names are upper case if they need no quotes, so that they are found without quotes.

    Raises
    ------
    OptionError
        If the files are not on S3.
    SchemaError
        If a catalog has no type for a column.

    References
    ----------
    https://docs.snowflake.com/en/sql-reference/sql/create-external-table
    https://docs.snowflake.com/en/sql-reference/sql/create-stage
    """
    location = _s3_location(table, "a stage of ddbio's DDL for Snowflake")
    schema = ".".join(map(_upper, name.database.split(".")))
    stage = f"{schema}.{_upper(f'{name.table}_stage')}"
    has_types = FILE_FACTS[table.format].has_types
    columns = [
        f"  {_upper(column.name)} {_snowflake_type(column) if has_types else 'VARCHAR'} AS "
        f"({_snowflake_value(column, table.format, number)})"
        for number, column in enumerate(table.columns, 1)
    ]
    columns += [
        f"  {_upper(column.name)} {_snowflake_type(column)} AS ({_snowflake_part(column)})"
        for column in table.partition_columns
    ]
    lines = [
        "-- Replace s3_integration: https://docs.snowflake.com/en/sql-reference/sql/create-storage-integration",
        *_escaped_note(table),
        f"CREATE SCHEMA IF NOT EXISTS {schema};",
        "",
        f"CREATE STAGE IF NOT EXISTS {stage}",
        f"  URL = {_snowflake_text(f'{location}/')}",
        "  STORAGE_INTEGRATION = s3_integration;",
        "",
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {schema}.{_upper(name.table)} (",
        ",\n".join(columns),
        ")",
    ]
    if table.partition_columns:
        lines.append(f"PARTITION BY ({', '.join(_upper(column.name) for column in table.partition_columns)})")
    lines += [
        f"LOCATION = @{stage}",
        "AUTO_REFRESH = FALSE",
        # Other files are those of ddbio itself.
        f"PATTERN = '(.*/)?part-[^/]*[.]{table.format}[^/]*'",
        f"FILE_FORMAT = ({_SNOWFLAKE_FORMATS[table.format]});",
    ]
    return "\n".join(lines) + "\n"


def _snowflake_type(column: Column) -> str:
    """Return Snowflake's type. Nested columns are VARIANT, with the structure that Snowflake gives to the format."""
    hive = column.type
    if fields_within(column.arrow_type):
        return "VARIANT"
    if hive == "timestamp":
        has_zone = pa.types.is_timestamp(column.arrow_type) and column.arrow_type.tz is not None
        return "TIMESTAMP_LTZ" if has_zone else "TIMESTAMP_NTZ"
    return _scalar(hive, _SNOWFLAKE)


def _snowflake_value(column: Column, file_format: str, number: int) -> str:
    """Return the expression of a column in the VARIANT of its row."""
    if file_format == "csv":
        return f"value:c{number}::VARCHAR"
    value = f"value[{_snowflake_text(column.name)}]"
    if is_binary(column.arrow_type) and file_format == "json":
        return f"TO_BINARY({value}::VARCHAR, 'BASE64')"
    return f"{value}::{_snowflake_type(column)}"


def _snowflake_part(column: Column) -> str:
    """Return the expression of a partition column in the name of the file."""
    folder = _snowflake_text(f"/{escape(column.folder or column.name)}=")
    value = f"SPLIT_PART(SPLIT_PART('/' || METADATA$FILENAME, {folder}, 2), '/', 1)"
    return f"CAST(NULLIF({value}, '{NULL_FOLDER}') AS {_snowflake_type(column)})"


def _escaped_note(table: TableDefinition) -> list[str]:
    """Return a comment if the folder names have escaped characters, which an expression cannot decode."""
    escaped = [
        column.name
        for index, column in enumerate(table.partition_columns)
        if any(value is not None and escape(value) != value for value in (row[index] for row in table.partitions))
    ]
    return [f"-- Some characters are escaped in the values of {', '.join(map(_upper, escaped))}: %2F is /."] * (
        len(escaped) > 0
    )


def _upper(name: str) -> str:
    return double_quoted(name.upper() if _SIMPLE.fullmatch(name) else name)


def _snowflake_text(text: str) -> str:
    return sql_text(text.replace("\\", "\\\\"))


def _scalar(hive: str, types: Mapping[str, str]) -> str:
    """Return the type for a Hive type that is not nested."""
    if match := _DECIMAL.fullmatch(hive):
        name = "NUMBER" if types is _SNOWFLAKE else "decimal"
        return f"{name}({match[1]}, {match[2]})"
    return types[hive]


def _no_type(engine: str, path: str, what: str) -> SchemaError:
    return SchemaError(f"{path}: {engine} has no type for {what}: declare it as json, or scan into parquet")


def _s3_location(table: TableDefinition, engine: str) -> str:
    if not _S3.match(table.location):
        raise OptionError(f"{engine} reads only from S3, and not from {table.location}: copy the files to S3")
    return _S3.sub("s3://", table.location)


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{sql_text(key)}={sql_text(value)}" for key, value in values.items())
