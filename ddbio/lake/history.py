"""Show the past of items: from a log each state that it has, from a lake table those that its versions have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.log_reader import open_log, read_changes
from ddbio.errors import NotFoundError
from ddbio.formats.lake_columns import KEY, VERSION
from ddbio.items.schema.arrow import name_of_field, tag_of_field
from ddbio.jobs.report import Report
from ddbio.jobs.stores import open_store
from ddbio.lake.as_of import older_files
from ddbio.lake.item_history import STATE_OPERATION, VALID_FROM, VALID_TO, history_of
from ddbio.lake.key_argument import key_text_of
from ddbio.lake_formats.items import open_items
from ddbio.lake_formats.keys import buckets_of, key_texts
from ddbio.lake_formats.registry import lake_format
from ddbio.lake_formats.rows import item_columns, log_columns, new_shape, rows_of_log
from ddbio.validation.quality import row_items

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ddbio.options import HistoryOptions
    from ddbio.storage.object_store import ObjectStore


@dataclass(frozen=True)
class ItemState(Report):
    """Hold one state of an item.

    Attributes
    ----------
    key
        The key as text, as in ``_key``.
    valid_from, valid_to
        When it came, and when the next one did, in ISO 8601; null for the newest.
    operation
        ``INSERT``, ``MODIFY``, ``REMOVE``, ``TTL``, or ``BASE`` for what a base load has read.
    version
        The version of the row, by which states are ordered.
    item
        The item as DynamoDB JSON; null if it was deleted.
    """

    key: str
    valid_from: str | None
    valid_to: str | None
    operation: str
    version: str
    item: Mapping[str, Any] | None


@dataclass(frozen=True)
class HistoryReport(Report):
    """The states of an item, or of all, in their order.

    Attributes
    ----------
    source
        The log or the lake table.
    key
        The key as text; null for all items.
    states
        The states.
    """

    source: str
    key: str | None
    states: tuple[ItemState, ...]


def history(options: HistoryOptions) -> pa.Table:
    """Return the states of an item, or of every item: each has ``valid_from``, ``valid_to`` and ``operation``.

    Raises
    ------
    NotFoundError
        If there is neither a log nor a lake table.
    OptionError
        If the key is none of the table's.
    """
    return _history(options)[0]


def describe_history(options: HistoryOptions) -> HistoryReport:
    """Return the same as plain values; errors are those of :func:`history`."""
    rows, key = _history(options)
    states = list[ItemState]()
    times = [rows.column(name).to_pylist() for name in (KEY, VALID_FROM, VALID_TO, STATE_OPERATION, VERSION)]
    own = {KEY, VALID_FROM, VALID_TO, STATE_OPERATION, VERSION}
    items = rows.select([name for name in rows.column_names if name not in own])
    found: list[Any] = []
    for batch in items.combine_chunks().to_batches():
        found += row_items(batch, np.arange(batch.num_rows))
    for (text, since, until, operation, version), item in zip(zip(*times, strict=True), found, strict=True):
        is_gone = operation in {"REMOVE", "TTL"}
        states.append(ItemState(text, _iso(since), _iso(until), operation, version, None if is_gone else item))
    return HistoryReport(options.source, key, tuple(states))


def _iso(time: Any) -> str | None:
    return None if time is None else time.isoformat()


def _history(options: HistoryOptions) -> tuple[pa.Table, str | None]:
    store = open_store(options.source, options)
    if lake_format(store) is not None:
        return _of_lake(options)
    return _of_log(options, store)


def _of_log(options: HistoryOptions, store: ObjectStore) -> tuple[pa.Table, str | None]:
    log = open_log(store)
    columns, written, keys = log_columns(log.schema()), log.written(), log.keys()
    shape = new_shape(item_columns(columns), keys, 1)
    types = {name_of_field(field): tag_of_field(field) for field in shape.attributes}
    key = None if options.key is None else key_text_of(options.key, {name: types[name] for name in keys})
    streams = [each.name for each in log.lineages()]
    names = item_columns(columns).names
    found = [shape.schema.empty_table()]
    for lineage, files in log.parts({}, written):
        epoch = streams.index(lineage.name) + 1
        for batch in read_changes(store, files, columns, _is_needless):
            mine = batch
            if key is not None:
                mine = batch.filter(pc.equal(key_texts(batch.select(names), keys), pa.scalar(key)))
            if mine.num_rows:
                found.append(pa.Table.from_batches([rows_of_log(mine, shape, epoch)]))
    return history_of(pa.concat_tables(found)), key


def _is_needless(hour: str) -> bool:
    """Return True: what a log had before its oldest hour is not shown."""
    del hour
    return True


def _of_lake(options: HistoryOptions) -> tuple[pa.Table, str | None]:
    items = open_items(options.source, options)
    key = None if options.key is None else key_text_of(options.key, items.key_types)
    files = [*items.state.files, *older_files(items)[0]]
    if key is not None:
        (bucket,) = buckets_of(pa.array([key]), items.shape.buckets).to_pylist()
        files = [each for each in files if each.bucket == bucket]
    schema = items.table.file_schema(items.state)
    found = [schema.empty_table()]

    def rows() -> Iterator[pa.RecordBatch]:
        for each in files:
            try:
                yield from items.rows(None, [each])
            except NotFoundError:
                # A vacuum has deleted the file of an older version.
                continue

    for batch in rows():
        mine = batch if key is None else batch.filter(pc.equal(batch.column(KEY), pa.scalar(key)))
        if mine.num_rows:
            found.append(pa.Table.from_batches([mine]))
    return history_of(pa.concat_tables(found)), key
