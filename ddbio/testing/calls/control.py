"""Answer CreateTable, DescribeTable, ListTables and DeleteTable; refuses to change the table it describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.testing.refusal import not_found
from ddbio.testing.tables.definition import define_table

if TYPE_CHECKING:
    from ddbio.testing.request import Request
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.table import Table

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ListTables.html
_MAX_LISTED = 100


def create_table(database: Database, request: Request) -> dict[str, Any]:
    """Create a table, which is usable at once."""
    table = define_table(request, database.defaults)
    database.add(table)
    return {"TableDescription": describe(table, "CREATING")}


def describe_table(database: Database, request: Request) -> dict[str, Any]:
    """Describe a table with its exact count and size."""
    table = existing_table(database, request)
    is_ready = database.wall.now() >= table.ready_at
    described = describe(table, "ACTIVE" if is_ready else "CREATING")
    if "RestoreSummary" in described:
        described["RestoreSummary"] = {**described["RestoreSummary"], "RestoreInProgress": not is_ready}
    return {"Table": described}


def delete_table(database: Database, request: Request) -> dict[str, Any]:
    """Delete a table at once."""
    table = existing_table(database, request)
    database.remove(table)
    return {"TableDescription": describe(table, "DELETING")}


def list_tables(database: Database, request: Request) -> dict[str, Any]:
    """List the names of tables in order."""
    limit = request.integer("Limit", 1, _MAX_LISTED) or _MAX_LISTED
    after = request.text("ExclusiveStartTableName") or ""
    names = sorted(name for name in database.tables if name > after)
    reply: dict[str, Any] = {"TableNames": names[:limit]}
    if len(names) > limit:
        reply["LastEvaluatedTableName"] = names[limit - 1]
    return reply


def describe(table: Table, status: str) -> dict[str, Any]:
    """Return a table's description."""
    described = {
        **table.description,
        "TableName": table.name,
        "TableArn": table.arn,
        "TableStatus": status,
        "ItemCount": table.shelf.count,
        "TableSizeBytes": table.shelf.size_bytes,
        "DeletionProtectionEnabled": False,
    }
    for kind in ("Global", "Local"):
        indexes = [
            {**index.description, "ItemCount": index.shelf.count, "IndexSizeBytes": index.shelf.size_bytes}
            for index in table.indexes.values()
            if index.kind == kind
        ]
        if indexes:
            described[f"{kind}SecondaryIndexes"] = indexes
    return described


def existing_table(database: Database, request: Request) -> Table:
    """Return the table a request names; its absence has the text of calls that manage tables."""
    name = request.table_name()
    if name not in database.tables:
        raise not_found(f"Requested resource not found: Table: {name} not found")
    return database.tables[name]
