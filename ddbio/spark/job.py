"""Run one Spark job in a thread of its own, so that the caller can stop it and know when its tasks have ended."""

from __future__ import annotations

import signal
import threading
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import InheritableThread

from ddbio.budget import BudgetClosedError
from ddbio.errors import ServiceError
from ddbio.spark.task import WorkerTracebackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import RDD, SparkContext

    from ddbio.spark.task import Failure, Outcome

_LOOK_SECONDS = 0.05

# Tasks that watch their budget end by themselves within a page; only then are they interrupted.
_LEAVE_SECONDS = 5.0

# Spark kills an interrupted Python worker after spark.python.task.killTimeout, 2 s:
# https://spark.apache.org/docs/4.0.0/configuration.html
_KILL_SECONDS = 30.0


class Job:
    """Collect an RDD's outcomes in a thread, under a job group of its own."""

    def __init__(self, context: SparkContext, rdd: RDD[Outcome]) -> None:
        self.group = f"ddbio-{uuid.uuid4().hex}"
        self.outcomes: list[Outcome] = []
        self._error: BaseException | None = None
        self._context = context
        self._rdd = rdd
        # Not Thread.join: an interrupt inside it makes CPython 3.11 take a running thread for ended (gh-90882).
        self._ended = threading.Event()

    def _collect(self) -> None:
        try:
            self._context.setJobGroup(self.group, "ddbio", interruptOnCancel=True)
            self.outcomes = self._rdd.collect()
        except BaseException as error:  # noqa: BLE001 - whatever ended the job is the caller's business
            self._error = error
        finally:
            self._ended.set()

    def wait(self, failures: Callable[[], list[Failure]]) -> None:
        """Start the job and return when it has ended well, or raise as soon as a task has failed.

        Raises
        ------
        KeyboardInterrupt
            In the main thread; :meth:`stop` is to follow this as any other error.
        """
        with _plain_interrupt():
            InheritableThread(target=self._collect, name=self.group, daemon=True).start()
            while not self._ended.wait(_LOOK_SECONDS) and not failures():
                pass
        if self._error or failures():
            raise _first_error(failures(), self._error)

    def stop(self) -> None:
        """End the job and return when none of its tasks is active, or after half a minute."""
        self._ended.wait(_LEAVE_SECONDS)
        self._context.cancelJobGroup(self.group)
        end = time.monotonic() + _KILL_SECONDS
        while time.monotonic() < end and not (self._ended.is_set() and self._active_tasks() == 0):
            time.sleep(_LOOK_SECONDS)

    def stage_ids(self) -> list[int]:
        """Return the stages that Spark made of this job."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self.group)]
        return [stage for job in jobs if job is not None for stage in job.stageIds]

    def _active_tasks(self) -> int:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in self.stage_ids()]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)


@contextmanager
def _plain_interrupt() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt alone: PySpark's own handler first cancels every job, ours must stop first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Any = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _first_error(failures: list[Failure], ended: BaseException | None) -> BaseException:
    """Return what the caller is to see: an error of its own class before the news that the others were stopped."""
    for failure in failures:
        if failure.error is not None:
            failure.error.__cause__ = WorkerTracebackError(failure.traceback)
            return failure.error
    if failures:
        return BudgetClosedError()
    # A Java exception's text goes on with its stack; what a Python worker raised is the last line before that.
    text = str(getattr(ended, "java_exception", None) or ended).partition("\n\tat ")[0].strip()
    error = ServiceError(f"Spark ended the job: {text.splitlines()[-1] if text else type(ended).__name__}")
    error.__cause__ = ended
    return error
