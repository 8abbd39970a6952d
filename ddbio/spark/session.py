"""The Spark session: find the running one or start one, ask what it runs on, and count its processor time."""

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
"""Where the JVM of this process writes what would go to stderr, if it was started here: at most one."""


def running_session() -> SparkSession | None:
    """Return the session that runs in this process, in whichever thread it was made, or None; start nothing.

    A session whose JVM has died runs no more.
    """
    try:
        session = SparkSession.getActiveSession()
        if session is None and SparkContext._active_spark_context is not None:  # noqa: SLF001 - no public question exists
            return SparkSession.builder.getOrCreate()
    except (OSError, Py4JError):
        return None
    return session


def start_session(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """Return a new session named ddbio; the master is the given one, else what spark-submit decides, else ``local[*]``.

    A local session binds to this machine only and shows no UI. Whatever ``conf`` says wins.

    Raises
    ------
    OptionError
        If Java is missing or too old, Spark does not start, or the environment asks for Spark Connect.
    """
    refuse_connect(connect="SPARK_REMOTE" in os.environ or "spark.remote" in conf)
    asked = {"spark.app.name": "ddbio", **conf, **({"spark.master": master} if master else {})}
    if not log.isEnabledFor(logging.DEBUG):
        # A JVM that is started here logs into a file that nobody sees unless it dies.
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
    _be_quiet_about_the_jvm(session.sparkContext)
    return session


def _be_quiet_about_the_jvm(context: SparkContext) -> None:
    """Let PySpark print no traceback when the JVM dies: the job that fails by it says so."""
    context._accumulatorServer.handle_error = lambda *_: log.debug("the counts of a task broke off")  # noqa: SLF001


def how_the_jvm_ended(within_seconds: float = 2.0) -> str | None:
    """Return how the JVM of this process ended, in words; None if it runs, or another process started it.

    An error that tells of a JVM in its end may come a little before that: this waits so long for it.
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
    said = [line for line in jvm_log() if " ERROR " in line][-1:]
    return ": ".join((f"exit status {status}{_EXIT_STATUS.get(status, '')}", *said))


def jvm_log() -> list[str]:
    """Return the last lines that the JVM of this process has logged, if it was started here and not for debugging."""
    if not _log_files:
        return []
    # Reading must not move the position of the file: the JVM shares it, and writes there next.
    written = _log_files[0].fileno()
    size = os.fstat(written).st_size
    tail = os.pread(written, _LOG_TAIL_BYTES, max(0, size - _LOG_TAIL_BYTES))
    return tail.decode(errors="replace").splitlines()


def stop_session(session: SparkSession) -> None:
    """Stop a session; nothing is left to stop if its JVM has died."""
    with suppress(OSError, Py4JError), catch_warnings():
        simplefilter("ignore", RuntimeWarning)
        session.stop()


def is_connect(session: SparkSession) -> bool:
    """Return whether the session's driver is elsewhere."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def refuse_connect(*, connect: bool) -> None:
    """Refuse a session whose driver is elsewhere.

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
    return bool(context._jsc.sc().isLocal())  # noqa: SLF001 - PySpark's door to the JVM


def cluster_of(master: str | None, conf: Mapping[str, str]) -> str | None:
    """Return the master of the session that runs, or would be started, if its workers are other machines; else None."""
    session = running_session()
    if session is not None and not is_connect(session):
        context = session.sparkContext
        return None if is_local(context) else str(context.master)
    asked = master or conf.get("spark.master") or SparkConf().get("spark.master", "local[*]") or "local[*]"
    return None if re.fullmatch(r"local(\[.*\])?", asked) else asked


def budget_place(context: SparkContext) -> tuple[str, str, tuple[int, ...]]:
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
    """Return after how long a silence Spark takes an executor for lost, and runs its tasks elsewhere."""
    # https://spark.apache.org/docs/4.0.0/configuration.html#networking
    return float(context._jsc.sc().conf().getTimeAsSeconds("spark.network.timeout", "120s"))  # noqa: SLF001


def speculates(context: SparkContext) -> bool:
    """Return whether Spark may run a second attempt of a task while the first is well."""
    # https://spark.apache.org/docs/4.0.0/configuration.html#scheduling; a local master never speculates.
    return not is_local(context) and str(context.getConf().get("spark.speculation", "false")).lower() == "true"


def task_attempts(context: SparkContext) -> int:
    """Return how often Spark runs a task that raises."""
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
    # Under spark-submit the JVM is there already; if SPARK_HOME is set, its spark-env.sh may choose the Java.
    if "PYSPARK_GATEWAY_PORT" not in os.environ and "SPARK_HOME" not in os.environ:
        _check_java()
    # Data source planning runs in the JVM's idea of the driver's Python.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = SparkConf(loadDefaults=False).setAll([("spark.ui.showConsoleProgress", "false"), *asked.items()])
    # What the JVM and log4j say is noise, unless it fails or dies.
    log_file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the JVM runs
    quiet: dict[str, Any] = {} if log.isEnabledFor(logging.DEBUG) else {"stderr": log_file}
    try:
        SparkContext._ensure_initialized(gateway=launch_gateway(settings, quiet))  # noqa: SLF001
    except PySparkException as error:
        raise OptionError(f"Spark did not start: {_reason_in(log_file) or error}; check master and conf") from error
    _log_files[:] = [log_file]


def _defaults() -> dict[str, str]:
    """Return our settings, as far as spark-submit, its defaults file and the environment decide nothing."""
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
    """Return the versions of Spark and Java that a session here would be started with.

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
    said = _java_version(java) if java else ""
    if (version := re.search(r'version "(?:1\.)?(\d+)', said)) and int(version[1]) >= OLDEST_JAVA:
        return f"Java {version[1]}"
    found = f"{java} is {version[1]}" if version else "none was found" if not java else f"{java} does not run"
    advice = next((line for tool, line in _INSTALLERS if shutil.which(tool)), f"install Java {OLDEST_JAVA}")
    advice += ", and let JAVA_HOME name it" if home else ""
    raise OptionError(f"Spark needs Java {OLDEST_JAVA} or newer, and {found}: {advice}; or use engine 'local'")


def _java_version(java: str) -> str:
    try:
        return subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    except OSError:
        return ""


class CpuMeter:
    """Count user + system seconds of driver, workers and JVM: of the whole session if the engine started it.

    A worker counts with its highest value, so that one that is used again is not counted twice. In local mode one JVM
    does everything; on a cluster it is the driver's, and the executors' time comes from their stages.
    """

    def __init__(self, context: SparkContext, *, whole_session: bool, began_seconds: float) -> None:
        self._context = context
        self._whole_session = whole_session
        self._driver_began = began_seconds
        self._jvm_began = 0.0 if whole_session else jvm_seconds(context)
        self._marks: dict[tuple[str, int], tuple[float, float]] = {}
        self._stages: set[int] = set()

    def add(self, times: Iterable[ProcessTime]) -> None:
        """Count what workers report."""
        for each in times:
            # What the session's processes did before is ours only if the session is.
            before = each.ended_seconds if each.began_seconds is None else each.began_seconds
            new = 0.0 if self._whole_session else before
            began, ended = self._marks.get(each.process, (new, 0.0))
            self._marks[each.process] = (began, max(ended, each.ended_seconds))

    def add_stages(self, stages: Iterable[int]) -> None:
        """Count the executors' time of these stages; in local mode the JVM's process time holds it already."""
        found = set(stages)
        if found and not is_local(self._context):
            self._stages.update(found)

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
    """Return user + system seconds of the JVM beside this process."""
    # https://docs.oracle.com/en/java/javase/17/docs/api/jdk.management/com/sun/management/OperatingSystemMXBean.html
    # The bean's class is hidden by its module, so its public interface is asked for the method.
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark's door to the JVM
    gateway: Any = context._gateway  # noqa: SLF001
    bean = jvm.java.lang.management.ManagementFactory.getOperatingSystemMXBean()
    interface = jvm.java.lang.Class.forName("com.sun.management.OperatingSystemMXBean")
    method = interface.getMethod("getProcessCpuTime", gateway.new_array(jvm.java.lang.Class, 0))
    return float(method.invoke(bean, gateway.new_array(jvm.java.lang.Object, 0))) / _NANOSECONDS
