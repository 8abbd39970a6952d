"""Identify the changes of a log: the same change has the same identity in whichever file of the log it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.formats.log_columns import ARCHIVE_COLUMNS, EVENT_ID, EVENT_TIME, LOG_COLUMNS, SEQUENCE
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.item_key import Fingerprints, KeyGroups, key_fingerprints
from ddbio.items.schema.own_names import is_own, item_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


def change_ids(rows: pa.Table, keys: Sequence[str] = ()) -> Fingerprints:
    """Return 128 bits for each row, the same for rows of the same change.

    A change from Kinesis has an event id. Any other has a sequence number, which is that of one change of its stream.
    Rows do not say which stream they are from, and a log may have several, whose numbers may be equal: the time of the
    change and the key of its item tell such changes apart. Where even those are equal, the files of the log tell
    their stream: see :func:`distinct_changes`.

    Parameters
    ----------
    rows
        Rows of a log, or items with ``_sequence`` and ``_event_time``, and perhaps ``_event_id``.
    keys
        The key attributes; without them the whole item is taken.

    Raises
    ------
    SchemaError
        If a row lacks its key.
    """
    numbers: Any = rows.column(SEQUENCE)
    if EVENT_ID in rows.column_names and is_own(rows.schema.field(EVENT_ID), LOG_COLUMNS):
        numbers = pc.coalesce(rows.column(EVENT_ID), numbers)
    times: Any = rows.column(EVENT_TIME).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    change = pa.table({"number": numbers.cast(pa.string()), "time": times})
    ids = key_fingerprints(change, change.column_names)
    items = key_fingerprints(rows, keys) if keys else _of_items(rows)
    # Sums of hashes are hashes; those of unsigned words wrap.
    return Fingerprints(ids.high + items.high, ids.low + items.low)


def _of_items(rows: pa.Table) -> Fingerprints:
    digest, words = ColumnDigest(), [np.zeros((0, 2), np.uint64)]
    items = rows.select([each.name for each in item_fields(rows.schema, LOG_COLUMNS | ARCHIVE_COLUMNS)])
    words += [digest.add_rows(batch).items for batch in items.to_batches()]
    high, low = np.concatenate(words).T
    return Fingerprints(high, low)


def distinct_changes(
    ids: Fingerprints, stream_of: Callable[[int], str | None]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a row of each change, in their order, and its number among the changes with its identity, from 0 on.

    Rows with one identity are one change, unless they are known to be of several streams.

    Parameters
    ----------
    ids
        The identity of each row.
    stream_of
        Returns the stream of a row; None if it is not known. Only rows whose identity repeats are asked for.
    """
    groups = KeyGroups(ids)
    places, numbers = groups.rows[groups.starts].tolist(), [0] * len(groups.starts)
    for group in np.flatnonzero(groups.counts > 1).tolist():
        start = groups.starts[group]
        rows = groups.rows[start : start + groups.counts[group]].tolist()
        count = max(1, len({stream for row in rows if (stream := stream_of(row)) is not None}))
        places += rows[1:count]
        numbers += range(1, count)
    order = np.argsort(places)
    return np.array(places, np.int64)[order], np.array(numbers, np.int64)[order]


def id_texts(ids: Fingerprints) -> list[str]:
    """Return identities as text."""
    return [f"{high:016x}{low:016x}" for high, low in zip(ids.high.tolist(), ids.low.tolist(), strict=True)]
