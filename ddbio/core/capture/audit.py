"""Audit the images of a log: of each item, the image before a change must be the image after the change before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.capture.columns import EVENT_TIME, OLD_IMAGE, OLD_RESCUE, OPERATION, SEQUENCE
from ddbio.core.capture.log_order import in_order, order_of
from ddbio.core.digest_columns import ColumnDigest
from ddbio.core.schema.arrow import RESCUE_NAME
from ddbio.core.schema.own_names import columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import TypeAlias

    from numpy.typing import NDArray

    _Words: TypeAlias = NDArray[np.uint64]

_NOTHING = np.zeros(2, np.uint64)
_SINCE = "_since"


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

    What this cannot see is the loss of the last changes of an item. Changes that the service merged are no loss.

    Attributes
    ----------
    keys
        The key attributes.
    """

    keys: Sequence[str]
    _columns: Sequence[str] = ()
    _items: list[_Words] = field(default_factory=list)
    _new: list[_Words] = field(default_factory=list)
    _old: list[_Words] = field(default_factory=list)
    _named: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Add rows, in any order; of their images only hashes are kept."""
        images: Any = rows.column(OLD_IMAGE).combine_chunks()
        fields = {each.name: column for each, column in zip(images.type, images.flatten(), strict=True)}
        items, new = _hashes(rows.select([*fields, RESCUE_NAME]), self.keys)
        removed: Any = pc.equal(rows.column(OPERATION), pa.scalar("REMOVE"))
        new[removed.to_numpy()] = _NOTHING
        old_rows = pa.table(fields, schema=pa.schema([rows.schema.field(name) for name in fields]))
        _, old = _hashes(old_rows.append_column(rows.schema.field(RESCUE_NAME), rows.column(OLD_RESCUE)), ())
        old[pc.is_null(images).to_numpy(zero_copy_only=False)] = _NOTHING
        self._items.append(items)
        self._new.append(new)
        self._old.append(old)
        self._columns = columns_of(rows.schema, self.keys)
        self._named.append(rows.select([*self._columns, SEQUENCE, EVENT_TIME]))

    def broken(self) -> list[ChainBreak]:
        """Return the changes behind which one is missing, in the order of the rows' numbers."""
        if not self._named:
            return []
        rows = pa.concat_tables(self._named, promote_options="permissive")
        items, new, old = (np.concatenate(each) for each in (self._items, self._new, self._old))
        numbered = order_of(rows)
        # Stable: within an item the rows stay in the order of their numbers.
        order = numbered[np.argsort(items[numbered], kind="stable")]
        before, after = order[:-1], order[1:]
        is_broken = (items[after] == items[before]) & (old[after] != new[before]).any(axis=1)
        before, after = before[is_broken], after[is_broken]
        chosen = rows.take(pa.array(after)).append_column(_SINCE, rows.column(EVENT_TIME).take(pa.array(before)))
        return [
            ChainBreak(
                {key: each[name] for key, name in zip(self.keys, self._columns, strict=True)},
                *(each[SEQUENCE], each[_SINCE], each[EVENT_TIME]),
            )
            for each in in_order(chosen).to_pylist()
        ]


def repeated(names: pa.ChunkedArray[Any]) -> int:
    """Return how many values are there already in others before them."""
    # To sort them and compare neighbours takes a third of counting the distinct ones.
    array: Any = names.combine_chunks()
    ordered = array.take(pc.sort_indices(array))
    return int(pc.sum(pc.equal(ordered[1:], ordered[:-1]), min_count=0).as_py())


def _hashes(rows: pa.Table, keys: Sequence[str]) -> tuple[_Words, _Words]:
    """Return a word of the key of each row, and two of the item."""
    digest, names, items = ColumnDigest(keys), list[Any](), list[Any]()
    for batch in rows.to_batches():
        sums = digest.add_rows(batch)
        items.append(sums.items)
        names.append(np.zeros(0, np.uint64) if sums.keys is None else sums.keys)
    return np.concatenate(names), np.concatenate(items).copy()
