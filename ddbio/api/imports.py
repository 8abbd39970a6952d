"""Write files for the service's own import, start it and wait for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ddbio.ops.imports import files as import_files
from ddbio.ops.imports import jobs as import_start
from ddbio.options import (
    ConnectionOptions,
    ImportFilesFromOptions,
    ImportFilesOptions,
    ImportStartOptions,
    ImportWaitOptions,
    parse_options,
)

if TYPE_CHECKING:
    from ddbio.core.imports.jobs import ImportEntry, ImportJob
    from ddbio.ops.imports.files import ImportFilesReport
    from ddbio.ops.loads.sources import Rows


def write_import_files(
    source: Rows | str | os.PathLike[str], dest: str | os.PathLike[str], **options: Any
) -> ImportFilesReport:
    """Write rows as files for the service's own import: each item checked, each key once, in random order.

    Parameters
    ----------
    source
        Text or a path names a file, folder or glob; anything else is rows, as for :func:`write_table`.
    dest
        ``s3://bucket/prefix`` or a local folder; the objects appear in ``data/`` below it, all together or not at all.
    **options
        Fields of :class:`ddbio.options.ImportFilesOptions`: ``key`` or ``like``, ``duplicates``, ``compression``,
        ``target_file_bytes``, ``mode``, ``digest`` and those of the connection.

    Raises
    ------
    EncodeError
        If a row is no item that DynamoDB takes, or has the key of another one.
    DdbioError
        What else went wrong; nothing of the job is then visible at the target.
    """
    values = {**options, "dest": os.fspath(dest)}
    if isinstance(source, (str, os.PathLike)):
        values["source"] = os.fspath(source)
        return import_files.write_files(parse_options(ImportFilesFromOptions, values))
    return import_files.write_rows(source, parse_options(ImportFilesOptions, values))


def start_import(source: str, table: str, **options: Any) -> ImportJob:
    """Start the service's own import of objects into a new table and return at once; it uses no write units.

    Parameters
    ----------
    source
        ``s3://bucket/prefix``; where :func:`write_import_files` wrote it, its manifest says key, format and
        compression.
    table
        Name of the new table.
    **options
        Fields of :class:`ddbio.options.ImportStartOptions`: ``key``, ``gsi``, ``billing``, ``rcu``, ``wcu``,
        ``format``, ``compression``, ``client_token`` and those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do; nothing has then been started.
    """
    return import_start.start(parse_options(ImportStartOptions, {**options, "source": source, "table": table}))


def wait_import(arn: str, **options: Any) -> ImportJob:
    """Return an import once it has completed and wrote as many items as its files hold.

    Parameters
    ----------
    arn
        As :func:`start_import` returned it.
    **options
        Fields of :class:`ddbio.options.ImportWaitOptions`: ``verify``, ``wait_seconds``, ``poll_seconds`` and those of
        the connection.

    Raises
    ------
    DdbioError
        If it fails, or the table does not hold what the files do, or it still runs after ``wait_seconds``.
    """
    return import_start.wait(parse_options(ImportWaitOptions, {**options, "arn": arn}))


def describe_import(arn: str, **options: Any) -> ImportJob:
    """Return what is known of an import.

    Parameters
    ----------
    arn
        As :func:`start_import` returned it.
    **options
        Fields of :class:`ddbio.options.ConnectionOptions`.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return import_start.describe(arn, parse_options(ConnectionOptions, options))


def list_imports(table: str | None = None, **options: Any) -> list[ImportEntry]:
    """Return the imports of the last 90 days, of a table or of all.

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
    return import_start.list_of(table, parse_options(ConnectionOptions, options))
