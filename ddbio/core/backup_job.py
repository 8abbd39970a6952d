"""Hold what is known of backups and restores; start none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.core.result import Result

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True)
class BackupJob(Result):
    """Hold what is known of a backup; times are ISO 8601.

    Attributes
    ----------
    arn, name, status, kind
        ``CREATING``, ``AVAILABLE`` or ``DELETED``; ``USER``, ``SYSTEM`` (of a deleted table) or ``AWS_BACKUP``.
    table, table_arn
        What it is of.
    size_bytes, table_items
        The service's own figures; items are as many as it last counted, up to six hours before.
    created_at, expires_at
        When.
    items, digest
        Of the table, where they were asked for.
    """

    arn: str
    name: str
    status: str
    kind: str
    table: str
    table_arn: str
    size_bytes: int
    created_at: str
    expires_at: str | None
    table_items: int | None = None
    items: int | None = None
    digest: str | None = None


@dataclass(frozen=True)
class RestorePlan(Result):
    """State a restore completely before it is asked for; ``at`` is None for a backup and for the latest time."""

    target: str
    source: str
    source_table: str
    backup_arn: str | None
    at: datetime | None
    size_bytes: int


@dataclass(frozen=True)
class RestoreJob(Result):
    """Hold what is known of a restored table.

    Attributes
    ----------
    arn, table, status
        The new table; ``CREATING``, then ``ACTIVE``.
    source, restored_at
        What it was made of, and the time whose state it has.
    items, digest
        Of the new table, where they were compared.
    verified
        Whether they were.
    seconds
        From the request until it could be used.
    """

    arn: str
    table: str
    status: str
    source: str
    restored_at: str | None
    items: int | None = None
    digest: str | None = None
    verified: bool = False
    seconds: float = 0.0
