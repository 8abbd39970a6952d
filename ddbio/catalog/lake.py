"""Changes of a catalog so that its table refers to a lake table: its folder, or newest metadata."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.catalog.definition import columns_of, nameable
from ddbio.catalog.glue import hive_columns
from ddbio.errors import OptionError, TargetError
from ddbio.formats.file_facts import FILE_FACTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddbio.catalog.definition import TableName

# The storage that Spark gives a Delta table in Glue; readers of Delta use the columns and files of its log.
_IO = "org.apache.hadoop"
_DELTA_STORAGE = {
    "InputFormat": f"{_IO}.mapred.SequenceFileInputFormat",
    "OutputFormat": f"{_IO}.hive.ql.io.HiveSequenceFileOutputFormat",
}
# The storage that Hudi's own sync creates, and Athena reads:
# https://docs.aws.amazon.com/athena/latest/ug/querying-hudi-copy-on-write-create-table-examples.html
HUDI_INPUT = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
"""The class by which Hive reads a Hudi table."""
HUDI_COLUMNS = tuple(
    pa.field(f"_hoodie_{name}", pa.string())
    for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
)
"""The columns that Hudi puts before those of a table."""
# Maximum length of a property in Hive's metastore; Spark joins the parts.
_PART_CHARS = 4000
ICEBERG = "iceberg://"
"""Prefix of the names of tables in catalogs of pyiceberg's configuration."""
_NUMBER = re.compile(r"/v(\d+)\.metadata\.json$")


@dataclass(frozen=True, slots=True)
class IcebergName:
    """Name of a table in a catalog of pyiceberg's configuration.

    Attributes
    ----------
    path
        The namespaces, and the table.
    """

    catalog: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        """Return the name in the syntax of the option ``catalog``."""
        return f"{ICEBERG}{self.catalog}/{'.'.join(self.path)}"


def parse_iceberg_name(text: str) -> IcebergName:
    """Return the table name in ``iceberg://catalog/namespace.table``.

    Raises
    ------
    OptionError
        If the text has no such name.
    """
    catalog, _, path = text.removeprefix(ICEBERG).partition("/")
    names = tuple(path.split("."))
    if not catalog or len(names) == 1 or not all(names) or "/" in path:
        raise OptionError(f"catalog: {text!r} names no table: write {ICEBERG}catalog/namespace.table")
    return IcebergName(catalog, names)


def lake_input(
    name: TableName, schema: pa.Schema, location: str, metadata_location: str | None = None
) -> dict[str, Any]:
    """Return the definition of a lake table for CreateTable.

    Parameters
    ----------
    metadata_location
        The newest metadata of an Iceberg table; a table without it is a Delta table.

    Raises
    ------
    SchemaError
        If Hive has no type for a column.
    """
    columns, _ = columns_of(nameable(schema), [])
    # https://docs.aws.amazon.com/athena/latest/ug/delta-lake-tables-getting-started.html
    own = {"EXTERNAL": "TRUE", "created_by": "ddbio"}
    parameters = {**own, "table_type": "DELTA", "spark.sql.sources.provider": "delta"}
    storage: dict[str, Any] = {
        "Columns": [{"Name": column, "Type": kind} for column, kind in hive_columns(columns)],
        "Location": location,
    }
    if metadata_location is None:
        library = f"{_IO}.hive.serde2.lazy.LazySimpleSerDe"
        serde = {"SerializationLibrary": library, "Parameters": {"serialization.format": "1", "path": location}}
        storage |= {**_DELTA_STORAGE, "SerdeInfo": serde}
    else:
        # https://iceberg.apache.org/docs/latest/aws/#glue-catalog
        parameters = {**own, "table_type": "ICEBERG", "metadata_location": metadata_location}
    return {
        "Name": name.table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": parameters,
        "StorageDescriptor": storage,
    }


def hudi_input(name: TableName, schema: pa.Schema, partition: str, location: str, spark_schema: str) -> dict[str, Any]:
    """Return the definition of a Hudi table for CreateTable, the same as from Hudi's own sync.

    Parameters
    ----------
    partition
        The partition column.
    spark_schema
        All columns as Spark's JSON, partition columns at the end: names in Glue are in lower case.

    Raises
    ------
    SchemaError
        If Hive has no type for a column.
    """
    columns, partitions = columns_of(nameable(hudi_schema(schema, partition)), [partition])
    parts = [spark_schema[start : start + _PART_CHARS] for start in range(0, len(spark_schema), _PART_CHARS)]
    provider = "spark.sql.sources"
    parameters = {
        "EXTERNAL": "TRUE",
        "created_by": "ddbio",
        f"{provider}.provider": "hudi",
        f"{provider}.schema.numParts": str(len(parts)),
        **{f"{provider}.schema.part.{number}": part for number, part in enumerate(parts)},
        f"{provider}.schema.numPartCols": "1",
        f"{provider}.schema.partCol.0": partition,
    }
    library = {"serialization.format": "1", "hoodie.query.as.ro.table": "false", "path": location}
    return {
        "Name": name.table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": parameters,
        "PartitionKeys": [{"Name": column, "Type": kind} for column, kind in hive_columns(partitions)],
        "StorageDescriptor": _hudi_storage(location, hive_columns(columns), library),
    }


def hudi_schema(schema: pa.Schema, partition: str) -> pa.Schema:
    """Return the columns of a Hudi table for catalogs: Hudi's own first, and the partition column last."""
    own = [field for field in schema if field.name != partition]
    return pa.schema(
        [
            field.with_nullable(nullable=True).remove_metadata()
            for field in (*HUDI_COLUMNS, *own, schema.field(partition))
        ]
    )


def hudi_partitions(table: Mapping[str, Any], values: Iterable[str]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the partitions of a Hudi table by their values, for BatchCreatePartition."""
    storage = table["StorageDescriptor"]
    columns = [(column["Name"], column["Type"]) for column in storage["Columns"]]
    partition = table["PartitionKeys"][0]["Name"]
    return {
        (value,): {
            "Values": [value],
            "StorageDescriptor": _hudi_storage(f"{storage['Location']}/{partition}={value}", columns, {}),
        }
        for value in sorted(set(values))
    }


def _hudi_storage(location: str, columns: Sequence[tuple[str, str]], parameters: Mapping[str, str]) -> dict[str, Any]:
    facts = FILE_FACTS["parquet"]
    return {
        "Columns": [{"Name": name, "Type": kind} for name, kind in columns],
        "Location": location,
        "InputFormat": HUDI_INPUT,
        "OutputFormat": facts.output_format,
        "SerdeInfo": {"SerializationLibrary": facts.serde, "Parameters": {**facts.serde_parameters, **parameters}},
    }


def changed_lake_input(
    name: TableName, existing: Mapping[str, Any], required: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the definition that refers an existing table to the newest state; None if it has this or a newer state.

    Raises
    ------
    TargetError
        If the table is of another folder or format.
    """
    location = str(existing.get("StorageDescriptor", {}).get("Location", "")).rstrip("/")
    existing_parameters, parameters = existing.get("Parameters") or {}, dict(required["Parameters"])
    kind, ours = _kind(existing_parameters), _kind(parameters)
    if location != required["StorageDescriptor"]["Location"] or kind != ours:
        raise TargetError(
            f"{name} is the {kind or 'plain'} table of {location}, not the {ours} table of "
            f"{required['StorageDescriptor']['Location']}: give another name",
            str(name),
        )
    before = existing_parameters.get("metadata_location")
    if before is not None and _number(before) > _number(parameters["metadata_location"]):
        return None
    columns = [column["Name"] for column in existing["StorageDescriptor"].get("Columns") or ()]
    if before == parameters.get("metadata_location") and columns == [
        column["Name"] for column in required["StorageDescriptor"]["Columns"]
    ]:
        return None
    if before is not None:
        parameters["previous_metadata_location"] = before
    return {**required, "Parameters": {**existing_parameters, **parameters}}


def _kind(parameters: Mapping[str, Any]) -> str:
    return str(parameters.get("table_type") or parameters.get("spark.sql.sources.provider") or "").upper()


def _number(location: str) -> int:
    match = _NUMBER.search(location)
    return 0 if match is None else int(match[1])
