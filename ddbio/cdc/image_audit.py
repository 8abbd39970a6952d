"""Audit the images of a log: of each item, the image before a change must be the image after the change before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.log_order import order_of
from ddbio.formats.log_columns import EVENT_TIME, LOG_COLUMNS, OLD_IMAGE, OLD_RESCUE, OPERATION, SEQUENCE
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.item_key import key_columns, key_rows, key_values
from ddbio.items.key_words import row_sums
from ddbio.items.schema.arrow import RESCUE_NAME
from ddbio.items.schema.own_names import item_fields

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import TypeAlias

    from numpy.typing import NDArray

    _Words: TypeAlias = NDArray[np.uint64]

_NOTHING = np.zeros(2, np.uint64)
_UNKNOWN = ~_NOTHING


@dataclass(frozen=True)
class ChainBreak:
    """Name a change whose old image is not what the change before it left: a change between them is lost.

    Attributes
    ----------
    since, until
        When the change before it was made, and when it was itself.
    """

    key: dict[str, Any]
    sequence: str
    since: datetime
    until: datetime


@dataclass
class ImageChains:
    """Gather what the rows of a log hash to, part by part, and find the changes behind which one is missing.

    What this cannot see is the loss of the last changes of an item in a stream, and a loss before a row whose old image
    is not known. Changes that the service merged are no loss.

    Attributes
    ----------
    keys
        The key attributes.
    """

    keys: Sequence[str]
    _items: list[_Words] = field(default_factory=list)
    _new: list[_Words] = field(default_factory=list)
    _old: list[_Words] = field(default_factory=list)
    _named: list[pa.Table] = field(default_factory=list)
    _changes: list[pa.Table] = field(default_factory=list)
    _lineages: list[NDArray[np.int64]] = field(default_factory=list)

    def add(self, rows: pa.Table, lineage: int = 1) -> None:
        """Add rows, in any order; of their images only hashes are kept.

        An ``INSERT`` has nothing before it. What another change without an old image began with is not known; what it
        left is.

        Parameters
        ----------
        lineage
            The place of their stream among those of the log: sequence numbers can be compared within one only.
        """
        images: Any = rows.column(OLD_IMAGE).combine_chunks() if OLD_IMAGE in rows.column_names else None
        fields = {} if images is None else dict(zip((each.name for each in images.type), images.flatten(), strict=True))
        attributes = [each.name for each in item_fields(rows.schema, LOG_COLUMNS)]
        items, new = _hashes(rows.select(attributes), self.keys)
        new[_are(rows, "REMOVE")] = _NOTHING
        old = np.where(_are(rows, "INSERT")[:, None], _NOTHING, _UNKNOWN)
        if images is not None:
            columns = pa.table(fields, schema=pa.schema([rows.schema.field(name) for name in fields]))
            _, known = _hashes(columns.append_column(rows.schema.field(RESCUE_NAME), rows.column(OLD_RESCUE)), ())
            old = np.where(pc.is_valid(images).to_numpy(zero_copy_only=False)[:, None], known, old)
        self._items.append(items)
        self._new.append(new)
        self._old.append(old)
        self._lineages.append(np.full(len(old), lineage, np.int64))
        self._named.append(key_rows(rows.select(attributes), self.keys))
        self._changes.append(rows.select([SEQUENCE, EVENT_TIME]))

    def broken(self) -> list[ChainBreak]:
        """Return the changes behind which one is missing, in the order of the rows' numbers."""
        if not self._named:
            return []
        rows = pa.concat_tables(self._changes, promote_options="permissive")
        items, new, old = (np.concatenate(each) for each in (self._items, self._new, self._old))
        lineages, numbered = np.concatenate(self._lineages), order_of(rows)
        # Stable: within an item of a stream the rows stay in the order of their numbers.
        order = numbered[np.lexsort((lineages[numbered], items[numbered]))]
        before, after = order[:-1], order[1:]
        begun = old[after]
        differs = (begun != new[before]).any(axis=1) & (begun != _UNKNOWN).any(axis=1)
        is_broken = (items[after] == items[before]) & (lineages[after] == lineages[before]) & differs
        before, after = before[is_broken], after[is_broken]
        order = order_of(rows.take(pa.array(after)))
        before, after = before[order], after[order]
        chosen, times = rows.take(pa.array(after)), rows.column(EVENT_TIME)
        sequences: list[Any] = chosen.column(SEQUENCE).to_pylist()
        since: list[Any] = times.take(pa.array(before)).to_pylist()
        until: list[Any] = chosen.column(EVENT_TIME).to_pylist()
        return [ChainBreak(*each) for each in zip(self._keys_of(after), sequences, since, until, strict=True)]

    def _keys_of(self, rows: NDArray[np.uint64]) -> list[dict[str, Any]]:
        """Return the keys of some rows; each part has its own types."""
        found, ends = [dict[str, Any]()] * len(rows), np.cumsum([each.num_rows for each in self._named])
        parts = np.searchsorted(ends, rows.astype(np.int64), "right")
        for part in np.unique(parts).tolist():
            places, named = np.flatnonzero(parts == part), self._named[part]
            inside = rows[places].astype(np.int64) - (ends[part] - named.num_rows)
            for chosen, columns in key_columns(named.take(pa.array(inside)), self.keys):
                values = zip(*key_values(columns), strict=True)
                for place, key in zip(places[chosen].tolist(), values, strict=True):
                    found[place] = dict(zip(self.keys, key, strict=True))
        return found


def _are(rows: pa.Table, operation: str) -> NDArray[np.bool_]:
    operations: Any = rows.column(OPERATION)
    found: NDArray[np.bool_] = pc.equal(operations, pa.scalar(operation)).to_numpy()
    return found


def _hashes(rows: pa.Table, keys: Sequence[str]) -> tuple[_Words, _Words]:
    """Return a word of the key of each row, and two of the item."""
    digest, names, items = ColumnDigest(keys), list[Any](), list[Any]()
    for batch in rows.to_batches():
        sums = row_sums(digest, batch, keys)
        items.append(sums.items)
        names.append(np.zeros(0, np.uint64) if sums.keys is None else sums.keys)
    return np.concatenate(names), np.concatenate(items).copy()
