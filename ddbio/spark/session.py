"""The Spark session: the running or a new one, its cluster, and its processor time."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddbio.spark.worker import ProcessTime

log = logging.getLogger(__name__)

# https://spark.apache.org/docs/4.0.0/#downloading
OLDEST_JAVA = 17

LOOPBACK = "127.0.0.1"

_LOCAL_DEFAULTS = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.enabled": "false",
}

_INSTALLERS = (
    ("apt-get", f"sudo apt-get install -y openjdk-{OLDEST_JAVA}-jre-headless"),
    ("dnf", f"sudo dnf install -y java-{OLDEST_JAVA}-amazon-corretto-headless"),
    ("brew", f"brew install openjdk@{OLDEST_JAVA}"),
)

_NANOSECONDS = 1e9

# https://github.com/apache/spark/blob/v4.0.0/core/src/main/scala/org/apache/spark/util/SparkExitCode.scala
_EXIT_STATUS = {50: ", an exception that nothing caught", 52: ", out of memory", 56: ", no heartbeat got through"}

_LOG_TAIL_BYTES = 1 << 16
_log_files: list[IO[bytes]] = []
"""The log of the JVM of this process (its stderr), if it was started here: at most one file."""


def running_session() -> SparkSession | None:
    """Return the running session of this process, regardless of its thread, or None. Never start one.

    A session whose JVM has died is not running.
    """
    try:
        session = SparkSession.getActiveSession()
        if session is None and SparkContext._active_spark_context is not None:  # noqa: SLF001 - no public question exists
            return SparkSession.builder.getOrCreate()
    except (OSError, Py4JError):
        return None
    return session


def start_session(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """Return a new session named ddbio. The master is ``master``, else that of spark-submit, else ``local[*]``.

    A local session binds to this machine only and shows no UI. ``conf`` overrides everything.

    Raises
    ------
    OptionError
        If Java is missing or too old, Spark does not start, or the environment requests Spark Connect.
    """
    refuse_connect(connect="SPARK_REMOTE" in os.environ or "spark.remote" in conf)
    asked = {"spark.app.name": "ddbio", **conf, **({"spark.master": master} if master else {})}
    if not log.isEnabledFor(logging.DEBUG):
        # A JVM that is started here logs into a file that is only read if it dies.
        asked.setdefault("spark.log.level", "OFF" if SparkContext._gateway else "WARN")  # noqa: SLF001 - as below
    try:
        _launch_jvm(asked)
        builder = SparkSession.builder
        for name, value in (_defaults() | asked).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    except (Py4JError, PySparkException, ValueError) as error:
        reason = str(getattr(error, "java_exception", error)).strip()
        raise OptionError(f"Spark did not start: {reason}; check master and conf") from error
    _silence_jvm_errors(session.sparkContext)
    return session


def _silence_jvm_errors(context: SparkContext) -> None:
    """Suppress PySpark's traceback when the JVM dies: the failing job reports it."""
    context._accumulatorServer.handle_error = lambda *_: log.debug("the counts of a task broke off")  # noqa: SLF001


def jvm_exit_reason(within_seconds: float = 2.0) -> str | None:
    """Return the reason why the JVM of this process ended; None if it runs, or another process started it.

    The first error of an ending JVM may precede its end: wait up to ``within_seconds`` for it.
    """
    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - where PySpark keeps its JVM
    if process is None:
        return None
    try:
        status = process.wait(within_seconds)
    except subprocess.TimeoutExpired:
        return None
    if status < 0:
        return f"killed by signal {-status}"
    errors = [line for line in jvm_log() if " ERROR " in line][-1:]
    return ": ".join((f"exit status {status}{_EXIT_STATUS.get(status, '')}", *errors))


def jvm_log() -> list[str]:
    """Return the last log lines of the JVM of this process, if it was started here and not for debugging."""
    if not _log_files:
        return []
    # Reading must not move the position of the file, which the JVM shares for its next write.
    written = _log_files[0].fileno()
    size = os.fstat(written).st_size
    tail = os.pread(written, _LOG_TAIL_BYTES, max(0, size - _LOG_TAIL_BYTES))
    return tail.decode(errors="replace").splitlines()


def stop_session(session: SparkSession) -> None:
    """Stop a session. If its JVM has died, there is nothing to stop."""
    with suppress(OSError, Py4JError), catch_warnings():
        simplefilter("ignore", RuntimeWarning)
        session.stop()


def is_connect(session: SparkSession) -> bool:
    """Return whether the session's driver is in another process (Spark Connect)."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def refuse_connect(*, connect: bool) -> None:
    """Raise if the session's driver is in another process.

    Raises
    ------
    OptionError
        If it is a Spark Connect session.
    """
    if connect:
        raise OptionError(
            "engine 'spark' needs the driver in this process, and this is Spark Connect: "
            "read with spark.read.format('dynamodb'), or use engine 'local'"
        )


def driver_host(context: SparkContext) -> str:
    """Return the address at which the workers reach this process."""
    return LOOPBACK if is_local(context) else str(context.getConf().get("spark.driver.host", LOOPBACK))


def is_local(context: SparkContext) -> bool:
    """Return whether the session is in local mode: its workers run on the driver's machine."""
    return bool(context._jsc.sc().isLocal())  # noqa: SLF001 - PySpark's access to the JVM


def cluster_of(master: str | None, conf: Mapping[str, str]) -> str | None:
    """Return the master of the running (or next) session if its workers are other machines, else None."""
    session = running_session()
    if session is not None and not is_connect(session):
        context = session.sparkContext
        return None if is_local(context) else str(context.master)
    asked = master or conf.get("spark.master") or SparkConf().get("spark.master", "local[*]") or "local[*]"
    return None if re.fullmatch(r"local(\[.*\])?", asked) else asked


def budget_endpoint(context: SparkContext) -> tuple[str, str, tuple[int, ...]]:
    """Return the address by which workers reach a budget of this driver, the one to bind, and the ports to try.

    Raises
    ------
    OptionError
        If ``spark.ddbio.budget.port`` is neither a port nor a range of ports.
    """
    conf = context.getConf()
    host = driver_host(context)
    asked = str(conf.get("spark.ddbio.budget.port", "0"))
    match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", asked)
    if match is None:
        raise OptionError(f"spark.ddbio.budget.port is {asked!r}: write a port, or a range like 40000-40031")
    first, last = int(match[1]), int(match[2] or match[1])
    # https://spark.apache.org/docs/4.0.0/configuration.html#networking
    return host, str(conf.get("spark.driver.bindAddress", host)), tuple(range(first, last + 1))


def lost_after_seconds(context: SparkContext) -> float:
    """Return the seconds of silence after which Spark considers an executor lost, and runs its tasks on others."""
    # https://spark.apache.org/docs/4.0.0/configuration.html#networking
    return float(context._jsc.sc().conf().getTimeAsSeconds("spark.network.timeout", "120s"))  # noqa: SLF001


def speculates(context: SparkContext) -> bool:
    """Return whether Spark may run a second attempt of a task while the first one still runs."""
    # https://spark.apache.org/docs/4.0.0/configuration.html#scheduling; a local master never speculates.
    return not is_local(context) and str(context.getConf().get("spark.speculation", "false")).lower() == "true"


def task_attempts(context: SparkContext) -> int:
    """Return the maximum number of attempts of a task that raises."""
    if is_local(context):
        # https://spark.apache.org/docs/4.0.0/submitting-applications.html#master-urls: local[K,F]
        asked = re.search(r",\s*(\d+)\s*\]", context.master)
        return int(asked[1]) if asked else 1
    # https://spark.apache.org/docs/4.0.0/configuration.html#scheduling
    return int(context.getConf().get("spark.task.maxFailures", "4"))


def _launch_jvm(asked: Mapping[str, str]) -> None:
    """Start the JVM unless this process has one (spark-submit, an earlier session)."""
    if SparkContext._gateway is not None:  # noqa: SLF001 - where PySpark keeps its JVM
        return
    # Under spark-submit the JVM already runs. If SPARK_HOME is set, its spark-env.sh may choose the Java.
    if "PYSPARK_GATEWAY_PORT" not in os.environ and "SPARK_HOME" not in os.environ:
        _check_java()
    # Data source planning uses the JVM's setting of the driver's Python.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = SparkConf(loadDefaults=False).setAll([("spark.ui.showConsoleProgress", "false"), *asked.items()])
    # The output of the JVM and log4j is only useful if the JVM fails or dies.
    log_file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the JVM runs
    quiet: dict[str, Any] = {} if log.isEnabledFor(logging.DEBUG) else {"stderr": log_file}
    try:
        SparkContext._ensure_initialized(gateway=launch_gateway(settings, quiet))  # noqa: SLF001
    except PySparkException as error:
        raise OptionError(f"Spark did not start: {_reason_in(log_file) or error}; check master and conf") from error
    _log_files[:] = [log_file]


def _defaults() -> dict[str, str]:
    """Return our settings, except those that spark-submit, its defaults file or the environment set."""
    decided = SparkConf()
    if not decided.get("spark.master", "").startswith("local"):
        return {}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {name: value for name, value in _LOCAL_DEFAULTS.items() if not decided.contains(name)}


def _reason_in(stream: IO[bytes]) -> str:
    stream.seek(0)
    lines = [line.strip() for line in stream.read().decode(errors="replace").splitlines()]
    telling = [line for line in lines if "Error" in line or "Exception" in line]
    return next(iter(telling or [line for line in lines[-1:] if line]), "")


def describe_installation() -> str:
    """Return the versions of Spark and Java of a new session.

    Raises
    ------
    OptionError
        If Java is missing or too old.
    """
    java = "the Java that SPARK_HOME chooses" if "SPARK_HOME" in os.environ else _check_java()
    return f"Spark {pyspark.__version__}, {java}"


def _check_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    output = _java_version(java) if java else ""
    if (version := re.search(r'version "(?:1\.)?(\d+)', output)) and int(version[1]) >= OLDEST_JAVA:
        return f"Java {version[1]}"
    actual = f"{java} is {version[1]}" if version else "none was found" if not java else f"{java} does not run"
    advice = next((line for tool, line in _INSTALLERS if shutil.which(tool)), f"install Java {OLDEST_JAVA}")
    advice += ", and let JAVA_HOME name it" if home else ""
    raise OptionError(f"Spark needs Java {OLDEST_JAVA} or newer, and {actual}: {advice}; or use engine 'local'")


def _java_version(java: str) -> str:
    try:
        return subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    except OSError:
        return ""


class CpuMeter:
    """Meter of the user + system seconds of driver, workers and JVM: of the entire session if the engine started it.

    A worker counts with its highest value, so that a reused worker is not counted twice. In local mode one JVM does
    everything; on a cluster it is the driver's, and the executors' time comes from their stages.
    """

    def __init__(self, context: SparkContext, *, whole_session: bool, began_seconds: float) -> None:
        self._context = context
        self._whole_session = whole_session
        self._driver_began = began_seconds
        self._jvm_began = 0.0 if whole_session else jvm_seconds(context)
        self._marks: dict[tuple[str, int], tuple[float, float]] = {}
        self._stages: set[int] = set()

    def add(self, times: Iterable[ProcessTime]) -> None:
        """Count the times that workers report."""
        for used in times:
            # Earlier work of the session's processes counts only if the engine started the session.
            before = used.ended_seconds if used.began_seconds is None else used.began_seconds
            new = 0.0 if self._whole_session else before
            began, ended = self._marks.get(used.process, (new, 0.0))
            self._marks[used.process] = (began, max(ended, used.ended_seconds))

    def add_stages(self, stages: Iterable[int]) -> None:
        """Count the executors' time of these stages. In local mode the JVM's process time includes it already."""
        new_stages = set(stages)
        if new_stages and not is_local(self._context):
            self._stages.update(new_stages)

    def seconds(self) -> float:
        """Return the sum so far."""
        driver = time.process_time() - self._driver_began
        workers = sum(ended - began for began, ended in self._marks.values())
        jvm = jvm_seconds(self._context) - self._jvm_began
        return driver + workers + jvm + self._executor_seconds()

    def _executor_seconds(self) -> float:
        store = self._context._jsc.sc().statusStore()  # noqa: SLF001 - the Python status tracker has no times
        return sum(float(store.lastStageAttempt(stage).executorCpuTime()) for stage in self._stages) / _NANOSECONDS


def jvm_seconds(context: SparkContext) -> float:
    """Return user + system seconds of the JVM of this process."""
    # https://docs.oracle.com/en/java/javase/17/docs/api/jdk.management/com/sun/management/OperatingSystemMXBean.html
    # The bean's class is hidden by its module, so the method is taken from its public interface.
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark's access to the JVM
    gateway: Any = context._gateway  # noqa: SLF001
    bean = jvm.java.lang.management.ManagementFactory.getOperatingSystemMXBean()
    interface = jvm.java.lang.Class.forName("com.sun.management.OperatingSystemMXBean")
    method = interface.getMethod("getProcessCpuTime", gateway.new_array(jvm.java.lang.Class, 0))
    return float(method.invoke(bean, gateway.new_array(jvm.java.lang.Object, 0))) / _NANOSECONDS
