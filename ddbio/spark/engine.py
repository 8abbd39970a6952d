"""The Spark engine: runs the tasks of a job, one per partition, under one budget that the driver serves.

A job runs in its own thread, so that the caller can stop it and know when its tasks have ended.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import InheritableThread

from ddbio.budget import BudgetClosedError, BudgetServer, LocalBudget
from ddbio.errors import ServiceError
from ddbio.jobs.engine import SplitTasks
from ddbio.spark.session import (
    CpuMeter,
    budget_endpoint,
    cluster_of,
    describe_installation,  # noqa: F401 - part of the provider's interface
    is_connect,
    jvm_exit_reason,
    lost_after_seconds,
    refuse_connect,
    running_session,
    speculates,
    start_session,
    stop_session,
    task_attempts,
)
from ddbio.spark.worker import (
    Failure,
    FrameParts,
    Gather,
    ListOnDriver,
    PartsReader,
    Splitter,
    TaskBudget,
    TaskRunner,
    WorkerTracebackError,
    counts_in,
    unfenced_retry,
    without_counts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark import RDD, SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from ddbio.budget import Budget
    from ddbio.budget.local import RequestCounts
    from ddbio.jobs.engine import Shuffle
    from ddbio.spark.worker import Outcome

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
# Tasks that watch their budget end by themselves within a page. Only after that are they interrupted.
_GRACE_SECONDS = 5.0
# Spark kills an interrupted Python worker after spark.python.task.killTimeout, 2 s:
# https://spark.apache.org/docs/4.0.0/configuration.html
_KILL_SECONDS = 30.0
# The properties that setJobGroup sets:
# https://github.com/apache/spark/blob/v4.0.0/core/src/main/scala/org/apache/spark/SparkContext.scala
_DESCRIPTION = "spark.job.description"
_PROPERTIES = (_DESCRIPTION, "spark.jobGroup.id", "spark.job.interruptOnCancel")


class SparkEngine:
    """Engine that runs tasks on the running session of this process, or on a new one.

    Raises
    ------
    OptionError
        If Spark cannot be started, or the running session is a Spark Connect session.
    """

    name = "spark"

    def __init__(self, master: str | None, conf: dict[str, str]) -> None:
        began_seconds = time.process_time()
        session = running_session()
        if session is not None and (master or conf):
            log.warning("a Spark session runs in this process already: its master and conf stay as they are")
        self._owned = session is None
        self._session = session or start_session(master, conf)
        refuse_connect(connect=is_connect(self._session))
        self._context = self._session.sparkContext
        self.parallelism: int = self._context.defaultParallelism
        self.cluster = cluster_of(None, {})
        self.speculates = speculates(self._context)
        self._meter = CpuMeter(self._context, whole_session=self._owned, began_seconds=began_seconds)
        self._cpu_seconds: float | None = None

    @property
    def session(self) -> SparkSession:
        """The session that runs the tasks."""
        return self._session

    def run(
        self, function: Callable[[TaskT, Budget], ResultT], tasks: Sequence[TaskT], budget: LocalBudget
    ) -> list[ResultT]:
        """Return the results of all tasks in order, or raise the first error after all tasks have ended.

        Raises
        ------
        DdbioError
            The error of the task that failed first, as its own class. Unexpected errors are a ServiceError.
        """
        return self._run(lambda *_: self._context.parallelize(tasks, len(tasks)), len(tasks), function, budget)

    def run_shuffled(
        self,
        shuffle: Shuffle,
        tasks: Sequence[Any],
        function: Callable[[TaskT, Budget], ResultT],
        budget: LocalBudget,
    ) -> list[ResultT]:
        """Return the results of the tasks of a shuffle, or raise the first error after all tasks have ended.

        Raises
        ------
        DdbioError
            As :meth:`run`.
        """
        if not tasks:
            return []
        return self.run_shuffled_rdd(shuffle, self._context.parallelize(tasks, len(tasks)), function, budget)

    def run_shuffled_rdd(
        self, shuffle: Shuffle, tasks: RDD[Any], function: Callable[[TaskT, Budget], ResultT], budget: LocalBudget
    ) -> list[ResultT]:
        """Return the results of the tasks of a shuffle of an RDD, or raise the first error.

        Raises
        ------
        DdbioError
            As :meth:`run`.
        """

        def shuffled_tasks(failures: Accumulator[list[Failure]], _: TaskBudget) -> RDD[TaskT]:
            return shuffled(tasks, shuffle, failures)

        # A lost executor may still run, and so may tasks of a stage that Spark runs again.
        alone_seconds = lost_after_seconds(self._context) / 2
        return self._run(shuffled_tasks, shuffle.partitions, function, budget, alone_seconds)

    def run_joined(
        self, sources: Sequence[Any], function: Callable[[Iterable[bytes], Budget], ResultT], partitions: int
    ) -> list[ResultT]:
        """Return a function's results for the partitions of the parts of all sources, sorted by key.

        Parameters
        ----------
        sources
            ``SplitTasks``, or DataFrames with the columns ``partition``, ``slot``, ``side``, ``data``, and ``error``: a
            pickled error instead of a part.

        Raises
        ------
        DdbioError
            As :meth:`run`.
        """
        split = [source for source in sources if isinstance(source, SplitTasks)]
        unreported = [self._context.accumulator([], ListOnDriver()) for _ in split]
        budget = split[0].budget if split else LocalBudget(None, job="join")
        with ExitStack() as stack:

            def joined(failures: Accumulator[list[Failure]], first: TaskBudget) -> RDD[Iterable[bytes]]:
                parts = [frame_parts(source, failures) for source in sources if not isinstance(source, SplitTasks)]
                for number, (part, counts) in enumerate(zip(split, unreported, strict=True)):
                    # The first budget is already served: even if only one port is open, one side can be joined.
                    served = replace(first, portion_per_second=_portion(part.budget, len(part.tasks)))
                    if number:
                        _, served = self._serve(stack, part.budget, len(part.tasks))
                    reader = PartsReader(part.split, served, task_attempts(self._context), failures, counts)
                    tasks = self._context.parallelize(part.tasks, max(1, len(part.tasks)))
                    parts.append(tasks.mapPartitions(reader))
                return gathered(self._context.union(parts), partitions, _parts_alone)

            try:
                return self._run(joined, partitions, function, budget)
            finally:
                for part, counts in zip(split, unreported, strict=True):
                    for left in counts.value:
                        part.budget.add(left)

    def _run(
        self,
        tasks: Callable[[Accumulator[list[Failure]], TaskBudget], RDD[TaskT]],
        count: int,
        function: Callable[[TaskT, Budget], ResultT],
        budget: LocalBudget,
        alone_seconds: float | None = None,
    ) -> list[ResultT]:
        if not count:
            return []
        failures = self._context.accumulator([], ListOnDriver())
        with ExitStack() as stack:
            server, served = self._serve(stack, budget, count, is_fenced=alone_seconds is not None)
            runner = TaskRunner(function, served, task_attempts(self._context), failures, time.time(), alone_seconds)
            source = tasks(failures, served)
            job = Job(self._context, source.mapPartitions(runner), budget.job, is_notified=server is not None)
            outcomes = self._outcomes(job, failures, budget)
            deferred = [number for number, outcome in enumerate(outcomes) if outcome.is_deferred]
            if server is not None and deferred:
                # Attempts that have connected to the driver may still write. The others of these tasks have not
                # started.
                unfenced = frozenset(number for number in deferred if not server.has_registered(str(number)))
                rdd = source.mapPartitions(replace(runner, unfenced=unfenced))
                alone = Job(self._context, rdd, budget.job, partitions=deferred)

                def require_first_attempts() -> None:
                    # A worker does not know that its stage runs again: its attempts count from 0 there.
                    if alone.runs_again():
                        raise unfenced_retry(server.address)

                later = self._outcomes(alone, failures, budget, require_first_attempts)
                for number, outcome in zip(deferred, later, strict=True):
                    outcomes[number] = outcome
            return [outcome.result for outcome in outcomes]

    def _serve(
        self, stack: ExitStack, budget: LocalBudget, count: int, *, is_fenced: bool = False
    ) -> tuple[BudgetServer | None, TaskBudget]:
        """Serve a budget to ``count`` tasks while a context is open, if they need the driver during their run."""
        asks = is_fenced or budget.is_bounded
        if not (asks or budget.wants_counts):
            return None, TaskBudget(None, asks=False, portion_per_second=None)
        host, bind, ports = budget_endpoint(self._context)
        server = stack.enter_context(BudgetServer(budget, host, bind=bind, ports=ports))
        return server, TaskBudget(server.address, asks, _portion(budget, count))

    def _outcomes(
        self,
        job: Job,
        failures: Accumulator[list[Failure]],
        budget: LocalBudget,
        check: Callable[[], None] = lambda: None,
    ) -> list[Outcome]:
        """Return the outcomes of a job, or raise the first error after all of its tasks have ended."""
        try:
            job.wait(lambda: failures.value, check)
        except BaseException:
            # A closed budget ends every task at its next page. The server, if any, stays up to notify them.
            budget.close()
            job.stop()
            raise
        finally:
            self._meter.add_stages(job.stage_ids())
            for outcome in job.outcomes:
                self._meter.add(outcome.times)
                # The clocks of a cluster differ slightly.
                began_at = max(job.began_at, outcome.requests_began_at or time.time())
                budget.add(outcome.unreported, max(0.0, time.time() - began_at))
            for counts in job.counts_of_failed():
                budget.add(counts)
        return job.outcomes

    def cpu_seconds(self) -> float:
        """Return user + system seconds since the engine was opened: driver, workers and JVM."""
        return self._meter.seconds() if self._cpu_seconds is None else self._cpu_seconds

    def close(self) -> None:
        """Stop the session if the engine started it."""
        if self._owned and self._cpu_seconds is None:
            with suppress(OSError, Py4JError):
                self._cpu_seconds = self._meter.seconds()
            stop_session(self._session)


def open_engine(master: str | None, conf: dict[str, str]) -> SparkEngine:
    """Return an engine on the running session of this process, or on a new one.

    Raises
    ------
    OptionError
        As :class:`SparkEngine`.
    """
    return SparkEngine(master, conf)


def running_parallelism() -> int | None:
    """Return the parallelism of the running session of this process, or None. Never start one."""
    session = running_session()
    return None if session is None or is_connect(session) else session.sparkContext.defaultParallelism


class Job:
    """Collection of the outcomes of an RDD, or of some of its partitions, in a thread with its own job group.

    Parameters
    ----------
    name
        The name of the job in Spark's UI, after the description that the caller has set.
    is_notified
        Whether the tasks learn from their budget that the job is being stopped.
    """

    def __init__(
        self,
        context: SparkContext,
        rdd: RDD[Outcome],
        name: str | None = None,
        *,
        partitions: Sequence[int] | None = None,
        is_notified: bool = True,
    ) -> None:
        self.began_at = time.time()
        self._grace_seconds = _GRACE_SECONDS if is_notified else 0.0
        self.group = f"ddbio-{uuid.uuid4().hex}"
        described = [context.getLocalProperty(_DESCRIPTION), f"ddbio: {name}" if name else "ddbio"]
        self._description = ", ".join(filter(None, described))
        self.outcomes: list[Outcome] = []
        self._error: BaseException | None = None
        self._context = context
        self._rdd, self._partitions = rdd, partitions
        # Not Thread.join: after an interrupt in it, CPython 3.11 treats a running thread as ended (gh-90882).
        self._ended = threading.Event()

    def _collect(self) -> None:
        try:
            with self._described():
                if self._partitions is None:
                    self.outcomes = self._rdd.collect()
                else:
                    self.outcomes = self._context.runJob(self._rdd, lambda outcomes: outcomes, self._partitions)
        except BaseException as error:  # noqa: BLE001 - the caller handles any error
            self._error = error
        finally:
            self._ended.set()

    @contextmanager
    def _described(self) -> Iterator[None]:
        before = {name: self._context.getLocalProperty(name) for name in _PROPERTIES}
        self._context.setJobGroup(self.group, self._description, interruptOnCancel=True)
        try:
            yield
        finally:
            # With PYSPARK_PIN_THREAD=false, the Java thread runs the caller's jobs next.
            for name, value in before.items():
                self._context.setLocalProperty(name, value)

    def wait(self, failures: Callable[[], list[Failure]], check: Callable[[], None] = lambda: None) -> None:
        """Start the job and return after its success, or raise as soon as a task has failed.

        Parameters
        ----------
        check
            Called regularly, and once after the end of the job. Its errors end the waiting.

        Raises
        ------
        KeyboardInterrupt
            In the main thread. The caller must call :meth:`stop` after this as after any other error.
        """
        with _plain_interrupt():
            InheritableThread(target=self._collect, name=self.group, daemon=True).start()
            while not self._ended.wait(_POLL_SECONDS) and not failures():
                check()
        if self._error or failures():
            raise _first_error(failures(), self._error)
        check()

    def stop(self) -> None:
        """End the job and return when none of its tasks is active, or after 30 s."""
        self._ended.wait(self._grace_seconds)
        # The tasks of a dead JVM have ended with it.
        with suppress(OSError, Py4JError):
            self._context.cancelJobGroup(self.group)
            end = time.monotonic() + _KILL_SECONDS
            while time.monotonic() < end and not (self._ended.is_set() and self._active_tasks() == 0):
                time.sleep(_POLL_SECONDS)

    def stage_ids(self) -> list[int]:
        """Return the stages of this job, or none if its JVM has died."""
        with suppress(OSError, Py4JError):
            tracker = self._context.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self.group)]
            return [stage for job in jobs if job is not None for stage in job.stageIds]
        return []

    def counts_of_failed(self) -> Iterator[RequestCounts]:
        """Yield the counts of failed attempts that could not report them to the driver."""
        with suppress(OSError, Py4JError):
            tracker, store = self._context.statusTracker(), self._context._jsc.sc().statusStore()  # noqa: SLF001 - errors
            for stage in self.stage_ids():
                info = tracker.getStageInfo(stage)
                if info is None or not info.numFailedTasks:
                    continue
                tasks = store.taskList(stage, info.currentAttemptId, info.numTasks + info.numFailedTasks)
                for number in range(tasks.size()):
                    message = tasks.apply(number).errorMessage()
                    if message.isDefined() and (counts := counts_in(message.get())):
                        yield counts

    def runs_again(self) -> bool:
        """Return whether Spark runs the last stage again, or did: its input was lost meanwhile."""
        last = max(self.stage_ids(), default=None)
        stage = None if last is None else self._context.statusTracker().getStageInfo(last)
        return stage is not None and stage.currentAttemptId > 0

    def _active_tasks(self) -> int:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in self.stage_ids()]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)


@contextmanager
def _plain_interrupt() -> Iterator[None]:
    """Make Ctrl-C raise KeyboardInterrupt. PySpark's handler would cancel every job before ours can stop its tasks."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Any = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _first_error(failures: list[Failure], ended: BaseException | None) -> BaseException:
    """Return the error for the caller: the error that a task raised, if any, and not the stop of the other tasks."""
    for failure in failures:
        if failure.error is not None:
            failure.error.__cause__ = WorkerTracebackError(failure.traceback)
            return failure.error
    if failures:
        return BudgetClosedError()
    # A JVM that shuts down cleanly cancels its jobs first.
    if isinstance(ended, (OSError, Py4JNetworkError)) or "SparkContext was shut down" in str(ended):
        end = jvm_exit_reason()
        lost = ServiceError(
            f"the JVM of Spark's driver has died{f' ({end})' if end else ''}, often for want of memory: look into its "
            "log, give more spark.driver.memory, and run the job again"
        )
        lost.__cause__ = ended
        return lost
    # The stack follows the text of a Java exception. The last line before it is the error of a Python worker.
    text = without_counts(str(getattr(ended, "java_exception", None) or ended).partition("\n\tat ")[0]).strip()
    error = ServiceError(f"Spark ended the job: {text.splitlines()[-1] if text else type(ended).__name__}")
    error.__cause__ = ended
    return error


def shuffled(tasks: RDD[Any], shuffle: Shuffle, failures: Accumulator[list[Failure]]) -> RDD[Any]:
    """Return an RDD with one task per partition, made of all the parts for that partition."""
    return gathered(tasks.mapPartitions(Splitter(shuffle.split, failures)), shuffle.partitions, shuffle.gather)


def gathered(parts: RDD[Any], partitions: int, make: Callable[[int, Iterable[bytes]], Any]) -> RDD[Any]:
    """Return an RDD with one task per partition, made of the parts for that partition, sorted by key."""
    return parts.repartitionAndSortWithinPartitions(partitions, _partition_of).mapPartitionsWithIndex(Gather(make))


def _parts_alone(_: int, parts: Iterable[bytes]) -> Iterable[bytes]:
    return parts


def frame_parts(frame: DataFrame, failures: Accumulator[list[Failure]]) -> RDD[Any]:
    """Return the parts in a DataFrame."""
    return frame.rdd.mapPartitions(FrameParts(failures))


def _portion(budget: LocalBudget, count: int) -> float | None:
    """Return the rate that each of ``count`` tasks may spend while it cannot reach the driver."""
    rate = budget.units_per_second
    return None if rate is None else rate / max(1, count)


def _partition_of(key: tuple[int, ...]) -> int:
    return key[0]
