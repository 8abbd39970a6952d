"""What runs in a Spark worker: one task, whose result or error goes back to the driver as a value.

It also makes what PySpark does around every task cheap, without changing anything that PySpark can observe.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
import socket
import sys
import time
import traceback
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipimport import zipimporter

from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam

from ddbio.budget import AttemptReplacedError, BudgetClient, BudgetClosedError, TaskAttempt, UnlimitedBudget
from ddbio.budget.local import RequestCounts
from ddbio.errors import DdbioError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.accumulators import Accumulator

    from ddbio.budget import Budget, BudgetAddress

# Processor time this worker had used before it saw any of our code.
_cpu_at_import = time.process_time()

# Spark's own, on a worker's path, do not change while it runs; a user's may be replaced, and must be looked at again.
_OWN_ARCHIVE = re.compile(r"(pyspark|py4j-[\w.]+-src)\.zip|spark-core_[\w.-]+\.jar")
_frozen_in: set[int] = set()
_COUNTS = "ddbio has counted in this attempt: "


@dataclass(frozen=True)
class ProcessTime:
    """Give a process's user + system seconds at a task's begin and end; no begin for a daemon older than the job."""

    process: tuple[str, int]
    began_seconds: float | None
    ended_seconds: float


class WorkerTracebackError(Exception):
    """Show the traceback in the worker, as the cause of the error in the driver."""


@dataclass(frozen=True)
class Failure:
    """Carry the error that ended a task, and its traceback; no error means that the job was being stopped."""

    error: DdbioError | None
    traceback: str


@dataclass(frozen=True)
class Outcome:
    """Carry a task's result or failure, the time of its processes, and counts that have not reached the driver yet.

    Attributes
    ----------
    requests_began_at
        When the first request was sent, in seconds of the epoch, unless the driver knows from having granted it.
    is_deferred
        Whether the task was not run, for this worker did not reach the driver.
    """

    result: Any
    failure: Failure | None
    times: tuple[ProcessTime, ...]
    unreported: RequestCounts
    requests_began_at: float | None
    is_deferred: bool = False


class ListOnDriver(AccumulatorParam):  # type: ignore[misc]
    """Collect values on the driver as each task ends, long before the job does."""

    def zero(self, value: list[Any]) -> list[Any]:
        """Return an empty list."""
        del value
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802 - PySpark's name
        """Return the first list with the second appended."""
        value1.extend(value2)
        return value1


@dataclass(frozen=True)
class TaskBudget:
    """Say how each task gets at the budget of its job.

    Attributes
    ----------
    address
        Where the driver serves it; None if nobody needs to know before a task has ended what it does.
    asks
        Whether each request asks the driver. Otherwise there is nothing to ask, and the driver is only told.
    portion_per_second
        What a task may spend while the driver is out of reach; None sets no bound.
    """

    address: BudgetAddress | None
    asks: bool
    portion_per_second: float | None

    def open(self, attempt: TaskAttempt | None = None) -> BudgetClient | UnlimitedBudget:
        """Return the budget of a task, or of one attempt of it, if only the latest may write."""
        if self.address is None or not self.asks:
            return UnlimitedBudget(self.address)
        return BudgetClient(self.address, fallback_units_per_second=self.portion_per_second, attempt=attempt)


@dataclass(frozen=True)
class TaskRunner:
    """Run a partition's tasks. Errors become values where possible, so that Spark neither retries nor rewords them.

    Retryable errors, and unexpected exceptions, are raised for Spark to retry; at the last attempt they are
    values like the others.
    """

    function: Callable[[Any, Budget], Any]
    budget: TaskBudget
    attempts: int
    failures: Accumulator[list[Failure]]
    job_began_at: float
    alone_seconds: float | None = None
    """If only the latest attempt of a task may write: how long one may go on that has lost the driver."""
    unfenced: frozenset[int] | None = None
    """Partitions whose only attempt may run without the driver; if None, those that do not reach it are deferred."""

    def __call__(self, tasks: Iterator[Any]) -> Iterator[Outcome]:
        """Yield every task's outcome. The input is drained, else Spark could not use the worker again."""
        for task in tasks:
            yield self._outcome(task)

    def _outcome(self, task: Any) -> Outcome:
        began = _worker_began(self.job_began_at)
        result, failure, is_deferred = None, None, False
        context, attempt = TaskContext.get(), None
        if context is not None and self.alone_seconds is not None:
            attempt = TaskAttempt(str(context.partitionId()), context.taskAttemptId(), self.alone_seconds)
        budget, requests_began_at = self.budget.open(attempt), None
        try:
            is_deferred = isinstance(budget, BudgetClient) and not self._may_run(budget, context, attempt)
            if not is_deferred:
                result = self.function(task, budget)
                if isinstance(budget, BudgetClient):
                    budget.require_latest()
        except AttemptReplacedError:
            # As a value it would be the task's outcome.
            raise
        except Exception as error:  # noqa: BLE001 - whatever it was must reach the driver
            failure = _failure(error, self.attempts, budget)
            self.failures.add([failure])
        finally:
            unreported = budget.close()
            if isinstance(budget, UnlimitedBudget):
                requests_began_at = time.time() - budget.run_seconds()
        tidy_worker()
        ended = ProcessTime((socket.gethostname(), os.getpid()), began, time.process_time())
        times = (ended, *_daemon_time(self.job_began_at))
        return Outcome(result, failure, times, unreported, requests_began_at, is_deferred)

    def _may_run(self, client: BudgetClient, context: TaskContext, attempt: TaskAttempt | None) -> bool:
        """Return whether this attempt may run now, or the task has to wait for those that the driver knows.

        Raises
        ------
        ServiceError
            If nothing would keep another attempt of it from writing beside this one.
        """
        if attempt is None:
            return True
        if self.unfenced is None:
            return client.has_met_driver()
        if context.partitionId() in self.unfenced:
            # An attempt before this one may be out of the driver's reach even if this one is not.
            may_run = not context.attemptNumber()
        else:
            # No third job would run it: here it is worth another wait.
            may_run = client.has_met_driver(tries_again=True)
        if not may_run:
            raise unfenced_retry(self.budget.address)
        return True


@dataclass(frozen=True)
class PartsReader:
    """Run tasks that yield parts for a shuffle, and only read. Errors are values as those of ``TaskRunner`` are.

    Attributes
    ----------
    unreported
        Takes the counts of each task that have not reached the driver.
    """

    split: Callable[[Any, Budget], Iterable[tuple[tuple[int, ...], bytes]]]
    budget: TaskBudget
    attempts: int
    failures: Accumulator[list[Failure]]
    unreported: Accumulator[list[RequestCounts]]

    def __call__(self, tasks: Iterator[Any]) -> Iterator[tuple[tuple[int, ...], bytes]]:
        """Yield the parts of every task."""
        for task in tasks:
            budget = self.budget.open()
            try:
                yield from self.split(task, budget)
            except Exception as error:  # noqa: BLE001 - whatever it was must reach the driver
                self.failures.add([_failure(error, self.attempts, budget)])
            finally:
                self.unreported.add([budget.close()])


@dataclass(frozen=True)
class Splitter:
    """Split tasks into parts. An error that no retry can mend is reported as a value, and the driver stops the job."""

    split: Callable[[Any], Iterable[tuple[tuple[int, ...], bytes]]]
    failures: Accumulator[list[Failure]]

    def __call__(self, tasks: Iterator[Any]) -> Iterator[tuple[tuple[int, ...], bytes]]:
        """Yield the parts of every task of a partition."""
        try:
            for task in tasks:
                yield from self.split(task)
        except DdbioError as error:
            if error.retryable:
                raise
            self.failures.add([Failure(error, "")])


@dataclass(frozen=True)
class Gather:
    """Make the one task of a partition out of what arrived there."""

    make: Callable[[int, Iterable[bytes]], Any]

    def __call__(self, partition: int, parts: Iterator[tuple[tuple[int, ...], bytes]]) -> Iterator[Any]:
        """Yield the task."""
        yield self.make(partition, (data for _, data in parts))


@dataclass(frozen=True)
class FrameParts:
    """Take rows for parts, whose key are three of their columns; the driver stops the job if one is an error."""

    failures: Accumulator[list[Failure]]

    def __call__(self, rows: Iterator[Any]) -> Iterator[tuple[tuple[int, ...], bytes]]:
        """Yield the parts of a partition."""
        for row in rows:
            if row.error is not None:
                self.failures.add([Failure(pickle.loads(row.error), "")])  # noqa: S301 - our own worker wrote it
            else:
                yield (row.partition, row.slot, row.side), bytes(row.data)


def _failure(error: Exception, attempts: int, budget: BudgetClient | UnlimitedBudget) -> Failure:
    """Return the value for an error, or raise it with what the attempt has counted if Spark may run it again."""
    text = traceback.format_exc()
    if isinstance(error, BudgetClosedError):
        return Failure(None, text)
    if isinstance(error, DdbioError) and not error.retryable:
        return Failure(error, text)
    context = TaskContext.get()
    if context is not None and context.attemptNumber() + 1 < attempts:
        unreported = budget.close()
        if unreported != RequestCounts():
            # Of an attempt that failed, its error alone reaches the driver.
            error.add_note(_COUNTS + json.dumps(astuple(unreported)))
        raise error
    return Failure(error if isinstance(error, DdbioError) else _unexpected(error), text)


def counts_in(text: str) -> RequestCounts | None:
    """Return what an attempt had counted whose error has this text, if it says so."""
    _, _, told = text.partition(_COUNTS)
    return RequestCounts(*json.loads(told.partition("\n")[0])) if told else None


def without_counts(text: str) -> str:
    """Return the text of an error without what the attempt had counted."""
    return "\n".join(line for line in text.splitlines() if _COUNTS not in line)


def unfenced_retry(address: BudgetAddress | None) -> ServiceError:
    """Return the error of an attempt of a task, where nothing keeps another one from writing beside it."""
    missing = (
        "no driver serves budgets (call ddbio.register(spark))"
        if address is None
        else f"the driver's budget at {address.host}:{address.port} is out of reach (open spark.ddbio.budget.port)"
    )
    return ServiceError(
        f"a task that writes several rows of a key may run beside another attempt of it, {missing}, and older rows "
        "could be written last: nothing was written by this one; mend that, or give newer_by, or unique_keys if each "
        "key occurs once"
    )


def _unexpected(error: Exception) -> ServiceError:
    said = "".join(traceback.format_exception_only(error)).strip()
    return ServiceError(f"a task failed unexpectedly: {said}", type(error).__name__)


def _worker_began(job_began_at: float) -> float:
    """Return the time to count this task from; a worker's first task includes its start and the imports."""
    global _cpu_at_import
    began, _cpu_at_import = min(_cpu_at_import, time.process_time()), float("inf")
    seen = _process_of(os.getpid())
    return 0.0 if seen is not None and seen.started_at > job_began_at else began


def _daemon_time(job_began_at: float) -> tuple[ProcessTime, ...]:
    """Return what PySpark's daemon, which forks the workers, has used, if the system tells."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    seen = _process_of(os.getppid()) if spec is not None and spec.name == "pyspark.daemon" else None
    if seen is None:
        return ()
    began = 0.0 if seen.started_at > job_began_at else None
    return (ProcessTime((socket.gethostname(), os.getppid()), began, seen.cpu_seconds),)


class _Process(NamedTuple):
    started_at: float
    cpu_seconds: float


def _process_of(pid: int) -> _Process | None:
    try:
        # https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html: fields 14, 15 and 22, counted after the name.
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    user, system, start = (int(fields[place]) / os.sysconf("SC_CLK_TCK") for place in (11, 12, 19))
    return _Process(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + start, user + system)


def tidy_worker() -> None:
    """Make the end of a task, and the begin of the next, cheap in this process."""
    _forget_archives()
    _keep_modules()


def _forget_archives() -> None:
    """Forget the importers of Spark's own archives; Python makes them again when needed, from what it knows of them.

    PySpark invalidates all importers before each task. Until Python 3.13, each of them then reads its whole archive:
    a tenth of a second.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter) and _OWN_ARCHIVE.fullmatch(re.split(r"[\\/]", importer.archive)[-1]):
            del sys.path_importer_cache[path]


def _keep_modules() -> None:
    """Free the garbage, once a process, and let later collections leave alone what is loaded by then.

    PySpark collects all garbage after each task: without this it looks at every object of every module each time.
    """
    if os.getpid() not in _frozen_in:
        _frozen_in.add(os.getpid())
        gc.collect()
        gc.freeze()
