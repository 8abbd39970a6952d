"""A cluster of two workers, each with a separate disk under the same path: the use of local paths."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from tests.spark.two_workers import JOB_SECONDS, Cluster, may_unshare, open_cluster

# An executor that is silent for 12 s is considered lost.
IMPATIENT = {
    "spark.network.timeout": "12s",
    "spark.network.timeoutInterval": "1s",
    "spark.executor.heartbeatInterval": "2s",
}

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not may_unshare(), reason="mount namespaces take Linux and root"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a cluster of two workers."""
    with open_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["scan", "orders", "out"], "dest"),
        (["load", "in", "copies", "--state", "notes"], "state"),
        (["load", "in", "copies", "--reject-to", "bad"], "--reject-to"),
    ],
)
def test_paths_of_this_machine_are_refused_before_anything_is_read(cluster, words, option):
    """Workers would search such a path on their own disks. The error names the option and the alternatives."""
    (cluster.disk / "in").mkdir(exist_ok=True)
    pq.write_table(pa.table({"pk": ["a"]}), cluster.disk / "in" / "a.parquet")
    cluster.dynamodb.load("copies", b"", "pk:S")
    scans = cluster.dynamodb.requests().get("Scan", 0)
    code, answer = cluster.run(*words)
    assert code != 0
    assert f"{option} is '{words[-1]}', a path of this machine" in answer["error"]["message"]
    assert "s3:// URI, or --shared-paths" in answer["error"]["message"]
    assert cluster.dynamodb.requests().get("Scan", 0) == scans
    assert not (cluster.disk / "out").exists()


def test_a_named_load_without_shared_state_is_refused(cluster):
    """A job that can resume needs a state that every worker reaches."""
    code, answer = cluster.run("load", "in", "copies", "--job-id", "one")
    assert code != 0
    assert "job 'one' cannot be continued on spark://" in answer["error"]["message"]


def test_speculation_is_refused_where_order_matters(cluster):
    """With two attempts of a task, the older rows of a key may be written last: such a load does not start."""
    words = ["load", "in", "copies", "--shared-paths", "--conf", "spark.speculation=true"]
    code, answer = cluster.run(*words)
    assert code != 0
    assert "spark.speculation is on" in answer["error"]["message"]


def test_a_table_goes_to_s3_and_back_and_a_finished_load_is_not_run_again(cluster):
    """Scan, load, and the same load again: nothing is written twice, although no worker sees another's disk."""
    code, report = cluster.run("scan", "orders", "s3://lake/there", "--segments", "4")
    assert code == 0, report
    assert (report["rows"], cluster.rows("there")) == (20_000, 20_000)
    cluster.dynamodb.load("back", b"", "pk:S")
    words = ["load", "s3://lake/there", "back", "--job-id", "night_1"]
    code, refused = cluster.run(*words)
    assert code != 0
    assert "cannot be continued on spark://" in refused["error"]["message"]
    words += ["--state", "s3://lake/notes"]
    code, report = cluster.run(*words)
    assert (code, report["written"], report["resumed_rows"]) == (0, 20_000, 0)
    code, report = cluster.run(*words)
    assert (code, report["written"], report["resumed_rows"]) == (0, 0, 20_000)
    assert ddbio.digest("back", endpoint_url=cluster.dynamodb.endpoint_url) == ddbio.digest(
        "orders", endpoint_url=cluster.dynamodb.endpoint_url
    )


def test_a_worker_that_is_killed_costs_no_row(cluster):
    """The tasks of a lost worker run again on another one, and its staged files are not in the output."""
    driver = cluster.start(
        "scan", "orders", "s3://lake/survived", "--segments", "8", "--tasks", "4", "--rcu-per-second", "100"
    )
    _wait_for_scan(cluster, driver)
    cluster.restart(0)
    out, err = driver.communicate(timeout=JOB_SECONDS)
    assert driver.returncode == 0, err
    assert json.loads(out)["rows"] == cluster.rows("survived") == 20_000
    assert cluster.leftovers("survived") == []


def test_an_executor_that_was_taken_for_lost_writes_no_older_rows(cluster):
    """A frozen executor's tasks run again on another one.

    When its Python worker resumes, it ends at its next request.
    """
    table = pa.table({"pk": [f"{n % 100:03}" for n in range(2000)], "v": [n // 100 for n in range(2000)]})
    (cluster.disk / "versions").mkdir()
    pq.write_table(table, cluster.disk / "versions" / "a.parquet", row_group_size=500)
    client = cluster.s3_spec.client("s3")
    client.upload_file(str(cluster.disk / "versions" / "a.parquet"), "lake", "versions/a.parquet")
    cluster.dynamodb.load("versions", b"", "pk:S")
    words = [word for name, value in IMPATIENT.items() for word in ("--conf", f"{name}={value}")]
    load = [
        "load",
        "s3://lake/versions",
        "versions",
        "--state",
        "s3://lake/notes",
        "--tasks",
        "2",
        "--wcu-per-second",
        "80",
    ]
    out = _run_with_frozen_executor(cluster, cluster.start(*load, *words), "versions")
    assert json.loads(out)["written"] == 2000
    rows = ddbio.read_table("versions", endpoint_url=cluster.dynamodb.endpoint_url).to_pylist()
    assert {row["v"] for row in rows} == {19}


def test_a_data_frame_of_an_executor_that_was_taken_for_lost_writes_no_older_rows(cluster):
    """The same for ``df.write``, whose rows of a key are in the order of their partition."""
    cluster.dynamodb.load("frames", b"", "pk:S")
    script = """
ddbio.register(spark)
rows = spark.range(2000).selectExpr("lpad(cast(id % 100 as string), 3, '0') as pk", "cast(id / 100 as int) as v")
ordered = rows.repartition(2, "pk").sortWithinPartitions("v")
options = {"endpointUrl": endpoint_url, "wcuPerSecond": 80}
ordered.write.format("dynamodb").mode("append").options(**options).save("frames")
"""
    _run_with_frozen_executor(cluster, cluster.start_application(script, IMPATIENT), "frames")
    rows = ddbio.read_table("frames", endpoint_url=cluster.dynamodb.endpoint_url).to_pylist()
    assert [row["v"] for row in rows] == [19] * 100


def test_data_frames_are_refused_where_spark_speculates(cluster):
    """With two attempts of a task, the older rows of a key may be written last: such a write does not start."""
    cluster.dynamodb.load("unordered", b"", "pk:S")
    script = """
ddbio.register(spark)
rows = spark.range(1000).selectExpr("cast(id as string) as pk")
writer = rows.write.format("dynamodb").mode("append").option("endpointUrl", endpoint_url)
writer.option("uniqueKeys", "true").save("unordered")
try:
    writer.option("uniqueKeys", "false").save("unordered")
except Exception as error:
    print(error)
"""
    driver = cluster.start_application(script, {"spark.speculation": "true"})
    out, err = driver.communicate(timeout=JOB_SECONDS)
    assert driver.returncode == 0, err
    assert "spark.speculation is on" in out
    assert ddbio.read_table("unordered", endpoint_url=cluster.dynamodb.endpoint_url).num_rows == 1000


def _run_with_frozen_executor(cluster: Cluster, driver: subprocess.Popen[str], table: str) -> str:
    """Freeze an executor that writes until its job has ended on the other one, and return the driver's output."""
    _wait_for_requests(cluster, "BatchWriteItem", 10, driver)
    java, *python = cluster.executor(0)
    try:
        for pid in (cluster.workers[0].pid, java, *python):
            os.kill(pid, signal.SIGSTOP)
        out, err = driver.communicate(timeout=JOB_SECONDS)
        assert driver.returncode == 0, err
        spent = len(cluster.dynamodb.consumed(table))
        # The Java processes stay frozen, so that the Python workers do not learn that the job has ended.
        for pid in python:
            os.kill(pid, signal.SIGCONT)
        time.sleep(5)
        assert len(cluster.dynamodb.consumed(table)) == spent
        return out
    finally:
        cluster.restart(0)
        for pid in python:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_driver_that_is_killed_leaves_nothing_in_the_way(cluster):
    """The same command succeeds afterwards, and no files of the killed run remain."""
    words = ["scan", "orders", "s3://lake/again", "--segments", "8", "--tasks", "4"]
    driver = cluster.start(*words, "--rcu-per-second", "100")
    _wait_for_scan(cluster, driver)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate(timeout=JOB_SECONDS)
    code, report = cluster.run(*words)
    assert code == 0, report
    assert (report["rows"], cluster.rows("again")) == (20_000, 20_000)
    assert cluster.leftovers("again") == []


def _wait_for_scan(cluster: Cluster, driver: subprocess.Popen[str]) -> None:
    """Return when the tasks of a started job have read some pages."""
    # The sample takes a few requests.
    _wait_for_requests(cluster, "Scan", 30, driver)


def _wait_for_requests(cluster: Cluster, operation: str, count: int, driver: subprocess.Popen[str]) -> None:
    before = cluster.dynamodb.requests().get(operation, 0)
    deadline = time.monotonic() + JOB_SECONDS
    while cluster.dynamodb.requests().get(operation, 0) < before + count:
        assert time.monotonic() < deadline
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.1)
