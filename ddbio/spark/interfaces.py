"""PySpark's base classes of data sources. Spark 3.5 has none, so that ours have no base there.

:mod:`ddbio.spark.frames` calls the same methods in its own tasks as Spark 4 does.
"""

from __future__ import annotations

try:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamWriter,
        InputPartition,
        WriterCommitMessage,
    )
except ImportError:
    DataSourceReader = DataSourceArrowWriter = DataSourceStreamWriter = InputPartition = WriterCommitMessage = object

__all__ = [
    "DataSourceArrowWriter",
    "DataSourceReader",
    "DataSourceStreamWriter",
    "InputPartition",
    "WriterCommitMessage",
]
