"""Share one Spark session among the tests: starting one takes five seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ddbio.spark.javac import find_javac
from ddbio.spark.pushdown_jar import jar
from ddbio.spark.session import start_session
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Return the session of all tests: two cores, and up to three attempts a task."""
    # Without a JDK the tests of push-down are skipped, and say so.
    jars = {"spark.jars": jar()} if find_javac() else {}
    conf = jars | {"spark.default.parallelism": "2", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    session = start_session("local[2,3]", conf)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def fake() -> Iterator[FakeDynamoDB]:
    """Return the fake DynamoDB of all tests, in a process of its own."""
    with FakeDynamoDB(process=True) as fake:
        yield fake
