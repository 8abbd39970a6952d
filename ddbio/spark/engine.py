"""Run the tasks of a job on Spark, one per partition, under one budget that the driver keeps."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, TypeVar

from ddbio.budget import BudgetServer
from ddbio.spark.cpu import CpuMeter
from ddbio.spark.job import Job
from ddbio.spark.session import (
    budget_place,
    cluster_of,
    is_connect,
    refuse_connect,
    running_session,
    start_session,
    task_attempts,
)
from ddbio.spark.shuffle import shuffled
from ddbio.spark.task import FailureList, TaskRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark import RDD
    from pyspark.accumulators import Accumulator

    from ddbio.budget import Budget, LocalBudget
    from ddbio.engine import Shuffle
    from ddbio.spark.task import Failure

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

log = logging.getLogger(__name__)


class SparkEngine:
    """Run tasks on the session that runs in this process, or on one of its own.

    Raises
    ------
    OptionError
        If Spark cannot be started, or the running session is a Spark Connect one.
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
        # https://spark.apache.org/docs/4.0.0/configuration.html#scheduling; a local master never speculates.
        asked = str(self._context.getConf().get("spark.speculation", "false"))
        self.speculates = self.cluster is not None and asked.lower() == "true"
        self._meter = CpuMeter(self._context, whole_session=self._owned, began_seconds=began_seconds)
        self._cpu_seconds: float | None = None

    def run(
        self, function: Callable[[TaskT, Budget], ResultT], tasks: Sequence[TaskT], budget: LocalBudget
    ) -> list[ResultT]:
        """Return every task's result in the tasks' order, or raise the first error after all tasks have ended.

        Raises
        ------
        DdbioError
            The error of the task that failed first, as its own class; what nobody expected is a ServiceError.
        """
        return self._run(lambda _: self._context.parallelize(tasks, len(tasks)), len(tasks), function, budget)

    def run_shuffled(
        self,
        shuffle: Shuffle,
        tasks: Sequence[Any],
        function: Callable[[TaskT, Budget], ResultT],
        budget: LocalBudget,
    ) -> list[ResultT]:
        """Return the results of the tasks that the shuffle makes, or raise the first error after all have ended.

        Raises
        ------
        DdbioError
            As :meth:`run`.
        """

        def exchanged(failures: Accumulator[list[Failure]]) -> RDD[TaskT]:
            return shuffled(self._context.parallelize(tasks, len(tasks)), shuffle, failures)

        return self._run(exchanged, shuffle.partitions if tasks else 0, function, budget)

    def _run(
        self,
        tasks: Callable[[Accumulator[list[Failure]]], RDD[TaskT]],
        count: int,
        function: Callable[[TaskT, Budget], ResultT],
        budget: LocalBudget,
    ) -> list[ResultT]:
        if not count:
            return []
        failures = self._context.accumulator([], FailureList())
        host, bind, ports = budget_place(self._context)
        with BudgetServer(budget, host, bind=bind, ports=ports) as server:
            rate = budget.units_per_second
            share = None if rate is None else rate / count
            runner = TaskRunner(function, server.address, share, task_attempts(self._context), failures, time.time())
            job = Job(self._context, tasks(failures).mapPartitions(runner))
            try:
                job.wait(lambda: failures.value)
            except BaseException:
                # A closed budget ends every task at its next page; the server stays up to tell them.
                budget.close()
                job.stop()
                raise
            finally:
                self._meter.add_stages(job.stage_ids())
                for outcome in job.outcomes:
                    self._meter.add(outcome.times)
                    budget.add(outcome.unreported)
            return [outcome.result for outcome in job.outcomes]

    def cpu_seconds(self) -> float:
        """Return user + system seconds since the engine was opened: driver, workers and JVM."""
        return self._meter.seconds() if self._cpu_seconds is None else self._cpu_seconds

    def close(self) -> None:
        """Stop the session if the engine started it."""
        if self._owned and self._cpu_seconds is None:
            self._cpu_seconds = self._meter.seconds()
            self._session.stop()


def active_parallelism() -> int | None:
    """Return the parallelism of the session that runs in this process, or None; start nothing."""
    session = running_session()
    return None if session is None or is_connect(session) else session.sparkContext.defaultParallelism
