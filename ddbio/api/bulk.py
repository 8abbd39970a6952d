"""Let the service put files into tables that are there; new, and tried against stand-ins only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ddbio.ops.imports import bulk
from ddbio.options import BulkReportOptions, BulkStartOptions, ConnectionOptions, WaitOptions, parse_options

if TYPE_CHECKING:
    from ddbio.core.imports.jobs import BulkEntry, BulkJob
    from ddbio.ops.imports.bulk import BulkReport


def start_bulk_put(source: str, table: str, reports: str, **options: Any) -> BulkJob:
    """Start the service's own put of objects into a table that is there, and return at once.

    Parameters
    ----------
    source
        ``s3://bucket/prefix``; where :func:`ddbio.write_import_files` wrote it, its manifest says what it is.
    table
        Name or ARN.
    reports
        ``s3://bucket/prefix`` to which the service writes what it could not put.
    **options
        Fields of :class:`ddbio.options.BulkStartOptions`: ``wcu_per_second``, ``tier``, ``format``, ``compression``,
        ``client_token`` and those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do; nothing has then been started.
    """
    values = {**options, "source": source, "table": table, "reports": reports}
    return bulk.start(parse_options(BulkStartOptions, values))


def wait_bulk_put(arn: str, **options: Any) -> BulkJob:
    """Return a bulk put once it has put every item of its objects.

    Parameters
    ----------
    arn
        As :func:`start_bulk_put` returned it.
    **options
        Fields of :class:`ddbio.options.WaitOptions`.

    Raises
    ------
    PartialWriteError
        If items were refused.
    DdbioError
        If it fails, or still runs after ``wait_seconds``.
    """
    return bulk.wait(parse_options(WaitOptions, {**options, "arn": arn}))


def describe_bulk_put(arn: str, **options: Any) -> BulkJob:
    """Return what is known of a bulk put.

    Parameters
    ----------
    arn
        As :func:`start_bulk_put` returned it.
    **options
        Fields of :class:`ddbio.options.ConnectionOptions`.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return bulk.describe(arn, parse_options(ConnectionOptions, options))


def cancel_bulk_put(arn: str, **options: Any) -> BulkJob:
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


def list_bulk_puts(**options: Any) -> list[BulkEntry]:
    """Return the bulk operations of the last 90 days.

    Parameters
    ----------
    **options
        Fields of :class:`ddbio.options.ConnectionOptions`.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return bulk.list_of(parse_options(ConnectionOptions, options))


def read_bulk_report(place: str | os.PathLike[str], **options: Any) -> BulkReport:
    """Return what the service reports of items that a bulk put did not put: rows and counts; experimental.

    Parameters
    ----------
    place
        The operation's ARN, or the folder or ``s3://`` prefix of reports.
    **options
        Fields of :class:`ddbio.options.BulkReportOptions`: ``reject_to`` and those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return bulk.read_reports(parse_options(BulkReportOptions, {**options, "place": os.fspath(place)}))
