"""Read native exports, and write files for native imports."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.progress import ProgressReporter
from ddbio.api.signature import takes
from ddbio.ops.exports import fold, read
from ddbio.ops.imports import files
from ddbio.options import (
    ExportFoldOptions,
    ExportReadOptions,
    ExportToFilesOptions,
    ExportWindowsOptions,
    ImportFilesFromOptions,
    ImportFilesOptions,
    parse_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    import pyarrow as pa

    from ddbio.api.keywords import (
        ExportFoldKeywords,
        ExportReadKeywords,
        ExportToFilesKeywords,
        ExportWindowsKeywords,
        ImportFilesFromKeywords,
    )
    from ddbio.api.progress import Progress
    from ddbio.core.exports.fold import Window
    from ddbio.core.items.batch_stream import RecordBatchStream
    from ddbio.ops.exports.fold_plan import ExportFoldPlan, ExportFoldReport
    from ddbio.ops.exports.read import ExportReadPlan, ExportReadReport
    from ddbio.ops.imports.files import ImportFilesPlan, ImportFilesReport
    from ddbio.ops.loads.sources import Rows


@takes(ExportReadOptions)
def read_export(source: str | os.PathLike[str], **options: Unpack[ExportReadKeywords]) -> pa.Table:
    """Return a native export as an Arrow table, verified against its manifests; no JVM is started.

    Parameters
    ----------
    source
        The folder that holds ``manifest-summary.json``: ``s3://bucket/prefix/AWSDynamoDB/ID`` or a local path, also of
        a copy.
    **options
        ``schema``, ``on_misfit``, ``nulls`` and ``sample_items`` say which columns the items become; ``region`` and
        ``s3_endpoint_url`` are of the connection; see :class:`ddbio.ExportReadKeywords` for all.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do; ExportIncompleteError names the file that is not as exported.
    """
    return read.read_export(parse_options(ExportReadOptions, {**options, "source": os.fspath(source)}))


@takes(ExportReadOptions)
def read_export_batches(source: str | os.PathLike[str], **options: Unpack[ExportReadKeywords]) -> RecordBatchStream:
    """Return a native export as an iterator of record batches of one schema, in bounded memory.

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
    return read.read_export_batches(parse_options(ExportReadOptions, {**options, "source": os.fspath(source)}))


@takes(ExportToFilesOptions)
def read_export_to_files(
    source: str | os.PathLike[str], dest: str | os.PathLike[str], *, master: str | None = None,
    conf: Mapping[str, str] | None = None, progress: Callable[[Progress], None] | None = None,
    **options: Unpack[ExportToFilesKeywords],
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
    progress
        Is called about once a second, and at the end, with a :class:`ddbio.Progress`.
    **options
        Those of :func:`read_export`, and ``format``, ``mode``, ``engine``, ``target_file_bytes``, ``compression``; see
        :class:`ddbio.ExportToFilesKeywords` for all.

    Raises
    ------
    DdbioError
        Nothing of the job is then visible at the target.
    """
    values = {**options, "source": os.fspath(source), "dest": os.fspath(dest)}
    watch = None if progress is None else ProgressReporter(progress)
    return read.read_export_to_files(parse_options(ExportToFilesOptions, values), master=master, conf=conf, watch=watch)


@takes(ExportToFilesOptions)
def plan_read_export(
    source: str | os.PathLike[str], dest: str | os.PathLike[str], **options: Unpack[ExportToFilesKeywords]
) -> ExportReadPlan:
    """Return how an export would be read, its manifests verified and all its files found; nothing is written.

    Parameters
    ----------
    source, dest, **options
        As for :func:`read_export_to_files`.

    Raises
    ------
    DdbioError
        If the export is incomplete or the target would be refused.
    """
    values = {**options, "source": os.fspath(source), "dest": os.fspath(dest)}
    return read.plan_of(parse_options(ExportToFilesOptions, values))


@takes(ExportReadOptions)
def fold_exports(
    source: str | os.PathLike[str],
    increments: Sequence[str | os.PathLike[str]],
    **options: Unpack[ExportReadKeywords],
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
    return fold.fold_exports(checked, [os.fspath(each) for each in increments])


@takes(ExportFoldOptions)
def fold_exports_to_files(
    source: str | os.PathLike[str], increments: Sequence[str | os.PathLike[str]], dest: str | os.PathLike[str], *,
    master: str | None = None, conf: Mapping[str, str] | None = None, **options: Unpack[ExportFoldKeywords],
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
        Those of :func:`read_export_to_files`, and ``as_of``, the time of the wanted state, and ``spill``, a folder for
        intermediate rows; see :class:`ddbio.ExportFoldKeywords` for all.

    Raises
    ------
    DdbioError
        Nothing of the job is then visible at the target; ExportIncompleteError names a window that is missing.
    """
    checked = parse_options(ExportFoldOptions, {**options, "source": os.fspath(source), "dest": os.fspath(dest)})
    return fold.fold_to_files(checked, [os.fspath(each) for each in increments], master=master, conf=conf)


@takes(ExportFoldOptions)
def plan_fold_exports(
    source: str | os.PathLike[str], increments: Sequence[str | os.PathLike[str]], dest: str | os.PathLike[str],
    **options: Unpack[ExportFoldKeywords],
) -> ExportFoldPlan:  # fmt: skip
    """Return what :func:`fold_exports_to_files` would do, all manifests verified; nothing is written.

    Parameters
    ----------
    source, increments, dest, **options
        As for :func:`fold_exports_to_files`.

    Raises
    ------
    DdbioError
        If an export is damaged, or a window is missing.
    """
    checked = parse_options(ExportFoldOptions, {**options, "source": os.fspath(source), "dest": os.fspath(dest)})
    return fold.plan_of(checked, [os.fspath(each) for each in increments])


@takes(ExportWindowsOptions)
def export_windows(
    source: str | os.PathLike[str],
    increments: Sequence[str | os.PathLike[str]] = (),
    **options: Unpack[ExportWindowsKeywords],
) -> list[Window]:
    """Return the windows of the incremental exports to request so that they follow a full export without a gap.

    Nothing is requested: give ``start`` and ``end`` of each to :func:`start_export` as ``from_time`` and ``to_time``.

    Parameters
    ----------
    source
        The full export, as for :func:`read_export`.
    increments
        Incremental exports that exist already.
    **options
        ``until``, the time until which changes are wanted, and those of the connection.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    checked = parse_options(ExportWindowsOptions, {**options, "source": os.fspath(source)})
    return fold.windows_to_request(checked, [os.fspath(each) for each in increments])


@takes(ImportFilesFromOptions)
def write_import_files(
    source: Rows | str | os.PathLike[str], dest: str | os.PathLike[str], **options: Unpack[ImportFilesFromKeywords]
) -> ImportFilesReport:
    """Write rows as files for the service's own import: each item checked, each key once, in random order.

    Parameters
    ----------
    source
        Text or a path names a file, folder or glob; anything else is rows, as for :func:`write_table`.
    dest
        ``s3://bucket/prefix`` or a local folder; the objects appear in ``data/`` below it, all together or not at all.
    **options
        ``key`` or ``like`` (one is needed) says the key of the new table; ``duplicates``, ``format``, ``compression``,
        ``target_file_bytes``, ``mode`` and ``digest``; ``json_format`` and ``hive_partitions`` for a source of files;
        see :class:`ddbio.ImportFilesFromKeywords` for all.

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
        return files.write_files(parse_options(ImportFilesFromOptions, values))
    return files.write_rows(source, parse_options(ImportFilesOptions, values))


@takes(ImportFilesFromOptions)
def plan_import_files(
    source: str | os.PathLike[str], dest: str | os.PathLike[str], **options: Unpack[ImportFilesFromKeywords]
) -> ImportFilesPlan:
    """Return what :func:`write_import_files` would take and cost, from the list of the files alone.

    Parameters
    ----------
    source
        File, folder or glob.
    dest, **options
        As for :func:`write_import_files`.

    Raises
    ------
    DdbioError
        If there is no such file, or the plan is above a limit.
    """
    values = {**options, "source": os.fspath(source), "dest": os.fspath(dest)}
    return files.plan_of(parse_options(ImportFilesFromOptions, values))


@takes(ImportFilesFromOptions)
def check_import_files(
    source: str | os.PathLike[str], dest: str | os.PathLike[str], **options: Unpack[ImportFilesFromKeywords]
) -> ImportFilesReport:
    """Read and check every row as :func:`write_import_files` does, and write nothing.

    Parameters
    ----------
    source
        File, folder or glob.
    dest, **options
        As for :func:`write_import_files`.

    Raises
    ------
    EncodeError
        If a row is no item that DynamoDB takes, or has the key of another one.
    DdbioError
        What else went wrong.
    """
    values = {**options, "source": os.fspath(source), "dest": os.fspath(dest)}
    return files.check_files(parse_options(ImportFilesFromOptions, values))
