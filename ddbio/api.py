"""Offer the verbs as functions of keyword arguments; check the options, then leave the work to ``ddbio.ops``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ddbio.ops import export_fold, export_read, export_start, infer, read
from ddbio.ops import load as writing
from ddbio.ops.digest import digest_source
from ddbio.ops.scan import scan_to_files
from ddbio.options import (
    ConnectionOptions,
    ExportReadOptions,
    ExportStartOptions,
    ExportToFilesOptions,
    LoadOptions,
    ScanOptions,
    ScanToFilesOptions,
    WaitOptions,
    WriteOptions,
    parse_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ddbio.core.export_job import ExportEntry, ExportJob
    from ddbio.core.item_schema import ItemSchema
    from ddbio.ops.digest import Source as DigestSource
    from ddbio.ops.export_report import ExportReadReport
    from ddbio.ops.infer import Source
    from ddbio.ops.report import ScanReport, WriteReport
    from ddbio.ops.sources import Rows


def read_table(table: str, **options: Any) -> pa.Table:
    """Return a DynamoDB table as an Arrow table, every value exact; no JVM is started.

    What does not fit its column is kept, as DynamoDB JSON, in the last column ``_rescue``.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        Fields of :class:`ddbio.options.ScanOptions`: ``columns``, ``schema``, ``rcu_per_second``, ``segments``,
        ``consistent``, ``endpoint_url``, ``region`` and others.

    Returns
    -------
    pyarrow.Table
        ``[n_items × n_columns]``; DynamoDB's own types are in the field metadata (``ddb:type``).

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return read.read_table(parse_options(ScanOptions, {**options, "table": table}))


def scan_batches(table: str, **options: Any) -> Iterator[pa.RecordBatch]:
    """Yield a DynamoDB table as record batches of one schema, while several lanes read ahead.

    Memory is bounded whatever the table's size. Closing the iterator stops the lanes.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        Fields of :class:`ddbio.options.ScanOptions`, as for :func:`read_table`.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return read.scan_batches(parse_options(ScanOptions, {**options, "table": table}))


def scan(
    table: str, dest: str | os.PathLike[str], *, master: str | None = None, conf: Mapping[str, str] | None = None,
    **options: Any,
) -> ScanReport:  # fmt: skip
    """Scan a DynamoDB table into Parquet files that appear all together, with a manifest, or not at all.

    Parameters
    ----------
    table
        Name or ARN.
    dest
        ``s3://bucket/prefix`` or a local folder.
    master, conf
        Spark master and configuration, for a session that has to be started.
    **options
        Fields of :class:`ddbio.options.ScanToFilesOptions`: those of :func:`read_table` and ``mode``, ``engine``,
        ``target_file_bytes``, ``compression``, ``digest``, ``tasks``.

    Raises
    ------
    DdbioError
        Nothing of the job is then visible at the target.
    """
    values = {**options, "table": table, "dest": os.fspath(dest)}
    return scan_to_files(parse_options(ScanToFilesOptions, values), master=master, conf=conf)


def infer_schema(source: Source, **options: Any) -> ItemSchema:
    """Return what a source's items look like: a schema to merge, compare, save and give back as ``schema=``.

    Parameters
    ----------
    source
        Bytes are DynamoDB JSON; an ``s3://`` URI or an existing path is a file, a folder or a native export; any other
        text is the name of a table.
    **options
        Fields of :class:`ddbio.options.ScanOptions`, for a table or S3.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    table = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "bytes"
    return infer.infer_schema(source, parse_options(ScanOptions, {**options, "table": table}))


def write_table(data: Rows, table: str, **options: Any) -> WriteReport:
    """Write rows into a live table; return when every row is written, skipped or rejected. No JVM is started.

    Parameters
    ----------
    data
        Arrow table, record batch, reader, any iterable of these, or a data frame. Null means missing.
    table
        Name or ARN.
    **options
        Fields of :class:`ddbio.options.WriteOptions`: ``mode``, ``newer_by``, ``wcu_per_second``, ``write_ratio``,
        ``reject_to``, ``lanes``, ``endpoint_url``, ``region`` and others.

    Raises
    ------
    PartialWriteError
        If a row cannot be written and ``reject_to`` is not given.
    DdbioError
        What ended the write; what was acknowledged before stays written.
    """
    return writing.write_table(data, parse_options(WriteOptions, {**options, "table": table}))


def load(source: str | os.PathLike[str], table: str, **options: Any) -> WriteReport:
    """Write the rows of files into a live table; see :func:`write_table`.

    Parameters
    ----------
    source
        File, folder or glob, on this machine or under ``s3://``: Parquet, ORC, JSON Lines, CSV or Arrow.
    table
        Name or ARN.
    **options
        Fields of :class:`ddbio.options.LoadOptions`.

    Raises
    ------
    DdbioError
        As :func:`write_table`.
    """
    values = {**options, "source": os.fspath(source), "table": table}
    return writing.load(parse_options(LoadOptions, values))


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


def export_batches(source: str | os.PathLike[str], **options: Any) -> Iterator[pa.RecordBatch]:
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
    return export_read.export_batches(parse_options(ExportReadOptions, {**options, "source": os.fspath(source)}))


def export_to_files(
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
    return export_read.export_to_files(parse_options(ExportToFilesOptions, values), master=master, conf=conf)


def digest(source: DigestSource, **options: Any) -> str:
    """Return the digest of a source's items: the same for the same items, whatever their order, files or column types.

    Parameters
    ----------
    source
        A ``pyarrow`` table or record batch; bytes of DynamoDB JSON; an ``s3://`` URI or an existing path of Parquet
        files or JSON lines; any other text is the name of a table, which is scanned.
    **options
        Fields of :class:`ddbio.options.ScanOptions`, for a table or S3; of a table, NULL is told from missing.

    Returns
    -------
    str
        32 hexadecimal digits.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    table = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "data"
    return digest_source(source, parse_options(ScanOptions, {"nulls": "keep", **options, "table": table})).hexdigest()


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
