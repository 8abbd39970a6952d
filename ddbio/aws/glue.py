"""Databases, tables and partitions of the Glue Data Catalog.

References
----------
https://docs.aws.amazon.com/glue/latest/webapi/WebAPI_Welcome.html
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ddbio.aws.control_plane import call, list_pages
from ddbio.errors import NotFoundError, ServiceError
from ddbio.retrying import retrying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddbio.aws.client import ClientSpec
    from ddbio.catalog.definition import TableName

# https://docs.aws.amazon.com/glue/latest/webapi/API_BatchCreatePartition.html, and BatchDeletePartition there
_MAX_CREATED_PER_CALL, _MAX_DELETED_PER_CALL = 100, 25


def read_table(spec: ClientSpec, name: TableName) -> dict[str, Any] | None:
    """Return the definition of a table by GetTable, or None if it does not exist."""
    try:
        reply = _call(spec, "GetTable", name, {"DatabaseName": name.database, "Name": name.table})
    except NotFoundError:
        return None
    return dict(reply["Table"])


def require_database(spec: ClientSpec, name: TableName) -> None:
    """Create the database of a table if it does not exist."""
    with suppress(NotFoundError):
        _call(spec, "GetDatabase", name, {"Name": name.database})
        return
    try:
        _call(spec, "CreateDatabase", name, {"DatabaseInput": {"Name": name.database}})
    except ServiceError as error:
        if error.code != "AlreadyExistsException":
            raise


def put_table(
    spec: ClientSpec,
    name: TableName,
    table: dict[str, Any],
    changed: Callable[[dict[str, Any]], dict[str, Any] | None],
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Create or update a table. Retry if it is changed concurrently.

    Parameters
    ----------
    table
        Definition of a new table.
    changed
        Returns the new definition for an existing one, or None if it stays unchanged.

    Returns
    -------
    tuple
        The previous definition, or None; and the written definition, or None if nothing was written.
    """

    def put() -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        existing = read_table(spec, name)
        if existing is None:
            require_database(spec, name)
            create_table(spec, name, table)
            return None, table
        wanted = changed(existing)
        if wanted is not None:
            update_table(spec, name, wanted, existing.get("VersionId"))
        return existing, wanted

    return retrying(put, on=_was_changed_meanwhile, attempts=3, base_seconds=0)


def _was_changed_meanwhile(error: Exception) -> bool:
    """Return whether the table was created or changed concurrently."""
    return isinstance(error, ServiceError) and error.code in {
        "AlreadyExistsException",
        "ConcurrentModificationException",
    }


def create_table(spec: ClientSpec, name: TableName, table: dict[str, Any]) -> None:
    """Create a table.

    Raises
    ------
    ServiceError
        If it exists, with the code ``AlreadyExistsException``.
    """
    _call(spec, "CreateTable", name, {"DatabaseName": name.database, "TableInput": table})


def update_table(spec: ClientSpec, name: TableName, table: dict[str, Any], version: str | None) -> None:
    """Update a table whose definition had this version when it was read.

    Raises
    ------
    ServiceError
        If it was changed since, with the code ``ConcurrentModificationException``.
    """
    members: dict[str, Any] = {"DatabaseName": name.database, "TableInput": table}
    _call(spec, "UpdateTable", name, members | ({"VersionId": version} if version else {}))


def read_partitions(spec: ClientSpec, name: TableName) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the partitions of a table by their values, as GetPartitions returns them."""
    members: dict[str, Any] = {"DatabaseName": name.database, "TableName": name.table}
    pages = list_pages(spec, "GetPartitions", str(name), members, service="glue")
    return {tuple(partition["Values"]): dict(partition) for page in pages for partition in page.get("Partitions", ())}


def create_partitions(spec: ClientSpec, name: TableName, partitions: Iterable[dict[str, Any]]) -> None:
    """Register partitions. Registered ones stay unchanged.

    Raises
    ------
    ServiceError
        If Glue rejects a partition; others may be registered.
    """
    for group in _groups(partitions, _MAX_CREATED_PER_CALL):
        _change_partitions(spec, "BatchCreatePartition", name, {"PartitionInputList": group}, "AlreadyExistsException")


def update_partitions(spec: ClientSpec, name: TableName, partitions: Iterable[dict[str, Any]]) -> None:
    """Update locations or columns of registered partitions, 100 per request.

    Raises
    ------
    ServiceError
        If Glue rejects a partition; others may be updated.
    """
    for group in _groups(partitions, _MAX_CREATED_PER_CALL):
        entries = [{"PartitionValueList": partition["Values"], "PartitionInput": partition} for partition in group]
        _change_partitions(spec, "BatchUpdatePartition", name, {"Entries": entries}, "")


def delete_partitions(spec: ClientSpec, name: TableName, values: Iterable[Sequence[str]]) -> None:
    """Delete partitions from a table. Missing ones are ignored.

    Raises
    ------
    ServiceError
        If Glue rejects a partition; others may be deleted.
    """
    for group in _groups(({"Values": list(partition_values)} for partition_values in values), _MAX_DELETED_PER_CALL):
        members = {"PartitionsToDelete": group}
        _change_partitions(spec, "BatchDeletePartition", name, members, "EntityNotFoundException")


def _change_partitions(
    spec: ClientSpec, operation: str, name: TableName, members: dict[str, Any], harmless: str
) -> None:
    reply = _call(spec, operation, name, {"DatabaseName": name.database, "TableName": name.table, **members})
    for error in reply.get("Errors") or ():
        detail = error.get("ErrorDetail", {})
        if detail.get("ErrorCode") != harmless:
            values = "/".join(error.get("PartitionValues", ()))
            raise ServiceError(
                f"glue:{operation} on {name} refused partition {values} ({detail.get('ErrorCode')}: "
                f"{detail.get('ErrorMessage')})",
                str(detail.get("ErrorCode", "")),
            )


def _groups(entries: Iterable[dict[str, Any]], size: int) -> Iterable[list[dict[str, Any]]]:
    remaining = iter(entries)
    while group := list(itertools.islice(remaining, size)):
        yield group


def _call(spec: ClientSpec, operation: str, name: TableName, members: dict[str, Any]) -> Any:
    # The client retries transient failures.
    return call(spec, operation, str(name), members, idempotent=False, service="glue")
