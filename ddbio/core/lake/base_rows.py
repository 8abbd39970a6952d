"""Make rows of a lake table of the items of a base load, sorted by bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.kernel.arrays import int64_array
from ddbio.core.lake.columns import BUCKET, DELETED, KEY, OPERATION, TIME, VERSION
from ddbio.core.lake.fitting import Fitter
from ddbio.core.lake.keys import keys_and_buckets
from ddbio.core.lake.versions import BASE
from ddbio.core.partitions import PartitionedRows
from ddbio.core.rescue import MisfitLog
from ddbio.core.schema.arrow import RESCUE_NAME

if TYPE_CHECKING:
    from ddbio.core.lake.rows import LakeShape


# Rows that wait take as much memory again and again. Arrow's own pool gives it back to the system each time, which has
# to clear every page anew; this one keeps it.
_POOL = pa.system_memory_pool()


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

    @property
    def item_schema(self) -> pa.Schema:
        """The columns of what is sorted."""
        return self._fitter.schema

    def fit(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """Return items in the columns of what is sorted."""
        return self._fitter.fit(items)

    def sort(self, batch: pa.RecordBatch) -> PartitionedRows:
        """Return the rows for some items by bucket; rows of one bucket keep their order."""
        count, n_buckets = batch.num_rows, self._shape.buckets
        keys, buckets = keys_and_buckets(batch, self._shape.keys, n_buckets)
        numbers: Any = buckets.to_numpy()
        order = np.argsort(numbers.astype(np.uint16 if n_buckets <= 1 << 16 else np.int64), kind="stable")
        columns = self._of_all(count)
        rescue = batch.column(RESCUE_NAME)
        if rescue.null_count == count:
            batch, columns[RESCUE_NAME] = batch.drop_columns([RESCUE_NAME]), rescue
        places = int64_array(order)
        items: Any = pc.take(batch, places, memory_pool=_POOL)
        columns.update(zip(items.schema.names, items.columns, strict=True))
        columns[KEY] = pc.take(keys, places, memory_pool=_POOL)
        if BUCKET in self.schema.names:
            columns[BUCKET] = pc.take(buckets, places, memory_pool=_POOL)
        rows = pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
        counts = np.bincount(numbers, minlength=n_buckets)
        return PartitionedRows(rows, tuple((str(each),) for each in range(n_buckets)), tuple(counts.tolist()))

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
