"""Read and change databases, tables and partitions of the Glue Data Catalog.

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
_CREATED_AT_ONCE, _DELETED_AT_ONCE = 100, 25


def read_table(spec: ClientSpec, name: TableName) -> dict[str, Any] | None:
    """Return the definition of a table as GetTable has it, or None if there is no such table."""
    try:
        reply = _call(spec, "GetTable", name, {"DatabaseName": name.database, "Name": name.table})
    except NotFoundError:
        return None
    return dict(reply["Table"])


def require_database(spec: ClientSpec, name: TableName) -> None:
    """Create the database of a table if there is none."""
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
    """Create a table, or change the one that is there; do it again if something else is faster.

    Parameters
    ----------
    table
        The definition of a new table.
    changed
        Returns the definition that a given table should have, or None if it stays.

    Returns
    -------
    tuple
        The definition before, None if there was none; and the definition that was written, None if none was.
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
    """Return whether something else made or changed the table meanwhile."""
    return isinstance(error, ServiceError) and error.code in {
        "AlreadyExistsException",
        "ConcurrentModificationException",
    }


def create_table(spec: ClientSpec, name: TableName, table: dict[str, Any]) -> None:
    """Create a table.

    Raises
    ------
    ServiceError
        If there is one, with the code ``AlreadyExistsException``.
    """
    _call(spec, "CreateTable", name, {"DatabaseName": name.database, "TableInput": table})


def update_table(spec: ClientSpec, name: TableName, table: dict[str, Any], version: str | None) -> None:
    """Change a table whose definition had this version when it was read.

    Raises
    ------
    ServiceError
        If it was changed since, with the code ``ConcurrentModificationException``.
    """
    members: dict[str, Any] = {"DatabaseName": name.database, "TableInput": table}
    _call(spec, "UpdateTable", name, members | ({"VersionId": version} if version else {}))


def read_partitions(spec: ClientSpec, name: TableName) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return a table's partitions as GetPartitions has them, by their values."""
    members: dict[str, Any] = {"DatabaseName": name.database, "TableName": name.table}
    pages = list_pages(spec, "GetPartitions", str(name), members, service="glue")
    return {tuple(each["Values"]): dict(each) for page in pages for each in page.get("Partitions", ())}


def create_partitions(spec: ClientSpec, name: TableName, partitions: Iterable[dict[str, Any]]) -> None:
    """Register partitions; those that are registered already stay as they are.

    Raises
    ------
    ServiceError
        If Glue refuses one; others may be registered.
    """
    for group in _groups(partitions, _CREATED_AT_ONCE):
        _change_partitions(spec, "BatchCreatePartition", name, {"PartitionInputList": group}, "AlreadyExistsException")


def update_partitions(spec: ClientSpec, name: TableName, partitions: Iterable[dict[str, Any]]) -> None:
    """Give registered partitions other locations or columns, a hundred at once.

    Raises
    ------
    ServiceError
        If Glue refuses one; others may be changed.
    """
    for group in _groups(partitions, _CREATED_AT_ONCE):
        entries = [{"PartitionValueList": each["Values"], "PartitionInput": each} for each in group]
        _change_partitions(spec, "BatchUpdatePartition", name, {"Entries": entries}, "")


def delete_partitions(spec: ClientSpec, name: TableName, values: Iterable[Sequence[str]]) -> None:
    """Take partitions out of a table; those that are not there are no error.

    Raises
    ------
    ServiceError
        If Glue refuses one; others may be gone.
    """
    for group in _groups(({"Values": list(each)} for each in values), _DELETED_AT_ONCE):
        members = {"PartitionsToDelete": group}
        _change_partitions(spec, "BatchDeletePartition", name, members, "EntityNotFoundException")


def _change_partitions(
    spec: ClientSpec, operation: str, name: TableName, members: dict[str, Any], harmless: str
) -> None:
    reply = _call(spec, operation, name, {"DatabaseName": name.database, "TableName": name.table, **members})
    for each in reply.get("Errors") or ():
        detail = each.get("ErrorDetail", {})
        if detail.get("ErrorCode") != harmless:
            values = "/".join(each.get("PartitionValues", ()))
            raise ServiceError(
                f"glue:{operation} on {name} refused partition {values} ({detail.get('ErrorCode')}: "
                f"{detail.get('ErrorMessage')})",
                str(detail.get("ErrorCode", "")),
            )


def _groups(entries: Iterable[dict[str, Any]], size: int) -> Iterable[list[dict[str, Any]]]:
    rest = iter(entries)
    while group := list(itertools.islice(rest, size)):
        yield group


def _call(spec: ClientSpec, operation: str, name: TableName, members: dict[str, Any]) -> Any:
    # The client repeats what fails for a moment.
    return call(spec, operation, str(name), members, idempotent=False, service="glue")
