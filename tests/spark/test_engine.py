"""SparkEngine with functions that need no table."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from ddbio.budget import BudgetClosedError, LocalBudget
from ddbio.budget.client import BudgetAddress
from ddbio.budget.job_limits import JobLimits
from ddbio.errors import EndpointError, ServiceError, TargetError
from ddbio.jobs.engine import open_engine, running_spark_parallelism
from ddbio.spark.engine import SparkEngine
from ddbio.spark.worker import ListOnDriver, TaskBudget, TaskRunner, WorkerTracebackError
from tests.budget.deaf_port import deaf_port

# Workers cannot import this file: their functions are defined inside the tests, and are sent by value.


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[SparkEngine]:
    """Return an engine on the tests' session."""
    engine = SparkEngine(None, {})
    yield engine
    engine.close()


def test_results_come_in_the_order_of_the_tasks(engine):
    """Every task runs in a separate partition, and the results keep the order of the tasks."""

    def run_task(task, budget):
        return task, TaskContext.get().partitionId()

    assert engine.run(run_task, [30, 10, 20], LocalBudget(None)) == [(30, 0), (10, 1), (20, 2)]


def test_no_tasks_no_job(engine):
    """Without tasks, Spark gets no job."""
    assert engine.run(lambda task, budget: task, [], LocalBudget(None)) == []


def test_one_budget_for_all_tasks(engine):
    """The driver's budget counts the consumption of the tasks' processes exactly."""

    def spend(task, budget):
        for _ in range(10):
            budget.settle(budget.acquire(task), task, items=1, wire_bytes=100)

    budget = LocalBudget(5_000)
    engine.run(spend, [1.0, 2.0, 3.0], budget)
    usage = budget.usage()
    assert (usage.consumed_units, usage.items, usage.wire_bytes) == (60.0, 30, 3000)


def test_without_a_rate_no_socket_is_opened(engine):
    """Counts of tasks arrive with their results. The driver only listens if there is a rate, a limit, or a viewer."""

    def spend(task, budget):
        for _ in range(10):
            budget.settle(budget.acquire(task), task, items=1, wire_bytes=100)
        return any(thread.name == "ddbio-budget" for thread in threading.enumerate())

    def served(budget):
        # The driver's threads while the tasks run, and those of the workers.
        seen, end = set(), threading.Event()

        def look():
            while not end.wait(0.001):
                seen.update(thread for thread in threading.enumerate() if thread.name == "ddbio-budget")

        before = {thread for thread in threading.enumerate() if thread.name == "ddbio-budget"}
        looking = threading.Thread(target=look)
        looking.start()
        are_told = engine.run(spend, [1.0, 2.0, 3.0], budget)
        end.set()
        looking.join()
        usage = budget.usage()
        assert (usage.consumed_units, usage.items, usage.wire_bytes) == (60.0, 30, 3000)
        assert usage.elapsed_seconds > 0
        return bool(seen - before), any(are_told)

    assert served(LocalBudget(None)) == (False, False)
    followed, limited = LocalBudget(None), LocalBudget(None)
    followed.is_followed = True
    limited.bound(JobLimits(units=1e6))
    assert served(followed) == (True, True)
    assert served(limited)[0]
    assert served(LocalBudget(5_000))[0]


def test_a_job_without_a_socket_is_stopped(engine, tmp_path):
    """Its tasks learn nothing from a budget, so Spark ends them, and no worker continues unnoticed."""

    def fail(task, budget):
        if task == "broken":
            while not (tmp_path / "pid").exists():
                time.sleep(0.01)
            raise TargetError("disk full", "/data")
        (tmp_path / "began").write_text(str(os.getpid()))
        (tmp_path / "began").rename(tmp_path / "pid")
        while True:
            budget.settle(budget.acquire(1.0), 1.0)
            time.sleep(0.01)

    with pytest.raises(TargetError, match=r"^disk full$"):
        engine.run(fail, ["endless", "broken"], LocalBudget(None))
    assert active_tasks(engine) == 0
    worker = Path("/proc") / (tmp_path / "pid").read_text()
    deadline = time.monotonic() + 60
    while worker.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not worker.exists()


def test_first_error_is_raised_and_ends_the_others(engine):
    """A task's error arrives as its own class with its attributes, and the other tasks end at their next request."""

    def fail(task, budget):
        if task == "broken":
            raise TargetError("disk full", "/data")
        while True:
            budget.settle(budget.acquire(1.0), 1.0)

    budget = LocalBudget(1_000)
    with pytest.raises(TargetError, match=r"^disk full$") as caught:
        engine.run(fail, ["endless", "broken"], budget)
    assert caught.value.uri == "/data"
    assert isinstance(caught.value.__cause__, WorkerTracebackError)
    with pytest.raises(BudgetClosedError):
        budget.acquire(1.0)
    assert active_tasks(engine) == 0


def test_unexpected_exception_is_named(engine):
    """An unexpected error is a ServiceError with the original type, its text, and its location in the worker."""

    def fail(task, budget):
        return {}["no such key"]

    with pytest.raises(ServiceError, match="KeyError: 'no such key'") as caught:
        engine.run(fail, [1], LocalBudget(None))
    assert caught.value.code == "KeyError"
    assert 'return {}["no such key"]' in str(caught.value.__cause__)


def test_retryable_error_is_retried(engine):
    """Spark runs a task again that fails with a retryable error. Its third attempt succeeds."""

    def fail_twice(task, budget):
        attempt = TaskContext.get().attemptNumber()
        if attempt < 2:
            raise EndpointError("down")
        return attempt

    assert engine.run(fail_twice, [1], LocalBudget(None)) == [2]


def test_counts_of_failed_attempts_are_counted(engine):
    """Without a socket, the error of a failed attempt carries its counts, and its text stays unchanged."""

    def fail_twice(task, budget):
        budget.settle(budget.acquire(1.0), 2.0, items=10)
        if TaskContext.get().attemptNumber() < 2:
            raise EndpointError("down")
        return task

    budget = LocalBudget(None)
    assert engine.run(fail_twice, [1, 2], budget) == [1, 2]
    assert (budget.usage().items, budget.usage().consumed_units, budget.usage().requests) == (60, 12.0, 6)


def test_retryable_error_of_the_last_attempt_keeps_its_class(engine):
    """An error of the last attempt arrives as its own class."""

    def fail(task, budget):
        raise EndpointError(f"down at attempt {TaskContext.get().attemptNumber()}", "http://127.0.0.1:1")

    with pytest.raises(EndpointError, match="down at attempt 2") as caught:
        engine.run(fail, [1], LocalBudget(None))
    assert caught.value.endpoint_url == "http://127.0.0.1:1"


def test_dying_worker_is_a_clear_error(engine):
    """A worker that dies in every attempt makes a one-line error without a Java stack."""

    def die(task, budget):
        os._exit(3)

    with pytest.raises(ServiceError, match=r"^Spark ended the job: .*Python worker exited unexpectedly.*$") as caught:
        engine.run(die, [1], LocalBudget(None))
    assert "\n" not in str(caught.value)


def test_budget_closed_by_another_thread(engine):
    """If another thread closes the budget, the job ends like one whose tasks were stopped."""

    def spend(task, budget):
        budget.acquire(1.0)

    budget = LocalBudget(100)
    budget.close()
    with pytest.raises(BudgetClosedError):
        engine.run(spend, [1, 2], budget)


def test_interrupt_ends_the_tasks_before_it_is_raised(engine):
    """Ctrl-C closes the budget, waits until no task runs, and raises KeyboardInterrupt. Spark runs the next job."""

    class InterruptingBudget(LocalBudget):
        def settle(self, *arguments, **counts):
            super().settle(*arguments, **counts)
            if not self.usage().consumed_units > 1.0:
                os.kill(os.getpid(), signal.SIGINT)

    def spend(task, budget):
        while True:
            budget.settle(budget.acquire(1.0), 1.0)
            time.sleep(0.1)

    with pytest.raises(KeyboardInterrupt):
        engine.run(spend, [1, 2], InterruptingBudget(20))
    assert active_tasks(engine) == 0
    assert engine.run(lambda task, budget: task, [1], LocalBudget(None)) == [1]


def test_cpu_seconds_counts_workers(engine):
    """The processor time of the workers is in the sum, and a reused worker is not counted twice."""

    def burn(task, budget):
        end = time.process_time() + 0.5
        while time.process_time() < end:
            pass

    at_first = engine.cpu_seconds()
    engine.run(burn, [1, 2], LocalBudget(None))
    workers = sum(ended - began for began, ended in engine._meter._marks.values())
    assert engine.cpu_seconds() - at_first > 1.0
    engine.run(lambda task, budget: None, [1, 2], LocalBudget(None))
    assert sum(ended - began for began, ended in engine._meter._marks.values()) < workers + 0.5


def test_cpu_seconds_counts_what_workers_do_around_a_task(engine):
    """The workers' sum over many short jobs is most of the system's own measurement, and never more."""

    def note(task, budget):
        return os.getpid(), os.getppid()

    [(_, daemon)] = engine.run(note, [1], LocalBudget(None))
    before = {pid: system_seconds(pid) for pid in workers_of(daemon)}
    counted, used = 0.0, set()
    for _ in range(10):
        engine = open_engine("spark")
        used |= {worker for worker, _ in engine.run(note, [1, 2], LocalBudget(None))}
        counted += sum(ended - began for (_, pid), (began, ended) in engine._meter._marks.items() if pid != daemon)
    recorded = sum(system_seconds(pid) - before.get(pid, 0.0) for pid in used)
    # The system's measurement has a resolution of 10 ms, and continues after a task.
    assert recorded / 2 - 0.5 < counted < recorded + 0.1


def test_cpu_seconds_counts_the_start_of_a_worker(engine):
    """A worker that was started for the job counts from its start, and an existing one from its task."""

    def note(task, budget):
        return os.getpid(), os.getppid()

    [(_, daemon)] = engine.run(note, [1], LocalBudget(None))
    for pid in workers_of(daemon):
        os.kill(pid, signal.SIGKILL)
    for is_new in (True, False):
        engine = open_engine("spark")
        [(worker, _)] = engine.run(note, [1], LocalBudget(None))
        [began] = [began for (_, pid), (began, _) in engine._meter._marks.items() if pid == worker]
        assert (began == 0.0) == is_new


def test_workers_are_used_again(engine):
    """The engine drains its partitions, so that Spark keeps the worker processes for the next job."""

    def process(task, budget):
        return os.getpid()

    first = set(engine.run(process, [1, 2], LocalBudget(None)))
    second = set(engine.run(process, [1, 2], LocalBudget(None)))
    assert first & second


def test_running_session_is_used_and_kept(spark, caplog):
    """An engine on a running session warns that master and conf are ignored, and does not stop it."""
    engine = open_engine("spark", master="local[7]")
    engine.close()
    assert "stay as they are" in caplog.text
    assert spark.range(3).count() == 3
    assert running_spark_parallelism() == engine.parallelism == 2


OWN_SESSION = """
import json, sys
from ddbio.budget import LocalBudget
from ddbio.jobs.engine import open_engine, running_spark_parallelism

before = running_spark_parallelism()
engine = open_engine("spark", conf={"spark.sql.shuffle.partitions": "3", "spark.task.cpus": "1"})
conf = dict(engine._context.getConf().getAll())
results = engine.run(lambda task, budget: (task, sys.executable), [1, 2], LocalBudget(None))
engine.close()
print(json.dumps({
    "before": before, "after": running_spark_parallelism(), "conf": conf, "results": results,
    "executable": sys.executable, "cpu_seconds": engine.cpu_seconds(),
}))
"""


def test_own_session(tmp_path: Path):
    """A session of the engine is local and quiet, runs this Python, and ends with the engine."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    done = subprocess.run(
        [sys.executable, "-c", OWN_SESSION], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    output = json.loads(done.stdout)
    assert done.stderr == ""
    assert (output["before"], output["after"]) == (None, None)
    assert output["results"] == [[1, output["executable"]], [2, output["executable"]]]
    assert output["conf"]["spark.master"] == "local[*]"
    assert output["conf"]["spark.app.name"] == "ddbio"
    assert output["conf"]["spark.driver.bindAddress"] == "127.0.0.1"
    assert output["conf"]["spark.ui.enabled"] == "false"
    assert output["conf"]["spark.sql.shuffle.partitions"] == "3"
    assert output["cpu_seconds"] > 1.0


def system_seconds(pid):
    """Return user + system seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def workers_of(daemon):
    """Return the processes that PySpark's daemon has forked."""
    return [int(pid) for pid in Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()]


def active_tasks(engine):
    """Return the number of running tasks of all jobs."""
    tracker = engine._context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def test_sparks_pages_name_the_job(spark, engine):
    """The description of ddbio follows the caller's description. The caller's own jobs keep theirs."""
    context = spark.sparkContext
    names = ("spark.job.description", "spark.jobGroup.id", "spark.job.interruptOnCancel")
    context.setJobGroup("nightly", "the nightly copy")
    before = [context.getLocalProperty(name) for name in names]
    try:
        engine.run(lambda task, budget: task, [1], LocalBudget(None, job="scan of orders"))
        assert [context.getLocalProperty(name) for name in names] == before
    finally:
        for name in names:
            context.setLocalProperty(name, None)
    engine.run(lambda task, budget: task, [1], LocalBudget(None))
    jobs = context._jsc.sc().statusStore().jobsList(None)
    described = [jobs.apply(number).description() for number in range(jobs.size())]
    newest = [
        description.get() for description in described if description.isDefined() and "ddbio" in description.get()
    ]
    assert newest[:2] == ["ddbio", "the nightly copy, ddbio: scan of orders"]


_RUNS_AGAIN = """
from pathlib import Path
from ddbio.spark.engine import Job
from ddbio.spark.session import start_session

context = start_session("local[2,3]", {}).sparkContext
disk = context._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
folders = list(disk.localDirsString())

def lose(number, rows):
    held = list(rows)
    if number == 0:
        files = [path for folder in folders for path in Path(folder).glob("*/shuffle_*")]
        newest = max(int(path.name.split("_")[1]) for path in files)
        for path in files:
            if int(path.name.split("_")[1]) == newest:
                path.unlink(missing_ok=True)
    return held

def job(function):
    pairs = context.parallelize([(number, number) for number in range(8)], 2)
    return Job(context, pairs.partitionBy(8).mapPartitionsWithIndex(function))

whole = job(lambda _, rows: rows)
whole.wait(list)
assert not whole.runs_again()
again = job(lose)
again.wait(list)
assert again.runs_again()
assert sorted(again.outcomes) == sorted(whole.outcomes)
print("seen")
"""


@pytest.mark.nightly
def test_a_stage_that_runs_again_is_seen():
    """Its tasks count their attempts from 0 again, so a job without a fence checks the stage itself.

    The session is a separate one: a local one cannot recover from a shuffle without its files. Its block manager cannot
    be registered again, so that large results are lost, and after ten minutes without a heartbeat the JVM ends.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _RUNS_AGAIN], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["seen"], done.stderr[-2000:]


def test_a_task_of_a_worker_out_of_reach_waits_for_those_that_the_driver_knows(spark):
    """The first attempt is deferred.

    Then it runs if no other attempt has connected, and otherwise every attempt fails.
    """
    context = spark.sparkContext
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = BudgetAddress("127.0.0.1", closed.getsockname()[1], b"key")
    failures = context.accumulator([], ListOnDriver())
    budget = TaskBudget(nowhere, asks=True, portion_per_second=None)
    runner = TaskRunner(lambda task, budget: task, budget, 1, failures, time.time(), 60.0)
    tasks = context.parallelize([5, 6], 2)
    assert [outcome.is_deferred for outcome in tasks.mapPartitions(runner).collect()] == [True, True]
    assert not failures.value
    alone = tasks.mapPartitions(replace(runner, unfenced=frozenset({0})))
    (first,), (second,) = (context.runJob(alone, list, [partition]) for partition in range(2))
    assert (first.result, first.is_deferred, first.failure) == (5, False, None)
    assert "nothing was written by this one" in str(second.failure.error)

    def fail_once(task, budget):
        # Another attempt of it may still write.
        raise EndpointError("down")

    again = tasks.mapPartitions(replace(runner, function=fail_once, attempts=3, unfenced=frozenset({0, 1})))
    (outcome,) = context.runJob(again, list, [0])
    assert "nothing was written by this one" in str(outcome.failure.error)


OUT_OF_REACH = """
import json, sys
from pathlib import Path
from ddbio.budget import LocalBudget
from ddbio.jobs.engine import Shuffle
from ddbio.errors import ServiceError
from ddbio.spark.engine import SparkEngine

# Workers look for the budget at an address at which nobody listens.
conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.2", "spark.ui.enabled": "false"}
conf["spark.ddbio.budget.port"] = sys.argv[1]
engine = SparkEngine("local[2,3]", conf)
folders = list(engine._context._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirsString())

def split(task):
    yield (task, 0, 0), bytes([task])

def gather(partition, parts):
    return partition, b"".join(parts)

def run(task, budget):
    budget.settle(budget.acquire(1.0), 1.0, items=1)
    return task

def lose(task, budget):
    if task[0] == 0:
        files = [path for folder in folders for path in Path(folder).glob("*/shuffle_*")]
        newest = max(int(path.name.split("_")[1]) for path in files)
        for path in files:
            if int(path.name.split("_")[1]) == newest:
                path.unlink(missing_ok=True)
    return task

budget = LocalBudget(None)
results = engine.run_shuffled(Shuffle(split, gather, 8), range(8), run, budget)
try:
    engine.run_shuffled(Shuffle(split, gather, 8), range(8), lose, LocalBudget(None))
    said = None
except ServiceError as error:
    said = str(error)
engine.close()
found = [[number, list(part)] for number, part in results]
json.dump({"results": found, "items": budget.usage().items, "said": said}, sys.stdout)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("is_deaf", [False, True])
def test_workers_out_of_reach_run_each_task_once(tmp_path: Path, *, is_deaf: bool):
    """If no worker reaches the driver, a shuffled job succeeds, unless Spark runs the writing stage again.

    The port is closed, or drops everything.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    with deaf_port() as port, socket.create_server(("127.0.0.1", 0)) as listener:
        words = [sys.executable, "-c", OUT_OF_REACH, str(port if is_deaf else listener.getsockname()[1])]
        listener.close()
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["results"] == [[number, [number]] for number in range(8)]
    assert output["items"] == 8
    assert "may run at the same time as another attempt" in output["said"]
