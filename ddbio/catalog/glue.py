"""Changes of a Glue table so that it matches a folder's files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.commit.snapshot import PUBLISHED
from ddbio.errors import SchemaError, TargetError
from ddbio.formats.file_facts import FILE_FACTS
from ddbio.formats.partitions import NULL_FOLDER
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.catalog.definition import Column, TableDefinition, TableName

# Folder of the files of one publication, below the folder that readers use.
_PUBLICATION = re.compile(rf"/{PUBLISHED}[^/]+$")

# The members of GetTable's response that UpdateTable accepts.
# https://docs.aws.amazon.com/glue/latest/webapi/API_TableInput.html
_UPDATABLE = (
    "Name", "Description", "Owner", "LastAccessTime", "LastAnalyzedTime", "Retention", "StorageDescriptor",
    "PartitionKeys", "TableType", "Parameters", "TargetTable",
)  # fmt: skip


@dataclass(frozen=True)
class CatalogReport(Result):
    """Result of a registration.

    Attributes
    ----------
    table
        The table, as ``glue://database.table``.
    action
        ``created``, ``updated`` or ``unchanged``: the action on the table itself.
    columns_added
        Columns that were added to it.
    partitions
        Number of its partitions now.
    partitions_added, partitions_removed
        Partitions that were registered, and those that were removed because they have no live file.
    partitions_moved
        Partitions with a new location, that of the newest publication, or with new columns.
    stale_files
        Files in the folder that are not live: engines that list the folder read them too, until a vacuum.
    """

    table: str
    action: str
    columns_added: tuple[str, ...]
    partitions: int
    partitions_added: int
    partitions_removed: int
    stale_files: int
    partitions_moved: int = 0


def table_input(name: TableName, definition: TableDefinition) -> dict[str, Any]:
    """Return the definition of a new table for CreateTable."""
    parameters = {"EXTERNAL": "TRUE", "classification": definition.format, "created_by": "ddbio"}
    parameters |= FILE_FACTS[definition.format].table_parameters
    return {
        "Name": name.table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": parameters,
        "PartitionKeys": _columns(definition.partition_columns),
        "StorageDescriptor": _storage(definition, _columns(definition.columns, definition.format), definition.location),
    }


def changed_input(
    name: TableName, existing: Mapping[str, Any], definition: TableDefinition
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Return the definition that adds new columns at the end of an existing table, or None, and those columns.

    Columns that the files lack stay. The table of a folder with publications moves to the newest publication.

    Raises
    ------
    TargetError
        If the table is of another folder, format or partitioning.
    SchemaError
        If a column has another type in the table.
    """
    storage = existing["StorageDescriptor"]
    location, input_format = str(storage.get("Location", "")).rstrip("/"), storage.get("InputFormat")
    if home_of(_plain(location)) != home_of(_plain(definition.location)):
        raise TargetError(
            f"{name} is the table of {location}, not of {definition.location}: give another name", str(name)
        )
    if input_format != FILE_FACTS[definition.format].input_format:
        raise TargetError(f"{name} reads {input_format}, and the files are {definition.format}: give another name", str(name))  # fmt: skip # noqa: E501
    keys = [key["Name"] for key in existing.get("PartitionKeys") or ()]
    if keys != [column.name.lower() for column in definition.partition_columns]:
        requested = ", ".join(column.name for column in definition.partition_columns) or "nothing"
        raise TargetError(f"{name} is partitioned by {', '.join(keys) or 'nothing'}, the files by {requested}: give another name", str(name))  # fmt: skip # noqa: E501
    types = {column["Name"].lower(): column.get("Type", "") for column in storage.get("Columns") or ()}
    added = []
    for column in _columns(definition.columns, definition.format):
        existing_type = types.get(column["Name"])
        if existing_type is None:
            added.append(column)
        elif _folded(existing_type) != _folded(column["Type"]):
            raise SchemaError(
                f"{column['Name']}: {name} has it as {existing_type}, the files as {column['Type']}: give the type by "
                "a schema or by types, or name another table"
            )
    is_same_location = _plain(location) == _plain(definition.location)
    if is_same_location and not added:
        return None, ()
    changed = {key: existing[key] for key in _UPDATABLE if key in existing}
    changed["StorageDescriptor"] = {**storage, "Columns": [*(storage.get("Columns") or ()), *added]}
    if not is_same_location:
        changed["StorageDescriptor"]["Location"] = f"{definition.location}/"
    return changed, tuple(column["Name"] for column in added)


def partition_inputs(
    definition: TableDefinition, columns: list[dict[str, str]]
) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the partitions by their values, for BatchCreatePartition.

    Parameters
    ----------
    columns
        The columns of the table in Glue: Athena and Trino read a partition by its own columns.
    """
    return {
        (partition := tuple(glue_values(values))): {
            "Values": list(partition),
            "StorageDescriptor": _storage(definition, columns, f"{definition.location}/{folder}"),
        }
        for values, folder in zip(definition.partitions, definition.folders, strict=True)
    }


@dataclass(frozen=True)
class PartitionChanges:
    """Changes of the partitions of a Glue table so that they match its files.

    Attributes
    ----------
    new, changed
        Partitions for BatchCreatePartition and BatchUpdatePartition.
    gone
        The values of the partitions without files.
    """

    new: list[dict[str, Any]]
    changed: list[dict[str, Any]]
    gone: list[tuple[str, ...]]


def partition_changes(
    required: Mapping[tuple[str, ...], dict[str, Any]], existing: Mapping[tuple[str, ...], Mapping[str, Any]], home: str
) -> PartitionChanges:
    """Return the required changes; partitions outside the folder of the table are not changed.

    Parameters
    ----------
    existing
        The partitions in Glue by their values, as returned by GetPartitions.
    home
        The folder of the table.
    """
    own = {
        values: partition
        for values, partition in existing.items()
        if f"{partition.get('StorageDescriptor', {}).get('Location', '')}/".startswith(f"{home}/")
    }
    changed = []
    for values, partition in required.items():
        if values in own and _state(own[values]["StorageDescriptor"]) != _state(partition["StorageDescriptor"]):
            retained = {name: own[values][name] for name in ("Parameters", "LastAccessTime") if name in own[values]}
            storage = {**own[values]["StorageDescriptor"], **partition["StorageDescriptor"]}
            changed.append({**retained, **partition, "StorageDescriptor": storage})
    return PartitionChanges(
        [partition for values, partition in required.items() if values not in existing],
        changed,
        [values for values in own if values not in required],
    )


def _state(storage: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    columns = [(column["Name"].lower(), _folded(column.get("Type", ""))) for column in storage.get("Columns") or ()]
    return str(storage.get("Location", "")).rstrip("/"), columns


def home_of(location: str) -> str:
    """Return the folder that readers use for a location, which may be that of a publication."""
    return _PUBLICATION.sub("", location)


def glue_values(values: Iterable[str | None]) -> list[str]:
    """Return the values of a partition in Glue's notation."""
    return [value or NULL_FOLDER for value in values]


def _storage(definition: TableDefinition, columns: list[dict[str, str]], location: str) -> dict[str, Any]:
    facts = FILE_FACTS[definition.format]
    return {
        "Columns": columns,
        "Location": f"{location.rstrip('/')}/",
        "InputFormat": facts.input_format,
        "OutputFormat": facts.output_format,
        "SerdeInfo": {"SerializationLibrary": facts.serde, "Parameters": dict(facts.serde_parameters)},
    }


def hive_columns(columns: Iterable[Column], file_format: str = "") -> list[tuple[str, str]]:
    """Return names and types of columns for Hive and Glue.

    Raises
    ------
    SchemaError
        If Hive has no such type.
    """
    facts = FILE_FACTS.get(file_format)
    has_types = facts is None or facts.has_types
    return [(column.name.lower(), column.type.lower() if has_types else "string") for column in columns]


def _columns(columns: Iterable[Column], file_format: str = "") -> list[dict[str, str]]:
    return [{"Name": name, "Type": kind} for name, kind in hive_columns(columns, file_format)]


def _folded(text: str) -> str:
    return text.lower().replace(" ", "")


def _plain(uri: str) -> str:
    return uri.replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1)
