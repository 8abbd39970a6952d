"""A cluster of two workers, each with a disk of its own under one path: what a path of this machine means there.

A standalone master and two workers run on the loopback interface, each worker in a mount namespace in which the shared
path names another folder. That takes root.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.testing import FakeDynamoDB, MotoServer

ROOT = Path(__file__).parents[2]
CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
START_SECONDS = 60.0
JOB_SECONDS = 240.0


def _may_unshare() -> bool:
    return sys.platform == "linux" and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not _may_unshare(), reason="mount namespaces take Linux and root"),
]


@dataclass
class Cluster:
    """Hold what a driver needs to know, and the processes."""

    master: str
    disk: Path
    disks: list[Path]
    workers: list[subprocess.Popen[bytes]]
    dynamodb: FakeDynamoDB
    s3: str

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start the command line on the cluster."""
        conf = {
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            "spark.executorEnv.XDG_CACHE_HOME": CACHE,
            "spark.ui.enabled": "false",
        }
        command = [sys.executable, "-m", "ddbio", *words, "--engine", "spark", "--master", self.master, "--json"]
        command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        endpoints = ["--endpoint-url", self.dynamodb.endpoint_url, "--s3-endpoint-url", self.s3]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        return subprocess.Popen(
            command + endpoints,
            cwd=self.disk,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> tuple[int, dict[str, object]]:
        """Run the command line on the cluster; return its exit code and its answer."""
        driver = self.start(*words)
        out, err = driver.communicate(timeout=JOB_SECONDS)
        assert out, err
        return driver.returncode, json.loads(out)

    def restart(self, number: int) -> None:
        """Kill a worker with its executors, and start another in its place."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        self.workers[number].wait()
        self.workers[number] = _worker(self.master, self.disk, self.disks[number])


def _java(*words: str) -> list[str]:
    home = Path(pyspark.__file__).parent
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else shutil.which("java")
    return [str(java), "-Xmx512m", "-cp", f"{home / 'jars'}/*", *words]


def _environment(**more: str) -> dict[str, str]:
    # A Spark of PySpark's wheel cannot tell its Scala, and its pages would listen everywhere.
    spark = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_SCALA_VERSION": "2.13"}
    return {**os.environ, **spark, "SPARK_LOCAL_IP": "127.0.0.1", **more}


def _worker(master: str, shared: Path, disk: Path) -> subprocess.Popen[bytes]:
    words = _java(
        "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
        "--work-dir", str(shared / "work"), "--webui-port", "0", master,
    )  # fmt: skip
    script = 'mount --bind "$0" "$1" && shift && exec "$@"'
    return subprocess.Popen(
        ["unshare", "-m", "sh", "-c", script, str(disk), str(shared), *words],
        env=_environment(HOME=str(shared)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait_until_listening(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens at {port}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a cluster of two workers of a core each, beside a DynamoDB and an S3."""
    home = tmp_path_factory.mktemp("cluster")
    disk, *disks = (home / name for name in ("driver", "one", "two"))
    for folder in (disk, *disks):
        folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = _java(
        "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"
    )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    master = subprocess.Popen(words, env=_environment(), start_new_session=True, **quiet)
    workers: list[subprocess.Popen[bytes]] = []
    try:
        _wait_until_listening(port)
        url = f"spark://127.0.0.1:{port}"
        workers += [_worker(url, disk, each) for each in disks]
        with FakeDynamoDB(process=True) as fake, MotoServer() as s3:
            spec = ClientSpec(endpoint_url=s3.endpoint_url, region="us-east-1")
            spec.client("s3").create_bucket(Bucket="lake")
            items = b"".join(
                b'{"pk":{"S":"%05d"},"v":{"N":"%d"},"t":{"S":"%s"}}\n' % (n, n, b"x" * 400) for n in range(20_000)
            )
            fake.load("orders", items, "pk:S")
            yield Cluster(url, disk, disks, workers, fake, s3.endpoint_url)
    finally:
        for process in (*workers, master):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _rows(cluster: Cluster, folder: str) -> int:
    spec = ClientSpec(endpoint_url=cluster.s3, region="us-east-1")
    found = spec.client("s3").list_objects_v2(Bucket="lake", Prefix=folder).get("Contents", [])
    bodies = [
        spec.client("s3").get_object(Bucket="lake", Key=each["Key"])["Body"].read()
        for each in found
        if each["Key"].endswith(".parquet")
    ]
    return sum(pq.read_metadata(pa.BufferReader(body)).num_rows for body in bodies)


def _beside(cluster: Cluster, folder: str) -> list[str]:
    """Return what lies at a target beside its data and its manifests, uploads included."""
    client = ClientSpec(endpoint_url=cluster.s3, region="us-east-1").client("s3")
    found = [each["Key"] for each in client.list_objects_v2(Bucket="lake", Prefix=folder).get("Contents", [])]
    uploads = [each["Key"] for each in client.list_multipart_uploads(Bucket="lake", Prefix=folder).get("Uploads", [])]
    return [key for key in found if key.endswith((".claim.json", ".intent.json", ".probe"))] + uploads


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["scan", "orders", "out"], "dest"),
        (["load", "in", "copies", "--state", "notes"], "state"),
        (["load", "in", "copies", "--reject-to", "bad"], "reject_to"),
    ],
)
def test_paths_of_this_machine_are_refused_before_anything_is_read(cluster, words, option):
    """Workers would each look for such a path on a disk of their own; the error names the option and the ways out."""
    (cluster.disk / "in").mkdir(exist_ok=True)
    pq.write_table(pa.table({"pk": ["a"]}), cluster.disk / "in" / "a.parquet")
    cluster.dynamodb.load("copies", b"", "pk:S")
    scans = cluster.dynamodb.requests().get("Scan", 0)
    code, answer = cluster.run(*words)
    assert code != 0
    assert f"{option} is '{words[-1]}', a path of this machine" in answer["error"]["message"]
    assert "s3:// URI, or shared_paths" in answer["error"]["message"]
    assert cluster.dynamodb.requests().get("Scan", 0) == scans
    assert not (cluster.disk / "out").exists()


def test_a_named_load_without_a_place_for_its_state_is_refused(cluster):
    """A job that is to go on where it stopped needs a state that every worker reaches."""
    code, answer = cluster.run("load", "in", "copies", "--job-id", "one")
    assert code != 0
    assert "job 'one' cannot be continued on spark://" in answer["error"]["message"]


def test_speculation_is_refused_where_order_matters(cluster):
    """Of two attempts of a task the older rows of a key may come last: such a load does not begin."""
    words = ["load", "in", "copies", "--shared-paths", "--conf", "spark.speculation=true"]
    code, answer = cluster.run(*words)
    assert code != 0
    assert "spark.speculation is on" in answer["error"]["message"]


def test_a_table_goes_to_s3_and_back_and_a_finished_load_is_not_run_again(cluster):
    """Scan, load, and the same load again: nothing twice, although no worker sees another's disk."""
    code, report = cluster.run("scan", "orders", "s3://lake/there", "--segments", "4")
    assert code == 0, report
    assert (report["rows"], _rows(cluster, "there")) == (20_000, 20_000)
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
    """The tasks of a lost worker run again elsewhere, and what it had staged is no part of the output."""
    driver = cluster.start(
        "scan", "orders", "s3://lake/survived", "--segments", "8", "--tasks", "4", "--rcu-per-second", "100"
    )
    _wait_for_scan(cluster)
    cluster.restart(0)
    out, err = driver.communicate(timeout=JOB_SECONDS)
    assert driver.returncode == 0, err
    assert json.loads(out)["rows"] == _rows(cluster, "survived") == 20_000
    assert _beside(cluster, "survived") == []


def test_a_driver_that_is_killed_leaves_nothing_in_the_way(cluster):
    """The same command again just works, and nothing of the killed run is left."""
    words = ["scan", "orders", "s3://lake/again", "--segments", "8", "--tasks", "4"]
    driver = cluster.start(*words, "--rcu-per-second", "100")
    _wait_for_scan(cluster)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate(timeout=JOB_SECONDS)
    code, report = cluster.run(*words)
    assert code == 0, report
    assert (report["rows"], _rows(cluster, "again")) == (20_000, 20_000)
    assert _beside(cluster, "again") == []


def _wait_for_scan(cluster: Cluster) -> None:
    """Return when the tasks of a job that was just started have read some pages."""
    before = cluster.dynamodb.requests().get("Scan", 0)
    deadline = time.monotonic() + JOB_SECONDS
    # The sample takes a few requests.
    while cluster.dynamodb.requests().get("Scan", 0) < before + 30:
        assert time.monotonic() < deadline
        time.sleep(0.1)
