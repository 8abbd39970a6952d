"""Write DataFrames and streams into a live table: Spark's planner plans, its tasks write Arrow batches.

A task or micro-batch that Spark repeats writes its rows again, which the modes make the same as once.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
from pydantic import Field
from pydantic.dataclasses import dataclass as options_dataclass
from pyspark import SparkFiles
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from ddbio.core.schema.declare import time_forms
from ddbio.core.time_columns import StoredRows
from ddbio.errors import OptionError
from ddbio.ops.job.storage import dynamodb_spec, new_job_id
from ddbio.ops.loads.load import plan_of
from ddbio.ops.loads.rejects import RejectWriter
from ddbio.ops.loads.scheduler import WriteTask, write_batches
from ddbio.options import WriteOptions, parse_options
from ddbio.spark.lease_server import request_lease_terms
from ddbio.spark.reading import open_budget, rename_table
from ddbio.spark.types import written_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

    from ddbio.core.loads.counts import WriteCounts

# Options of a query that Spark passes to its sink as well.
_QUERY_OPTIONS = frozenset({"checkpointlocation"})


@options_dataclass(frozen=True, kw_only=True)
class FrameWriteOptions(WriteOptions):
    """Say how a DataFrame is written."""

    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Tasks that write at the same time at most; a rate is divided by it if no driver serves a budget."""


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """Count what one task wrote."""

    counts: WriteCounts


class TableWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Write every partition's rows; a task that Spark repeats writes its rows again, with the same result.

    Raises
    ------
    OptionError
        If an option is wrong, or a rate is asked for that nothing could hold over all tasks.
    """

    def __init__(self, values: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a table cannot be overwritten: write with mode('append'), which replaces item by item")
        self._options = parse_options(FrameWriteOptions, rename_table(values))
        self._plan = plan_of(self._options)
        self._rows = StoredRows(time_forms(self._options.timestamps))
        self._job_id = new_job_id()
        self._metadata = {field.name: field.metadata for field in written_schema(schema)}
        rate = self._plan.wcu_per_second
        terms = request_lease_terms(SparkFiles.getRootDirectory(), rate, self._plan.ramp)
        tasks = self._options.tasks or (None if terms is None else terms.parallelism)
        if rate is not None and tasks is None:
            raise OptionError(
                f"nothing would hold {rate:g} write units/s over all tasks: call ddbio.register(spark), or give tasks, "
                "the number of tasks that run at the same time"
            )
        self._lease = None if terms is None else terms.lease
        self._share = None if rate is None or tasks is None else rate / tasks

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one partition's rows."""
        task = WriteTask(dynamodb_spec(self._options), self._plan, self._options.deadline_seconds)
        rejects = RejectWriter(self._options, self._job_id)
        with closing(open_budget(self._lease, self._share)) as budget:
            return Written(write_batches(task, map(self._tagged, iterator), rejects, budget))

    def _tagged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # Spark passes types but drops the fields' metadata, which has DynamoDB's own types.
        fields = [pa.field(field.name, field.type, metadata=self._metadata[field.name]) for field in batch.schema]
        return self._rows.convert(pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields)))


class StreamTableWriter(TableWriter, DataSourceStreamWriter):  # type: ignore[misc]
    """Write the partitions of every micro-batch; a batch that Spark repeats is written again, with the same result.

    Spark 4.0 hands Arrow batches only to the writers of batches, so this is one of those as well.
    """

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803 - PySpark's own
        """Do nothing: what a task has written is in the table."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803 - PySpark's own
        """Do nothing: the batch comes again."""


def stream_writer(values: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceStreamWriter:
    """Return the writer of a stream."""
    ours = {name: value for name, value in values.items() if name.lower() not in _QUERY_OPTIONS}
    return StreamTableWriter(ours, schema, overwrite=overwrite)
