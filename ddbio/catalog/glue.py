"""Plan what to change in Glue so that its table is the one that a folder's files make."""

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

# Where the files of one publication lie, below the folder that readers know.
_PUBLICATION = re.compile(rf"/{PUBLISHED}[^/]+$")

# What UpdateTable takes of what GetTable returns.
# https://docs.aws.amazon.com/glue/latest/webapi/API_TableInput.html
_TAKEN = (
    "Name", "Description", "Owner", "LastAccessTime", "LastAnalyzedTime", "Retention", "StorageDescriptor",
    "PartitionKeys", "TableType", "Parameters", "TargetTable",
)  # fmt: skip


@dataclass(frozen=True)
class CatalogReport(Result):
    """Describe what was registered.

    Attributes
    ----------
    table
        The table, as ``glue://database.table``.
    action
        ``created``, ``updated`` or ``unchanged``: what became of the table itself.
    columns_added
        Columns that were added to it.
    partitions
        Partitions that it has now.
    partitions_added, partitions_removed
        Partitions that were registered, and those that were taken out since they have no live file.
    partitions_moved
        Partitions whose location is another one now, that of the newest publication, or that have got columns.
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


def table_input(name: TableName, wanted: TableDefinition) -> dict[str, Any]:
    """Return the definition of a new table, as CreateTable takes it."""
    parameters = {"EXTERNAL": "TRUE", "classification": wanted.format, "created_by": "ddbio"}
    parameters |= FILE_FACTS[wanted.format].table_parameters
    return {
        "Name": name.table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": parameters,
        "PartitionKeys": _columns(wanted.partition_columns),
        "StorageDescriptor": _storage(wanted, _columns(wanted.columns, wanted.format), wanted.location),
    }


def changed_input(
    name: TableName, existing: Mapping[str, Any], wanted: TableDefinition
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Return the definition with which an existing table holds new columns at its end, or None, and those columns.

    Columns that the files lack stay. The table of a folder that is published to moves to the newest publication.

    Raises
    ------
    TargetError
        The table is of another folder, format or partitioning.
    SchemaError
        A column has another type there.
    """
    storage = existing["StorageDescriptor"]
    there, format_there = str(storage.get("Location", "")).rstrip("/"), storage.get("InputFormat")
    if home_of(_plain(there)) != home_of(_plain(wanted.location)):
        raise TargetError(f"{name} is the table of {there}, not of {wanted.location}: give another name", str(name))
    if format_there != FILE_FACTS[wanted.format].input_format:
        raise TargetError(f"{name} reads {format_there}, and the files are {wanted.format}: give another name", str(name))  # fmt: skip # noqa: E501
    keys = [each["Name"] for each in existing.get("PartitionKeys") or ()]
    if keys != [each.name.lower() for each in wanted.partition_columns]:
        asked = ", ".join(each.name for each in wanted.partition_columns) or "nothing"
        raise TargetError(f"{name} is partitioned by {', '.join(keys) or 'nothing'}, the files by {asked}: give another name", str(name))  # fmt: skip # noqa: E501
    types = {each["Name"].lower(): each.get("Type", "") for each in storage.get("Columns") or ()}
    added = []
    for column in _columns(wanted.columns, wanted.format):
        known = types.get(column["Name"])
        if known is None:
            added.append(column)
        elif _folded(known) != _folded(column["Type"]):
            raise SchemaError(
                f"{column['Name']}: {name} has it as {known}, the files as {column['Type']}: give the type by a schema "
                "or by types, or name another table"
            )
    is_there = _plain(there) == _plain(wanted.location)
    if is_there and not added:
        return None, ()
    changed = {key: existing[key] for key in _TAKEN if key in existing}
    changed["StorageDescriptor"] = {**storage, "Columns": [*(storage.get("Columns") or ()), *added]}
    if not is_there:
        changed["StorageDescriptor"]["Location"] = f"{wanted.location}/"
    return changed, tuple(each["Name"] for each in added)


def partition_inputs(wanted: TableDefinition, columns: list[dict[str, str]]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the partitions by their values, as BatchCreatePartition takes them.

    Parameters
    ----------
    columns
        Those of the table in Glue: Athena and Trino read a partition by its own.
    """
    return {
        (found := tuple(glue_values(values))): {
            "Values": list(found),
            "StorageDescriptor": _storage(wanted, columns, f"{wanted.location}/{folder}"),
        }
        for values, folder in zip(wanted.partitions, wanted.folders, strict=True)
    }


@dataclass(frozen=True)
class PartitionChanges:
    """Say what to change so that the partitions of a table in Glue are those that its files make.

    Attributes
    ----------
    new, changed
        As BatchCreatePartition and BatchUpdatePartition take them.
    gone
        The values of those that have no files any more.
    """

    new: list[dict[str, Any]]
    changed: list[dict[str, Any]]
    gone: list[tuple[str, ...]]


def partition_changes(
    wanted: Mapping[tuple[str, ...], dict[str, Any]], there: Mapping[tuple[str, ...], Mapping[str, Any]], home: str
) -> PartitionChanges:
    """Return what to change; partitions that lie elsewhere stay as they are.

    Parameters
    ----------
    there
        The partitions in Glue by their values, as GetPartitions returns them.
    home
        The folder of the table.
    """
    own = {
        values: each
        for values, each in there.items()
        if f"{each.get('StorageDescriptor', {}).get('Location', '')}/".startswith(f"{home}/")
    }
    changed = []
    for values, each in wanted.items():
        if values in own and _state(own[values]["StorageDescriptor"]) != _state(each["StorageDescriptor"]):
            known = {name: own[values][name] for name in ("Parameters", "LastAccessTime") if name in own[values]}
            storage = {**own[values]["StorageDescriptor"], **each["StorageDescriptor"]}
            changed.append({**known, **each, "StorageDescriptor": storage})
    return PartitionChanges(
        [each for values, each in wanted.items() if values not in there],
        changed,
        [values for values in own if values not in wanted],
    )


def _state(storage: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    columns = [(each["Name"].lower(), _folded(each.get("Type", ""))) for each in storage.get("Columns") or ()]
    return str(storage.get("Location", "")).rstrip("/"), columns


def home_of(location: str) -> str:
    """Return the folder that readers know of a location, which may be that of a publication."""
    return _PUBLICATION.sub("", location)


def glue_values(values: Iterable[str | None]) -> list[str]:
    """Return the values of a partition as Glue names them."""
    return [value or NULL_FOLDER for value in values]


def _storage(wanted: TableDefinition, columns: list[dict[str, str]], location: str) -> dict[str, Any]:
    facts = FILE_FACTS[wanted.format]
    return {
        "Columns": columns,
        "Location": f"{location.rstrip('/')}/",
        "InputFormat": facts.input_format,
        "OutputFormat": facts.output_format,
        "SerdeInfo": {"SerializationLibrary": facts.serde, "Parameters": dict(facts.serde_parameters)},
    }


def hive_columns(columns: Iterable[Column], file_format: str = "") -> list[tuple[str, str]]:
    """Return names and types of columns as Hive and Glue have them.

    Raises
    ------
    SchemaError
        Hive has no such type.
    """
    facts = FILE_FACTS.get(file_format)
    has_types = facts is None or facts.has_types
    return [(each.name.lower(), each.type.lower() if has_types else "string") for each in columns]


def _columns(columns: Iterable[Column], file_format: str = "") -> list[dict[str, str]]:
    return [{"Name": name, "Type": kind} for name, kind in hive_columns(columns, file_format)]


def _folded(text: str) -> str:
    return text.lower().replace(" ", "")


def _plain(uri: str) -> str:
    return uri.replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1)
