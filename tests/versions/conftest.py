"""One Spark session with the jars of this version's tests, shared by the tests of an environment.

``./task versions`` runs this folder once for each version of Spark. Other runs exclude it (``norecursedirs``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyspark
import pytest

import ddbio.spark
from ddbio.spark.javac import find_javac
from ddbio.spark.session import start_session
from ddbio.testing import FakeDynamoDB
from tests.versions.features import has
from tests.versions.jars import COORDINATES, fetch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

CONF = {
    "hudi": {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        # Optimizing the compilation of Hudi's writer takes longer than running it on a few rows, except for a long
        # sweep.
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC"
        + ("" if "DDBIO_TEST_SEED" in os.environ else " -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"),
    },
    "s3a": {
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.access.key": "x",
        "spark.hadoop.fs.s3a.secret.key": "x",
        # Later settings of a test must also reach file systems that are already open.
        "spark.hadoop.fs.s3a.impl.disable.cache": "true",
    },
    "lakes": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    },
}
"""Settings of a session in addition to the jars of a set."""

# Tests of jars that this version lacks are not part of its environment.
SETS = {name for sets in COORDINATES.values() for name in sets}
collect_ignore_glob = [f"test_{name}*.py" for name in SETS if name not in COORDINATES.get(VERSION, {})]

UNFETCHED = 75
"""The exit status of a run that passed, except for tests whose jars could not be fetched."""

_MISSING = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def jars() -> dict[str, str]:
    """Return the reason why the jars of a set could not be fetched, or an empty text, for each set of this version."""
    return {name: fetch(name)[1] for name in COORDINATES.get(VERSION, {})}


@pytest.fixture(scope="session")
def spark(jars, tmp_path_factory) -> Iterator[SparkSession]:
    """Return the session of all tests: two cores, up to three attempts per task, and a time zone other than UTC."""
    conf = {
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    ours = [name for name in CONF if jars.get(name) == ""]
    paths = [str(path) for name in ours for path in fetch(name)[0]]
    for name in ours:
        conf |= CONF[name]
    if has("pushdown", VERSION) and find_javac():
        paths.append(ddbio.spark.jar())
    if paths:
        conf["spark.jars"] = ",".join(paths)
    session = start_session("local[2,3]", conf)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def need(jars, spark, request):
    """Return a function that skips a test whose jars could not be fetched, with the reason."""

    def check(name: str) -> SparkSession:
        if jars[name]:
            request.config.stash[_MISSING] = True
            pytest.skip(f"the jars of {name} could not be fetched: {jars[name]}")
        return spark

    return check


@pytest.fixture(scope="session")
def fake() -> Iterator[FakeDynamoDB]:
    """Return the fake DynamoDB of all tests, in a separate process."""
    with FakeDynamoDB(process=True) as fake:
        yield fake


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Set the exit status of tests without their jars, if nothing else failed."""
    if session.config.stash.get(_MISSING, False) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = UNFETCHED
