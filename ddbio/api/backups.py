"""Make backups of tables and restore them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.ops import backup
from ddbio.options import BackupCreateOptions, ConnectionOptions, RestoreOptions, parse_options

if TYPE_CHECKING:
    from ddbio.core.backups import BackupJob, RestoreJob


def create_backup(table: str, **options: Any) -> BackupJob:
    """Back a table up; return once the backup can be restored.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        Fields of :class:`ddbio.options.BackupCreateOptions`: ``name``, ``digest``, ``wait_seconds`` and those of the
        connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return backup.create(parse_options(BackupCreateOptions, {**options, "table": table}))


def list_backups(table: str | None = None, **options: Any) -> list[BackupJob]:
    """Return the backups of a table or of all, those of AWS Backup included.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        Fields of :class:`ddbio.options.ConnectionOptions`.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return backup.list_of(table, parse_options(ConnectionOptions, options))


def restore_table(source: str, target: str, **options: Any) -> RestoreJob:
    """Make a new table of a backup, or of what a table was at a time; return once it can be used.

    Parameters
    ----------
    source
        ARN of a backup; or name or ARN of a table that has point-in-time recovery.
    target
        Name of the new table.
    **options
        Fields of :class:`ddbio.options.RestoreOptions`: ``at``, ``digest``, ``verify``, ``wait_seconds`` and those of
        the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return backup.restore(parse_options(RestoreOptions, {**options, "source": source, "target": target}))
