"""Compute what sampled rows and items would cost the indexes of a table that they are written to."""

from __future__ import annotations

import functools
import operator
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from ddbio.core.capacity import WRITE_UNIT_BYTES, SecondaryIndex, WriteCost, write_cost
from ddbio.core.item_sizes import item_bytes
from ddbio.errors import EncodeError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from ddbio.core.attribute import Item
    from ddbio.core.table_description import IndexDescription, TableDescription


def mean_index_units(
    batch: pa.RecordBatch, table_keys: Iterable[str], indexes: Iterable[IndexDescription]
) -> dict[str, float]:
    """Return the mean write units that new rows cost each index, of all rows; those that cannot be sized are left out.

    A row without a key of the index is not in it, and costs nothing.
    """
    found, names, keys = {}, batch.schema.names, tuple(table_keys)
    for index in indexes:
        if not batch.num_rows or not set(index.key_names) <= set(names):
            continue
        wanted = {*keys, *index.key_names, *(index.projected or ())}
        held = [name for name in names if index.projected is None or name in wanted]
        is_there = functools.reduce(pc.and_, [pc.is_valid(batch.column(name)) for name in index.key_names])
        with suppress(EncodeError, SchemaError):
            sizes = item_bytes(batch.select(held).filter(is_there)).to_numpy()
            units = np.maximum(1, -(-sizes // WRITE_UNIT_BYTES))
            found[index.name] = float(units.sum()) / batch.num_rows
    return found


def mean_write_cost(items: Iterable[Item], table: TableDescription) -> WriteCost | None:
    """Return the mean cost of writing new items to a table and its indexes; None without items."""
    keys = [name for name, _ in table.key_types]
    indexes = [SecondaryIndex(each.name, each.key_names, each.projected, each.is_global) for each in table.indexes]
    costs = [write_cost(None, item, keys, indexes) for item in items]
    if not costs:
        return None
    of_table = sum(map(operator.attrgetter("table"), costs)) / len(costs)
    return WriteCost(
        of_table, {each.name: sum(cost.indexes.get(each.name, 0.0) for cost in costs) / len(costs) for each in indexes}
    )
