"""Cost of sampled rows and items for the indexes of the table to which they are written."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from ddbio.errors import EncodeError, SchemaError
from ddbio.items.capacity import WRITE_UNIT_BYTES, SecondaryIndex, WriteCost, write_cost
from ddbio.items.item_sizes import item_bytes
from ddbio.items.vector_bytes import mean_vector_bytes_of_items

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from ddbio.aws.table_description import IndexDescription, TableDescription
    from ddbio.items.attribute import Item


def mean_index_units(
    batch: pa.RecordBatch, table_keys: Iterable[str], indexes: Iterable[IndexDescription]
) -> dict[str, float]:
    """Return the mean write units of new rows for each index. Indexes whose rows cannot be sized are omitted.

    A row without a key of the index is not in it, and costs nothing.
    """
    units_by_index, names, keys = {}, batch.schema.names, tuple(table_keys)
    for index in indexes:
        if not batch.num_rows or not set(index.key_names) <= set(names):
            continue
        attributes = {*keys, *index.key_names, *(index.projected or ())}
        columns = [name for name in names if index.projected is None or name in attributes]
        has_keys = functools.reduce(pc.and_, [pc.is_valid(batch.column(name)) for name in index.key_names])
        with suppress(EncodeError, SchemaError):
            sizes = item_bytes(batch.select(columns).filter(has_keys)).to_numpy()
            units = np.maximum(1, -(-sizes // WRITE_UNIT_BYTES))
            units_by_index[index.name] = float(units.sum()) / batch.num_rows
    return units_by_index


# The minimum number of rows with a key of the sample for the key to count as frequent among all rows.
_FREQUENT = 3


def frequent_index_keys(
    batch: pa.RecordBatch, indexes: Iterable[IndexDescription]
) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Return the shares of the frequent partition keys of each global index, among the rows that are in it."""
    names = batch.schema.names
    return tuple(
        (index.name, _frequent_shares(map(repr, _partition_keys(batch, index))))
        for index in indexes
        if index.is_global and index.key_names and set(index.partition_names) <= set(names)
    )


def _partition_keys(batch: pa.RecordBatch, index: IndexDescription) -> Iterator[tuple[Any, ...]]:
    """Return the partition keys of the rows that have all its attributes."""
    columns = [batch.column(name).to_pylist() for name in index.partition_names]
    return (key for key in zip(*columns, strict=True) if None not in key)


def _frequent_shares(values: Iterable[str]) -> tuple[float, ...]:
    counts = Counter(values)
    return tuple(count / counts.total() for _, count in counts.most_common() if count >= _FREQUENT)


@dataclass(frozen=True)
class SampledWrites:
    """Mean cost of writing an item, and the frequent partition keys of each global index."""

    cost: WriteCost
    index_keys: tuple[tuple[str, tuple[float, ...]], ...] = ()
    vector_bytes: tuple[tuple[str, float], ...] = ()
    """Mean bytes of writing an item to each vector index."""


def sample_writes(items: Sequence[Item], table: TableDescription) -> SampledWrites | None:
    """Return the cost of writing sampled items to a table and its indexes, or None without items."""
    cost = mean_write_cost(items, table)
    if cost is None:
        return None
    keys = tuple(
        (
            index.name,
            _frequent_shares(
                repr([item[name] for name in index.partition_names])
                for item in items
                if all(name in item for name in index.partition_names)
            ),
        )
        for index in table.indexes
        if index.is_global and index.key_names
    )
    vector_bytes = mean_vector_bytes_of_items(items, dict(table.key_types), table.vector_indexes)
    return SampledWrites(cost, keys, tuple(vector_bytes.items()))


def mean_write_cost(items: Iterable[Item], table: TableDescription) -> WriteCost | None:
    """Return the mean cost of writing new items to a table and its indexes, or None without items."""
    keys = [name for name, _ in table.key_types]
    indexes = [SecondaryIndex(index.name, index.key_names, index.projected, index.is_global) for index in table.indexes]
    costs = [write_cost(None, item, keys, indexes) for item in items]
    if not costs:
        return None
    of_table = sum(map(operator.attrgetter("table"), costs)) / len(costs)
    return WriteCost(
        of_table,
        {index.name: sum(cost.indexes.get(index.name, 0.0) for cost in costs) / len(costs) for index in indexes},
    )
