"""Plan what to change in a catalog so that its table names a lake table: its folder, or newest metadata."""

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

# What Spark makes of a table of Delta in Glue; who reads Delta takes columns and files from its log.
_IO = "org.apache.hadoop"
_DELTA_STORAGE = {
    "InputFormat": f"{_IO}.mapred.SequenceFileInputFormat",
    "OutputFormat": f"{_IO}.hive.ql.io.HiveSequenceFileOutputFormat",
}
# What Hudi's own sync makes, and Athena reads:
# https://docs.aws.amazon.com/athena/latest/ug/querying-hudi-copy-on-write-create-table-examples.html
HUDI_INPUT = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
"""The class by which Hive reads a Hudi table."""
HUDI_COLUMNS = tuple(
    pa.field(f"_hoodie_{name}", pa.string())
    for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
)
"""The columns that Hudi puts before those of a table."""
# Hive's metastore keeps so many characters of a property; Spark puts the parts together again.
_PART_CHARS = 4000
ICEBERG = "iceberg://"
"""Begins the names of tables in catalogs that pyiceberg knows."""
_NUMBER = re.compile(r"/v(\d+)\.metadata\.json$")


@dataclass(frozen=True, slots=True)
class IcebergName:
    """The name of a table in a catalog of pyiceberg's configuration.

    Attributes
    ----------
    path
        The namespaces, and the table.
    """

    catalog: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        """Return the name as the option ``catalog`` takes it."""
        return f"{ICEBERG}{self.catalog}/{'.'.join(self.path)}"


def parse_iceberg_name(text: str) -> IcebergName:
    """Return the name that ``iceberg://catalog/namespace.table`` says.

    Raises
    ------
    OptionError
        If it says none.
    """
    catalog, _, path = text.removeprefix(ICEBERG).partition("/")
    names = tuple(path.split("."))
    if not catalog or len(names) == 1 or not all(names) or "/" in path:
        raise OptionError(f"catalog: {text!r} names no table: write {ICEBERG}catalog/namespace.table")
    return IcebergName(catalog, names)


def lake_input(
    name: TableName, schema: pa.Schema, location: str, metadata_location: str | None = None
) -> dict[str, Any]:
    """Return the definition of a lake table, as CreateTable takes it.

    Parameters
    ----------
    metadata_location
        The newest metadata of an Iceberg table; a table without is one of Delta.

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
        "Columns": [{"Name": each, "Type": kind} for each, kind in hive_columns(columns)],
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
    """Return the definition of a Hudi table, as CreateTable takes it and Hudi's own sync makes it.

    Parameters
    ----------
    partition
        The column of the partitions.
    spark_schema
        All columns as Spark's JSON, those of partitions at the end: names in Glue have lower case.

    Raises
    ------
    SchemaError
        If Hive has no type for a column.
    """
    columns, partitions = columns_of(nameable(hudi_schema(schema, partition)), [partition])
    parts = [spark_schema[place : place + _PART_CHARS] for place in range(0, len(spark_schema), _PART_CHARS)]
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
        "PartitionKeys": [{"Name": each, "Type": kind} for each, kind in hive_columns(partitions)],
        "StorageDescriptor": _hudi_storage(location, hive_columns(columns), library),
    }


def hudi_schema(schema: pa.Schema, partition: str) -> pa.Schema:
    """Return the columns of a Hudi table with its own, and that of the partitions at the end, as catalogs have them."""
    own = [each for each in schema if each.name != partition]
    return pa.schema(
        [each.with_nullable(nullable=True).remove_metadata() for each in (*HUDI_COLUMNS, *own, schema.field(partition))]
    )


def hudi_partitions(table: Mapping[str, Any], values: Iterable[str]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the partitions of a Hudi table by their values, as BatchCreatePartition takes them."""
    storage = table["StorageDescriptor"]
    columns = [(each["Name"], each["Type"]) for each in storage["Columns"]]
    partition = table["PartitionKeys"][0]["Name"]
    return {
        (each,): {
            "Values": [each],
            "StorageDescriptor": _hudi_storage(f"{storage['Location']}/{partition}={each}", columns, {}),
        }
        for each in sorted(set(values))
    }


def _hudi_storage(location: str, columns: Sequence[tuple[str, str]], given: Mapping[str, str]) -> dict[str, Any]:
    facts = FILE_FACTS["parquet"]
    return {
        "Columns": [{"Name": each, "Type": kind} for each, kind in columns],
        "Location": location,
        "InputFormat": HUDI_INPUT,
        "OutputFormat": facts.output_format,
        "SerdeInfo": {"SerializationLibrary": facts.serde, "Parameters": {**facts.serde_parameters, **given}},
    }


def changed_lake_input(
    name: TableName, existing: Mapping[str, Any], wanted: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the definition with which an existing table names the newest state, or None if it does, or a newer one.

    Raises
    ------
    TargetError
        If the table is of another folder or format.
    """
    there = str(existing.get("StorageDescriptor", {}).get("Location", "")).rstrip("/")
    given, parameters = existing.get("Parameters") or {}, dict(wanted["Parameters"])
    kind, ours = _kind(given), _kind(parameters)
    if there != wanted["StorageDescriptor"]["Location"] or kind != ours:
        raise TargetError(
            f"{name} is the {kind or 'plain'} table of {there}, not the {ours} table of "
            f"{wanted['StorageDescriptor']['Location']}: give another name",
            str(name),
        )
    before = given.get("metadata_location")
    if before is not None and _number(before) > _number(parameters["metadata_location"]):
        return None
    columns = [each["Name"] for each in existing["StorageDescriptor"].get("Columns") or ()]
    if before == parameters.get("metadata_location") and columns == [
        each["Name"] for each in wanted["StorageDescriptor"]["Columns"]
    ]:
        return None
    if before is not None:
        parameters["previous_metadata_location"] = before
    return {**wanted, "Parameters": {**given, **parameters}}


def _kind(parameters: Mapping[str, Any]) -> str:
    return str(parameters.get("table_type") or parameters.get("spark.sql.sources.provider") or "").upper()


def _number(location: str) -> int:
    found = _NUMBER.search(location)
    return 0 if found is None else int(found[1])
