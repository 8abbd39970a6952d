"""History of items: all states from a log, or the states in the versions of a lake table."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.log_reader import open_log, read_changes
from ddbio.errors import DdbioError, NotFoundError, OptionError
from ddbio.formats.lake_columns import KEY, OPERATION, TIME, VERSION, attribute_columns
from ddbio.items.decode import from_dynamodb_json
from ddbio.items.json_text import compact_json
from ddbio.items.schema.arrow import RESCUE_FIELD, name_of_field, tag_of_field
from ddbio.items.schema.folded import fold
from ddbio.items.schema.own_names import column_name
from ddbio.jobs.report import Report
from ddbio.jobs.stores import open_store
from ddbio.lake.verify import older_files
from ddbio.lake_formats.items import open_items
from ddbio.lake_formats.keys import buckets_of, epoch_of, key_texts
from ddbio.lake_formats.registry import lake_format
from ddbio.lake_formats.rows import item_columns, log_columns, new_shape, rows_of_log
from ddbio.validation.quality import row_items

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ddbio.lake.options import HistoryOptions
    from ddbio.storage.object_store import ObjectStore

_TEXT = re.compile(r"[SNB]:.*", re.DOTALL)
_TAGS = frozenset("SNB")


def key_text_of(key: str, types: Mapping[str, str]) -> str:
    """Return a key in the text format of the column ``_key``.

    Parameters
    ----------
    key
        A text in that format; a JSON object of the key's attributes, plain or as attribute values; or the plain value
        of a key with one attribute.
    types
        The key attributes and their types.

    Raises
    ------
    OptionError
        If it is not a key of the table.
    """
    names = tuple(types)
    if key.startswith("{"):
        values = _object(key, names)
    elif _TEXT.fullmatch(key):
        return key
    elif len(names) == 1:
        values = {names[0]: key}
    else:
        raise OptionError(f"the key {key!r} has one value, but the key is {_joined(names)}: {_example(types)}")
    line = compact_json({"Item": {name: _value(values[name], tag) for name, tag in types.items()}})
    try:
        item = from_dynamodb_json(line.encode())
        return str(key_texts(item, names)[0])
    except DdbioError as error:
        raise OptionError(f"{key!r} is not a key of {_joined(names)}: {error}") from error


def _object(key: str, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        values = json.loads(key, parse_float=str, parse_int=str)
    except ValueError as error:
        raise OptionError(f"the key {key!r} of {_joined(names)} is not JSON: {error}") from None
    if not isinstance(values, dict) or set(values) != set(names):
        raise OptionError(f"the key {key!r} does not have the attributes {_joined(names)}")
    return values


def _value(attribute: Any, tag: str) -> dict[str, str]:
    if isinstance(attribute, dict) and len(attribute) == 1 and set(attribute) <= _TAGS:
        return {name: str(value) for name, value in attribute.items()}
    return {tag: str(attribute)}


def _joined(names: tuple[str, ...]) -> str:
    return " and ".join(names)


def _example(types: Mapping[str, str]) -> str:
    shown = ", ".join(f'"{name}": {"5" if tag == "N" else chr(34) + "a" + chr(34)}' for name, tag in types.items())
    return f"write {{{shown}}}"


VALID_FROM, VALID_TO, STATE_OPERATION = "valid_from", "valid_to", "operation"
BASE_OPERATION: Final = "BASE"
"""The operation of a state that was read by a base load; the change that wrote it is unknown."""

_TIME = pa.timestamp("us", "UTC")


def history_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the history of items in a lake table with this schema."""
    own: list[pa.Field[Any]] = [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field(VALID_FROM, _TIME),
        pa.field(VALID_TO, _TIME),
        pa.field(STATE_OPERATION, pa.string(), nullable=False),
        pa.field(VERSION, pa.string(), nullable=False),
    ]
    attributes = attribute_columns(schema)
    renamed = [field.with_name(name) for field, name in zip(attributes, history_names(attributes), strict=True)]
    return pa.schema([*own, *renamed, RESCUE_FIELD])


def history_names(attributes: pa.Schema) -> list[str]:
    """Return the names of attribute columns in a history: unchanged, unless the history has a column of that name."""
    own = {KEY, VALID_FROM, VALID_TO, STATE_OPERATION, VERSION}
    used = own | {fold(name) for name in attributes.names}
    return [column_name(name_of_field(field), used) if fold(field.name) in own else field.name for field in attributes]


def _without_older(rows: pa.Table) -> pa.Table:
    """Drop states that are older than a preceding state of another stream, except for the last state of an item.

    A capture that switches to another replica and back reads changes again that the other stream already had.
    """
    keys, epochs = rows.column(KEY).to_pylist(), [epoch_of(str(row)) for row in rows.column(VERSION).to_pylist()]
    if len(set(epochs) - {0}) < 2:  # noqa: PLR2004 - the second stream is the first that can go back
        return rows
    times, kept = rows.column(TIME).to_pylist(), np.ones(len(keys), np.bool_)
    before = newest = 0
    for index, (key, epoch) in enumerate(zip(keys, epochs, strict=True)):
        if index == 0 or keys[index - 1] != key:
            before = newest = 0
        elif epochs[index - 1] != epoch:
            before = newest
        newest = max(newest, times[index] or 0)
        if (times[index] or before) < before:
            kept[index] = index + 1 == len(keys) or keys[index + 1] != key
            times[index] = before
    rows = rows.set_column(rows.schema.get_field_index(TIME), rows.schema.field(TIME), pa.array(times, pa.int64()))
    return rows.filter(pa.array(kept))


def history_of(rows: pa.Table) -> pa.Table:
    """Return the distinct states of each item in order, with the start and end of their validity.

    Parameters
    ----------
    rows
        Rows of a lake table, or rows of a log, where a delete is a state with only the key attributes.
    """
    ordered = rows.take(pc.sort_indices(rows, sort_keys=[(KEY, "ascending"), (VERSION, "ascending")])).combine_chunks()
    keys, versions = ordered.column(KEY).to_pylist(), ordered.column(VERSION).to_pylist()
    pairs = list(zip(keys, versions, strict=True))
    first = np.array([index == 0 or pairs[index - 1] != pair for index, pair in enumerate(pairs)], np.bool_)
    kept = ordered.filter(pa.array(first))
    kept = _without_older(kept)
    keys = kept.column(KEY).to_pylist()
    times: list[Any] = kept.column(TIME).to_pylist()
    # A state ends when the next state of its item starts.
    ends = [
        times[index + 1] if index + 1 < len(keys) and keys[index + 1] == key else None for index, key in enumerate(keys)
    ]
    operations: Any = kept.column(OPERATION)
    columns: dict[str, Any] = {
        VALID_FROM: kept.column(TIME).cast(_TIME),
        VALID_TO: pa.array(ends, pa.int64()).cast(_TIME),
        STATE_OPERATION: pc.fill_null(operations, BASE_OPERATION),
    }
    schema = history_schema(rows.schema)
    names = [*columns, *attribute_columns(rows.schema).names, RESCUE_FIELD.name]
    return pa.table(
        [kept.column(KEY), *columns.values(), kept.column(VERSION), *(kept.column(name) for name in names[3:])],
        schema=schema,
    )


@dataclass(frozen=True)
class ItemState(Report):
    """One state of an item.

    Attributes
    ----------
    key
        The key as text, as in ``_key``.
    valid_from, valid_to
        Start and end of its validity, in ISO 8601; the end is null for the newest state.
    operation
        ``INSERT``, ``MODIFY``, ``REMOVE``, ``TTL``, or ``BASE`` for a state that was read by a base load.
    version
        The version of the row, which orders the states.
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
    """The states of one or all items, in order.

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
    """Return the states of one or all items, with ``valid_from``, ``valid_to`` and ``operation``.

    Raises
    ------
    NotFoundError
        If there is neither a log nor a lake table.
    OptionError
        If the key is not a key of the table.
    """
    return _history(options)[0]


def describe_history(options: HistoryOptions) -> HistoryReport:
    """Return the history as plain values; errors are those of :func:`history`."""
    rows, key = _history(options)
    states = list[ItemState]()
    times = [rows.column(name).to_pylist() for name in (KEY, VALID_FROM, VALID_TO, STATE_OPERATION, VERSION)]
    own = {KEY, VALID_FROM, VALID_TO, STATE_OPERATION, VERSION}
    items = rows.select([name for name in rows.column_names if name not in own])
    state_items: list[Any] = []
    for batch in items.combine_chunks().to_batches():
        state_items += row_items(batch, np.arange(batch.num_rows))
    for (text, since, until, operation, version), item in zip(zip(*times, strict=True), state_items, strict=True):
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
    streams = [lineage.name for lineage in log.lineages()]
    names = item_columns(columns).names
    tables = [shape.schema.empty_table()]
    for lineage, files in log.parts({}, written):
        epoch = streams.index(lineage.name) + 1
        for batch in read_changes(store, files, columns, _may_lack_hour):
            selected = batch
            if key is not None:
                selected = batch.filter(pc.equal(key_texts(batch.select(names), keys), pa.scalar(key)))
            if selected.num_rows:
                tables.append(pa.Table.from_batches([rows_of_log(selected, shape, epoch)]))
    return history_of(pa.concat_tables(tables)), key


def _may_lack_hour(hour: str) -> bool:
    """Return True, since a history starts with the oldest hour of the log."""
    del hour
    return True


def _of_lake(options: HistoryOptions) -> tuple[pa.Table, str | None]:
    items = open_items(options.source, options)
    key = None if options.key is None else key_text_of(options.key, items.key_types)
    files = [*items.state.files, *older_files(items)[0]]
    if key is not None:
        (bucket,) = buckets_of(pa.array([key]), items.shape.buckets).to_pylist()
        files = [file for file in files if file.bucket == bucket]
    schema = items.table.file_schema(items.state)
    tables = [schema.empty_table()]

    def rows() -> Iterator[pa.RecordBatch]:
        for file in files:
            try:
                yield from items.rows(None, [file])
            except NotFoundError:
                # Vacuum has deleted the file of an older version.
                continue

    for batch in rows():
        selected = batch if key is None else batch.filter(pc.equal(batch.column(KEY), pa.scalar(key)))
        if selected.num_rows:
            tables.append(pa.Table.from_batches([selected]))
    return history_of(pa.concat_tables(tables)), key
