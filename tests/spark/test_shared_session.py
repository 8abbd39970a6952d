"""The shared session of the tests of this folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest
from pyspark import SparkContext

from ddbio.spark.session import running_session


@pytest.mark.parametrize("number", range(2))
def test_that_works(spark, number):
    assert spark.range(3).count() == 3


def test_that_kills_the_jvm(spark):
    SparkContext._gateway.proc.kill()
    spark.range(3).count()


def test_without_a_session():
    assert SparkContext._gateway is None
    assert running_session() is None


def test_behind_it(spark):
    assert spark.range(3).count() == 3


def test_that_stops_the_session(spark):
    spark.stop()


def test_behind_that(spark):
    assert spark.range(3).count() == 3
    assert spark.sparkContext._gateway.proc.poll() is None
"""


@pytest.mark.nightly
def test_a_jvm_that_dies_fails_one_test(tmp_path):
    """The test in which the JVM dies fails, and the next one has a new JVM. The same holds for a stopped session."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_dying.py").write_text(TESTS)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", "-rA", str(tmp_path)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    outcomes = {
        name: outcome for outcome, name in re.findall(r"^([A-Z]+) test_dying\.py::(\S+)", done.stdout, re.MULTILINE)
    }
    assert len(outcomes) == 7, done.stdout + done.stderr
    assert {name for name, end in outcomes.items() if end != "PASSED"} == {"test_that_kills_the_jvm"}, done.stdout
    assert "Spark's JVM has died: killed by signal 9" in done.stdout
