"""Prove what tables of a lake hold, and show the past of items."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddbio.api.signature import takes
from ddbio.ops.lake import history as histories
from ddbio.ops.lake import verify as verifying
from ddbio.ops.lake import views
from ddbio.options import HistoryOptions, VerifyOptions, ViewOptions, parse_options

if TYPE_CHECKING:
    from typing import Unpack

    import pyarrow as pa

    from ddbio.api.keywords import HistoryKeywords, VerifyKeywords, ViewKeywords
    from ddbio.ops.lake.verify import VerifyReport


@takes(VerifyOptions)
def verify(
    table: str | os.PathLike[str], lake: str | os.PathLike[str], **options: Unpack[VerifyKeywords]
) -> VerifyReport:
    """Return whether a table of a lake holds what the DynamoDB table holds, now or as of a time, and what differs.

    Parameters
    ----------
    table
        Name or ARN of the table, or the folder of a full export of it.
    lake
        Folder of the lake table: ``s3://bucket/prefix`` or a local one.
    **options
        ``at`` is the time as of which they are compared, by a full export below ``export_to``; ``log`` tells what
        items were that have changed since; see :class:`ddbio.VerifyKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no such table, export or lake table.
    OptionError
        If a time is given, and neither an export nor where one may go; or if the base of the lake table is newer.
    ExportIncompleteError
        If the export is damaged.
    """
    given = {**options, "table": os.fspath(table), "target": os.fspath(lake)}
    return verifying.verify(parse_options(VerifyOptions, given))


@takes(HistoryOptions)
def history(source: str | os.PathLike[str], **options: Unpack[HistoryKeywords]) -> pa.Table:
    """Return the states of an item, or of every item: each has ``valid_from``, ``valid_to`` and ``operation``.

    Parameters
    ----------
    source
        Folder of a log of :func:`capture`, which has every change; or of a lake table, whose versions have some.
    **options
        ``key`` is the item's key: ``S:user#7|N:19``, a JSON object of its attributes, or the plain value of a key of
        one; see :class:`ddbio.HistoryKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is neither a log nor a lake table.
    OptionError
        If the key is none of the table's.
    """
    return histories.history(parse_options(HistoryOptions, {**options, "source": os.fspath(source)}))


@takes(ViewOptions)
def history_view_sql(log: str | os.PathLike[str], **options: Unpack[ViewKeywords]) -> str:
    """Return the SQL of the history of all items of a log (SCD2), for Spark, DuckDB or Athena.

    Parameters
    ----------
    log
        Folder of the log of :func:`capture`.
    **options
        ``dialect`` is the engine's, ``name`` that of the view; see :class:`ddbio.ViewKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no log.
    OptionError
        If the log has changes of several streams, or the engine reads no folders.
    """
    return views.history_view_sql(parse_options(ViewOptions, {**options, "source": os.fspath(log)}))


@takes(ViewOptions)
def latest_view_sql(log: str | os.PathLike[str], lake: str | os.PathLike[str], **options: Unpack[ViewKeywords]) -> str:
    """Return the SQL of the newest state of all items, of a lake table and of what the log has since.

    Parameters
    ----------
    log
        Folder of the log of :func:`capture`.
    lake
        Folder of the lake table that the log is applied to.
    **options
        ``dialect`` is the engine's, ``name`` that of the view; see :class:`ddbio.ViewKeywords` for all.

    Raises
    ------
    NotFoundError
        If there is no log, or no lake table.
    OptionError
        If the log has changes of several streams, the engine reads no folders, or columns do not fit together.
    """
    given = {**options, "source": os.fspath(log), "target": os.fspath(lake)}
    return views.latest_view_sql(parse_options(ViewOptions, given))
