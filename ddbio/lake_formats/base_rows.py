"""Conversion of the items of a base load to rows of a lake table, sorted by bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.formats.lake_columns import BUCKET, DELETED, KEY, OPERATION, TIME, VERSION
from ddbio.formats.partitions import PartitionedRows
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field
from ddbio.lake_formats.keys import BASE, keys_and_buckets
from ddbio.lake_formats.reordering import concatenated, reordered
from ddbio.lake_formats.rows import Fitter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddbio.lake_formats.rows import LakeShape

# The offsets of Arrow strings have 31 bits.
_MAX_BYTES = 1 << 30


class BaseRows:
    """Rows of a base load, sorted by bucket; every later change is newer than them.

    Only the columns of items and of keys are reordered. The other columns of the table are equal in all rows: they are
    slices of arrays that are created once.

    Parameters
    ----------
    loaded_us
        The start of the load, in microseconds since 1970.
    keeps_bucket
        Whether files also have the column of the bucket.

    Attributes
    ----------
    names
        The columns of the folders.
    schema
        The schema of the rows.
    log
        Empty, since every row has a bucket.
    statistics
        The statistics of the constant columns, for each file.
    """

    is_even = True

    def __init__(self, shape: LakeShape, loaded_us: int, *, keeps_bucket: bool) -> None:
        self._shape, self._loaded_us = shape, loaded_us
        full_schema = shape.schema
        self.names = (BUCKET,)
        self.schema = (
            full_schema if keeps_bucket else pa.schema([field for field in full_schema if field.name != BUCKET])
        )
        self.log = MisfitLog()
        self._fitter = Fitter(shape.attributes)
        self._constants: dict[str, pa.Array[Any]] = {}
        self._length = 0
        self.statistics = {
            name: {"nulls": 0, "min": value, "max": value} for name, value in ((VERSION, BASE), (TIME, loaded_us))
        }

    @property
    def item_schema(self) -> pa.Schema:
        """Return the columns of the input of the sort."""
        return self._fitter.schema

    def fit(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """Return items in the columns of the input of the sort."""
        return self._fitter.fit(items)

    def sort_block(self, batches: Sequence[pa.RecordBatch]) -> Iterator[PartitionedRows]:
        """Yield the rows of items by bucket; rows of one bucket keep their order."""
        is_small = sum(batch.nbytes for batch in batches) <= _MAX_BYTES
        for block in [batches] if is_small else [[batch] for batch in batches]:
            yield self._sorted(pa.Table.from_batches(block, self.item_schema))

    def _sorted(self, items: pa.Table) -> PartitionedRows:
        count, n_buckets = items.num_rows, self._shape.buckets
        chunks_by_name = {name: column.chunks for name, column in zip(items.schema.names, items.columns, strict=True)}
        read = [name for name in items.schema.names if name == RESCUE_NAME or self._is_key(items.schema.field(name))]
        for name in read:
            chunks_by_name[name] = [concatenated(chunks_by_name[name])]
        schema = pa.schema([items.schema.field(name) for name in read])
        batch = pa.RecordBatch.from_arrays([chunks_by_name[name][0] for name in read], schema=schema)
        keys, buckets = keys_and_buckets(batch, self._shape.keys, n_buckets)
        numbers: Any = buckets.to_numpy()
        order = np.argsort(numbers.astype(np.uint16 if n_buckets <= 1 << 16 else np.int64), kind="stable")
        columns = self._constant_columns(count)
        columns[KEY] = reordered([keys], order)
        if BUCKET in self.schema.names:
            columns[BUCKET] = reordered([buckets], order)
        columns.update((name, reordered(arrays, order)) for name, arrays in chunks_by_name.items())
        rows = pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
        counts = np.bincount(numbers, minlength=n_buckets)
        return PartitionedRows(rows, tuple((str(bucket),) for bucket in range(n_buckets)), tuple(counts.tolist()))

    def _is_key(self, field: pa.Field[Any]) -> bool:
        return name_of_field(field) in self._shape.keys

    def _constant_columns(self, count: int) -> dict[str, Any]:
        """Return the columns that are equal in all rows."""
        if count > self._length:
            self._length = count
            self._constants = {
                VERSION: pa.repeat(pa.scalar(BASE), count),
                TIME: pa.repeat(pa.scalar(self._loaded_us, pa.int64()), count),
                OPERATION: pa.nulls(count, pa.string()),
                DELETED: pa.repeat(pa.scalar(value=False), count),
            }
        return {name: array.slice(0, count) for name, array in self._constants.items()}
