"""DDL of a table's definition: for Athena, Hive, Spark SQL, Unity, DuckDB, Redshift, Trino and Snowflake."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from ddbio.catalog.definition import hive_type
from ddbio.catalog.glue import hive_columns
from ddbio.catalog.quotes import back_quoted, dotted, double_quoted, files_below, hive_text, location_uri, sql_text
from ddbio.catalog.warehouse_ddl import redshift_ddl, snowflake_ddl, trino_ddl
from ddbio.errors import OptionError
from ddbio.formats.file_facts import FILE_FACTS
from ddbio.formats.partitions import escape
from ddbio.items.schema.arrow import fields_within, is_list, is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ddbio.catalog.definition import Column, TableDefinition, TableName

Dialect: TypeAlias = Literal["athena", "hive", "spark", "unity", "duckdb", "redshift", "trino", "snowflake"]

# Athena's projection splits lists at commas, and has no escape character.
_ENUMERABLE = re.compile(r"[A-Za-z0-9_./ +-]+")
_INTEGER = re.compile(r"-?[0-9]+")
# Later files may be of any hour.
_RANGES = {"year": (1, 9999), "month": (1, 12), "day": (1, 31), "hour": (0, 23)}


def ddl(name: TableName, table: TableDefinition, dialect: Dialect, *, projection: bool = False) -> str:
    """Return the statements that create the table, each with a semicolon at its end.

    Parameters
    ----------
    projection
        For Athena: compute the partitions from ranges and lists of values instead of registering them.

    Raises
    ------
    OptionError
        If the dialect has no reader of the format, or cannot project the partitions.
    """
    if projection and (dialect != "athena" or not table.partition_columns):
        raise OptionError("projection is for Athena's tables with partitions: leave it out")
    if dialect in _WRITERS:
        return _WRITERS[dialect](name, table)
    return _spark(name, table) if dialect in {"spark", "unity"} else _hive(name, table, projection=projection)


def _hive(name: TableName, table: TableDefinition, *, projection: bool) -> str:
    quoted = f"{back_quoted(name.database)}.{back_quoted(name.table)}"
    lines = [
        f"CREATE DATABASE IF NOT EXISTS {back_quoted(name.database)};",
        "",
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {quoted} (",
    ]
    lines += [f"{_list_of(table.columns, table.format)}", ")"]
    if table.partition_columns:
        lines += ["PARTITIONED BY (", _list_of(table.partition_columns), ")"]
    facts = FILE_FACTS[table.format]
    lines.append(f"ROW FORMAT SERDE {hive_text(facts.serde)}")
    if facts.serde_parameters:
        lines.append(f"WITH SERDEPROPERTIES ({_pairs(facts.serde_parameters)})")
    lines.append(f"STORED AS INPUTFORMAT {hive_text(facts.input_format)} OUTPUTFORMAT {hive_text(facts.output_format)}")
    lines.append(f"LOCATION {hive_text(location_uri(table.location) + '/')}")
    properties = {"classification": table.format, **facts.table_parameters}
    if projection:
        properties |= _projection(table)
    lines.append(f"TBLPROPERTIES ({_pairs(properties)});")
    if table.partition_columns and not projection:
        lines += ["", _partitions(quoted, table)]
    return "\n".join(lines) + "\n"


def _partitions(quoted: str, table: TableDefinition) -> str:
    """Return the statement that detects the partitions, or lists them if column and folder names differ."""
    if not any(column.folder for column in table.partition_columns):
        return f"MSCK REPAIR TABLE {quoted};"
    names = [back_quoted(column.name.lower()) for column in table.partition_columns]
    added = [
        f"  PARTITION ({', '.join(f'{name} = {int(value or 0)}' for name, value in zip(names, values, strict=True))}) "
        f"LOCATION {hive_text(location_uri(f'{table.location}/{folder}'))}"
        for values, folder in zip(table.partitions, table.folders, strict=True)
    ]
    return "\n".join([f"ALTER TABLE {quoted} ADD IF NOT EXISTS", *added]) + ";"


def _list_of(columns: tuple[Column, ...], file_format: str = "") -> str:
    return ",\n".join(f"  {back_quoted(name)} {kind}" for name, kind in hive_columns(columns, file_format))


def _projection(table: TableDefinition) -> dict[str, str]:
    # https://docs.aws.amazon.com/athena/latest/ug/partition-projection-supported-types.html
    properties = {"projection.enabled": "true"}
    for index, column in enumerate(table.partition_columns):
        values = {partition[index] for partition in table.partitions}
        if None in values or "" in values:
            raise OptionError(
                f"projection: {column.name} is null in some rows, which Athena would not find: leave projection out"
            )
        key = f"projection.{column.name.lower()}"
        properties |= {f"{key}.{name}": text for name, text in _projected(column, sorted(filter(None, values))).items()}
    folders = "".join(
        f"{escape(column.folder or column.name)}=${{{column.name.lower()}}}/" for column in table.partition_columns
    )
    return {**properties, "storage.location.template": f"{table.location}/{folders}"}


def _projected(column: Column, values: list[str]) -> dict[str, str]:
    if values and all(map(_is_day, values)):
        return {"type": "date", "format": "yyyy-MM-dd", "range": f"{values[0]},NOW", "interval": "1", "interval.unit": "DAYS"}  # fmt: skip # noqa: E501
    if values and all(map(_INTEGER.fullmatch, values)) and not is_text(column.arrow_type):
        numbers = sorted(map(int, values))
        least, most = _RANGES.get(column.part or "", (numbers[0], numbers[-1]))
        if least <= numbers[0] and numbers[-1] <= most:
            numbers = [numbers[0] if column.part == "year" else least, most]
        widths = {len(value) for value in values}
        padded = column.part in _RANGES or any(len(value) > 1 and value.startswith("0") for value in values)
        digits = {"digits": str(max(widths))} if padded and len(widths) == 1 else {}
        return {"type": "integer", "range": f"{numbers[0]},{numbers[-1]}", **digits}
    if not values or not all(map(_ENUMERABLE.fullmatch, values)) or any(escape(value) != value for value in values):
        raise OptionError(f"projection: Athena cannot list the values of {column.name}: leave projection out")
    return {"type": "enum", "values": ",".join(values)}


def _is_day(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _spark(name: TableName, table: TableDefinition) -> str:
    quoted = f"{dotted(name.database)}.{back_quoted(name.table)}"
    columns = [f"  {back_quoted(column.name)} {_spark_type(column.arrow_type)}"
               for column in (*table.columns, *table.partition_columns)]  # fmt: skip
    lines = [f"CREATE DATABASE IF NOT EXISTS {dotted(name.database)};", "", f"CREATE TABLE IF NOT EXISTS {quoted} ("]
    lines += [",\n".join(columns), f") USING {table.format.upper()}"]
    if options := FILE_FACTS[table.format].spark_options:
        lines.append(f"OPTIONS ({_pairs(options)})")
    if table.partition_columns:
        lines.append(f"PARTITIONED BY ({', '.join(back_quoted(column.name) for column in table.partition_columns)})")
    lines.append(f"LOCATION {hive_text(location_uri(table.location))};")
    if table.partition_columns:
        lines += ["", _partitions(quoted, table)]
    return "\n".join(lines) + "\n"


def _spark_type(arrow_type: Any) -> str:
    """Return Spark's type, which allows any names of members of structs, and times without a zone."""
    if pa.types.is_timestamp(arrow_type):
        return "TIMESTAMP_NTZ" if arrow_type.tz is None else "TIMESTAMP"
    inside = fields_within(arrow_type)
    if is_list(arrow_type):
        return f"ARRAY<{_spark_type(inside[0].type)}>"
    if pa.types.is_map(arrow_type):
        return f"MAP<STRING, {_spark_type(inside[0].type)}>"
    if pa.types.is_struct(arrow_type):
        return f"STRUCT<{', '.join(f'{back_quoted(member.name)}: {_spark_type(member.type)}' for member in inside)}>"
    return hive_type(arrow_type, "").upper()


def _duckdb(name: TableName, table: TableDefinition) -> str:
    facts = FILE_FACTS[table.format]
    if not facts.duckdb_reader:
        raise OptionError(f"DuckDB does not read {table.format}: scan into parquet for it")
    pattern = f"{'**/' if table.partition_columns else ''}*.{facts.duckdb_ending}"
    options = list(facts.duckdb_arguments)
    if any(column.folder for column in table.partition_columns):
        # The value of a folder would replace that of an attribute.
        options.append("hive_partitioning = false")
    elif table.partition_columns:
        types = ", ".join(f"{sql_text(column.name)}: {_duckdb_type(column.type)}" for column in table.partition_columns)
        options += ["hive_partitioning = true", f"hive_types = {{{types}}}"]
    arguments = ", ".join([files_below(table.location, pattern), *options])
    database, own = double_quoted(name.database), double_quoted(name.table)
    return (
        f"CREATE SCHEMA IF NOT EXISTS {database};\n\n"
        f"CREATE OR REPLACE VIEW {database}.{own} AS\nSELECT * FROM {facts.duckdb_reader}({arguments});\n"
    )


def _duckdb_type(hive: str) -> str:
    return {"string": "VARCHAR", "int": "INTEGER"}.get(hive, hive.upper())


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{hive_text(key)} = {hive_text(value)}" for key, value in values.items())


_WRITERS: dict[Dialect, Callable[[TableName, TableDefinition], str]] = {
    "duckdb": _duckdb,
    "redshift": redshift_ddl,
    "trino": trino_ddl,
    "snowflake": snowflake_ddl,
}
"""Writers of the dialects that share no syntax."""
