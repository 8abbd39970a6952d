"""Write rows into a live table, from files or from memory, within a budget; count each as what became of it."""

from __future__ import annotations

import dataclasses
import shlex
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from ddbio.aws.table import describe_table
from ddbio.budget import LocalBudget
from ddbio.core.load_plan import LoadPlan, plan_load
from ddbio.core.write_plan import plan_write
from ddbio.errors import DdbioError
from ddbio.ops.clock import Clock
from ddbio.ops.lanes import WriteTask, write_batches
from ddbio.ops.load_record import identity_of, open_record
from ddbio.ops.rejects import Rejects
from ddbio.ops.report import WriteReport
from ddbio.ops.retry import rejected_batches
from ddbio.ops.sources import batches_of, describe_source, open_source, unit_batches
from ddbio.ops.staging import new_job_id
from ddbio.ops.target import dynamodb_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddbio.core.write_plan import WritePlan
    from ddbio.ops.lanes import Feed
    from ddbio.ops.load_record import LoadRecord
    from ddbio.ops.sources import Rows
    from ddbio.options import LoadOptions, WriteOptions


class LoadWatch(Protocol):
    """Follow a running load, to show it to somebody."""

    def running(self, plan: LoadPlan, budget: LocalBudget, done_rows: int) -> AbstractContextManager[None]:
        """Show the plan, then the budget's usage while the context is open; some rows are done already."""
        ...


def plan_of(options: WriteOptions) -> WritePlan:
    """Return the plan of a write after describing the table.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError
        See :func:`ddbio.aws.table.describe_table` and :func:`ddbio.core.write_plan.plan_write`.
    """
    return plan_write(describe_table(dynamodb_spec(options), options.table), options)


def load_plan_of(options: LoadOptions) -> LoadPlan:
    """Return the plan of a load after describing the table and the source; nothing is written.

    Raises
    ------
    DdbioError
        What would stop the load at its start.
    """
    facts = describe_table(dynamodb_spec(options), options.table)
    write = plan_write(facts, options)
    source = open_source(options.source, options)
    return plan_load(options.source, write, facts, describe_source(source, write))


def write_table(data: Rows, options: WriteOptions) -> WriteReport:
    """Write rows of memory into a table.

    Raises
    ------
    PartialWriteError
        If a row cannot be written and ``reject_to`` is not given.
    DdbioError
        What ended the write; what was acknowledged before stays written.
    """
    return _Run(options, plan_of(options), new_job_id()).write(batches_of(data))


def load(options: LoadOptions, *, watch: LoadWatch | None = None) -> WriteReport:
    """Write the rows of files into a table; a load that was stopped goes on after its last finished unit.

    Parameters
    ----------
    watch
        Follows the load while it runs.

    Raises
    ------
    PartialWriteError
        If a row cannot be written and ``reject_to`` is not given.
    OptionError
        If the job of that id was begun with another source, table or mode.
    DdbioError
        What ended the load; the message says how to go on.
    """
    if options.retry_rejects:
        run = _Run(options, plan_of(options), new_job_id())
        return run.write(rejected_batches(options, run.plan, run.rejects.flush))
    facts = describe_table(dynamodb_spec(options), options.table)
    source = open_source(options.source, options)
    job_id = options.job_id or new_job_id()
    record = open_record(options, job_id, identity_of(options, facts, source))
    run = _Run(options, plan_write(facts, options), job_id, record.rows)

    def finish(unit: int, rows: int) -> None:
        # Nobody would look for the rejected rows of a finished unit again.
        run.rejects.flush()
        record.finish(unit, rows)

    units = [unit for unit in source.units if unit.number not in record.finished]
    shown: AbstractContextManager[None] = nullcontext()
    if watch is not None:
        plan = plan_load(options.source, run.plan, facts, describe_source(source, run.plan))
        shown = watch.running(plan, run.budget, record.rows)
    with shown, _told_how_to_go_on(options, record):
        try:
            report = run.write(unit_batches(source, units, run.plan, finish))
        finally:
            record.flush()
    return dataclasses.replace(report, job_id=job_id, resumed_rows=record.rows)


class _Run:
    """Hold what one run of a write has of its own: a budget, a place for rejects, a clock."""

    def __init__(self, options: WriteOptions, plan: WritePlan, job_id: str, first_row: int = 0) -> None:
        self.plan = plan
        self.budget = LocalBudget(plan.wcu_per_second, ramp=plan.ramp)
        self.rejects = Rejects(options, job_id, first_row)
        self._task = WriteTask(dynamodb_spec(options), plan, options.deadline_seconds)
        self._clock = Clock()

    def write(self, feed: Iterable[Feed]) -> WriteReport:
        """Write everything; whatever ends this, rejected rows are kept first."""
        try:
            tally = write_batches(self._task, feed, self.budget, self.rejects.add)
        except DdbioError as error:
            self.rejects.flush()
            if self.rejects.count:
                told = f"{error} ({self.rejects.count} rejected rows lie in {self.rejects.uri})"
                error.args = (told, *error.args[1:])
            raise
        finally:
            self.budget.close()
            self.rejects.flush()
        usage = self.budget.usage()
        throttles = dict(usage.throttles)
        if tally.unprocessed:
            throttles["unprocessed"] = tally.unprocessed
        return WriteReport(
            rows=tally.rows,
            written=tally.written,
            skipped=tally.skipped,
            rejected=tally.rejected,
            wcu_asked_per_second=self.plan.wcu_per_second,
            wcu_consumed=usage.consumed_units,
            wcu_peak_10s_ratio=usage.peak_10s_ratio,
            write_seconds=round(tally.write_seconds, 3),
            throttles=throttles,
            retries=tally.retries,
            seconds=round(self._clock.seconds(), 3),
            cpu_seconds=round(self._clock.cpu_seconds(), 3),
            rejects_uri=self.rejects.uri if tally.rejected else None,
        )


@contextmanager
def _told_how_to_go_on(options: LoadOptions, record: LoadRecord) -> Iterator[None]:
    """Say in any error how the same load goes on."""
    try:
        yield
    except DdbioError as error:
        if record.is_kept:
            command = shlex.join(["ddbio", "load", options.source, options.table, "--job-id", record.job_id])
            told = f"{error}; what is finished is noted: '{command}' and the other options go on from there"
            error.args = (told, *error.args[1:])
        raise
