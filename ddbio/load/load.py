"""Writes of rows into a live table, from files or from memory: describe, plan, run tasks, report."""

from __future__ import annotations

import dataclasses
import logging
import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from ddbio.aws.control_plane import describe_table
from ddbio.budget import LocalBudget
from ddbio.budget.job_limits import check_limits
from ddbio.errors import DdbioError, OptionError
from ddbio.items.item_sizes import min_write_units
from ddbio.items.kernel.arrays import take_rows
from ddbio.jobs.balance import balance
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.costs import cost_of, job_cost
from ddbio.jobs.engine import (
    Shuffle,
    available_cores,
    check_engine,
    cluster_of,
    is_spark_installed,
    open_engine,
    running_spark_parallelism,
)
from ddbio.jobs.estimate import Figures, input_parts
from ddbio.jobs.rejected_rows import require_reject_location
from ddbio.jobs.report import Clock, WriteReport
from ddbio.jobs.stores import new_job_id, require_shared
from ddbio.jobs.table_limits import read_statistics
from ddbio.load.batches import WriteCounts
from ddbio.load.checkpoint import CheckpointStore, identity_of, open_checkpoints, read_checkpoints
from ddbio.load.encode import ItemsOfRows, legal_key_hashes
from ddbio.load.plan import LoadPlan, plan_load, plan_write
from ddbio.load.rejects import RejectWriter, check_rejects, read_rejects
from ddbio.load.sources import batches_of, check_files, is_one_scan, open_source
from ddbio.load.spreading import RowSpreader
from ddbio.load.tables import create_target, describe_target
from ddbio.load.unit_reader import (
    BatchOrigins,
    RowOrigins,
    ShuffledOrigins,
    UnitReader,
    WithinUnits,
    declared_types,
    describe_source,
    read_layouts,
)
from ddbio.load.write import WriteTask, write_batches
from ddbio.scan.plan import Resources
from ddbio.storage.local_store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from ddbio.aws.table_description import TableDescription
    from ddbio.budget import Budget, Usage
    from ddbio.items.raw_items import RawItems
    from ddbio.jobs.engine import Engine, ShufflingEngine
    from ddbio.jobs.prices import Cost
    from ddbio.jobs.rejected_rows import RejectedRow
    from ddbio.jobs.watch import Watch
    from ddbio.load.checkpoint import Checkpoint
    from ddbio.load.options import LoadOptions, WriteOptions
    from ddbio.load.plan import LoadPlan, WritePlan
    from ddbio.load.sources import FileSource, Rows, Unit
    from ddbio.load.write import WriteInput

    Progress: TypeAlias = Callable[[WritePlan, LocalBudget], AbstractContextManager[None]]

_LOG = logging.getLogger("ddbio.load")
# A smaller window is enough for items that are read from all partitions of a table in turn.
_ROTATED_WINDOW_BYTES = 32 * 1024 * 1024
_MIN_WINDOW_BYTES, _WINDOW_SECONDS = 1024 * 1024, 2.0


def plan_of(options: WriteOptions) -> WritePlan:
    """Return the plan of a write after describing the table.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError
        See :func:`ddbio.aws.control_plane.describe_table` and :func:`ddbio.load.plan.plan_write`.
    """
    return plan_write(describe_table(dynamodb_spec(options), options.table), options)


def load_plan_of(options: LoadOptions, from_file: str | None = None) -> LoadPlan:
    """Return the plan of a load, after describing the table and sampling one file. Nothing is written.

    Parameters
    ----------
    from_file
        JSON that describes the table, which then need not exist: DescribeTable's response.

    Raises
    ------
    DdbioError
        The error with which the load would fail at its start.
    """
    if options.retry_rejects:
        raise OptionError("a retry of rejects has no plan")
    described, plan = _describe_and_plan(options, None if from_file is None else read_statistics(from_file).table)
    if options.job_id is None or from_file is not None:
        return plan
    identity = identity_of(options, described.table, described.source, plan.key_partitions)
    return _remaining(described, plan, read_checkpoints(options, options.job_id, identity))


def write_table(data: Rows, options: WriteOptions) -> WriteReport:
    """Write rows into a live table. Returns when every row is written, skipped or rejected. No JVM is started.

    Parameters
    ----------
    data
        Arrow table, record batch, reader, any iterable of these, or a data frame; or dictionaries: an iterable of rows,
        or one of lists by column. Null means missing.

    Raises
    ------
    PartialWriteError
        If a row cannot be written and ``reject_to`` is not given.
    DdbioError
        The error that ended the write. Rows that were acknowledged before stay written.
    """
    # Tables, batches, data frames and lists of batches are in memory. Readers and generators may have to wait for rows.
    rows_are_ready = hasattr(data, "columns") or isinstance(data, Sequence)
    is_limited = any((options.max_units, options.max_seconds, options.max_usd))
    least = None
    if is_limited and isinstance(data, pa.Table):
        least = min_write_units(data.drop_columns([options.operation_by] if options.operation_by else []))

    def rows(plan: WritePlan, _: RejectWriter) -> Iterable[WriteInput]:
        return batches_of(data, options.timestamps, names_nulls=plan.nulls_matter)

    return _write_in_process(options, rows, rows_are_ready=rows_are_ready, least_units=least)


def write_raw_items(
    items: Iterable[RawItems],
    options: WriteOptions,
    progress: Progress | None = None,
    read_bytes_per_second: float | None = None,
) -> WriteReport:
    """Write the items of a table, read in rotation for this write, into another table, unchanged.

    Parameters
    ----------
    progress
        Returns a context that shows the write while it is open.
    read_bytes_per_second
        The maximum bytes of items that are read per second. It limits the window, so that the write does not wait long
        for it.

    Raises
    ------
    DdbioError
        See ``write_table``.
    """
    window_bytes = _ROTATED_WINDOW_BYTES
    if read_bytes_per_second is not None:
        window_bytes = min(window_bytes, max(_MIN_WINDOW_BYTES, int(_WINDOW_SECONDS * read_bytes_per_second)))

    def spread(plan: WritePlan, _: RejectWriter) -> Iterable[WriteInput]:
        return RowSpreader(plan, any_order=True, window_bytes=window_bytes).spread(items)

    # Pages are requested ahead, unless a budget limits them.
    return _write_in_process(options, spread, rows_are_ready=read_bytes_per_second is None, progress=progress)


def load_files(
    options: LoadOptions,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    watch: Watch[LoadPlan] | None = None,
    can_continue: bool = True,
) -> WriteReport:
    """Write the rows of files into a live table; see :func:`write_table`.

    Parameters
    ----------
    master, conf
        Spark master and configuration, if a session has to be started.
    watch
        Observer of the load while it runs.
    can_continue
        Whether the files will exist for another run. If not, no checkpoints are stored.

    Raises
    ------
    PartialWriteError
        If a row cannot be written and ``reject_to`` is not given.
    OptionError
        If the job ``job_id`` was started with another source, table or mode.
    DdbioError
        The error that ended the load. The message has the command to continue it.
    """
    if options.retry_rejects:
        return _write_in_process(options, lambda plan, rejects: read_rejects(options, plan, rejects.flush))
    clock = Clock()
    check_engine(options.engine)
    described, plan = _describe_and_plan(options)
    cluster = cluster_of(master, conf) if plan.engine == "spark" else None
    locations = {"reject_to": options.reject_to, "state": options.state}
    require_shared(cluster, locations, shared_paths=options.shared_paths)
    require_reject_location(options.reject_to, options)
    if not described.table.table_id:
        # No earlier run has finished a part of it, so limits are checked before the table is created.
        check_limits(options, plan.estimated_units, plan.seconds, plan.cost)
    create_target(options)
    job_id = options.job_id or new_job_id()
    # Only an existing table has an id, which a later run compares.
    table = described.table if described.table.table_id else describe_table(dynamodb_spec(options), options.table)
    identity = identity_of(options, table, described.source, plan.key_partitions)
    none = CheckpointStore(None, job_id)
    with open_checkpoints(options, job_id, identity, cluster) if can_continue else nullcontext(none) as checkpoints:
        return _load(options, described, plan, checkpoints, _Run(clock, master, conf, watch))


@dataclass(frozen=True)
class _Run:
    clock: Clock
    master: str | None
    conf: Mapping[str, str] | None
    watch: Watch[LoadPlan] | None


def _load(
    options: LoadOptions, described: _Described, plan: LoadPlan, checkpoints: CheckpointStore, run: _Run
) -> WriteReport:
    """Write the units that are not finished."""
    clock, source = run.clock, described.source
    task = WriteTask(
        dynamodb_spec(options), described.write, options.deadline_seconds, isinstance(source.store, LocalStore)
    )
    is_unique = options.unique_keys or is_one_scan(source, described.write.key_types)
    any_order = is_unique or not described.write.order_matters
    first_row = checkpoints.rows if plan.engine == "local" else 0
    reader = UnitReader(source.store, described.write, source.export, source.types, null_values=source.null_values)
    job = LoadJob(options, task, reader, checkpoints, first_row, any_order)
    budget = LocalBudget(plan.wcu_per_second, job=f"load of {plan.table}", ramp=described.write.ramp)
    # Written rows are reported even if the load is interrupted, and its tasks then store their finished units.
    budget.is_followed = True
    remaining = _remaining(described, plan, checkpoints)
    units, unit_usd = remaining.estimated_units, cost_of("writes", 1.0, described.table, options.prices).usd
    limits = check_limits(options, units, remaining.seconds, remaining.cost, unit_usd=unit_usd)
    budget.bound(limits)
    cpu_seconds = clock.cpu_seconds()
    is_done = len(checkpoints.finished) == (plan.key_partitions or len(source.units))
    engine = open_engine("local" if is_done else plan.engine, master=run.master, conf=run.conf)
    _check_speculation(engine, plan)
    _LOG.info(
        "load %s into %s: job %s, %d units, %d tasks on %s, %d rows finished before; planned: %s",
        *(options.source, options.table, checkpoints.job_id, remaining.source_units),
        *(plan.tasks, plan.engine, checkpoints.rows, remaining.figures),
    )
    _log_earlier_run(checkpoints)
    progress = nullcontext() if run.watch is None else run.watch.running(remaining, budget)
    try:
        with progress, _with_advice(options, checkpoints), budget.within_limits():
            if not is_done:
                reader = dataclasses.replace(reader, texts=read_layouts(reader, source.units, engine, budget))
                job = dataclasses.replace(job, reader=reader)
            counts_of_tasks = [] if is_done else run_load(job, source.units, plan, engine, budget)
        cpu_seconds += engine.cpu_seconds()
    finally:
        engine.close()
    # Each task has checked only its own rejects.
    check_rejects(
        sum(counts.rejected for counts in counts_of_tasks), options.max_rejects, options.table, options.reject_to
    )
    usage = budget.usage()
    report = _report(options, plan.wcu_per_second, counts_of_tasks, usage, clock)
    # Spark tasks do not all run at the same time. Only the budget knows the first and the last request.
    _LOG.info("load %s: %d rows, %d written, %d rejected", options.table, report.rows, report.written, report.rejected)
    write_seconds = report.write_seconds if plan.engine == "local" else round(usage.elapsed_seconds, 3)
    cost = _cost(options, described.table, remaining, report.wcu_consumed, report.seconds)
    return dataclasses.replace(
        report,
        write_seconds=write_seconds,
        cpu_seconds=round(cpu_seconds, 3),
        job_id=checkpoints.job_id,
        resumed_rows=checkpoints.rows,
        files_skipped=source.skipped,
        earlier_job_id=None if checkpoints.earlier is None else checkpoints.earlier.job_id,
        planned=remaining.figures,
        actual=Figures(report.wcu_consumed, report.seconds, remaining.size_bytes, cost.usd),
    )


def _log_earlier_run(checkpoints: CheckpointStore) -> None:
    """Log whether the same load was run before under another id.

    Only a run with that id does not write its rows again.
    """
    earlier = checkpoints.earlier
    if earlier is None:
        return
    if earlier.is_finished:
        _LOG.info("the same load has finished before, as job %s: its rows are written again", earlier.job_id)
        return
    _LOG.warning(
        "the same load was stopped before, as job %s, after %d rows were written: they are written again, with the "
        "same result; job_id=%s resumes after them",
        *(earlier.job_id, earlier.rows, earlier.job_id),
    )


def _remaining(described: _Described, plan: LoadPlan, checkpoints: CheckpointStore) -> LoadPlan:
    """Return the plan without the units that earlier runs have finished."""
    if not checkpoints.finished and not checkpoints.begun:
        return plan
    remaining_units = [unit for unit in described.source.units if unit.number not in checkpoints.finished]
    if plan.key_partitions is not None:
        # Each key partition may have rows in every unit.
        remaining_units = list(described.source.units) if len(checkpoints.finished) < plan.key_partitions else []
    return plan.without_finished(
        len(remaining_units), sum(unit.size_bytes for unit in remaining_units), checkpoints.rows
    )


def _check_speculation(engine: Engine, plan: LoadPlan) -> None:
    """Raise if a second attempt of a Spark task could write an older row of a key after a newer one."""
    if engine.speculates and plan.key_partitions is not None:
        engine.close()
        raise OptionError(
            "spark.speculation is on: two attempts of one task would write the rows of a key in random order; turn it "
            "off for this load, or give unique_keys if each key occurs once"
        )


@dataclass(frozen=True)
class _Described:
    table: TableDescription
    write: WritePlan
    source: FileSource


def _describe_and_plan(options: LoadOptions, table: TableDescription | None = None) -> tuple[_Described, LoadPlan]:
    table = table or describe_target(options)
    write = plan_write(table, options)
    source = open_source(options, dict(write.key_types), options.timestamps, splits_text=True)
    source = dataclasses.replace(source, types=declared_types(options, write, source))
    check_files(source, write, dict(options.types or ()), dict(options.timestamps or ()))
    resources = Resources(available_cores(), running_spark_parallelism(), is_spark_installed())
    described = describe_source(source, write, table.indexes, table.vector_indexes)
    plan = plan_load(options, write, table, described, resources)
    if plan.estimated_units is not None:
        plan = dataclasses.replace(plan, cost=_cost(options, table, plan, plan.estimated_units, plan.seconds))
    return _Described(table, write, source), plan


def _cost(options: LoadOptions, table: TableDescription, plan: LoadPlan, units: float, seconds: float | None) -> Cost:
    """Return the cost of loading a plan's files with this number of units and seconds."""
    parts = input_parts(options.source, plan.files, plan.files + plan.source_units)
    return job_cost(options, [("writes", units, table)], parts, seconds)


def _write_in_process(
    options: WriteOptions,
    batches: Callable[[WritePlan, RejectWriter], Iterable[WriteInput]],
    *,
    rows_are_ready: bool = False,
    progress: Progress | None = None,
    least_units: float | None = None,
) -> WriteReport:
    """Write rows without checkpoints, in this process.

    ``least_units`` is the minimum cost of rows that are in memory.
    """
    require_reject_location(options.reject_to, options)
    clock, table = Clock(), describe_table(dynamodb_spec(options), options.table)
    plan = plan_write(table, options)
    budget = LocalBudget(plan.wcu_per_second, job=f"write to {plan.table}", ramp=plan.ramp)
    # The number of rows of a stream is unknown until its end.
    unit_usd = cost_of("writes", 1.0, table, options.prices).usd
    seconds = least_units / plan.wcu_per_second if least_units and plan.wcu_per_second else None
    cost = None if least_units is None else job_cost(options, [("writes", least_units, table)], [], seconds)
    budget.bound(check_limits(options, least_units, seconds, cost, unit_usd=unit_usd))
    rejects = RejectWriter(options, new_job_id())
    task = WriteTask(dynamodb_spec(options), plan, options.deadline_seconds, rows_are_ready)
    with budget.within_limits(), nullcontext() if progress is None else progress(plan, budget):
        counts = write_batches(task, batches(plan, rejects), rejects, budget)
    report = _report(options, plan.wcu_per_second, [counts], budget.usage(), clock)
    cost = job_cost(options, [("writes", report.wcu_consumed, table)], [], report.seconds)
    return dataclasses.replace(report, actual=Figures(report.wcu_consumed, report.seconds, None, cost.usd))


def _report(
    options: WriteOptions,
    wcu_per_second: float | None,
    counts_of_tasks: Iterable[WriteCounts],
    usage: Usage,
    clock: Clock,
) -> WriteReport:
    counts = WriteCounts()
    for counts_of_task in counts_of_tasks:
        counts.merge(counts_of_task)
    throttles = dict(usage.throttles)
    if counts.unprocessed:
        throttles["unprocessed"] = counts.unprocessed
    return WriteReport(
        rows=counts.rows,
        written=counts.written,
        skipped=counts.skipped,
        rejected=counts.rejected,
        wcu_asked_per_second=wcu_per_second,
        wcu_consumed=usage.consumed_units,
        wcu_peak_10s_ratio=usage.peak_10s_ratio,
        write_seconds=round(counts.write_seconds, 3),
        throttles=throttles,
        retries=counts.retries,
        **clock.times(),
        rejects_uri=options.reject_to if counts.rejected else None,
        hottest_keys=counts.hot_keys.hottest(),
        source=getattr(options, "source", None),
        table=options.table,
        mode=options.mode,
    )


@contextmanager
def _with_advice(options: LoadOptions, checkpoints: CheckpointStore) -> Iterator[None]:
    """Add the command that continues the load to any error."""
    try:
        yield
    except DdbioError as error:
        if checkpoints.is_durable:
            command = shlex.join(["ddbio", "load", options.source, options.table, "--job-id", checkpoints.job_id])
            message = f"{error}; finished rows are recorded: '{command}' with the other options resumes the load"
            error.args = (message, *error.args[1:])
        raise


ShuffleKey: TypeAlias = tuple[int, int, int]
"""Key partition of a batch, its unit and its number. The last two sort the batches in the order of the source."""


@dataclass(frozen=True)
class LoadJob:
    """State that every worker of a load needs. Picklable."""

    options: WriteOptions
    task: WriteTask
    reader: UnitReader
    checkpoints: CheckpointStore
    first_row: int = 0
    any_order: bool = False
    """Whether rows may be written in any order: each key occurs once, or the result does not depend on it."""

    def write(
        self,
        rows: Iterable[pa.RecordBatch | RawItems | Checkpoint],
        rejects: RejectWriter,
        budget: Budget,
        origins: RowOrigins | ShuffledOrigins | None = None,
    ) -> WriteCounts:
        """Write rows. Rejected rows and finished units are stored even after an error."""
        spreader = RowSpreader(self.task.plan, any_order=self.any_order)

        def locate(row: RejectedRow) -> RejectedRow:
            number = spreader.number_of(row.row)
            file, file_row, line = (None, None, None) if origins is None else origins.of(number)
            return dataclasses.replace(row, row=number, file=file, file_row=file_row, line=line)

        try:
            return write_batches(self.task, spreader.spread(_as_items(rows, self.task.plan)), rejects, budget, locate)
        finally:
            self.checkpoints.flush()


def _as_items(
    rows: Iterable[pa.RecordBatch | RawItems | Checkpoint], plan: WritePlan
) -> Iterator[pa.RecordBatch | RawItems | Checkpoint]:
    """Yield rows as raw items if the plan allows it."""
    items = ItemsOfRows(plan)
    for batch in rows:
        if isinstance(batch, pa.RecordBatch):
            yield from items.of(batch)
        else:
            yield batch


def run_load(
    job: LoadJob, units: Sequence[Unit], plan: LoadPlan, engine: Engine, budget: LocalBudget
) -> list[WriteCounts]:
    """Run the tasks of a load, without finished units. Return the counts of each task."""
    if plan.key_partitions is None:
        remaining_units = [unit for unit in units if unit.number not in job.checkpoints.finished]
        # Each task has a copy of the job, but needs no list of finished units, which may be long.
        job = dataclasses.replace(job, checkpoints=job.checkpoints.of_task())
        return engine.run(
            write_units,
            [UnitsTask(job, units_of_task) for units_of_task in assign_units(remaining_units, plan.tasks)],
            budget,
        )
    shuffle = Shuffle(split_units, partial(KeyPartition, job), plan.key_partitions)
    splits = [SplitTask(job, units_of_task, plan.key_partitions) for units_of_task in assign_units(units, plan.tasks)]
    return cast("ShufflingEngine", engine).run_shuffled(shuffle, splits, write_key_partition, budget)


def assign_units(units: Sequence[Unit], tasks: int) -> list[tuple[Unit, ...]]:
    """Return the units of each task in the order of the source, with about the same size for each task.

    No task is empty.
    """
    return [tuple(units[index] for index in task) for task in balance([unit.size_bytes for unit in units], tasks)]


@dataclass(frozen=True)
class UnitsTask:
    """Units that one task writes."""

    job: LoadJob
    units: tuple[Unit, ...]


def write_units(task: UnitsTask, budget: Budget) -> WriteCounts:
    """Write the rows of some units.

    Rows of one key are written in the order of the source, unless any order is allowed.
    """
    job = task.job
    rejects = RejectWriter(job.options, job.checkpoints.job_id, job.first_row)

    def finish(unit: int, rows: int) -> None:
        # A later run does not read a finished unit, so its rejected rows must be stored first.
        rejects.flush()
        job.checkpoints.finish(unit, rows)

    def begin(unit: int, rows: int) -> None:
        if job.checkpoints.is_due:
            rejects.flush()
            job.checkpoints.begin(unit, rows)

    origins = RowOrigins(job.reader.store.uri)
    within = WithinUnits(job.checkpoints.begun, begin)
    rows = job.reader.read(task.units, finish, any_order=job.any_order, origins=origins, within=within)
    return job.write(rows, rejects, budget, origins)


@dataclass(frozen=True)
class SplitTask:
    """Units whose rows one task splits by key partition."""

    job: LoadJob
    units: tuple[Unit, ...]
    key_partitions: int


def split_units(task: SplitTask) -> Iterator[tuple[ShuffleKey, bytes]]:
    """Yield the rows of some units by key partition, so that all rows of a key are in one partition.

    Rows without a valid key are in the first partition. Finished partitions are left out.
    """
    plan, finished = task.job.task.plan, task.job.checkpoints.finished
    for unit, number, batch, row_origins in task.job.reader.read_columns(task.units):
        partitions = _key_partitions(batch, plan, task.key_partitions)
        for partition in sorted(set(partitions.tolist()) - finished):
            chosen = np.flatnonzero(partitions == partition)
            yield (partition, unit.number, number), _to_ipc(take_rows(batch, chosen), row_origins.to_metadata(chosen))


@dataclass(frozen=True)
class KeyPartition:
    """Rows of one key partition, in the order of the source, as streams of Arrow IPC."""

    job: LoadJob
    number: int
    streams: Iterable[bytes]


def write_key_partition(partition: KeyPartition, budget: Budget) -> WriteCounts:
    """Write the rows of one key partition."""
    job = partition.job
    if partition.number in job.checkpoints.finished:
        return WriteCounts()
    origins = ShuffledOrigins()

    def batches() -> Iterator[pa.RecordBatch]:
        for stream in partition.streams:
            with pa.ipc.open_stream(stream) as reader:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            origins.add(BatchOrigins.of_metadata(dict(metadata.items())), batch.num_rows)
            yield batch

    counts = job.write(batches(), RejectWriter(job.options, job.checkpoints.job_id), budget, origins)
    job.checkpoints.finish(partition.number, counts.rows)
    job.checkpoints.flush()
    return counts


def _key_partitions(batch: pa.RecordBatch, plan: WritePlan, count: int) -> NDArray[np.int64]:
    """Return the key partition of each row."""
    # The top bits of the hash choose the lane within the partition.
    legal, hashes = legal_key_hashes(batch, plan)
    partitions = np.zeros(batch.num_rows, np.int64)
    partitions[legal] = (hashes % np.uint64(count)).astype(np.int64)
    return partitions


def _to_ipc(batch: pa.RecordBatch, metadata: dict[bytes, bytes]) -> bytes:
    sink: Any = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata=metadata)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
