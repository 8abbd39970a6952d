"""Write rows into a live table, from files or from memory, within a budget; count each as what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.aws.table import describe_table
from ddbio.budget import LocalBudget
from ddbio.core.write_plan import plan_write
from ddbio.errors import PartialWriteError
from ddbio.ops.clock import Clock
from ddbio.ops.lanes import WriteTask, write_batches
from ddbio.ops.rejects import Rejects
from ddbio.ops.report import WriteReport
from ddbio.ops.sources import batches_of, open_source, unit_batches
from ddbio.ops.target import dynamodb_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from ddbio.core.write_plan import WritePlan
    from ddbio.ops.lanes import Milestone
    from ddbio.ops.sources import Rows
    from ddbio.options import LoadOptions, WriteOptions


def plan_of(options: WriteOptions) -> WritePlan:
    """Return the plan of a write after describing the table.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError
        See :func:`ddbio.aws.table.describe_table` and :func:`ddbio.core.write_plan.plan_write`.
    """
    return plan_write(describe_table(dynamodb_spec(options), options.table), options)


def write_table(data: Rows, options: WriteOptions) -> WriteReport:
    """Write rows of memory into a table.

    Raises
    ------
    PartialWriteError
        If a row cannot be written and ``reject_to`` is not given.
    DdbioError
        What ended the write; what was acknowledged before stays written.
    """
    return _run(options, lambda _: batches_of(data))


def load(options: LoadOptions) -> WriteReport:
    """Write the rows of files into a table; see :func:`write_table`."""
    source = open_source(options.source, options)
    return _run(options, lambda plan: unit_batches(source, source.units, plan, lambda _: None))


def _run(options: WriteOptions, batches: Callable[[WritePlan], Iterable[pa.RecordBatch | Milestone]]) -> WriteReport:
    clock = Clock()
    plan = plan_of(options)
    budget = LocalBudget(plan.wcu_per_second)
    rejects = Rejects(options)
    try:
        task = WriteTask(dynamodb_spec(options), plan, options.deadline_seconds)
        tally = write_batches(task, batches(plan), budget, rejects.add)
    except PartialWriteError as error:
        raise PartialWriteError(str(error), error.accepted, error.rejected, options.reject_to) from error
    finally:
        budget.close()
        rejects.finish()
    usage = budget.usage()
    throttles = dict(usage.throttles)
    if tally.unprocessed:
        throttles["unprocessed"] = tally.unprocessed
    return WriteReport(
        rows=tally.rows,
        written=tally.written,
        skipped=tally.skipped,
        rejected=tally.rejected,
        wcu_asked_per_second=plan.wcu_per_second,
        wcu_consumed=usage.consumed_units,
        wcu_peak_10s_ratio=usage.peak_10s_ratio,
        write_seconds=round(tally.write_seconds, 3),
        throttles=throttles,
        retries=tally.retries,
        seconds=round(clock.seconds(), 3),
        cpu_seconds=round(clock.cpu_seconds(), 3),
    )
