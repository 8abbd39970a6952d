"""Code of a Spark worker: one task, whose result or error is returned to the driver as a value.

It also makes PySpark's work around every task cheap, without changing anything that PySpark can observe.
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

# Processor time of this worker before it ran any of our code.
_cpu_at_import = time.process_time()

# Spark's own archives do not change while a worker runs. A user's archives may be replaced, and must be read again.
_OWN_ARCHIVE = re.compile(r"(pyspark|py4j-[\w.]+-src)\.zip|spark-core_[\w.-]+\.jar")
_frozen_in: set[int] = set()
_COUNTS = "ddbio has counted in this attempt: "


@dataclass(frozen=True)
class ProcessTime:
    """A process's user + system seconds at the start and end of a task. No start for a daemon older than the job."""

    process: tuple[str, int]
    began_seconds: float | None
    ended_seconds: float


class WorkerTracebackError(Exception):
    """The traceback in the worker, as the cause of the error in the driver."""


@dataclass(frozen=True)
class Failure:
    """The error that ended a task, and its traceback. No error means that the job was being stopped."""

    error: DdbioError | None
    traceback: str


@dataclass(frozen=True)
class Outcome:
    """A task's result or failure, the time of its processes, and counts that have not reached the driver yet.

    Attributes
    ----------
    requests_began_at
        Time of the first request, in seconds of the epoch, unless the driver knows it because it granted the request.
    is_deferred
        Whether the task was not run because this worker did not reach the driver.
    """

    result: Any
    failure: Failure | None
    times: tuple[ProcessTime, ...]
    unreported: RequestCounts
    requests_began_at: float | None
    is_deferred: bool = False


class ListOnDriver(AccumulatorParam):  # type: ignore[misc]
    """Accumulator that collects values on the driver as each task ends, long before the job does."""

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
    """Access of a job's tasks to its budget.

    Attributes
    ----------
    address
        Address of the driver's budget server; None if the driver needs no counts before a task ends.
    asks
        Whether each request asks the driver. Otherwise requests only report to the driver.
    portion_per_second
        Rate that a task may use while it cannot reach the driver; None sets no bound.
    """

    address: BudgetAddress | None
    asks: bool
    portion_per_second: float | None

    def open(self, attempt: TaskAttempt | None = None) -> BudgetClient | UnlimitedBudget:
        """Return the budget of a task, or of one attempt of it if only the latest may write."""
        if self.address is None or not self.asks:
            return UnlimitedBudget(self.address)
        return BudgetClient(self.address, fallback_units_per_second=self.portion_per_second, attempt=attempt)


@dataclass(frozen=True)
class TaskRunner:
    """Runner of a partition's tasks.

    Errors are values where possible, so that Spark neither retries nor rewords them.
    """

    function: Callable[[Any, Budget], Any]
    budget: TaskBudget
    attempts: int
    failures: Accumulator[list[Failure]]
    job_began_at: float
    alone_seconds: float | None = None
    """Seconds that an attempt may continue after losing the driver, if only the latest attempt of a task may write."""
    unfenced: frozenset[int] | None = None
    """Partitions whose only attempt may run without the driver. If None, tasks that do not reach it are deferred."""

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
            # A value would be the task's outcome.
            raise
        except Exception as error:  # noqa: BLE001 - any error must reach the driver
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
        """Return whether this attempt may run now, or the task must wait for the attempts that the driver knows.

        Raises
        ------
        ServiceError
            If nothing would prevent a concurrent attempt of it from writing.
        """
        if attempt is None:
            return True
        if self.unfenced is None:
            return client.has_reached_driver()
        if context.partitionId() in self.unfenced:
            # An earlier attempt may be unable to reach the driver even if this one can.
            may_run = not context.attemptNumber()
        else:
            # There is no third job that would run it: another wait is worthwhile here.
            may_run = client.has_reached_driver(tries_again=True)
        if not may_run:
            raise unfenced_retry(self.budget.address)
        return True


@dataclass(frozen=True)
class PartsReader:
    """Runner of read-only tasks that yield parts for a shuffle. Errors are values as in ``TaskRunner``.

    Attributes
    ----------
    unreported
        Accumulator of the counts of each task that have not reached the driver.
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
            except Exception as error:  # noqa: BLE001 - any error must reach the driver
                self.failures.add([_failure(error, self.attempts, budget)])
            finally:
                self.unreported.add([budget.close()])


@dataclass(frozen=True)
class Splitter:
    """Splitter of tasks into parts.

    An error that no retry can fix is reported as a value, and the driver stops the job.
    """

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
    """Builder of a partition's only task from the parts that arrived there."""

    make: Callable[[int, Iterable[bytes]], Any]

    def __call__(self, partition: int, parts: Iterator[tuple[tuple[int, ...], bytes]]) -> Iterator[Any]:
        """Yield the task."""
        yield self.make(partition, (data for _, data in parts))


@dataclass(frozen=True)
class FrameParts:
    """Parts from rows, with three columns as their key. The driver stops the job if a row is an error."""

    failures: Accumulator[list[Failure]]

    def __call__(self, rows: Iterator[Any]) -> Iterator[tuple[tuple[int, ...], bytes]]:
        """Yield the parts of a partition."""
        for row in rows:
            if row.error is not None:
                self.failures.add([Failure(pickle.loads(row.error), "")])  # noqa: S301 - our own worker wrote it
            else:
                yield (row.partition, row.slot, row.side), bytes(row.data)


def _failure(error: Exception, attempts: int, budget: BudgetClient | UnlimitedBudget) -> Failure:
    """Return the value for an error, or raise it with the attempt's counts if Spark may run it again."""
    text = traceback.format_exc()
    if isinstance(error, BudgetClosedError):
        return Failure(None, text)
    if isinstance(error, DdbioError) and not error.retryable:
        return Failure(error, text)
    context = TaskContext.get()
    if context is not None and context.attemptNumber() + 1 < attempts:
        unreported = budget.close()
        if unreported != RequestCounts():
            # Only the error of a failed attempt reaches the driver.
            error.add_note(_COUNTS + json.dumps(astuple(unreported)))
        raise error
    return Failure(error if isinstance(error, DdbioError) else _unexpected(error), text)


def counts_in(text: str) -> RequestCounts | None:
    """Return the counts of a failed attempt from the text of its error, or None."""
    _, _, counted = text.partition(_COUNTS)
    return RequestCounts(*json.loads(counted.partition("\n")[0])) if counted else None


def without_counts(text: str) -> str:
    """Return the text of an error without the attempt's counts."""
    return "\n".join(line for line in text.splitlines() if _COUNTS not in line)


def unfenced_retry(address: BudgetAddress | None) -> ServiceError:
    """Return the error of an attempt of a task if nothing prevents another attempt from writing at the same time."""
    missing = (
        "no driver serves budgets (call ddbio.register(spark))"
        if address is None
        else f"the driver's budget at {address.host}:{address.port} is out of reach (open spark.ddbio.budget.port)"
    )
    return ServiceError(
        f"a task that writes several rows of a key may run at the same time as another attempt of it, {missing}, and "
        "older rows could be written last: nothing was written by this one; fix that, or give newer_by, or unique_keys "
        "if each key occurs once"
    )


def _unexpected(error: Exception) -> ServiceError:
    description = "".join(traceback.format_exception_only(error)).strip()
    return ServiceError(f"a task failed unexpectedly: {description}", type(error).__name__)


def _worker_began(job_began_at: float) -> float:
    """Return the start time of this task. A worker's first task includes its start and the imports."""
    global _cpu_at_import
    began, _cpu_at_import = min(_cpu_at_import, time.process_time()), float("inf")
    seen = _process_of(os.getpid())
    return 0.0 if seen is not None and seen.started_at > job_began_at else began


def _daemon_time(job_began_at: float) -> tuple[ProcessTime, ...]:
    """Return the time of PySpark's daemon, which forks the workers, if the system reports it."""
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
    user, system, start = (int(fields[index]) / os.sysconf("SC_CLK_TCK") for index in (11, 12, 19))
    return _Process(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + start, user + system)


def tidy_worker() -> None:
    """Make the end of a task, and the start of the next, cheap in this process."""
    _forget_archives()
    _keep_modules()


def _forget_archives() -> None:
    """Drop the importers of Spark's own archives. Python makes them again when needed, from cached data.

    PySpark invalidates all importers before each task. Until Python 3.13, each of them then reads its complete archive,
    which
    takes 0.1 s.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter) and _OWN_ARCHIVE.fullmatch(re.split(r"[\\/]", importer.archive)[-1]):
            del sys.path_importer_cache[path]


def _keep_modules() -> None:
    """Free the garbage, once per process, and exclude the loaded objects from later collections.

    PySpark collects all garbage after each task. Without this it visits every object of every module each time.
    """
    if os.getpid() not in _frozen_in:
        _frozen_in.add(os.getpid())
        gc.collect()
        gc.freeze()
