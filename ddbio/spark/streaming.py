"""Write a stream's micro-batches into a live table: at least once, which the modes make the same as once.

Refuses the output mode ``complete``, which would replace the whole table each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamWriter

from ddbio.spark.writing import TableWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType


# Options of a query that Spark hands to its sink as well.
_SPARKS_OWN = frozenset({"checkpointlocation"})


class StreamTableWriter(TableWriter, DataSourceStreamWriter):  # type: ignore[misc]
    """Write the partitions of every micro-batch; a batch that Spark repeats is written again, to the same end.

    Spark 4.0 hands Arrow batches to the writers of batches alone: it is one of those as well.
    """

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803 - PySpark's own
        """Do nothing: what a task has written is in the table."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803 - PySpark's own
        """Do nothing: the batch comes again."""


def stream_writer(values: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceStreamWriter:
    """Return the writer of a stream."""
    ours = {name: value for name, value in values.items() if name.lower() not in _SPARKS_OWN}
    return StreamTableWriter(ours, schema, overwrite=overwrite)
