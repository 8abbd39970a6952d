"""Identify the changes of a log: the same change has the same identity in whichever file of the log it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.capture.columns import EVENT_ID, EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE, OPERATION, SEQUENCE
from ddbio.core.capture.expiry import EXPIRED_AT, INFERRED
from ddbio.core.capture.healing import HEALED_BY
from ddbio.core.digest_columns import ColumnDigest
from ddbio.core.items.item_key import Fingerprints, KeyGroups, key_fingerprints

if TYPE_CHECKING:
    from collections.abc import Sequence

LOG_OWN = {OPERATION, SEQUENCE, EVENT_TIME, EXPIRED, EVENT_ID, OLD_IMAGE, OLD_RESCUE, HEALED_BY}
"""The columns of a log that are no attributes of items."""
_OWN = LOG_OWN | {EXPIRED_AT, INFERRED}


def change_ids(rows: pa.Table, keys: Sequence[str] = ()) -> Fingerprints:
    """Return 128 bits for each change, equal for equal changes alone.

    A change from Kinesis has an event id. Any other has a sequence number, which is that of one change of its stream.
    Rows do not say which stream they are from, and a log may have several, whose numbers may be equal: the time of the
    change and the key of its item tell such changes apart.

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
    if EVENT_ID in rows.column_names:
        numbers = pc.coalesce(rows.column(EVENT_ID), numbers)
    times: Any = rows.column(EVENT_TIME).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    change = pa.table({"number": numbers.cast(pa.string()), "time": times})
    ids = key_fingerprints(change, change.column_names)
    items = key_fingerprints(rows, keys) if keys else _of_items(rows)
    # Sums of hashes are hashes; those of unsigned words wrap.
    return Fingerprints(ids.high + items.high, ids.low + items.low)


def _of_items(rows: pa.Table) -> Fingerprints:
    digest, words = ColumnDigest(), [np.zeros((0, 2), np.uint64)]
    items = rows.select([name for name in rows.column_names if name not in _OWN])
    words += [digest.add_rows(batch).items for batch in items.to_batches()]
    high, low = np.concatenate(words).T
    return Fingerprints(high, low)


def once_each(rows: pa.Table, keys: Sequence[str] = ()) -> pa.Table:
    """Return each change once, the first of equal ones, in their order."""
    changes = KeyGroups(change_ids(rows, keys))
    if len(changes.starts) == rows.num_rows:
        return rows
    return rows.take(pa.array(np.sort(changes.rows[changes.starts])))


def repeated(changes: Sequence[Fingerprints]) -> int:
    """Return how many changes are there already in others before them."""
    found = KeyGroups(Fingerprints.joined(changes)) if changes else None
    return 0 if found is None else len(found.rows) - len(found.starts)


def id_texts(changes: Fingerprints) -> list[str]:
    """Return identities as text."""
    return [f"{high:016x}{low:016x}" for high, low in zip(changes.high.tolist(), changes.low.tolist(), strict=True)]
