"""Read tables: into memory, into files, their schema, their digest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.progress import ProgressReporter
from ddbio.api.signature import takes
from ddbio.ops import infer
from ddbio.ops.digest import digest_source
from ddbio.ops.scans import plan, read, to_files
from ddbio.options import InspectOptions, ScanOptions, ScanToFilesOptions, parse_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    import pyarrow as pa

    from ddbio.api.keywords import InspectKeywords, ScanKeywords, ScanToFilesKeywords
    from ddbio.api.progress import Progress
    from ddbio.core.items.batch_stream import RecordBatchStream
    from ddbio.core.scans.plan import ScanPlan
    from ddbio.core.schema.item_schema import ItemSchema
    from ddbio.ops.digest import Source as DigestSource
    from ddbio.ops.infer import Source
    from ddbio.ops.job.report import ScanReport


@takes(ScanOptions)
def read_table(table: str, **options: Unpack[ScanKeywords]) -> pa.Table:
    """Return a DynamoDB table as an Arrow table, every value exact; no JVM is started.

    Values that do not fit their column are kept, as DynamoDB JSON, in the last column ``_rescue``.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        ``columns`` and ``index`` choose what is read, ``schema`` the columns' types, ``rcu_per_second`` or
        ``read_ratio`` the budget, ``consistent`` strongly consistent reads, ``region``, ``profile`` and
        ``endpoint_url`` the connection; see :class:`ddbio.ScanKeywords` for all.

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


@takes(ScanOptions)
def scan_batches(table: str, **options: Unpack[ScanKeywords]) -> RecordBatchStream:
    """Return a DynamoDB table as an iterator of record batches of one schema, while several lanes read ahead.

    Memory is bounded whatever the table's size. Closing the iterator stops the lanes. What reads Arrow streams takes it
    whole: DuckDB, polars, Delta.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        As for :func:`read_table`.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return read.scan_batches(parse_options(ScanOptions, {**options, "table": table}))


@takes(ScanToFilesOptions)
def scan_to_files(
    table: str, dest: str | os.PathLike[str], *, master: str | None = None, conf: Mapping[str, str] | None = None,
    progress: Callable[[Progress], None] | None = None, **options: Unpack[ScanToFilesKeywords],
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
    progress
        Is called about once a second, and at the end, with a :class:`ddbio.Progress`.
    **options
        Those of :func:`read_table`, and: ``mode`` says what to do if files are there, ``engine`` where the job runs,
        ``target_file_bytes`` and ``compression`` what the files are like, ``digest`` that the report has the digest of
        the items; see :class:`ddbio.ScanToFilesKeywords` for all.

    Raises
    ------
    DdbioError
        Nothing of the job is then visible at the target.
    """
    values = {**options, "table": table, "dest": os.fspath(dest)}
    watch = None if progress is None else ProgressReporter(progress)
    return to_files.scan_to_files(parse_options(ScanToFilesOptions, values), master=master, conf=conf, watch=watch)


@takes(ScanToFilesOptions)
def plan_scan(
    table: str, dest: str | os.PathLike[str] | None = None, *, from_file: str | os.PathLike[str] | None = None,
    **options: Unpack[ScanToFilesKeywords],
) -> ScanPlan:  # fmt: skip
    """Return how a table would be scanned, after describing and sampling it; nothing is written.

    Parameters
    ----------
    table
        Name or ARN.
    dest
        Target of :func:`scan_to_files`, which is then checked as well; None for a scan into memory.
    from_file
        JSON that describes the table, which then need not exist: DescribeTable's answer with ``AverageItemSizeBytes``.
    **options
        As for :func:`scan_to_files`.

    Raises
    ------
    DdbioError
        If the scan would be refused.
    """
    if from_file is not None:
        values = {**options, "table": table, "dest": "\0" if dest is None else os.fspath(dest)}
        return plan.plan_of_statistics(parse_options(ScanToFilesOptions, values), os.fspath(from_file))
    if dest is None:
        # A plan without a target has the options of one, which are not looked at; no path has a NUL.
        return plan.plan_of(parse_options(ScanToFilesOptions, {**options, "table": table, "dest": "\0"}))
    return plan.plan_to_files(parse_options(ScanToFilesOptions, {**options, "table": table, "dest": os.fspath(dest)}))


@takes(InspectOptions)
def infer_schema(source: Source, **options: Unpack[InspectKeywords]) -> ItemSchema:
    """Return what a source's items look like: a schema to merge, compare, save and give back as ``schema=``.

    Parameters
    ----------
    source
        Bytes are DynamoDB JSON; an ``s3://`` URI, a path with a slash or the name of a data file is a file, a folder or
        a native export; any other text is the name of a table.
    **options
        As for :func:`read_table`, for a table or S3; ``sample_items`` says how many items are read.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    table = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "bytes"
    return infer.infer_schema(source, parse_options(InspectOptions, {**options, "table": table}))


@takes(InspectOptions)
def digest(source: DigestSource, **options: Unpack[InspectKeywords]) -> str:
    """Return the digest of a source's items: the same for the same items, whatever their order, files or column types.

    Parameters
    ----------
    source
        A ``pyarrow`` table, batch or reader, or any other data frame that offers itself as Arrow; a Spark DataFrame,
        which is digested in its partitions; bytes of DynamoDB JSON; an ``s3://`` URI, a path with a slash or the name
        of a data file, of Parquet or JSON lines; any other text is the name of a table, which is scanned.
    **options
        As for :func:`read_table`, for a table or S3; NULL and missing are different in a table. For Arrow data and
        DataFrames ``schema`` declares what their fields' metadata does not say, as sets.

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
    return digest_source(
        source, parse_options(InspectOptions, {"nulls": "keep", **options, "table": table})
    ).hexdigest()
