"""Audit the images of a log: of each item, the image before a change must be the image after the change before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.capture.columns import EVENT_TIME, OLD_IMAGE, OLD_RESCUE, OPERATION, SEQUENCE
from ddbio.core.capture.log_order import order_of
from ddbio.core.digest_columns import ColumnDigest
from ddbio.core.schema.arrow import RESCUE_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from numpy.typing import NDArray

_NOTHING = np.zeros(2, np.uint64)


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


def broken_chains(rows: pa.Table, keys: Sequence[str], attributes: Sequence[str]) -> list[ChainBreak]:
    """Return the changes behind which one is missing, in the order of the rows' numbers.

    What this cannot see is the loss of the last changes of an item. Changes that the service merged are no loss.

    Parameters
    ----------
    attributes
        The columns of the items, the key's among them.
    """
    rows = rows.combine_chunks()
    if not rows.num_rows:
        return []
    # The order is taken of the hashes, not of the rows.
    numbered = order_of(rows)
    operations: Any = rows.column(OPERATION)
    removed = pc.equal(operations, pa.scalar("REMOVE")).to_numpy()
    found, new = _hashes(rows.select([*attributes, RESCUE_NAME]), keys)
    new[removed] = _NOTHING
    images: Any = rows.column(OLD_IMAGE).combine_chunks()
    is_new = pc.is_null(images).to_numpy(zero_copy_only=False)
    fields = {each.name: column for each, column in zip(images.type, images.flatten(), strict=True)}
    old_rows = pa.table({name: fields[name] for name in attributes}, schema=_fields(rows, attributes))
    _, old = _hashes(old_rows.append_column(rows.schema.field(RESCUE_NAME), rows.column(OLD_RESCUE)), ())
    old[is_new] = _NOTHING
    found, new, old = found[numbered], new[numbered], old[numbered]
    # Stable: within an item the rows stay in their order.
    order = np.argsort(found, kind="stable")
    same_item = found[order][1:] == found[order][:-1]
    broken = same_item & (old[order][1:] != new[order][:-1]).any(axis=1)
    places = np.sort(order[1:][broken])
    before: Any = np.empty(rows.num_rows, np.int64)
    before[order[1:]] = order[:-1]
    chosen = rows.take(pa.array(numbered[places])).select([*keys, SEQUENCE, EVENT_TIME]).to_pylist()
    times: Any = rows.column(EVENT_TIME).take(pa.array(numbered[before[places]])).to_pylist()
    return [
        ChainBreak({name: each[name] for name in keys}, each[SEQUENCE], since, each[EVENT_TIME])
        for each, since in zip(chosen, times, strict=True)
    ]


def _fields(rows: pa.Table, attributes: Sequence[str]) -> pa.Schema:
    return pa.schema([rows.schema.field(name) for name in attributes])


def _hashes(rows: pa.Table, keys: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return a word of the key of each row, and two of the item."""
    digest, names, items = ColumnDigest(keys), list[Any](), list[Any]()
    for batch in rows.to_batches():
        sums = digest.add_rows(batch)
        items.append(sums.items)
        names.append(np.zeros(0, np.uint64) if sums.keys is None else sums.keys)
    return np.concatenate(names), np.concatenate(items).copy()
