"""Read tables; check the options, and leave the work to ``ddbio.ops``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ddbio.ops import infer
from ddbio.ops.digest import digest_source
from ddbio.ops.scans import read, to_files
from ddbio.options import (
    ScanOptions,
    ScanToFilesOptions,
    parse_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from ddbio.core.schema.item_schema import ItemSchema
    from ddbio.ops.digest import Source as DigestSource
    from ddbio.ops.infer import Source
    from ddbio.ops.job.report import ScanReport


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


def scan_to_files(
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
    return to_files.scan_to_files(parse_options(ScanToFilesOptions, values), master=master, conf=conf)


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


def digest(source: DigestSource, **options: Any) -> str:
    """Return the digest of a source's items: the same for the same items, whatever their order, files or column types.

    Parameters
    ----------
    source
        A ``pyarrow`` table, batch or reader, or any other data frame that offers itself as Arrow; a Spark DataFrame,
        which is digested where its partitions lie; bytes of DynamoDB JSON; an ``s3://`` URI or an existing path of
        Parquet files or JSON lines; any other text is the name of a table, which is scanned.
    **options
        Fields of :class:`ddbio.options.ScanOptions`, for a table or S3; of a table, NULL is told from missing. For
        Arrow data and DataFrames ``schema`` declares what their fields' metadata does not say, as sets.

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
