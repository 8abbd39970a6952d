"""Write DataFrames and streams into a live table: Spark's planner plans, its tasks write Arrow batches.

A task or micro-batch that Spark repeats writes its rows again, which the modes make the same as once.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
from pydantic import Field
from pydantic.dataclasses import dataclass as options_dataclass
from pyspark import SparkFiles, TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from ddbio.budget import BudgetClient, FencedBudget, TaskAttempt
from ddbio.core.loads.encode import legal_key_hashes
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
from ddbio.spark.worker import unfenced_retry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql.types import StructType

    from ddbio.budget import Budget, BudgetAddress
    from ddbio.core.loads.counts import WriteCounts
    from ddbio.core.loads.plan import WritePlan

# Options of a query that Spark passes to its sink as well.
_QUERY_OPTIONS = frozenset({"checkpointlocation"})


@options_dataclass(frozen=True, kw_only=True)
class FrameWriteOptions(WriteOptions):
    """Say how a DataFrame is written."""

    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Tasks that write at the same time at most; a rate is divided by it if no driver serves a budget."""
    unique_keys: bool = False
    """Each key occurs once in the DataFrame, so that its rows may be written in any order."""


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
        self._is_ordered = self._plan.order_matters and not self._options.unique_keys
        application = SparkFiles.getRootDirectory()
        terms = request_lease_terms(application, rate, self._plan.ramp, fenced=self._is_ordered)
        tasks = self._options.tasks or (None if terms is None else terms.parallelism)
        if rate is not None and tasks is None:
            raise OptionError(
                f"nothing would hold {rate:g} write units/s over all tasks: call ddbio.register(spark), or give tasks, "
                "the number of tasks that run at the same time"
            )
        self._lease, self._fence = (None, None) if terms is None else (terms.lease, terms.fence)
        if self._fence is not None and self._fence.speculates:
            raise OptionError(
                "spark.speculation is on: two attempts of one task would write the rows of a key in no order; turn it "
                "off, or give newer_by, or unique_keys if each key occurs once"
            )
        self._share = None if rate is None or tasks is None else rate / tasks

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one partition's rows."""
        rows: Iterator[pa.RecordBatch] = map(self._tagged, iterator)
        with closing(open_budget(self._lease, self._share)) as budget, ExitStack() as stack:
            if not self._is_ordered:
                return self._write(rows, budget)
            fence = self._enter_fence(stack)
            if fence is not None:
                written = self._write(rows, FencedBudget(budget, fence))
                fence.require_latest()
                return written
            if TaskContext.get().attemptNumber():
                address = None if self._fence is None else self._fence.address
                rows = stack.enter_context(rows_of_unique_keys(rows, self._plan, address))
            return self._write(rows, budget)

    def _write(self, rows: Iterator[pa.RecordBatch], budget: Budget) -> Written:
        task = WriteTask(dynamodb_spec(self._options), self._plan, self._options.deadline_seconds)
        return Written(write_batches(task, rows, RejectWriter(self._options, self._job_id), budget))

    def _enter_fence(self, stack: ExitStack) -> BudgetClient | None:
        """Return what lets only the latest attempt of this task write, or None if no driver can be reached."""
        if self._fence is None:
            return None
        context = TaskContext.get()
        name = f"{self._job_id}-{context.partitionId()}"
        attempt = TaskAttempt(name, context.taskAttemptId(), self._fence.alone_seconds)
        client = BudgetClient(self._fence.address, fallback_units_per_second=None, attempt=attempt)
        stack.enter_context(closing(client))
        return client if client.has_met_driver() else None

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


@contextmanager
def rows_of_unique_keys(
    rows: Iterable[pa.RecordBatch], plan: WritePlan, address: BudgetAddress | None
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Return the rows of a task that runs again beside an attempt that may still write, after a look at all of them.

    Raises
    ------
    ServiceError
        If a key occurs twice: an older row of it could be written last.
    """
    hashes, sizes = [np.zeros(0, np.uint64)], list[int]()
    with tempfile.TemporaryFile() as file:
        for batch in rows:
            hashes.append(legal_key_hashes(batch, plan)[1])
            sizes.append(file.write(_to_ipc(batch)))
        found = np.concatenate(hashes)
        if len(np.unique(found)) < len(found):
            raise unfenced_retry(address)
        file.seek(0)
        yield (pa.ipc.open_stream(file.read(size)).read_next_batch() for size in sizes)


def _to_ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def stream_writer(values: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceStreamWriter:
    """Return the writer of a stream."""
    ours = {name: value for name, value in values.items() if name.lower() not in _QUERY_OPTIONS}
    return StreamTableWriter(ours, schema, overwrite=overwrite)
