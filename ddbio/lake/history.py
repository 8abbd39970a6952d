"""Show the past of items: from a log each state, from a lake table the states that its versions have."""

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


def key_text_of(given: str, types: Mapping[str, str]) -> str:
    """Return the text of a key as the column ``_key`` has it.

    Parameters
    ----------
    given
        That text itself; a JSON object of the key's attributes, plain or as attribute values; or the plain value of a
        key of one attribute.
    types
        The key attributes, and the type of each.

    Raises
    ------
    OptionError
        If it is no key of the table.
    """
    names = tuple(types)
    if given.startswith("{"):
        values = _object(given, names)
    elif _TEXT.fullmatch(given):
        return given
    elif len(names) == 1:
        values = {names[0]: given}
    else:
        raise OptionError(f"the key {given!r} has one value, and the table's keys are {_shown(names)}: {_ways(types)}")
    line = compact_json({"Item": {name: _value(values[name], tag) for name, tag in types.items()}})
    try:
        found = from_dynamodb_json(line.encode())
        return str(key_texts(found, names)[0])
    except DdbioError as error:
        raise OptionError(f"{given!r} is no key of {_shown(names)}: {error}") from error


def _object(given: str, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        values = json.loads(given, parse_float=str, parse_int=str)
    except ValueError as error:
        raise OptionError(f"the key {given!r} of {_shown(names)} is no JSON: {error}") from None
    if not isinstance(values, dict) or set(values) != set(names):
        raise OptionError(f"the key {given!r} does not have the attributes {_shown(names)}")
    return values


def _value(given: Any, tag: str) -> dict[str, str]:
    if isinstance(given, dict) and len(given) == 1 and set(given) <= _TAGS:
        return {name: str(value) for name, value in given.items()}
    return {tag: str(given)}


def _shown(names: tuple[str, ...]) -> str:
    return " and ".join(names)


def _ways(types: Mapping[str, str]) -> str:
    shown = ", ".join(f'"{name}": {"5" if tag == "N" else chr(34) + "a" + chr(34)}' for name, tag in types.items())
    return f"write {{{shown}}}"


VALID_FROM, VALID_TO, STATE_OPERATION = "valid_from", "valid_to", "operation"
BASE_OPERATION: Final = "BASE"
"""The operation of a state that a base load has read: what made it is not known."""

_TIME = pa.timestamp("us", "UTC")


def history_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the history of items that lie in a lake table with a schema."""
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
    """Return the names of the columns of attributes in a history: their own, unless a history has one of that name."""
    own = {KEY, VALID_FROM, VALID_TO, STATE_OPERATION, VERSION}
    used = own | {fold(name) for name in attributes.names}
    return [column_name(name_of_field(field), used) if fold(field.name) in own else field.name for field in attributes]


def _without_older(rows: pa.Table) -> pa.Table:
    """Leave out the states that are older than one of another stream before them; the last of an item stays.

    Who goes from one replica to another, and back, reads changes again that the other one had already.
    """
    keys, epochs = rows.column(KEY).to_pylist(), [epoch_of(str(each)) for each in rows.column(VERSION).to_pylist()]
    if len(set(epochs) - {0}) < 2:  # noqa: PLR2004 - the second stream is the first that can go back
        return rows
    times, kept = rows.column(TIME).to_pylist(), np.ones(len(keys), np.bool_)
    before = newest = 0
    for place, (key, epoch) in enumerate(zip(keys, epochs, strict=True)):
        if place == 0 or keys[place - 1] != key:
            before = newest = 0
        elif epochs[place - 1] != epoch:
            before = newest
        newest = max(newest, times[place] or 0)
        if (times[place] or before) < before:
            kept[place] = place + 1 == len(keys) or keys[place + 1] != key
            times[place] = before
    rows = rows.set_column(rows.schema.get_field_index(TIME), rows.schema.field(TIME), pa.array(times, pa.int64()))
    return rows.filter(pa.array(kept))


def history_of(rows: pa.Table) -> pa.Table:
    """Return the states of each item in their order, each once, with the times from and to which it was the newest.

    Parameters
    ----------
    rows
        Rows of a lake table, or rows of a log as such: a delete is a state, too, with the key's attributes alone.
    """
    ordered = rows.take(pc.sort_indices(rows, sort_keys=[(KEY, "ascending"), (VERSION, "ascending")])).combine_chunks()
    keys, versions = ordered.column(KEY).to_pylist(), ordered.column(VERSION).to_pylist()
    pairs = list(zip(keys, versions, strict=True))
    first = np.array([place == 0 or pairs[place - 1] != pair for place, pair in enumerate(pairs)], np.bool_)
    kept = ordered.filter(pa.array(first))
    kept = _without_older(kept)
    keys = kept.column(KEY).to_pylist()
    times: list[Any] = kept.column(TIME).to_pylist()
    # A state ends where the next one of its item begins.
    ends = [
        times[place + 1] if place + 1 < len(keys) and keys[place + 1] == key else None for place, key in enumerate(keys)
    ]
    operations: Any = kept.column(OPERATION)
    columns: dict[str, Any] = {
        VALID_FROM: kept.column(TIME).cast(_TIME),
        VALID_TO: pa.array(ends, pa.int64()).cast(_TIME),
        STATE_OPERATION: pc.fill_null(operations, BASE_OPERATION),
    }
    wanted = history_schema(rows.schema)
    names = [*columns, *attribute_columns(rows.schema).names, RESCUE_FIELD.name]
    return pa.table(
        [kept.column(KEY), *columns.values(), kept.column(VERSION), *(kept.column(name) for name in names[3:])],
        schema=wanted,
    )


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
