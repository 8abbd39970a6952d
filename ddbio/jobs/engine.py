"""Engines, which run the tasks of a job on threads of this process or elsewhere.

An engine maps a picklable function over picklable tasks. It is independent of DynamoDB, and verbs are independent of
threads and Spark: every engine runs the same plan and the same task function. ``jobs/providers.py`` contains the module
name of the Spark engine.
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
    """Executor of tasks under one budget."""

    name: str
    parallelism: int
    cluster: str | None
    """The master of a cluster whose workers have separate file systems; None if tasks run on this machine."""
    speculates: bool
    """Whether a task may run twice at the same time."""

    def run(
        self, function: Callable[[TaskT, Budget], ResultT], tasks: Sequence[TaskT], budget: LocalBudget
    ) -> list[ResultT]:
        """Return the results in the order of the tasks. Raise the first error after all tasks have ended."""
        ...

    def cpu_seconds(self) -> float:
        """Return user and system seconds since the engine was opened, of driver, workers and JVM."""
        ...

    def close(self) -> None:
        """Stop everything that the engine started."""
        ...


class ShufflingEngine(Engine, Protocol):
    """Engine with a shuffle: it can run tasks that consist of parts from other tasks."""

    def run_shuffled(
        self,
        shuffle: Shuffle,
        tasks: Sequence[Any],
        function: Callable[[TaskT, Budget], ResultT],
        budget: LocalBudget,
    ) -> list[ResultT]:
        """Return the results of the shuffled tasks. Raise the first error after all tasks have ended."""
        ...

    def run_joined(
        self, sources: Sequence[Any], function: Callable[[Iterable[bytes], Budget], ResultT], partitions: int
    ) -> list[ResultT]:
        """Return a function's results for the partitions of all sources' parts, in the order of their keys.

        Parameters
        ----------
        sources
            ``SplitTasks``, or engine-specific sources of such parts.
        """
        ...


@dataclass(frozen=True)
class SplitTasks:
    """Read-only tasks with a budget that yield parts for a shuffle.

    Attributes
    ----------
    split
        Yields parts, whose keys start with the number of their partition.
    """

    tasks: Sequence[Any]
    split: Callable[[Any, Budget], Iterable[tuple[tuple[int, ...], bytes]]]
    budget: LocalBudget


@dataclass(frozen=True)
class Shuffle:
    """Functions that split tasks into parts and create a task from the parts of a partition.

    Attributes
    ----------
    split
        Yields parts, whose keys start with the number of their partition.
    gather
        Creates the task of a partition from its number and its parts, in the order of their keys.
    partitions
        Number of created tasks.
    """

    split: Callable[[Any], Iterable[tuple[tuple[int, ...], bytes]]]
    gather: Callable[[int, Iterable[bytes]], Any]
    partitions: int


# Tasks mostly wait for the network. More threads than this would wait for each other.
_MAX_THREADS = 64


class LocalEngine:
    """Engine on threads of this process, without JVM or installation."""

    name = "local"
    cluster: str | None = None
    speculates = False

    def __init__(self) -> None:
        self.parallelism = available_cores()
        self._began = time.process_time()

    def run(
        self, function: Callable[[TaskT, Budget], ResultT], tasks: Sequence[TaskT], budget: LocalBudget
    ) -> list[ResultT]:
        """Return the results in the order of the tasks. Raise the first error after all tasks have ended."""
        if not tasks:
            return []
        with ThreadPoolExecutor(max_workers=min(len(tasks), _MAX_THREADS), thread_name_prefix="ddbio-task") as pool:
            futures = [pool.submit(function, task, budget) for task in tasks]
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            except BaseException:
                # A closed budget stops every lane at its next page. The pool then waits for all running tasks.
                budget.close()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return [future.result() for future in futures]

    def cpu_seconds(self) -> float:
        """Return user and system seconds of this process since the engine was opened."""
        return time.process_time() - self._began

    def close(self) -> None:
        """Do nothing: the threads ended with their tasks."""


def available_cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def engine_for(asked: Literal["auto", "local", "spark"]) -> Literal["local", "spark"]:
    """Return the engine of a job; ``auto`` is Spark if a session runs in this process, otherwise local."""
    if asked != "auto":
        return asked
    return "local" if running_spark_parallelism() is None else "spark"


class EngineProvider(Protocol):
    """Interface of an engine's module."""

    def open_engine(self, master: str | None, conf: dict[str, str]) -> Engine:
        """Return an engine, after starting its dependencies."""
        ...

    def cluster_of(self, master: str | None, conf: Mapping[str, str]) -> str | None:
        """Return the master of the engine's cluster, None on one machine. Start nothing."""
        ...

    def describe_installation(self) -> str:
        """Return the versions of the engine's dependencies, or raise OptionError if one is missing. Start nothing."""
        ...

    def running_parallelism(self) -> int | None:
        """Return the number of concurrent tasks of this process's session, None without a session. Start nothing."""
        ...


def _provider(name: str) -> EngineProvider:
    return cast("EngineProvider", provider(name))


def open_engine(
    name: Literal["local", "spark"], *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Engine:
    """Return an engine, starting Spark if necessary.

    Raises
    ------
    OptionError
        If Spark is requested and cannot be imported or started.
    """
    if name == "local":
        return LocalEngine()
    check_engine(name)
    return _provider(name).open_engine(master, dict(conf or {}))


def check_engine(name: str) -> None:
    """Raise if the dependencies of an engine are not installed. Start nothing.

    Raises
    ------
    OptionError
        If Spark is requested and cannot be imported.
    """
    if name in PROVIDERS:
        try:
            _provider(name)
        except ImportError as error:
            raise OptionError(f"engine 'spark' cannot be loaded: {error}; or use engine 'local'") from error


def cluster_of(master: str | None = None, conf: Mapping[str, str] | None = None) -> str | None:
    """Return the master of the Spark engine's cluster, None on one machine. Start nothing.

    Parameters
    ----------
    master, conf
        Settings of the engine.
    """
    try:
        return _provider("spark").cluster_of(master, dict(conf or {}))
    except ImportError:
        return None


def describe_spark() -> str:
    """Return the versions of Spark and Java. Start nothing.

    Raises
    ------
    OptionError
        If Spark cannot be imported, or Java is missing or too old.
    """
    check_engine("spark")
    return _provider("spark").describe_installation()


def is_spark_installed() -> bool:
    """Return whether the Python packages of Spark are installed."""
    return importlib.util.find_spec("pyspark") is not None


def running_spark_parallelism() -> int | None:
    """Return the parallelism of this process's running Spark session, or None. Start nothing."""
    if "pyspark.sql" not in sys.modules:
        return None
    try:
        return _provider("spark").running_parallelism()
    except ImportError:
        return None
