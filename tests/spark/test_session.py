"""Obstacles to the start of a session."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddbio.errors import OptionError
from ddbio.jobs.engine import describe_spark
from ddbio.spark import session


def test_missing_java_names_the_line_to_run(monkeypatch, tmp_path):
    """Without Java the error has the command to install it."""
    (tmp_path / "apt-get").write_text("")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OptionError, match="none was found: sudo apt-get install -y openjdk-17-jre-headless;"):
        session._check_java()


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_old_java_is_named(monkeypatch, tmp_path, version):
    """A Java that is too old is named with its version, and JAVA_HOME with it."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    number = version.removeprefix("1.").partition(".")[0]
    with pytest.raises(OptionError, match=rf"Java 17 or newer, and {java} is {number}: .*JAVA_HOME"):
        session._check_java()


def test_java_that_is_there_passes(monkeypatch):
    """The Java of these tests is accepted and reported. That of SPARK_HOME is not checked."""
    session._check_java()
    assert re.fullmatch(r"Spark \d+\.\d+\.\d+\S*, Java \d+", describe_spark())
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    assert describe_spark().endswith(", the Java that SPARK_HOME chooses")


def test_java_home_without_java(monkeypatch, tmp_path):
    """A JAVA_HOME without Java is a different error than no Java at all."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(OptionError, match="does not run"):
        session._check_java()


@pytest.mark.parametrize("name", ["SPARK_REMOTE", None])
def test_connect_is_refused(monkeypatch, name):
    """Spark Connect has no driver here that could serve a budget: the error names the alternative."""
    if name:
        monkeypatch.setenv(name, "sc://127.0.0.1")
    with pytest.raises(OptionError, match=r"Spark Connect: read with spark\.read"):
        session.start_session(None, {} if name else {"spark.remote": "sc://127.0.0.1"})


BAD_MASTER = """
from ddbio.jobs.engine import describe_spark
from ddbio.errors import OptionError
from ddbio.spark.session import start_session

try:
    start_session("nonsense", {})
except OptionError as error:
    print(error)
"""


@pytest.mark.nightly
def test_bad_master_is_one_clear_line(tmp_path):
    """A master that Spark does not know is an OptionError with Spark's own reason, and no other output."""
    done = subprocess.run([sys.executable, "-c", BAD_MASTER], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"Spark did not start: .*[Mm]aster.*; check master and conf\n", done.stdout)
    assert done.stderr == ""


def _children(pid: int, *, java: bool = False) -> list[int]:
    # The JVM starts its daemon from a thread.
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [pid for thread in threads for pid in thread.read_text().split()]
    return [int(pid) for pid in pids if not java or Path(f"/proc/{pid}/comm").read_text().strip() == "java"]


def _workers(pid: int) -> list[int]:
    daemons = [daemon for jvm in _children(pid, java=True) for daemon in _children(jvm)]
    return [worker for daemon in daemons for worker in _children(daemon)]


@pytest.mark.nightly
def test_a_jvm_that_dies_is_one_clear_error(fake, tmp_path):
    """A job whose JVM is killed ends with a one-line error and one object, and leaves no file."""
    fake.load("dying", [{"pk": {"S": str(number)}, "t": {"S": "x" * 4000}} for number in range(2_000)], "pk:S")
    command = [sys.executable, "-m", "ddbio", "scan", "dying", str(tmp_path / "out"), "--engine", "spark", "--json"]
    command += ["--endpoint-url", fake.endpoint_url, "--rcu-per-second", "20", "--conf", "spark.master=local[1]"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as job:
        while not _workers(job.pid):
            assert job.poll() is None, job.communicate()
            time.sleep(0.1)
        (java,) = _children(job.pid, java=True)
        os.kill(java, signal.SIGKILL)
        out, err = job.communicate(timeout=250)
    assert job.returncode == 1
    error = json.loads(out)["error"]
    assert error["type"] == "ServiceError"
    assert "the JVM of Spark's driver has died (killed by signal 9)" in error["message"]
    assert "Traceback" not in err
    assert list((tmp_path / "out").glob("*.parquet")) == []


@pytest.mark.nightly
def test_exit_reason_of_a_jvm_has_its_last_error():
    """The error has Spark's text for the exit status of a JVM, and the last error in its log.

    A job that needs no Spark still runs in a process whose JVM has died.
    """
    code = (
        "from pyspark import SparkContext\n"
        "from ddbio.spark.engine import running_parallelism\n"
        "from ddbio.spark.session import jvm_exit_reason, start_session\n"
        "start_session('local[1]', {})\n"
        "assert running_parallelism() == 1\n"
        "assert jvm_exit_reason(0) is None\n"
        "jvm = SparkContext._jvm\n"
        "jvm.org.apache.logging.log4j.LogManager.getLogger('Executor').error('nobody answers')\n"
        "try:\n"
        "    jvm.java.lang.Runtime.getRuntime().halt(56)\n"
        "except Exception:\n"
        "    print(jvm_exit_reason())\n"
        "assert running_parallelism() is None\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    last_line = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.fullmatch("exit status 56, no heartbeat got through: .* ERROR Executor: nobody answers", last_line[0])
