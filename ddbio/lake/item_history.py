"""Turn the states of items into their history: each state is valid until the next one (SCD2)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.formats.lake_columns import KEY, OPERATION, TIME, VERSION, attribute_columns
from ddbio.items.schema.arrow import RESCUE_FIELD, name_of_field
from ddbio.items.schema.folded import fold
from ddbio.items.schema.own_names import column_name
from ddbio.lake_formats.versions import epoch_of

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
