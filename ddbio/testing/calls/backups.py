"""Calls for on-demand backups, and for restores from a backup or to a point in time.

A restore takes no overrides of the table's definition.
"""

from __future__ import annotations

import json
import secrets
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ddbio.testing.calls.control import describe
from ddbio.testing.refusal import constraint, in_use, invalid, lacking, service_refusal, table_not_found
from ddbio.testing.tables.database import Backup
from ddbio.testing.tables.table import ItemStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.testing.request import Request
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.table import Index, Stored, Table
    from ddbio.testing.tables.vectors import VectorIndex

_AnyIndex = TypeVar("_AnyIndex", "Index", "VectorIndex")
_MAX_LISTED = 100
_MIN_NAME_LENGTH, _MAX_NAME_LENGTH = 3, 255


def create_backup(database: Database, request: Request) -> dict[str, Any]:
    """Back up a table."""
    name = request.required("BackupName")
    if not _MIN_NAME_LENGTH <= len(name) <= _MAX_NAME_LENGTH:
        raise constraint(name, "backupName", "have length between 3 and 255")
    table = _table(database, request.table_name())
    now = database.wall_clock.now()
    arn = f"{table.arn}/backup/{int(now * 1000):014d}-{secrets.token_hex(4)}"
    items = [stored for _, stored in table.store.snapshot().entries()]
    copy = replace(
        table,
        description=dict(table.description),
        indexes=dict(table.indexes),
        vector_indexes=dict(table.vector_indexes),
        store=ItemStore(),
    )
    backup = Backup(arn, name, copy, items, now, now + database.job_seconds)
    database.backups[arn] = backup
    return {"BackupDetails": {**backup.details(now), "BackupStatus": "CREATING"}}


def describe_backup(database: Database, request: Request) -> dict[str, Any]:
    """Describe one backup and its table."""
    return {"BackupDescription": _described(_backup(database, request), database.wall_clock.now())}


def delete_backup(database: Database, request: Request) -> dict[str, Any]:
    """Delete a backup."""
    backup = _backup(database, request)
    del database.backups[backup.arn]
    described = _described(backup, database.wall_clock.now())
    described["BackupDetails"]["BackupStatus"] = "DELETED"
    return {"BackupDescription": described}


def list_backups(database: Database, request: Request) -> dict[str, Any]:
    """List backups of one table or of all tables, the oldest first."""
    table = request.table_name() if "TableName" in request.members else None
    limit = request.integer("Limit", 1, _MAX_LISTED) or _MAX_LISTED
    after = request.text("ExclusiveStartBackupArn")
    arns = list(database.backups)
    if after is not None:
        arns = arns[arns.index(after) + 1 :] if after in database.backups else []
    backups = [database.backups[arn] for arn in arns if table in (None, database.backups[arn].table.name)]
    now = database.wall_clock.now()
    summaries = [
        {**backup.details(now), **{name: backup.source()[name] for name in ("TableName", "TableId", "TableArn")}}
        for backup in backups[:limit]
    ]
    more = {"LastEvaluatedBackupArn": backups[limit - 1].arn} if len(backups) > limit else {}
    return {"BackupSummaries": summaries, **more}


def restore_backup(database: Database, request: Request) -> dict[str, Any]:
    """Create a table from a backup."""
    backup = _backup(database, request)
    if database.wall_clock.now() < backup.ready_at:
        raise service_refusal("BackupInUseException", f"Backup is being created: {backup.arn}")
    origin = {"SourceBackupArn": backup.arn, "SourceTableArn": backup.table.arn}
    return _restored(database, request, backup.table, backup.items, {**origin, "RestoreDateTime": backup.created_at})


def restore_to_point_in_time(database: Database, request: Request) -> dict[str, Any]:
    """Create a table from the state of another table at a time."""
    member = "SourceTableArn" if "SourceTableArn" in request.members else "SourceTableName"
    table = _table(database, request.table_name(member))
    if table.journal is None or table.recovery is None:
        raise service_refusal(
            "PointInTimeRecoveryUnavailableException", f"Point in time recovery is not enabled for table '{table.name}'"
        )
    now = database.wall_clock.now()
    at = now if request.boolean("UseLatestRestorableTime") else request.required("RestoreDateTime")
    if not isinstance(at, (int, float)) or not int(table.recovery[0]) <= at <= now:
        raise service_refusal("InvalidRestoreTimeException", "The restore time is outside of the recovery window")
    items = table.journal.state(table.store.snapshot(), at).values()
    return _restored(database, request, table, items, {"SourceTableArn": table.arn, "RestoreDateTime": round(at, 3)})


def _restored(
    database: Database, request: Request, source: Table, items: Iterable[Stored], origin: dict[str, Any]
) -> dict[str, Any]:
    if any(member.endswith("Override") for member in request.members):
        raise lacking("an override of a restored table's definition")
    name = request.table_name("TargetTableName")
    if name in database.tables:
        raise service_refusal("TableAlreadyExistsException", f"Table already exists: {name}")
    table = _like(source, name)
    table.load((json.loads(stored.json), stored) for stored in items)
    table.description["RestoreSummary"] = {**origin, "RestoreInProgress": True}
    table.ready_at = database.wall_clock.now() + database.job_seconds
    database.add(table)
    return {"TableDescription": describe(table, "CREATING")}


def _like(source: Table, name: str) -> Table:
    """Return an empty table with the same definition. Time to live and recovery are not restored."""
    arn = f"{source.arn.rpartition('/')[0]}/{name}"
    indexes = {name: _empty(index, arn) for name, index in source.indexes.items()}
    vector_indexes = {name: _empty(index, arn) for name, index in source.vector_indexes.items()}
    lost = ("StreamSpecification", "LatestStreamLabel", "LatestStreamArn")
    description = {member: value for member, value in source.description.items() if member not in lost}
    description["TableId"] = str(uuid.uuid4())
    settings: dict[str, Any] = dict.fromkeys(("expiry", "recovery", "journal", "stream"))
    return replace(
        source,
        name=name,
        arn=arn,
        description=description,
        indexes=indexes,
        vector_indexes=vector_indexes,
        store=ItemStore(),
        ready_at=0.0,
        tags={},
        policy=None,
        **settings,
    )


def _empty(index: _AnyIndex, table_arn: str) -> _AnyIndex:
    arn = f"{table_arn}/index/{index.name}"
    return replace(index, arn=arn, description={**index.description, "IndexArn": arn}, store=ItemStore())


def _described(backup: Backup, now: float) -> dict[str, Any]:
    return {"BackupDetails": backup.details(now), "SourceTableDetails": backup.source()}


def _backup(database: Database, request: Request) -> Backup:
    arn = request.required("BackupArn")
    if "/backup/" not in arn:
        raise invalid("Invalid Backup ARN")
    if arn not in database.backups:
        raise service_refusal("BackupNotFoundException", f"Backup not found: {arn}")
    return database.backups[arn]


def _table(database: Database, name: str) -> Table:
    if name not in database.tables:
        raise table_not_found(f"Table not found: {name}")
    if database.tables[name].ready_at > database.wall_clock.now():
        raise in_use(f"Table is being created: {name}")
    return database.tables[name]
