"""Share one Spark session among the tests: starting one takes five seconds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from ddbio.spark.javac import find_javac
from ddbio.spark.pushdown_jar import jar
from ddbio.spark.session import how_the_jvm_ended, jvm_log, start_session
from ddbio.testing import FakeDynamoDB

_LOG_LINES = 60


def _start() -> SparkSession:
    # Without a JDK the tests of push-down are skipped, and say so.
    jars = {"spark.jars": jar()} if find_javac() else {}
    conf = jars | {"spark.default.parallelism": "2", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    return start_session("local[2,3]", conf)


def _has_died() -> bool:
    return how_the_jvm_ended(0) is not None


@pytest.fixture(scope="session")
def sessions() -> Iterator[list[SparkSession]]:
    """Return the sessions that were started: one, unless its JVM has died."""
    started: list[SparkSession] = []
    yield started
    if started and not _has_died():
        started[-1].stop()


@pytest.fixture(scope="module")
def spark(sessions) -> SparkSession:
    """Return the session of all tests: two cores, and up to three attempts a task."""
    if sessions and _has_died():
        with warnings.catch_warnings():
            warnings.simplefilter("always")  # to be told, not to fail a test of this file
            said = "\n".join([f"Spark's JVM has died: {how_the_jvm_ended(0)}", *jvm_log()[-_LOG_LINES:]])
            warnings.warn(said, stacklevel=1)
        # The file in which it died fails; PySpark goes on to ask a JVM that is gone unless it forgets it.
        SparkContext._gateway.proc.stdin.close()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        sessions.clear()
    if not sessions:
        sessions.append(_start())
    return sessions[-1]


@pytest.fixture(scope="session")
def fake() -> Iterator[FakeDynamoDB]:
    """Return the fake DynamoDB of all tests, in a process of its own."""
    with FakeDynamoDB(process=True) as fake:
        yield fake
