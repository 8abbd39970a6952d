"""Engines: what runs the tasks of a job, on threads of this process or elsewhere.

An engine maps one picklable function over picklable tasks. It knows nothing of DynamoDB, and a verb knows nothing of
threads or Spark: every engine runs the same plan and the same task function. ``jobs/providers.py`` names the module of
the Spark engine.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from ddbio.errors import OptionError
from ddbio.jobs.providers import PROVIDERS, provider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ddbio.budget import Budget, LocalBudget

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


class Engine(Protocol):
    """Run tasks until all have ended, under one budget."""

    name: str
    parallelism: int
    cluster: str | None
    """The master of a cluster whose workers have file systems of their own; None if tasks run on this machine."""
    speculates: bool
    """Whether a task may run twice at the same time."""

    def run(
        self, function: Callable[[TaskT, Budget], ResultT], tasks: Sequence[TaskT], budget: LocalBudget
    ) -> list[ResultT]:
        """Return every task's result in the tasks' order, or raise the first error after all tasks have ended."""
        ...

    def cpu_seconds(self) -> float:
        """Return user + system seconds spent since the engine was opened: driver, workers and JVM."""
        ...

    def close(self) -> None:
        """Stop what the engine itself started."""
        ...


class ShufflingEngine(Engine, Protocol):
    """An engine that can shuffle: run tasks made of parts that other tasks yield."""

    def run_shuffled(
        self,
        shuffle: Shuffle,
        tasks: Sequence[Any],
        function: Callable[[TaskT, Budget], ResultT],
        budget: LocalBudget,
    ) -> list[ResultT]:
        """Return the results of the tasks that the shuffle makes, or raise the first error after all have ended."""
        ...

    def run_joined(
        self, sources: Sequence[Any], function: Callable[[Iterable[bytes], Budget], ResultT], partitions: int
    ) -> list[ResultT]:
        """Return what a function makes of each partition of the parts of all sources, in the order of their keys.

        Parameters
        ----------
        sources
            ``SplitTasks``, and what the engine has of its own that yields such parts.
        """
        ...


@dataclass(frozen=True)
class SplitTasks:
    """Tasks that only read, under a budget, and yield parts for a shuffle.

    Attributes
    ----------
    split
        Yields parts under keys that begin with the number of their partition.
    """

    tasks: Sequence[Any]
    split: Callable[[Any, Budget], Iterable[tuple[tuple[int, ...], bytes]]]
    budget: LocalBudget


@dataclass(frozen=True)
class Shuffle:
    """How tasks are split into parts, and how the parts of one partition are made into a task.

    Attributes
    ----------
    split
        Yields parts under keys that begin with the number of their partition.
    gather
        Makes the task of a partition of its number and its parts, in the order of their keys.
    partitions
        How many tasks are made.
    """

    split: Callable[[Any], Iterable[tuple[tuple[int, ...], bytes]]]
    gather: Callable[[int, Iterable[bytes]], Any]
    partitions: int


# Tasks mostly wait for the network; beyond this number they wait for each other.
_MOST_THREADS = 64


class LocalEngine:
    """Run tasks on threads of this process: no JVM, nothing to install."""

    name = "local"
    cluster: str | None = None
    speculates = False

    def __init__(self) -> None:
        self.parallelism = available_cores()
        self._began = time.process_time()

    def run(
        self, function: Callable[[TaskT, Budget], ResultT], tasks: Sequence[TaskT], budget: LocalBudget
    ) -> list[ResultT]:
        """Return every task's result in the tasks' order, or raise the first error after all tasks have ended."""
        if not tasks:
            return []
        with ThreadPoolExecutor(max_workers=min(len(tasks), _MOST_THREADS), thread_name_prefix="ddbio-task") as pool:
            futures = [pool.submit(function, task, budget) for task in tasks]
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            except BaseException:
                # Closing the budget ends every lane at its next page; the pool then waits for all that have begun.
                budget.close()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return [future.result() for future in futures]

    def cpu_seconds(self) -> float:
        """Return user + system seconds of this process since the engine was opened."""
        return time.process_time() - self._began

    def close(self) -> None:
        """Do nothing: the threads ended with their tasks."""


def available_cores() -> int:
    """Return the processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def engine_for(asked: Literal["auto", "local", "spark"]) -> Literal["local", "spark"]:
    """Return the engine that a job asks for; ``auto`` is Spark if a session runs in this process, else local."""
    if asked != "auto":
        return asked
    return "local" if running_spark_parallelism() is None else "spark"


class EngineProvider(Protocol):
    """What the module of an engine offers."""

    def open_engine(self, master: str | None, conf: dict[str, str]) -> Engine:
        """Return an engine, starting what it needs."""
        ...

    def cluster_of(self, master: str | None, conf: Mapping[str, str]) -> str | None:
        """Return the master of the cluster that the engine would run on, None on one machine; start nothing."""
        ...

    def describe_installation(self) -> str:
        """Return the versions of what the engine needs, or raise OptionError for what is missing; start nothing."""
        ...

    def running_parallelism(self) -> int | None:
        """Return how many tasks a session of this process runs at the same time, None without one; start nothing."""
        ...


def _provider(name: str) -> EngineProvider:
    return cast("EngineProvider", provider(name))


def open_engine(
    name: Literal["local", "spark"], *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Engine:
    """Return an engine, starting Spark if need be.

    Raises
    ------
    OptionError
        If Spark is asked for and cannot be imported or started.
    """
    if name == "local":
        return LocalEngine()
    check_engine(name)
    return _provider(name).open_engine(master, dict(conf or {}))


def check_engine(name: str) -> None:
    """Check, before anything is read, that what an engine needs is installed; start nothing.

    Raises
    ------
    OptionError
        If Spark is asked for and cannot be imported.
    """
    if name in PROVIDERS:
        try:
            _provider(name)
        except ImportError as error:
            raise OptionError(f"engine 'spark' cannot be loaded: {error}; or use engine 'local'") from error


def cluster_of(master: str | None = None, conf: Mapping[str, str] | None = None) -> str | None:
    """Return the master of the cluster that the Spark engine would run on, None on one machine; start nothing.

    Parameters
    ----------
    master, conf
        What the engine would be opened with.
    """
    try:
        return _provider("spark").cluster_of(master, dict(conf or {}))
    except ImportError:
        return None


def describe_spark() -> str:
    """Return the versions of Spark and Java; start nothing.

    Raises
    ------
    OptionError
        If Spark cannot be imported, or Java is missing or too old.
    """
    check_engine("spark")
    return _provider("spark").describe_installation()


def is_spark_installed() -> bool:
    """Return whether a Spark session could be started, as far as Python packages go."""
    return importlib.util.find_spec("pyspark") is not None


def running_spark_parallelism() -> int | None:
    """Return the parallelism of the Spark session that already runs in this process, or None; start nothing."""
    if "pyspark.sql" not in sys.modules:
        return None
    try:
        return _provider("spark").running_parallelism()
    except ImportError:
        return None
