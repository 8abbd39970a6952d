"""Shared Spark session of this folder's tests: the start of one takes five seconds.

Its JVM ends before a test of another folder runs, so that those tests have no running session. A JVM that dies fails
the
current test, and the next test that needs a session gets a new one. So only fixtures with the scope of a test may keep
objects of a session.
"""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from ddbio.spark import session
from ddbio.spark.javac import find_javac
from ddbio.spark.pushdown_jar import jar
from ddbio.testing import FakeDynamoDB

_FOLDER = Path(__file__).parent
_LOG_LINES = 60
_END_SECONDS = 60.0
# A JVM out of memory ends immediately, instead of failing test after test. The second compiler takes longer than it
# saves.
_JAVA = (
    "-XX:+ExitOnOutOfMemoryError -XX:MaxMetaspaceSize=512m -XX:ReservedCodeCacheSize=256m"
    " -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
)
_CONF = {
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": _JAVA,
}


@pytest.fixture(autouse=True)
def _no_dead_jvm() -> None:
    """End a JVM whose session does not run: it has died, or a test has stopped its session."""
    if SparkContext._gateway is None or _runs():
        return
    ended = session.jvm_exit_reason()
    if ended is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")  # to report it, not to fail this test
            report = "\n".join([f"Spark's JVM has died: {ended}", *session.jvm_log()[-_LOG_LINES:]])
            warnings.warn(report, stacklevel=1)
    _end_jvm()


@pytest.fixture
def spark(_no_dead_jvm) -> SparkSession:
    """Return the session of all tests: two cores, and up to three attempts per task."""
    if SparkContext._gateway is None:
        # Without a JDK the tests of push-down are skipped, with the reason.
        return session.start_session("local[2,3]", _CONF | ({"spark.jars": jar()} if find_javac() else {}))
    return SparkSession.builder.getOrCreate()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the JVM after the last test of this folder."""
    if nextitem is None or _FOLDER not in nextitem.path.parents:
        _end_jvm()


@pytest.fixture(scope="session")
def fake() -> Iterator[FakeDynamoDB]:
    """Return the fake DynamoDB of all tests, in a separate process."""
    with FakeDynamoDB(process=True) as fake:
        yield fake


def _runs() -> bool:
    context = SparkContext._active_spark_context
    try:
        return context is not None and not context._jsc.sc().isStopped()
    except (OSError, Py4JError):
        return False


def _end_jvm() -> None:
    """End the JVM of this process, if any, and reset PySpark's references to it."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    running = SparkContext._active_spark_context
    if running is not None:
        with suppress(OSError, Py4JError), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            running.stop()
    with suppress(OSError, Py4JError):
        gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    for file in session._log_files:
        file.close()
    session._log_files.clear()
