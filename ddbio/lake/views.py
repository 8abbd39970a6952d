"""Write the SQL of views over a log: the history of all items, and their newest state beside a lake table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.log_reader import open_log
from ddbio.errors import OptionError
from ddbio.formats.lake_columns import TIME, deleted_column
from ddbio.items.schema.arrow import RESCUE_NAME
from ddbio.items.schema.folded import fold
from ddbio.jobs.stores import open_store
from ddbio.lake.as_of import base_us
from ddbio.lake.view_sql import (
    ViewedLake,
    ViewedLog,
    history_query,
    lake_relation,
    latest_query,
    log_relation,
    statements,
)
from ddbio.lake_formats.items import open_items
from ddbio.lake_formats.rows import item_columns

if TYPE_CHECKING:
    from ddbio.lake_formats.items import LakeItems
    from ddbio.options import ViewOptions

# A stream keeps changes for a day: what was not applied yet can be so much older than what was.
_LATEST_US = 24 * 3600 * 1_000_000
# As `apply` leaves changes out that are in the base.
_SLACK_US = 300 * 1_000_000


def history_view_sql(options: ViewOptions) -> str:
    """Return the SQL of the history of all items of a log (SCD2), for Spark, DuckDB or Athena.

    Raises
    ------
    NotFoundError
        If there is no log.
    OptionError
        If the log has changes of several streams, or the engine reads no folders.
    """
    log, setup, _ = _viewed(options)
    return statements(history_query(log, options.dialect), options.name, setup, options.dialect)


def latest_view_sql(options: ViewOptions) -> str:
    """Return the SQL of the newest state of all items, of a lake table and of what the log has since.

    Raises
    ------
    NotFoundError
        If there is no log, or no lake table.
    OptionError
        If the log has changes of several streams, the engine reads no folders, or columns do not fit together.
    """
    if options.target is None:
        raise OptionError("option 'target' is missing: the lake table that the log is applied to")
    items = open_items(options.target, options, options.format)
    log, setup, stream = _viewed(options)
    place = items.table.store.uri
    relation = options.lake_relation or lake_relation(place, items.format, options.dialect)
    epochs = items.epochs
    epoch = (epochs.index(stream) if stream in epochs else len(epochs)) + 1
    lake = ViewedLake(items.shape.attributes, relation, deleted_column(items.format))
    query = latest_query(log, lake, _since(items), epoch, options.dialect)
    return statements(query, options.name, setup, options.dialect)


def _viewed(options: ViewOptions) -> tuple[ViewedLog, str | None, str]:
    store = open_store(options.source, options)
    log = open_log(store)
    streams = [each.name for each in log.lineages()]
    if len(streams) > 1:
        raise OptionError(
            f"the log {options.source} has changes of {len(streams)} streams, whose numbers cannot be compared in SQL: "
            "apply them, or ask ddbio history"
        )
    relation, setup = (options.log_relation, None)
    if relation is None:
        relation, setup = log_relation(store.uri, options.dialect)
    schema = log.schema()
    columns = pa.schema([field for field in item_columns(schema) if field.name != RESCUE_NAME])
    by_name = dict[str, str]()
    for name in schema.names:
        other = by_name.setdefault(fold(name), name)
        if other != name:
            raise OptionError(
                f"the log {options.source} has columns {other!r} and {name!r}, which SQL takes for one: apply it to a "
                "lake table, whose columns have other names"
            )
    return ViewedLog(log.keys(), columns, relation), setup, streams[0]


def _since(items: LakeItems) -> datetime | None:
    """Return a time before which all changes are in a lake table; None if there is none."""
    times = [pc.max(batch.column(0)).as_py() for batch in items.rows((TIME,))]
    newest = max((each for each in times if each is not None), default=0)
    base = base_us(items)
    since = max(newest - _LATEST_US, base - _SLACK_US if base else 0)
    return datetime.fromtimestamp(since // 1_000_000, UTC) if since > 0 else None
