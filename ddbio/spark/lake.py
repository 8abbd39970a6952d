"""Merge of DataFrames of changes into lake tables: tasks make the rows, and a shuffle moves them to their buckets."""

from __future__ import annotations

import functools
import pickle
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.errors import DdbioError
from ddbio.items.schema.arrow import RESCUE_NAME, declare_types, name_of_field
from ddbio.jobs.engine import Shuffle
from ddbio.jobs.report import Clock
from ddbio.lake.apply import apply_source
from ddbio.lake.change_rows import change_batches, change_columns
from ddbio.lake.changes import row_changes
from ddbio.lake.merging import gather, joined, merge_buckets, partitions_of, split_batch, unknown_texts
from ddbio.lake_formats.rows import item_columns
from ddbio.spark.engine import SparkEngine
from ddbio.spark.types import to_arrow_schema
from ddbio.spark.validation import frame_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, Row

    from ddbio.lake.apply import ApplyReport
    from ddbio.lake.change_source import ChangePart
    from ddbio.lake.changes import RowChanges
    from ddbio.lake.merging import BucketMerger, Merged, RowMaker
    from ddbio.lake.options import ApplyOptions
    from ddbio.lake_formats.rows import LakeShape

_PARTS: Any = pa.schema({"partition": pa.int64(), "rows": pa.binary(), "error": pa.binary()})  # type: ignore[arg-type] # stubs
_PARTS_SQL = "partition long, rows binary, error binary"
_SAMPLED_TEXTS = 1_000


def apply_frame(frame: DataFrame, options: ApplyOptions) -> ApplyReport:
    """Merge a DataFrame of changes into a lake table.

    Raises
    ------
    OptionError
        If the format is hudi.
    SchemaError
        If the rows are no changes.
    DdbioError
        As ``ddbio.lake.apply.apply_log``.
    """
    schema = to_arrow_schema(frame.schema)
    source = row_changes(schema, options)
    if options.engine == "local":
        batches = list(frame_batches(frame, None))
        source.rows = pa.Table.from_batches(batches) if batches else schema.empty_table()
        return apply_source(source, options)
    clock = Clock()
    with closing(SparkEngine(None, {})) as engine:
        return apply_source(source, options, FrameMerging(engine, frame, source), clock)


class FrameMerging:
    """Merging of the rows of a DataFrame by a shuffle. The driver holds lists of files, but no rows."""

    def __init__(self, engine: SparkEngine, frame: DataFrame, source: RowChanges) -> None:
        self._engine, self._frame, self._source = engine, frame, source

    def grown(self, shape: LakeShape, columns: pa.Schema, parts: Sequence[ChangePart]) -> LakeShape:
        """Return the shape with columns for the attributes of the rows, and of a sample of rescued values."""
        del parts
        items, texts = item_columns(columns), list[str]()
        if RESCUE_NAME in self._frame.columns:
            names = frozenset(name_of_field(field) for field in (*shape.attributes, *items))
            rescued = self._frame.select(RESCUE_NAME).where(f"{RESCUE_NAME} is not null").limit(_SAMPLED_TEXTS)
            texts = list(unknown_texts((row[0] for row in rescued.collect()), names))
        return shape.grown(items, texts)

    def merge(self, parts: Sequence[ChangePart], maker: RowMaker, merger: BucketMerger) -> Merged:
        """Merge the rows."""
        del parts
        partitions = partitions_of(maker, self._engine.parallelism)
        frame, source = self._frame, self._source
        # Spark parses names with dots as paths, and its workers cut names at a NUL.
        numbered = frame.toDF(*[f"_{number}" for number in range(len(frame.columns))])
        task = _splitting(source.schema, source.keys(), source.stream, maker, partitions)
        arrived = numbered.mapInArrow(task, _PARTS_SQL).rdd
        shuffle = Shuffle(_arrived, functools.partial(gather, merger), partitions)
        return joined(self._engine.run_shuffled_rdd(shuffle, arrived, merge_buckets, LocalBudget(None, job="apply")))


def _splitting(
    schema: pa.Schema, keys: tuple[str, ...], stream: str, maker: RowMaker, partitions: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a task, which makes the rows of the table and yields an error instead of raising it."""
    columns = change_columns(schema)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        remaining = iter(batches)
        named = (declare_types(batch.rename_columns(schema.names), schema) for batch in remaining)
        try:
            for batch in change_batches(named, columns, keys):
                for partition, data in split_batch(maker, stream, batch, partitions):
                    yield _part({"partition": partition, "rows": data})
        except DdbioError as error:
            # Drain the remaining input, else Spark could not use the worker again.
            for _ in remaining:
                pass
            yield _part({"partition": 0, "error": pickle.dumps(error)})

    return run


def _part(row: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row], _PARTS)


def _arrived(row: Row) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Yield the rows that a task of the frame has made, for the task that merges them."""
    if row["error"] is not None:
        raise pickle.loads(row["error"])  # noqa: S301 - our own worker wrote it
    yield (row["partition"],), bytes(row["rows"])
