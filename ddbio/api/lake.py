"""Keep tables of a lake equal to DynamoDB tables."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.api.signature import takes
from ddbio.errors import OptionError
from ddbio.ops.lake import apply as applying
from ddbio.ops.lake import maintain as maintaining
from ddbio.ops.lake import policy as reading
from ddbio.options import ApplyOptions, ConnectionOptions, MaintainOptions, parse_options

if TYPE_CHECKING:
    from typing import Unpack

    from ddbio.api.keywords import ApplyKeywords, ConnectionKeywords, MaintainKeywords
    from ddbio.ops.lake.apply import ApplyPlan, ApplyReport
    from ddbio.ops.lake.maintain import MaintainPlan, MaintainReport


@takes(ApplyOptions)
def apply(log: Any, table: str | os.PathLike[str], **options: Unpack[ApplyKeywords]) -> ApplyReport:
    """Merge what is new of a log of changes into a table of a lake: a newer state of an item wins.

    Parameters
    ----------
    log
        Folder of the log of :func:`capture`, or of an incremental export; or changes as rows: a table of Arrow, or a
        DataFrame of polars, pandas or Spark, with the columns of a log.
    table
        Folder of the table: ``s3://bucket/prefix`` or a local one. It is made if there is none.
    **options
        ``format`` is the table's; see :class:`ddbio.ApplyKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no such log, or no change was captured yet.
    OptionError
        If the table is not one that changes are applied to, or has another key.
    SchemaError
        If rows are given that are no changes.
    ExportIncompleteError
        If an export is damaged, or leaves a gap behind the changes that the table has.
    TargetError
        If other writers are faster again and again, or the log lacks batches that were applied.
    """
    is_folder = isinstance(log, str | os.PathLike)
    source = os.fspath(log) if is_folder else "rows"
    parsed = parse_options(ApplyOptions, {**options, "source": source, "table": os.fspath(table)})
    if is_folder:
        return applying.apply_log(parsed)
    if hasattr(log, "sparkSession"):
        found: ApplyReport = importlib.import_module("ddbio.spark.lake").apply_frame(log, parsed)
        return found
    return applying.apply_rows(rows_of(log), parsed)


def rows_of(given: Any) -> pa.Table:
    """Return rows in memory as a table of Arrow.

    Raises
    ------
    OptionError
        If they are nothing that Arrow reads.
    """
    if isinstance(given, pa.Table):
        return given
    library = type(given).__module__.partition(".")[0]
    if library == "pandas":
        return pa.Table.from_pandas(given, preserve_index=False)
    if library == "polars":
        # Its stream has views of texts, which casts of older Arrow do not take.
        found: pa.Table = given.to_arrow()
        return found
    if hasattr(given, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(given).read_all()
    raise OptionError(f"log is a {type(given).__name__}: give a folder, a table of Arrow, or a DataFrame")


@takes(ApplyOptions)
def plan_apply(
    log: str | os.PathLike[str], table: str | os.PathLike[str], **options: Unpack[ApplyKeywords]
) -> ApplyPlan:
    """Return what :func:`apply` would do, and do none of it.

    Parameters
    ----------
    log, table, **options
        As for :func:`apply`.

    Raises
    ------
    NotFoundError
        If there is no such log, or no such table yet.
    """
    given = {**options, "source": os.fspath(log), "table": os.fspath(table)}
    return applying.plan_apply(parse_options(ApplyOptions, given))


@takes(MaintainOptions)
def maintain(table: str | os.PathLike[str], **options: Unpack[MaintainKeywords]) -> MaintainReport:
    """Rewrite the small files of a table of a lake as few, and let old tombstones go.

    Parameters
    ----------
    table
        Folder of the table.
    **options
        ``tombstones_older_than`` names an age; see :class:`ddbio.MaintainKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no such table.
    OptionError
        If ddbio did not make the table.
    TargetError
        If other writers are faster again and again.
    """
    return maintaining.maintain(parse_options(MaintainOptions, {**options, "table": os.fspath(table)}))


@takes(MaintainOptions)
def plan_maintain(table: str | os.PathLike[str], **options: Unpack[MaintainKeywords]) -> MaintainPlan:
    """Return what :func:`maintain` would rewrite and delete; nothing is written.

    Parameters
    ----------
    table, **options
        As for :func:`maintain`.

    Raises
    ------
    NotFoundError
        If there is no such table.
    OptionError
        If ddbio did not make the table.
    """
    return maintaining.plan_maintain(parse_options(MaintainOptions, {**options, "table": os.fspath(table)}))


@takes(ConnectionOptions)
def maintain_by_policy(
    path: str | os.PathLike[str], **options: Unpack[ConnectionKeywords]
) -> tuple[MaintainReport, ...]:
    """Maintain the tables of a lake that a file of TOML or YAML names, as it says.

    Parameters
    ----------
    path
        The file: ``defaults``, and ``tables``, a list of options with their ``table``.
    **options
        Of the connection; see :class:`ddbio.ConnectionKeywords`.

    Raises
    ------
    NotFoundError
        If there is no such file, or no such table.
    OptionError
        If the file is wrong, naming the table.
    TargetError
        If other writers are faster again and again.
    """
    policies = reading.read_policy(os.fspath(path), parse_options(ConnectionOptions, options))
    return tuple(maintaining.maintain(each) for each in policies)
