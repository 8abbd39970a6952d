"""Start, await, describe and list the jobs that DynamoDB runs itself: exports, imports, bulk puts and backups."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops import backup
from ddbio.ops.exports import jobs as exports
from ddbio.ops.imports import bulk
from ddbio.ops.imports import jobs as imports
from ddbio.options import (
    BackupCreateOptions,
    BulkReportOptions,
    BulkStartOptions,
    ConnectionOptions,
    ExportStartOptions,
    ImportStartOptions,
    ImportWaitOptions,
    RestoreOptions,
    WaitOptions,
    parse_options,
)

if TYPE_CHECKING:
    from typing import Unpack

    from ddbio.api.keywords import (
        BackupCreateKeywords,
        BulkReportKeywords,
        BulkStartKeywords,
        ConnectionKeywords,
        ExportStartKeywords,
        ImportStartKeywords,
        ImportWaitKeywords,
        RestoreKeywords,
        WaitKeywords,
    )
    from ddbio.core.backups import BackupJob, BackupPlan, RestoreJob, RestorePlan
    from ddbio.core.exports.jobs import ExportEntry, ExportJob, ExportPlan
    from ddbio.core.imports.jobs import BulkEntry, BulkJob, BulkPlan, ImportEntry, ImportJob, ImportPlan
    from ddbio.ops.imports.bulk import BulkReport


@takes(ExportStartOptions)
def start_export(table: str, dest: str, **options: Unpack[ExportStartKeywords]) -> ExportJob:
    """Start the service's own export of a table to S3 and return at once; it uses no read units.

    Parameters
    ----------
    table
        Name or ARN.
    dest
        ``s3://bucket/prefix``; the service puts ``AWSDynamoDB/ID`` below it.
    **options
        ``at`` is the time of a full export; ``from_time`` and ``to_time`` make it incremental; ``enable_pitr`` turns
        point-in-time recovery on; see :class:`ddbio.ExportStartKeywords` for all.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do; nothing has then been started.
    """
    return exports.start(parse_options(ExportStartOptions, {**options, "table": table, "dest": dest}))


@takes(ExportStartOptions)
def plan_export(
    table: str, dest: str, *, from_file: str | os.PathLike[str] | None = None, **options: Unpack[ExportStartKeywords]
) -> ExportPlan:
    """Return what :func:`start_export` would request, after the same checks; nothing is started.

    Parameters
    ----------
    table, dest, from_file, **options
        As for :func:`start_export`; ``from_file`` is DescribeTable's answer as JSON, of a table that need not exist.

    Raises
    ------
    DdbioError
        The error with which :func:`start_export` would fail at its start.
    """
    checked = parse_options(ExportStartOptions, {**options, "table": table, "dest": dest})
    return exports.plan_of(checked, None if from_file is None else os.fspath(from_file))


@takes(WaitOptions)
def wait_export(arn: str, **options: Unpack[WaitKeywords]) -> ExportJob:
    """Return an export once it has completed.

    Parameters
    ----------
    arn
        As :func:`start_export` returned it.
    **options
        ``wait_seconds``, ``poll_seconds`` and those of the connection.

    Raises
    ------
    DdbioError
        If it fails, or still runs after ``wait_seconds``.
    """
    return exports.wait(parse_options(WaitOptions, {**options, "arn": arn}))


@takes(ConnectionOptions)
def describe_export(arn: str, **options: Unpack[ConnectionKeywords]) -> ExportJob:
    """Return what is known of an export.

    Parameters
    ----------
    arn
        As :func:`start_export` returned it.
    **options
        Those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return exports.describe(arn, parse_options(ConnectionOptions, options))


@takes(ConnectionOptions)
def list_exports(table: str | None = None, **options: Unpack[ConnectionKeywords]) -> list[ExportEntry]:
    """Return the exports of the last 90 days, of a table or of all.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        Those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return exports.list_of(table, parse_options(ConnectionOptions, options))


@takes(ImportStartOptions)
def start_import(source: str, table: str, **options: Unpack[ImportStartKeywords]) -> ImportJob:
    """Start the service's own import of objects into a new table and return at once; it uses no write units.

    Parameters
    ----------
    source
        ``s3://bucket/prefix``; if :func:`write_import_files` wrote it, its manifest says key, format and compression.
    table
        Name of the new table.
    **options
        ``key``, ``gsi``, ``format`` and ``compression`` for objects without a manifest; ``billing``, ``rcu`` and
        ``wcu`` for the table; see :class:`ddbio.ImportStartKeywords` for all.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do; nothing has then been started.
    """
    return imports.start(parse_options(ImportStartOptions, {**options, "source": source, "table": table}))


@takes(ImportStartOptions)
def plan_import(source: str, table: str, **options: Unpack[ImportStartKeywords]) -> ImportPlan:
    """Return what :func:`start_import` would request, after the same checks; nothing is started.

    Parameters
    ----------
    source, table, **options
        As for :func:`start_import`.

    Raises
    ------
    DdbioError
        The error with which :func:`start_import` would fail at its start.
    """
    return imports.plan_of(parse_options(ImportStartOptions, {**options, "source": source, "table": table}))


@takes(ImportWaitOptions)
def wait_import(arn: str, **options: Unpack[ImportWaitKeywords]) -> ImportJob:
    """Return an import once it has completed and wrote as many items as its files hold.

    Parameters
    ----------
    arn
        As :func:`start_import` returned it.
    **options
        ``verify``, ``wait_seconds``, ``poll_seconds`` and those of the connection.

    Raises
    ------
    DdbioError
        If it fails, or the table does not hold what the files do, or it still runs after ``wait_seconds``.
    """
    return imports.wait(parse_options(ImportWaitOptions, {**options, "arn": arn}))


@takes(ConnectionOptions)
def describe_import(arn: str, **options: Unpack[ConnectionKeywords]) -> ImportJob:
    """Return what is known of an import.

    Parameters
    ----------
    arn
        As :func:`start_import` returned it.
    **options
        Those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return imports.describe(arn, parse_options(ConnectionOptions, options))


@takes(ConnectionOptions)
def list_imports(table: str | None = None, **options: Unpack[ConnectionKeywords]) -> list[ImportEntry]:
    """Return the imports of the last 90 days, of a table or of all.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        Those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return imports.list_of(table, parse_options(ConnectionOptions, options))


@takes(BulkStartOptions)
def start_bulk_put(source: str, table: str, reports: str, **options: Unpack[BulkStartKeywords]) -> BulkJob:
    """Start the service's own put of objects into an existing table, and return at once; experimental.

    Parameters
    ----------
    source
        ``s3://bucket/prefix``; if :func:`write_import_files` wrote it, its manifest says what it is.
    table
        Name or ARN.
    reports
        ``s3://bucket/prefix`` to which the service writes what it could not put.
    **options
        ``wcu_per_second``, ``tier``, ``format``, ``compression``; see :class:`ddbio.BulkStartKeywords` for all.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do; nothing has then been started.
    """
    values = {**options, "source": source, "table": table, "reports": reports}
    return bulk.start(parse_options(BulkStartOptions, values))


@takes(BulkStartOptions)
def plan_bulk_put(
    source: str, table: str, reports: str, *, from_file: str | os.PathLike[str] | None = None,
    **options: Unpack[BulkStartKeywords],
) -> BulkPlan:  # fmt: skip
    """Return what :func:`start_bulk_put` would request, after the same checks; nothing is started.

    Parameters
    ----------
    source, table, reports, from_file, **options
        As for :func:`start_bulk_put`; ``from_file`` is DescribeTable's answer as JSON, of a table that need not exist.

    Raises
    ------
    DdbioError
        The error with which :func:`start_bulk_put` would fail at its start.
    """
    checked = parse_options(BulkStartOptions, {**options, "source": source, "table": table, "reports": reports})
    return bulk.plan_of(checked, None if from_file is None else os.fspath(from_file))


@takes(WaitOptions)
def wait_bulk_put(arn: str, **options: Unpack[WaitKeywords]) -> BulkJob:
    """Return a bulk put once it has put every item of its objects.

    Parameters
    ----------
    arn
        As :func:`start_bulk_put` returned it.
    **options
        ``wait_seconds``, ``poll_seconds`` and those of the connection.

    Raises
    ------
    PartialWriteError
        If items were refused.
    DdbioError
        If it fails, or still runs after ``wait_seconds``.
    """
    return bulk.wait(parse_options(WaitOptions, {**options, "arn": arn}))


@takes(ConnectionOptions)
def describe_bulk_put(arn: str, **options: Unpack[ConnectionKeywords]) -> BulkJob:
    """Return what is known of a bulk put.

    Parameters
    ----------
    arn
        As :func:`start_bulk_put` returned it.
    **options
        Those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return bulk.describe(arn, parse_options(ConnectionOptions, options))


@takes(ConnectionOptions)
def cancel_bulk_put(arn: str, **options: Unpack[ConnectionKeywords]) -> BulkJob:
    """Ask that a bulk put stops; what it has put stays.

    Parameters
    ----------
    arn, **options
        As for :func:`describe_bulk_put`.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return bulk.cancel(arn, parse_options(ConnectionOptions, options))


@takes(ConnectionOptions)
def list_bulk_puts(**options: Unpack[ConnectionKeywords]) -> list[BulkEntry]:
    """Return the bulk operations of the last 90 days.

    Parameters
    ----------
    **options
        Those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return bulk.list_of(parse_options(ConnectionOptions, options))


@takes(BulkReportOptions)
def read_bulk_report(place: str | os.PathLike[str], **options: Unpack[BulkReportKeywords]) -> BulkReport:
    """Return what the service reports of items that a bulk put did not put: rows and counts; experimental.

    Parameters
    ----------
    place
        The operation's ARN, or the folder or ``s3://`` prefix of reports.
    **options
        ``reject_to`` and those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return bulk.read_reports(parse_options(BulkReportOptions, {**options, "place": os.fspath(place)}))


@takes(BackupCreateOptions)
def create_backup(table: str, **options: Unpack[BackupCreateKeywords]) -> BackupJob:
    """Back a table up; return once the backup can be restored.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        ``name``, ``digest``, ``wait_seconds`` and those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return backup.create(parse_options(BackupCreateOptions, {**options, "table": table}))


@takes(ConnectionOptions)
def list_backups(table: str | None = None, **options: Unpack[ConnectionKeywords]) -> list[BackupJob]:
    """Return the backups of a table or of all, those of AWS Backup included.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        Those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return backup.list_of(table, parse_options(ConnectionOptions, options))


@takes(RestoreOptions)
def restore_table(source: str, target: str, **options: Unpack[RestoreKeywords]) -> RestoreJob:
    """Make a new table of a backup, or of the state of a table at a time; return once it can be used.

    Parameters
    ----------
    source
        ARN of a backup; or name or ARN of a table that has point-in-time recovery.
    target
        Name of the new table.
    **options
        ``at``, ``expect_digest``, ``verify``, ``wait_seconds`` and those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return backup.restore(parse_options(RestoreOptions, {**options, "source": source, "target": target}))


@takes(RestoreOptions)
def plan_restore(
    source: str,
    target: str,
    *,
    from_file: str | os.PathLike[str] | None = None,
    **options: Unpack[RestoreKeywords],
) -> RestorePlan:
    """Return what :func:`restore_table` would do, after the same checks; nothing is started.

    Parameters
    ----------
    source, target
        As for :func:`restore_table`.
    from_file
        Describes the table that is restored as DescribeTable does, in JSON; nothing is called then.
    **options
        As for :func:`restore_table`.

    Raises
    ------
    DdbioError
        The error with which :func:`restore_table` would fail at its start.
    """
    statistics = None if from_file is None else os.fspath(from_file)
    return backup.plan_of(parse_options(RestoreOptions, {**options, "source": source, "target": target}), statistics)


@takes(BackupCreateOptions)
def plan_backup(
    table: str, *, from_file: str | os.PathLike[str] | None = None, **options: Unpack[BackupCreateKeywords]
) -> BackupPlan:
    """Return what :func:`create_backup` would request, and what it costs a month; nothing is started.

    Parameters
    ----------
    table, from_file, **options
        As for :func:`create_backup`; ``from_file`` is DescribeTable's answer as JSON, of a table that need not exist.

    Raises
    ------
    DdbioError
        If :func:`create_backup` would be refused.
    """
    checked = parse_options(BackupCreateOptions, {**options, "table": table})
    return backup.plan_of_backup(checked, None if from_file is None else os.fspath(from_file))
