"""Know which items expire: by the rules of the time to live, and by the changes of a log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import OptionError
from ddbio.formats.log_columns import (
    ARCHIVE_COLUMNS,
    EVENT_ID,
    EVENT_TIME,
    EXPIRED,
    EXPIRED_AT,
    INFERRED,
    LOG_COLUMNS,
    OLD_IMAGE,
    OLD_RESCUE,
    OPERATION,
    SEQUENCE,
)
from ddbio.items.item_key import key_columns, key_values
from ddbio.items.json_text import compact_json
from ddbio.items.schema.arrow import RESCUE_FIELD, RESCUE_NAME, name_of_field
from ddbio.items.schema.own_names import beside, is_own

if TYPE_CHECKING:
    from collections.abc import Sequence

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-before-you-start.html: items that
# expired more than five years ago are never deleted.
_NEVER_SECONDS: Final = 5 * 365 * 86_400
_KEPT = (SEQUENCE, EVENT_ID, EVENT_TIME)
_ONLY_SECONDS = pa.timestamp("us", "UTC")
# The last second of the year 9999.
_LONGEST = 253_402_300_799.0
_MICROS = 1_000_000


def expiry_seconds(values: pa.Array[Any] | pa.ChunkedArray[Any]) -> Any:
    """Return a column of expiry times in seconds as doubles; null where a value is none: only numbers count.

    Raises
    ------
    OptionError
        If the column holds no numbers.
    """
    if not is_number(values.type):
        raise OptionError(f"items do not expire by a column of {values.type}: the time to live is a number of seconds")
    # Whole numbers that no double is exactly are times of no item, and no reason to fail.
    return values.cast(pa.float64(), safe=False)


def is_number(kind: pa.DataType) -> bool:
    """Return whether a column of a type has numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_expired(seconds: Any, at: Any) -> Any:
    """Return whether items with these expiry times are expired at a time, and not too long ago to be deleted at all."""
    since = pc.subtract(at, float(_NEVER_SECONDS))
    return pc.fill_null(pc.and_(pc.less_equal(seconds, at), pc.greater(seconds, since)), False)  # noqa: FBT003 - the value


def expired_rows(rows: pa.Table, ttl: str | None, *, infers: bool) -> pa.Table:
    """Return the deletes by the time to live among the rows of a log, as items with the time at which they expired.

    Parameters
    ----------
    ttl
        The attribute by which items expire; None takes the time of the delete instead.
    infers
        Whether deletes of expired items count that the log does not mark: replicas of a global table get those of
        other Regions as ordinary ones.

    Raises
    ------
    OptionError
        If the rows have no old images, or no number of that attribute.
    """
    if OLD_IMAGE not in rows.column_names:
        raise OptionError("the log has no old images, which are what is archived: capture with old_image")
    # One filter at the end: each copies whole items.
    is_delete: Any = pc.equal(rows.column(OPERATION), pa.scalar("REMOVE"))
    has_image: Any = pc.is_valid(rows.column(OLD_IMAGE))
    times: Any = rows.column(EVENT_TIME).cast(_ONLY_SECONDS).cast(pa.int64())
    deleted_at: Any = pc.divide(times, _MICROS).cast(pa.float64())
    marked: Any = rows.column(EXPIRED)
    seconds: Any = deleted_at
    if ttl is not None:
        due = _expiry_of(rows, ttl)
        if infers:
            marked = pc.or_(marked, is_expired(due, deleted_at))
        is_time: Any = pc.and_(pc.greater_equal(due, pa.scalar(0.0)), pc.less_equal(due, pa.scalar(_LONGEST)))
        seconds = pc.if_else(is_time.fill_null(False), due, deleted_at)  # noqa: FBT003 - the value
    elif infers:
        raise OptionError("deletes are recognised by their attribute of the time to live: give ttl")
    inferred = pc.and_not(marked, rows.column(EXPIRED))
    whole: Any = seconds.cast(pa.int64(), safe=False)
    at: Any = pc.multiply(whole, _MICROS).cast(_ONLY_SECONDS)
    # An older release gave an attribute a column of the same name.
    own = [name for name in _KEPT if name in rows.column_names and is_own(rows.schema.field(name), LOG_COLUMNS)]
    kept = (
        rows.select([*own, OLD_IMAGE, OLD_RESCUE])
        .append_column(pa.field(EXPIRED_AT, _ONLY_SECONDS), at)
        .append_column(pa.field(INFERRED, pa.bool_()), inferred)
        .filter(pc.and_(pc.and_(is_delete, has_image), marked))
    )
    return _items(kept)


def without_image(rows: pa.Table) -> int:
    """Return how many rows of a log are deletes by the time to live of items that the log does not have."""
    is_marked: Any = pc.and_(pc.equal(rows.column(OPERATION), pa.scalar("REMOVE")), rows.column(EXPIRED))
    if OLD_IMAGE in rows.column_names:
        is_marked = pc.and_(is_marked, pc.is_null(rows.column(OLD_IMAGE)))
    return int(pc.sum(is_marked).as_py() or 0)


def has_expiry(rows: pa.Table, ttl: str) -> bool:
    """Return whether rows of a log can have expiry times: a column of numbers for the attribute, or rescued values."""
    field = _image_field(rows, ttl)
    return (field is not None and is_number(field.type)) or bool(pc.any(_is_rescued(rows, ttl)).as_py())


def without_attributes(items: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return items without some attributes, also where they are rescued."""
    items = items.drop_columns([each.name for each in items.schema if name_of_field(each) in names])
    place = items.schema.get_field_index(RESCUE_NAME)
    texts = [None if text is None else json.loads(text) for text in items.column(place).to_pylist()]
    if any(text is not None and not text.keys().isdisjoint(names) for text in texts):
        left = [{name: each for name, each in (text or {}).items() if name not in names} for text in texts]
        rescue = pa.array([compact_json(each) if each else None for each in left], pa.string())
        items = items.set_column(place, RESCUE_FIELD, rescue)
    return items


def _is_rescued(rows: pa.Table, ttl: str) -> Any:
    """Return which old images may have an attribute in their rescue column."""
    return pc.match_substring(rows.column(OLD_RESCUE), json.dumps(ttl, ensure_ascii=False))


def _expiry_of(rows: pa.Table, ttl: str) -> Any:
    """Return the expiry times of old images in seconds: from the column of the attribute, or else as it was rescued."""
    images, is_rescued = rows.column(OLD_IMAGE), _is_rescued(rows, ttl)
    field = _image_field(rows, ttl)
    is_found = bool(pc.any(is_rescued).as_py())
    if field is None and not is_found:
        raise OptionError(f"no item of the log has the attribute {ttl!r}")
    own: Any = pa.nulls(rows.num_rows, pa.float64())
    if field is not None and (is_number(field.type) or not is_found):
        own = expiry_seconds(pc.struct_field(images, field.name))
    if not is_found:
        return own
    texts = pc.if_else(is_rescued, rows.column(OLD_RESCUE), None).to_pylist()
    return pc.coalesce(own, pa.array([_number_of(each, ttl) for each in texts], pa.float64()))


def _image_field(rows: pa.Table, attribute: str) -> pa.Field[Any] | None:
    """Return the field of an attribute in the old images; None if it has none."""
    fields: list[pa.Field[Any]] = list(rows.schema.field(OLD_IMAGE).type)
    return next((each for each in fields if name_of_field(each) == attribute), None)


def _number_of(text: str | None, name: str) -> float | None:
    """Return an attribute of a rescue column's text, if it is a number."""
    number = None if text is None else json.loads(text).get(name, {}).get("N")
    return None if number is None else float(number)


def _items(rows: pa.Table) -> pa.Table:
    """Return the old images as items, with what tells their changes apart, and their times."""
    images: Any = rows.column(OLD_IMAGE).combine_chunks()
    fields: list[pa.Field[Any]] = list(rows.schema.field(OLD_IMAGE).type)
    columns: list[Any] = images.flatten() if rows.num_rows else [pa.array([], each.type) for each in fields]
    own = [name for name in rows.column_names if name not in {OLD_IMAGE, OLD_RESCUE}]
    return pa.Table.from_arrays(
        [*(rows.column(name) for name in own), *columns, rows.column(OLD_RESCUE)],
        schema=pa.schema([*(rows.schema.field(name) for name in own), *beside(fields, ARCHIVE_COLUMNS), RESCUE_FIELD]),
    )


def months_of(rows: pa.Table) -> dict[str, pa.Table]:
    """Return rows by the folder of the month in which they expired."""
    months: Any = pc.floor_temporal(rows.column(EXPIRED_AT), unit="month")
    found = sorted(pc.unique(months).to_pylist())
    parts = [rows] if len(found) == 1 else [rows.filter(pc.equal(months, pa.scalar(at, months.type))) for at in found]
    return {f"year={at:%Y}/month={at:%m}/": part for at, part in zip(found, parts, strict=True)}


def in_key_range(rows: pa.Table, keys: Sequence[str], first: Sequence[Any], last: Sequence[Any]) -> pa.Table:
    """Return the rows whose key lies between two, both included; a shorter one stands for all that begin with it.

    Raises
    ------
    SchemaError
        If a row lacks its key.
    """
    lowest, highest, kept = list(first), list(last), np.zeros(rows.num_rows, np.bool_)
    for places, columns in key_columns(rows, keys):
        found = [list(each) for each in zip(*key_values(columns), strict=True)]
        kept[places] = [lowest <= each[: len(lowest)] and each[: len(highest)] <= highest for each in found]
    return rows.filter(pa.array(kept))
