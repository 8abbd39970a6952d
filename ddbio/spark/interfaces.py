"""PySpark's classes that data sources are made of; Spark 3.5 has none, so that ours stand alone there.

What :mod:`ddbio.spark.frames` calls in tasks of its own is what Spark 4 calls.
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
