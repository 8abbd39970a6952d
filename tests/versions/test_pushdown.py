"""Push-down on every version that has it: the suite of ``tests/spark``, the jar of a wheel, and the error of 3.5."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ddbio.spark
from ddbio.errors import OptionError
from ddbio.spark import javac
from tests.versions.conftest import VERSION
from tests.versions.features import has

if has("pushdown", VERSION):
    from tests.spark.test_pushdown import *  # noqa: F403 - its tests, with the session of this environment
    from tests.spark.test_pushdown import check_queries

ROOT = Path(__file__).parents[2]

READ = """
import json, sys
import ddbio.spark
from ddbio.spark.session import start_session
jar, endpoint = sys.argv[1:]
spark = start_session("local[2]", {"spark.jars": jar, "spark.sql.shuffle.partitions": "2"})
try:
    frame = spark.read.format("dynamodb-pushdown").option("endpointUrl", endpoint).load("small")
    rows = frame.where("pk in ('k-1', 'k-3')").select("pk")
    plan = rows._jdf.queryExecution().executedPlan().toString()
    print(json.dumps([plan, sorted(row[0] for row in rows.collect()), frame.limit(2).count()]))
finally:
    spark.stop()
"""


def test_push_down_or_its_error(spark, fake):
    """A version with push-down reads by the jar that it compiled. The error of 3.5 names the alternative."""
    if not has("pushdown", VERSION):
        with pytest.raises(OptionError, match=r"no push-down for Spark 3\.5.*use ddbio\.spark\.scan with"):
            ddbio.spark.jar()
        return
    if javac.find_javac() is None:
        pytest.skip("no JDK compiles the jar of push-down")
    fake.load("told", [{"pk": {"S": f"k-{number}"}} for number in range(5)], "pk:S")
    frame = spark.read.format("dynamodb-pushdown").option("endpointUrl", fake.endpoint_url).load("told")
    assert frame.where("pk = 'k-1'").count() == 1
    assert fake.requests()["Query"] >= 1


if has("pushdown", VERSION):

    def test_more_random_queries(three):
        """Other queries than those of ``tests/spark`` have the same rows by all three methods."""
        check_queries(three, range(2_000, 2_020))


# A wheel is built with the first lock, which has Spark 4.0.
if has("pushdown", VERSION) and VERSION > (4, 0):

    def test_the_jar_of_a_wheel(fake, tmp_path):
        """The jar of a wheel, compiled with the first lock's Spark 4.0, also pushes down on this version."""
        jars = next((ROOT / ".venv").glob("lib/python3*/site-packages/pyspark/jars"), None)
        if jars is None:
            pytest.skip("there is no .venv, whose Spark wheels are built with")
        javac.compile_jar(javac.find_javac(), jars, tmp_path / javac.JAR_NAME)
        small = [{"pk": {"S": f"k-{number}"}, "name": {"S": "n"}} for number in range(5)]
        fake.load("small", small, "pk:S")
        command = [sys.executable, "-c", READ, str(tmp_path / javac.JAR_NAME), fake.endpoint_url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
        assert done.returncode == 0, done.stderr[-3000:]
        plan, rows, limited = json.loads(done.stdout.splitlines()[-1])
        assert "dynamodb-pushdown columns: [pk], hints: [" in plan
        assert (rows, limited) == (["k-1", "k-3"], 2)
