"""Write tables: from rows in memory, from files, from other tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.progress import ProgressReporter
from ddbio.api.signature import takes
from ddbio.ops import copy as copying
from ddbio.ops.loads import load
from ddbio.options import CopyOptions, LoadOptions, WriteOptions, parse_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from ddbio.api.keywords import CopyKeywords, LoadKeywords, WriteKeywords
    from ddbio.api.progress import Progress
    from ddbio.core.loads.plan import LoadPlan
    from ddbio.ops.copy import CopyPlan, CopyReport
    from ddbio.ops.job.report import WriteReport
    from ddbio.ops.loads.sources import Rows


@takes(WriteOptions)
def write_table(data: Rows, table: str, **options: Unpack[WriteKeywords]) -> WriteReport:
    """Write rows into a live table; return when every row is written, skipped or rejected. No JVM is started.

    Parameters
    ----------
    data
        Arrow table, record batch, reader, any iterable of these, or a data frame; or dictionaries: an iterable of rows,
        or one of lists by column. Null means missing.
    table
        Name or ARN.
    **options
        ``mode`` is ``upsert``, ``create``, ``update`` or ``delete``; ``newer_by`` keeps newer items; ``wcu_per_second``
        or ``write_ratio`` is the budget; ``reject_to`` keeps rows that cannot be written; see
        :class:`ddbio.WriteKeywords` for all.

    Raises
    ------
    PartialWriteError
        If a row cannot be written and ``reject_to`` is not given.
    DdbioError
        What ended the write; what was acknowledged before stays written.
    """
    return load.write_table(data, parse_options(WriteOptions, {**options, "table": table}))


@takes(LoadOptions)
def load_files(
    source: str | os.PathLike[str], table: str, *, master: str | None = None, conf: Mapping[str, str] | None = None,
    progress: Callable[[Progress], None] | None = None, **options: Unpack[LoadKeywords],
) -> WriteReport:  # fmt: skip
    """Write the rows of files into a live table; see :func:`write_table`.

    Parameters
    ----------
    source
        File, folder or glob, local or under ``s3://``: Parquet, ORC, JSON Lines, CSV or Arrow.
    table
        Name or ARN.
    master, conf
        Spark master and configuration, for a session that has to be started.
    progress
        Is called about once a second, and at the end, with a :class:`ddbio.Progress`.
    **options
        Those of :func:`write_table`, and: ``job_id`` names the load, so that it can be continued; ``engine`` says where
        it runs; ``json_format`` and ``hive_partitions`` how files are read; ``create_table`` and ``key`` create a
        missing table; see :class:`ddbio.LoadKeywords` for all.

    Raises
    ------
    DdbioError
        As :func:`write_table`.
    """
    values = {**options, "source": os.fspath(source), "table": table}
    watch = None if progress is None else ProgressReporter(progress)
    return load.load_files(parse_options(LoadOptions, values), master=master, conf=conf, watch=watch)


@takes(LoadOptions)
def plan_load(
    source: str | os.PathLike[str], table: str, *, from_file: str | os.PathLike[str] | None = None,
    **options: Unpack[LoadKeywords],
) -> LoadPlan:  # fmt: skip
    """Return how files would be loaded, after describing the table and sampling one file; nothing is written.

    Parameters
    ----------
    source, table
        As for :func:`load_files`.
    from_file
        JSON that describes the table, which then need not exist: DescribeTable's answer.
    **options
        As for :func:`load_files`.

    Raises
    ------
    DdbioError
        If the load would be refused.
    """
    checked = parse_options(LoadOptions, {**options, "source": os.fspath(source), "table": table})
    return load.load_plan_of(checked, None if from_file is None else os.fspath(from_file))


@takes(CopyOptions)
def copy_table(
    source: str, target: str, *, progress: Callable[[Progress], None] | None = None, **options: Unpack[CopyKeywords]
) -> CopyReport:
    """Copy every item of a table, exactly as it is, into another table, also of another region or account.

    Parameters
    ----------
    source, target
        Names or ARNs; the tables have the same key.
    progress
        Is called about once a second, and at the end, with a :class:`ddbio.Progress`.
    **options
        ``create_target`` creates a missing target like the source; ``target_region``, ``target_profile`` and
        ``target_role_arn`` say where it is; ``rcu_per_second`` and ``wcu_per_second`` are the budgets; ``verify``
        compares digests; see :class:`ddbio.CopyKeywords` for all.

    Raises
    ------
    DdbioError
        What ended the copy; what was acknowledged before stays written, and running it again is safe.
    """
    watch = None if progress is None else ProgressReporter(progress)
    return copying.copy(parse_options(CopyOptions, {**options, "source": source, "target": target}), watch)


@takes(CopyOptions)
def plan_copy(
    source: str, target: str, *, from_file: str | os.PathLike[str] | None = None, **options: Unpack[CopyKeywords]
) -> CopyPlan:
    """Return how a table would be copied, after describing both tables and sampling the source; nothing is written.

    Parameters
    ----------
    source, target
        As for :func:`copy_table`.
    from_file
        JSON that describes the source, which then need not exist, and a new target like it: DescribeTable's answer
        with ``AverageItemSizeBytes``.
    **options
        As for :func:`copy_table`.

    Raises
    ------
    DdbioError
        If the copy would be refused.
    """
    checked = parse_options(CopyOptions, {**options, "source": source, "target": target})
    return copying.plan_copy(checked, None if from_file is None else os.fspath(from_file))
