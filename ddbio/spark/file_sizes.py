"""Files of one target size from Spark's own writer: division of a DataFrame, with an explanation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, DataFrameWriter

    from ddbio.options import Compression

_SAMPLE_ROWS = 20_000
# A file may exceed its share by this factor before Spark starts the next one: random shares are not exactly equal.
_SLACK = 1.1
_SALT = "__ddbio_file"


@dataclass(frozen=True)
class SizedFiles:
    """A DataFrame that is divided so that its files have a target size.

    Attributes
    ----------
    frame
        The DataFrame to write.
    max_records_per_file
        Value for the writer's option ``maxRecordsPerFile``.
    files
        Approximate number of files; None if rows were not counted.
    explanation
        The choice and its reason, with numbers.
    """

    frame: DataFrame
    partition_by: tuple[str, ...]
    max_records_per_file: int
    files: int | None
    explanation: str

    @property
    def write(self) -> DataFrameWriter:
        """Return a writer with ``maxRecordsPerFile`` and ``partitionBy`` set."""
        writer = self.frame.write.option("maxRecordsPerFile", self.max_records_per_file)
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer


def sized_files(
    frame: DataFrame,
    *,
    target_file_bytes: int = 256 * 1024 * 1024,
    partition_by: Sequence[str] = (),
    compression: Compression = "snappy",
    count: bool = True,
) -> SizedFiles:
    """Divide a DataFrame so that Spark's own writer makes Parquet files of one target size.

    The bytes per row are estimated from a sample of the first rows. Rows are counted, by partition if there are
    partitions. The count is an extra job, which is fast for a cached DataFrame or one of files.

    Parameters
    ----------
    partition_by
        Columns of ``partitionBy``.
    compression
        The codec of the files; Spark's default is ``snappy``.
    count
        False leaves the division to adaptive execution (``REBALANCE``), without counting. The shuffled data of its
        partitions has the size ``spark.sql.adaptive.advisoryPartitionSizeInBytes``, and files are smaller.

    Raises
    ------
    OptionError
        If the target is not positive, or a column does not exist.
    """
    if target_file_bytes <= 0:
        raise OptionError("target_file_bytes is a positive number of bytes")
    if missing := sorted({*partition_by} - {*frame.columns}):
        raise OptionError(f"partition_by: the DataFrame has no column {missing[0]!r}")
    columns = tuple(partition_by)
    # PySpark imports this package when it looks for data sources, and must not wait for Arrow.
    import pyarrow as pa  # noqa: PLC0415 - see above

    from ddbio.formats.registry import file_row_bytes  # noqa: PLC0415 - see above
    from ddbio.spark.validation import frame_batches  # noqa: PLC0415 - see above

    sample = frame.drop(*columns).limit(_SAMPLE_ROWS)
    # toArrow came with Spark 4.0.
    batches = sample.toArrow().to_batches() if hasattr(sample, "toArrow") else list(frame_batches(sample, None))
    row_bytes = (file_row_bytes(pa.Table.from_batches(batches), "parquet", compression) if batches else 0.0) or 1.0
    per_file = max(1, round(target_file_bytes / row_bytes))
    explained = f"a row takes about {row_bytes:,.1f} bytes of {compression} Parquet, so {per_file:,} rows are a file"
    most = math.ceil(per_file * _SLACK)
    if not count:
        hinted = frame.hint("rebalance", *columns)
        explained += "; adaptive execution divides the rows (REBALANCE), since they were not counted"
        return SizedFiles(hinted, columns, most, None, explained)
    if columns:
        return _by_partition(frame, columns, per_file, most, explained)
    rows = frame.count()
    files = max(1, round(rows / per_file))
    explained += f"; {rows:,} rows become {files:,} equal parts (repartition)"
    return SizedFiles(frame.repartition(files), columns, most, files, explained)


def _by_partition(frame: DataFrame, columns: tuple[str, ...], per_file: int, most: int, explained: str) -> SizedFiles:
    """Send each partition's rows to as many tasks as it has files. All files are full, except one."""
    # Separate names, so that a join knows the side of a column.
    names = [f"{_SALT}_{index}" for index in range(len(columns))]
    keys = [functions.col(_quoted(column)).alias(name) for column, name in zip(columns, names, strict=True)]
    counts = frame.groupBy(*keys).agg(functions.count("*").alias(_SALT))
    totals = counts.agg(
        functions.count("*"), functions.sum(functions.ceil(functions.col(_SALT) / per_file)), functions.sum(_SALT)
    ).first()
    n_partitions, files, rows = (totals[0] or 0, int(totals[1] or 0), totals[2] or 0) if totals else (0, 0, 0)
    explained += f"; {rows:,} rows of {n_partitions:,} partitions become {files:,} files"
    if files <= n_partitions:
        explained += ", one of each partition (repartition by its columns)"
        divided = frame.repartition(max(1, files), *map(_quoted, columns))
    else:
        explained += (
            ", rows of large partitions spread at random (repartition by its columns and the number of the file)"
        )
        same = [
            functions.col(_quoted(column)).eqNullSafe(functions.col(name))
            for column, name in zip(columns, names, strict=True)
        ]
        number = functions.floor(functions.rand() * functions.col(_SALT) / per_file)
        joined = frame.join(functions.broadcast(counts), same).withColumn(_SALT, number).drop(*names)
        divided = joined.repartition(files, *map(_quoted, columns), _SALT).drop(_SALT)
    small = rows / files if files else 0
    if files and small < per_file / 2:
        explained += f"; files have about {small:,.0f} rows, much fewer than wanted: partition by fewer columns"
    return SizedFiles(divided, columns, most, files, explained)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
