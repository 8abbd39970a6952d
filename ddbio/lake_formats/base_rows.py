"""Make rows of a lake table of the items of a base load, sorted by bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.formats.lake_columns import BUCKET, DELETED, KEY, OPERATION, TIME, VERSION
from ddbio.formats.partitions import PartitionedRows
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field
from ddbio.lake_formats.keys import BASE, keys_and_buckets
from ddbio.lake_formats.reordering import joined, reordered
from ddbio.lake_formats.rows import Fitter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddbio.lake_formats.rows import LakeShape

# The offsets of Arrow's texts have 31 bits.
_MOST_BYTES = 1 << 30


class BaseRows:
    """Sort items by their buckets, and make the rows of a base load of them, over which every change wins.

    Only what the items have is brought into the order: the table's own columns but the key are the same in every row,
    and slices of arrays that are made once.

    Parameters
    ----------
    loaded_us
        When the load began, in microseconds since 1970.
    keeps_bucket
        Whether files have the column of the bucket, too.

    Attributes
    ----------
    names
        The columns of the folders.
    schema
        That of the rows.
    log
        Nothing: every row has a bucket.
    statistics
        Those of the columns that are the same in every row, for each file.
    """

    is_even = True

    def __init__(self, shape: LakeShape, loaded_us: int, *, keeps_bucket: bool) -> None:
        self._shape, self._loaded_us = shape, loaded_us
        whole = shape.schema
        self.names = (BUCKET,)
        self.schema = whole if keeps_bucket else pa.schema([field for field in whole if field.name != BUCKET])
        self.log = MisfitLog()
        self._fitter = Fitter(shape.attributes)
        self._constants: dict[str, pa.Array[Any]] = {}
        self._length = 0
        self.statistics = {
            name: {"nulls": 0, "min": value, "max": value} for name, value in ((VERSION, BASE), (TIME, loaded_us))
        }

    @property
    def item_schema(self) -> pa.Schema:
        """The columns of what is sorted."""
        return self._fitter.schema

    def fit(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """Return items in the columns of what is sorted."""
        return self._fitter.fit(items)

    def sort_block(self, batches: Sequence[pa.RecordBatch]) -> Iterator[PartitionedRows]:
        """Yield the rows for some items by bucket; rows of one bucket keep their order."""
        is_small = sum(each.nbytes for each in batches) <= _MOST_BYTES
        for block in [batches] if is_small else [[each] for each in batches]:
            yield self._sorted(pa.Table.from_batches(block, self.item_schema))

    def _sorted(self, items: pa.Table) -> PartitionedRows:
        count, n_buckets = items.num_rows, self._shape.buckets
        given = {name: column.chunks for name, column in zip(items.schema.names, items.columns, strict=True)}
        read = [name for name in items.schema.names if name == RESCUE_NAME or self._is_key(items.schema.field(name))]
        for name in read:
            given[name] = [joined(given[name])]
        schema = pa.schema([items.schema.field(name) for name in read])
        batch = pa.RecordBatch.from_arrays([given[name][0] for name in read], schema=schema)
        keys, buckets = keys_and_buckets(batch, self._shape.keys, n_buckets)
        numbers: Any = buckets.to_numpy()
        order = np.argsort(numbers.astype(np.uint16 if n_buckets <= 1 << 16 else np.int64), kind="stable")
        columns = self._of_all(count)
        columns[KEY] = reordered([keys], order)
        if BUCKET in self.schema.names:
            columns[BUCKET] = reordered([buckets], order)
        columns.update((name, reordered(arrays, order)) for name, arrays in given.items())
        rows = pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
        counts = np.bincount(numbers, minlength=n_buckets)
        return PartitionedRows(rows, tuple((str(each),) for each in range(n_buckets)), tuple(counts.tolist()))

    def _is_key(self, field: pa.Field[Any]) -> bool:
        return name_of_field(field) in self._shape.keys

    def _of_all(self, count: int) -> dict[str, Any]:
        """Return the columns that are the same in all rows."""
        if count > self._length:
            self._length = count
            self._constants = {
                VERSION: pa.repeat(pa.scalar(BASE), count),
                TIME: pa.repeat(pa.scalar(self._loaded_us, pa.int64()), count),
                OPERATION: pa.nulls(count, pa.string()),
                DELETED: pa.repeat(pa.scalar(value=False), count),
            }
        return {name: array.slice(0, count) for name, array in self._constants.items()}
