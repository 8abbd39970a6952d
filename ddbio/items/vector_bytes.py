"""Bytes of writes to vector indexes, which DynamoDB bills separately from write units.

AWS publishes no formula. Measurements on AWS agree with 4 bytes per dimension, the name of the vector's attribute, and
the size of the other projected attributes, at least 1 KiB.

References
----------
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/VectorSearchMonitoring.html
"""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from ddbio.errors import EncodeError, SchemaError
from ddbio.items.capacity import item_size_bytes
from ddbio.items.item_sizes import item_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from ddbio.aws.table_description import VectorIndexDescription
    from ddbio.items.attribute import Item

_MIN_BYTES = 1024
_DIMENSION_BYTES = 4


def min_vector_bytes(index: VectorIndexDescription) -> int:
    """Return the bytes of writing an item without projected attributes."""
    return max(_MIN_BYTES, _own_bytes(index))


def mean_vector_bytes_of_items(
    items: Sequence[Item], table_keys: Iterable[str], indexes: Iterable[VectorIndexDescription]
) -> dict[str, float]:
    """Return the mean bytes of writing a new item to each vector index."""
    keys = tuple(table_keys)
    return {index.name: sum(_item_bytes(item, keys, index) for item in items) / max(1, len(items)) for index in indexes}


def _item_bytes(item: Item, table_keys: tuple[str, ...], index: VectorIndexDescription) -> int:
    if not all(name in item for name in _required(index)):
        return 0
    projected = {name: item[name] for name in _projected(list(item), table_keys, index)}
    return max(_MIN_BYTES, _own_bytes(index) + item_size_bytes(projected))


def mean_vector_bytes(
    batch: pa.RecordBatch, table_keys: Iterable[str], indexes: Iterable[VectorIndexDescription]
) -> dict[str, float]:
    """Return the mean bytes of writing a new row to each vector index. The result omits rows without a known size."""
    means, names, keys = {}, batch.schema.names, tuple(table_keys)
    for index in indexes:
        required = _required(index)
        if not batch.num_rows or not set(required) <= set(names):
            continue
        is_indexed = functools.reduce(pc.and_, [pc.is_valid(batch.column(name)) for name in required])
        with suppress(EncodeError, SchemaError):
            sizes = item_bytes(batch.select(_projected(names, keys, index)).filter(is_indexed)).to_numpy()
            means[index.name] = float(np.maximum(_MIN_BYTES, sizes + _own_bytes(index)).sum()) / batch.num_rows
    return means


def _own_bytes(index: VectorIndexDescription) -> int:
    return _DIMENSION_BYTES * index.dimensions + len(index.attribute.encode())


def _required(index: VectorIndexDescription) -> list[str]:
    """Return the attributes without which an item is not in the index."""
    return [index.attribute, *([] if index.partition_name is None else [index.partition_name])]


def _projected(names: list[str], table_keys: tuple[str, ...], index: VectorIndexDescription) -> list[str]:
    """Return the projected attributes among some names, without the vector."""
    kept = {*table_keys, *_required(index), *index.filter_names, *(index.projected or ())}
    return [name for name in names if name != index.attribute and (index.projected is None or name in kept)]
