"""Read a DataFrame as a side of a validation: its partitions one after the other, as Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.core.schema.arrow import declare_types
from ddbio.spark.digest import declared_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

_ROWS = "rows binary"


def frame_batches(frame: DataFrame, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """Yield a DataFrame's rows; the driver holds little more than two partitions' at a time.

    Parameters
    ----------
    schema
        DynamoDB's types by column; None takes those of the frame's own field metadata.
    """
    declared = declared_by(frame.schema) if schema is None else schema
    names = frame.columns
    # Spark looks up names with dots as paths, and its workers cut names at a NUL.
    numbered = frame.toDF(*[f"_{number}" for number in range(len(names))])
    for row in numbered.mapInArrow(_packed, _ROWS).toLocalIterator(prefetchPartitions=True):
        for batch in pa.ipc.open_stream(row.rows):
            yield declare_types(batch.rename_columns(names), declared)


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([sink.getvalue().to_pybytes()], pa.binary())})
