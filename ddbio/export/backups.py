"""Describe backups and restores as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
from ddbio.result import Result

if TYPE_CHECKING:
    from datetime import datetime

    from ddbio.aws.table_description import TableDescription


@dataclass(frozen=True)
class BackupJob(Result):
    """Describe a backup; times are ISO 8601.

    Attributes
    ----------
    arn, name, status, kind
        ``CREATING``, ``AVAILABLE`` or ``DELETED``; ``USER``, ``SYSTEM`` (of a deleted table) or ``AWS_BACKUP``.
    table, table_arn
        The table that was backed up.
    size_bytes, table_items
        As the service says; it counts items about every six hours.
    created_at, expires_at
        Time of the backup, and the time at which the service deletes it.
    items, digest
        Items and digest of the table, if requested.
    planned, actual
        Read units of the digest, bytes, seconds and USD of the first month, as planned and as it was.
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
    planned: Figures | None = None
    actual: Figures | None = None


@dataclass(frozen=True)
class BackupPlan(EstimatedPlan):
    """Describe a backup before it is requested: the table as DescribeTable has it, and what the backup costs."""

    table: TableDescription
    estimate: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return the table and the estimate as one."""
        return {**self.table.to_dict(), **self.estimate.to_dict()}


@dataclass(frozen=True)
class RestorePlan(EstimatedPlan):
    """Describe a restore completely before it is requested; ``at`` is None for a backup and for the latest time."""

    target: str
    source: str
    source_table: str
    backup_arn: str | None
    at: datetime | None
    size_bytes: int
    estimate: Estimate = field(default_factory=Estimate)


@dataclass(frozen=True)
class RestoreJob(Result):
    """Describe a restored table.

    Attributes
    ----------
    arn, table, status
        The new table; ``CREATING``, then ``ACTIVE``.
    source, restored_at
        The backup or table it was restored from, and the time whose state it has.
    items, digest
        Items and digest of the new table, if they were compared.
    verified
        Whether they were compared.
    seconds
        Time from the request until the table was usable.
    planned, actual
        Read units of the verification, bytes, seconds and USD, as planned and as it was.
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
    planned: Figures | None = None
    actual: Figures | None = None
