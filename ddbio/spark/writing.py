"""Writes of DataFrames and streams into a live table: Spark's planner plans, its tasks write Arrow batches.

A task or micro-batch that Spark repeats writes its rows again, with the same result in all modes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
from pydantic import Field
from pydantic.dataclasses import dataclass as options_dataclass
from pyspark import SparkFiles, TaskContext

from ddbio.budget import BudgetClient, FencedBudget, TaskAttempt
from ddbio.budget.worker import CountedBudget
from ddbio.errors import OptionError
from ddbio.items.schema.arrow import require_names
from ddbio.items.schema.declare import time_formats
from ddbio.items.time_columns import StoredRows
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.rejected_rows import require_reject_location
from ddbio.jobs.report import WriteReport
from ddbio.jobs.stores import new_job_id
from ddbio.load.batches import WriteCounts
from ddbio.load.encode import legal_key_hashes
from ddbio.load.load import plan_of
from ddbio.load.options import WriteOptions
from ddbio.load.rejects import RejectWriter
from ddbio.load.write import WriteTask, write_batches
from ddbio.options import parse_options
from ddbio.options.aliases import known_names
from ddbio.spark.interfaces import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from ddbio.spark.lease_server import LAST_REPORT, keep_text, kept_text, request_lease_terms
from ddbio.spark.reading import open_budget
from ddbio.spark.types import written_schema
from ddbio.spark.worker import unfenced_retry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray
    from pyspark.sql.types import StructType

    from ddbio.budget import Budget, BudgetAddress
    from ddbio.load.plan import WritePlan
    from ddbio.spark.lease_server import LeaseTerms

PLAN_SECONDS = 600.0
"""How long a stream uses a plan. Then the table is described again, because its capacity may have changed."""

# Options of a query that Spark also passes to its sink.
_QUERY_OPTIONS = frozenset({"checkpointlocation"})


@options_dataclass(frozen=True, kw_only=True)
class FrameWriteOptions(WriteOptions):
    """Options of a write of a DataFrame."""

    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Maximum number of tasks that write at the same time. A rate is divided by it if no driver serves a budget."""
    unique_keys: bool = False
    """Each key occurs once in the DataFrame, so that its rows may be written in any order."""
    allow_unfenced: bool = False
    """Write several rows of a key even if no driver can prevent a rerun stage from writing older rows last."""


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """Counts of one task's writes, and their consumption."""

    counts: WriteCounts
    units: float = 0.0
    throttles: dict[str, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0


class TableWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writer of every partition's rows. A task that Spark repeats writes its rows again, with the same result.

    Raises
    ------
    OptionError
        If an option is wrong, or nothing could enforce a requested rate over all tasks.
    """

    def __init__(self, values: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a table cannot be overwritten: write with mode('append'), which replaces item by item")
        self._began = time.time()
        self._options = parse_options(FrameWriteOptions, known_names(values, "write"))
        require_reject_location(self._options.reject_to, self._options)
        self._application = SparkFiles.getRootDirectory()
        self._plan, terms = self._planned()
        forms = time_formats(self._options.timestamps)
        self._rows = StoredRows(forms)
        self._job_id = new_job_id()
        self._metadata = {field.name: field.metadata for field in written_schema(schema)}
        require_names(forms, self._metadata, "option timestamps: the DataFrame has no such column")
        rate = self._plan.wcu_per_second
        self._is_ordered = self._orders(self._plan)
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

    def _orders(self, plan: WritePlan) -> bool:
        return plan.order_matters and not self._options.unique_keys

    def _planned(self) -> tuple[WritePlan, LeaseTerms | None]:
        """Return the plan of the write, and the driver's terms."""
        plan = plan_of(self._options)
        fenced = self._orders(plan)
        return plan, request_lease_terms(self._application, plan.wcu_per_second, plan.ramp, fenced=fenced)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Keep the report in the driver. The rows of finished tasks are already in the table."""
        self.keep_report(messages)

    def keep_report(self, messages: list[WriterCommitMessage | None]) -> WriteReport:
        """Return the report of the tasks' writes, which the driver also keeps."""
        counts, units, throttles, cpu_seconds = WriteCounts(), 0.0, Counter[str](), 0.0
        for message in messages:
            if isinstance(message, Written):
                counts.merge(message.counts)
                units, cpu_seconds = units + message.units, cpu_seconds + message.cpu_seconds
                throttles.update(message.throttles)
        if counts.unprocessed:
            throttles["unprocessed"] = counts.unprocessed
        report = WriteReport(
            rows=counts.rows,
            written=counts.written,
            skipped=counts.skipped,
            rejected=counts.rejected,
            wcu_asked_per_second=self._plan.wcu_per_second,
            wcu_consumed=units,
            wcu_peak_10s_ratio=None,
            write_seconds=round(counts.write_seconds, 3),
            throttles=dict(throttles),
            retries=counts.retries,
            seconds=round(time.time() - self._began, 3),
            cpu_seconds=round(cpu_seconds, 3),
            job_id=self._job_id,
            rejects_uri=self._options.reject_to if counts.rejected else None,
            hottest_keys=counts.hot_keys.hottest(),
            table=self._options.table,
            mode=self._options.mode,
        )
        keep_text(self._application, LAST_REPORT, json.dumps(report.to_dict()))
        return report

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
            if TaskContext.get().attemptNumber() or (self._fence is not None and not self._options.allow_unfenced):
                # Other attempts may reach the driver: a later one may write at the same time as this one.
                address = None if self._fence is None else self._fence.address
                rows = stack.enter_context(rows_of_unique_keys(rows, self._plan, address))
            elif not self._options.allow_unfenced:
                rows = rows_of_new_keys(rows, self._plan)
            return self._write(rows, budget)

    def _write(self, rows: Iterator[pa.RecordBatch], budget: Budget) -> Written:
        task = WriteTask(dynamodb_spec(self._options), self._plan, self._options.deadline_seconds)
        counted, began = CountedBudget(budget), time.process_time()
        counts = write_batches(task, rows, RejectWriter(self._options, self._job_id), counted)
        return Written(counts, counted.units, dict(counted.throttles), time.process_time() - began)

    def _enter_fence(self, stack: ExitStack) -> BudgetClient | None:
        """Return the client that lets only the latest attempt of this task write, or None if no driver is reachable."""
        if self._fence is None:
            return None
        context = TaskContext.get()
        name = f"{self._job_id}-{context.partitionId()}"
        attempt = TaskAttempt(name, context.taskAttemptId(), self._fence.alone_seconds)
        client = BudgetClient(self._fence.address, fallback_units_per_second=None, attempt=attempt)
        stack.enter_context(closing(client))
        return client if client.has_reached_driver() else None

    def _tagged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # Spark passes types but drops the fields' metadata, which has DynamoDB's types.
        fields = [pa.field(field.name, field.type, metadata=self._metadata[field.name]) for field in batch.schema]
        return self._rows.convert(pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields)))


class StreamTableWriter(TableWriter, DataSourceStreamWriter):  # type: ignore[misc]
    """Writer of the partitions of every micro-batch. A batch that Spark repeats is written again, with the same result.

    Spark 4.0 passes Arrow batches only to batch writers, so this class is one too. Spark makes one for every
    micro-batch. The
    first one plans, and the driver keeps its plan and budget for those of the next minutes.
    """

    def _planned(self) -> tuple[WritePlan, LeaseTerms | None]:
        key = f"plan {hashlib.sha256(repr(self._options).encode()).hexdigest()}"
        kept = kept_text(self._application, key)
        if kept is not None:
            # Only this user can enter the folder of the driver's socket.
            planned_at, terms = pickle.loads(base64.b64decode(kept))  # noqa: S301 - see above
            if time.time() - planned_at < PLAN_SECONDS:
                planned: tuple[WritePlan, LeaseTerms | None] = terms
                return planned
        made = super()._planned()
        keep_text(self._application, key, base64.b64encode(pickle.dumps((time.time(), made))).decode())
        return made

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803 - PySpark's own
        """Keep the report of the micro-batch in the driver. The rows of finished tasks are already in the table."""
        del batchId
        self.keep_report(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803 - PySpark's own
        """Do nothing: Spark repeats the batch."""


class KeyHashes:
    """Hashes of keys, sorted in runs. Each run is longer than all later ones."""

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def add(self, hashes: NDArray[np.uint64]) -> bool:
        """Return whether all of some hashes are new and distinct. If so, add them."""
        run = np.unique(hashes)
        if len(run) < len(hashes):
            return False
        for known_run in self._runs:
            indexes = np.minimum(np.searchsorted(known_run, run), len(known_run) - 1)
            if (known_run[indexes] == run).any():
                return False
        while self._runs and len(self._runs[-1]) <= len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]))
        if len(run):
            self._runs.append(run)
        return True


def rows_of_new_keys(rows: Iterable[pa.RecordBatch], plan: WritePlan) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task that no driver knows, until a key is repeated.

    If Spark runs the stage of such a task again, of which the task is not notified, the task ends in the same way
    before an
    older row of that key could be the last one.

    Raises
    ------
    OptionError
        If a key is repeated.
    """
    seen = KeyHashes()
    for batch in rows:
        if not seen.add(legal_key_hashes(batch, plan)[1]):
            raise OptionError(
                f"several rows of a key are to be written to {plan.table} in their order, and no driver knows of this "
                "task: if Spark ran its stage again, an older row could be written last. The rows before are written. "
                "Call ddbio.register(spark) first, or give newer_by, or unique_keys if their order does not matter, or "
                "allow_unfenced"
            )
        yield batch


@contextmanager
def rows_of_unique_keys(
    rows: Iterable[pa.RecordBatch], plan: WritePlan, address: BudgetAddress | None
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Return the rows of a task whose other attempt may write at the same time, after reading all of them.

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
        all_hashes = np.concatenate(hashes)
        if len(np.unique(all_hashes)) < len(all_hashes):
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
