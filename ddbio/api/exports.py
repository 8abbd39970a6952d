"""Drive and read the service's own exports; check the options, and leave the work to ``ddbio.ops``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ddbio.ops.exports import fold as export_fold
from ddbio.ops.exports import jobs as export_start
from ddbio.ops.exports import read as export_read
from ddbio.options import (
    ConnectionOptions,
    ExportFoldOptions,
    ExportReadOptions,
    ExportStartOptions,
    ExportToFilesOptions,
    WaitOptions,
    parse_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ddbio.core.exports.jobs import ExportEntry, ExportJob
    from ddbio.ops.exports.fold import ExportFoldReport
    from ddbio.ops.exports.read import ExportReadReport


def read_export(source: str | os.PathLike[str], **options: Any) -> pa.Table:
    """Return a native export as an Arrow table, verified against its manifests; no JVM is started.

    Parameters
    ----------
    source
        The folder that holds ``manifest-summary.json``: ``s3://bucket/prefix/AWSDynamoDB/ID`` or a local path, also of
        a copy.
    **options
        Fields of :class:`ddbio.options.ExportReadOptions`: ``schema``, ``on_misfit``, ``nulls``, ``sample_items`` and
        those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do; ExportIncompleteError names the file that is not as exported.
    """
    return export_read.read_export(parse_options(ExportReadOptions, {**options, "source": os.fspath(source)}))


def read_export_batches(source: str | os.PathLike[str], **options: Any) -> Iterator[pa.RecordBatch]:
    """Yield a native export as record batches of one schema, in bounded memory.

    A file is known to be whole only when its last row has been yielded.

    Parameters
    ----------
    source, **options
        As for :func:`read_export`.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return export_read.read_export_batches(parse_options(ExportReadOptions, {**options, "source": os.fspath(source)}))


def read_export_to_files(
    source: str | os.PathLike[str], dest: str | os.PathLike[str], *, master: str | None = None,
    conf: Mapping[str, str] | None = None, **options: Any,
) -> ExportReadReport:  # fmt: skip
    """Turn a native export into files that appear all together, once everything is verified, or not at all.

    Parameters
    ----------
    source
        As for :func:`read_export`.
    dest
        ``s3://bucket/prefix`` or a local folder.
    master, conf
        Spark master and configuration, for a session that has to be started.
    **options
        Fields of :class:`ddbio.options.ExportToFilesOptions`.

    Raises
    ------
    DdbioError
        Nothing of the job is then visible at the target.
    """
    values = {**options, "source": os.fspath(source), "dest": os.fspath(dest)}
    return export_read.read_export_to_files(parse_options(ExportToFilesOptions, values), master=master, conf=conf)


def fold_exports(
    source: str | os.PathLike[str], increments: Sequence[str | os.PathLike[str]], **options: Any
) -> pa.Table:
    """Return a table's state after a full export and the incremental exports that follow it, held in memory.

    Parameters
    ----------
    source
        The full export, as for :func:`read_export`.
    increments
        Incremental exports of the same table, in any order; their windows must leave no gap.
    **options
        As for :func:`read_export`.

    Raises
    ------
    DdbioError
        ExportIncompleteError names a window that is missing.
    """
    checked = parse_options(ExportReadOptions, {**options, "source": os.fspath(source)})
    return export_fold.fold_exports(checked, [os.fspath(each) for each in increments])


def fold_exports_to_files(
    source: str | os.PathLike[str], increments: Sequence[str | os.PathLike[str]], dest: str | os.PathLike[str], *,
    master: str | None = None, conf: Mapping[str, str] | None = None, **options: Any,
) -> ExportFoldReport:  # fmt: skip
    """Write a table's state after a full export and the increments that follow it, as files that appear together.

    Parameters
    ----------
    source, increments
        As for :func:`fold_exports`.
    dest
        ``s3://bucket/prefix`` or a local folder.
    master, conf
        Spark master and configuration, for a session that has to be started.
    **options
        Fields of :class:`ddbio.options.ExportFoldOptions`: ``as_of``, ``spill`` and those of
        :func:`read_export_to_files`.

    Raises
    ------
    DdbioError
        Nothing of the job is then visible at the target; ExportIncompleteError names a window that is missing.
    """
    checked = parse_options(ExportFoldOptions, {**options, "source": os.fspath(source), "dest": os.fspath(dest)})
    return export_fold.fold_to_files(checked, [os.fspath(each) for each in increments], master=master, conf=conf)


def start_export(table: str, dest: str, **options: Any) -> ExportJob:
    """Start the service's own export of a table to S3 and return at once; it costs no read units.

    Parameters
    ----------
    table
        Name or ARN.
    dest
        ``s3://bucket/prefix``; the service puts ``AWSDynamoDB/ID`` below it.
    **options
        Fields of :class:`ddbio.options.ExportStartOptions`: ``at``, ``from_time``, ``to_time``, ``view``, ``format``,
        ``kms_key``, ``client_token``, ``enable_pitr`` and those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do; nothing has then been started.
    """
    return export_start.start(parse_options(ExportStartOptions, {**options, "table": table, "dest": dest}))


def wait_export(arn: str, **options: Any) -> ExportJob:
    """Return an export once it has completed; its ``uri`` is what :func:`read_export` reads.

    Parameters
    ----------
    arn
        As :func:`start_export` returned it.
    **options
        Fields of :class:`ddbio.options.WaitOptions`: ``wait_seconds``, ``poll_seconds`` and those of the connection.

    Raises
    ------
    DdbioError
        If it fails, or still runs after ``wait_seconds``.
    """
    return export_start.wait(parse_options(WaitOptions, {**options, "arn": arn}))


def describe_export(arn: str, **options: Any) -> ExportJob:
    """Return what is known of an export.

    Parameters
    ----------
    arn
        As :func:`start_export` returned it.
    **options
        Fields of :class:`ddbio.options.ConnectionOptions`.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return export_start.describe(arn, parse_options(ConnectionOptions, options))


def list_exports(table: str | None = None, **options: Any) -> list[ExportEntry]:
    """Return the exports of the last 90 days, of a table or of all.

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
    return export_start.list_of(table, parse_options(ConnectionOptions, options))
