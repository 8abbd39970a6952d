"""Write, copy and create tables; check the options, and leave the work to ``ddbio.ops``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ddbio.ops import copy as copying
from ddbio.ops.loads import load as writing
from ddbio.options import (
    CopyOptions,
    CreateLikeOptions,
    LoadOptions,
    WriteOptions,
    parse_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.ops.copy import CopyReport, CreatedTable
    from ddbio.ops.job.report import WriteReport
    from ddbio.ops.loads.sources import Rows


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


def load_files(
    source: str | os.PathLike[str], table: str, *, master: str | None = None,
    conf: Mapping[str, str] | None = None, **options: Any,
) -> WriteReport:  # fmt: skip
    """Write the rows of files into a live table; see :func:`write_table`.

    Parameters
    ----------
    source
        File, folder or glob, on this machine or under ``s3://``: Parquet, ORC, JSON Lines, CSV or Arrow.
    table
        Name or ARN.
    master, conf
        Spark master and configuration, for a session that has to be started.
    **options
        Fields of :class:`ddbio.options.LoadOptions`.

    Raises
    ------
    DdbioError
        As :func:`write_table`.
    """
    values = {**options, "source": os.fspath(source), "table": table}
    return writing.load_files(parse_options(LoadOptions, values), master=master, conf=conf)


def copy_table(source: str, target: str, **options: Any) -> CopyReport:
    """Copy every item of a table, exactly as it is, into another table, also of another region or account.

    Parameters
    ----------
    source, target
        Names or ARNs; the tables have the same key.
    **options
        Fields of :class:`ddbio.options.CopyOptions`: ``create``, ``target_region``, ``target_profile``,
        ``rcu_per_second``, ``wcu_per_second``, ``mode``, ``newer_by``, ``verify`` and others.

    Raises
    ------
    DdbioError
        What ended the copy; what was acknowledged before stays written, and running it again is safe.
    """
    return copying.copy(parse_options(CopyOptions, {**options, "source": source, "target": target}))


def create_table_like(source: str, target: str, **options: Any) -> CreatedTable:
    """Create a table like another one, wait until it is ACTIVE, and return its name and the request that created it.

    Keys, indexes, billing, streams, encryption, table class, deletion protection and time to live are the source's.

    Parameters
    ----------
    source
        Name or ARN of the model.
    target
        Name of the new table.
    **options
        Fields of :class:`ddbio.options.CreateLikeOptions`: ``billing``, ``kms_key``, ``warm_write_units``,
        ``target_region`` and others.

    Raises
    ------
    TargetError
        If the target exists.
    DdbioError
        With what happened, to what, and what to do.
    """
    return copying.create_like(parse_options(CreateLikeOptions, {**options, "source": source, "target": target}))
