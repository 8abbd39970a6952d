"""A standalone Spark cluster on the loopback interface: two workers, each with a separate disk under the same path.

Each worker runs in a mount namespace in which the shared path is another folder. That takes root.
"""

from __future__ import annotations

import contextlib
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

from ddbio.aws.client import ClientSpec
from ddbio.testing import FakeDynamoDB, MotoServer

ROOT = Path(__file__).parents[2]
CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
ITEMS = 20_000
CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.executorEnv.XDG_CACHE_HOME": CACHE,
    "spark.ui.enabled": "false",
}
START_SECONDS = 300.0
JOB_SECONDS = 900.0


def may_unshare() -> bool:
    """Return whether this process may create mount namespaces."""
    return sys.platform == "linux" and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


@dataclass
class Cluster:
    """The addresses that a driver needs, and the processes."""

    master: str
    disk: Path
    disks: list[Path]
    workers: list[subprocess.Popen[bytes]]
    dynamodb: FakeDynamoDB
    s3: str

    def start(self, *words: str, engine: bool = True) -> subprocess.Popen[str]:
        """Start the command line, on the cluster if the verb has an engine."""
        command = ["-m", "ddbio", *words, "--json"]
        if engine:
            command += ["--engine", "spark", "--master", self.master]
            command += [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]
        return self._python(*command, "--endpoint-url", self.dynamodb.endpoint_url, "--s3-endpoint-url", self.s3)

    def start_application(self, script: str, conf: dict[str, str]) -> subprocess.Popen[str]:
        """Start a program whose ``spark`` is a session of the cluster, and ``endpoint_url`` that of DynamoDB."""
        begin = f"""
from pyspark import SparkConf
from pyspark.sql import SparkSession
import ddbio
conf = SparkConf().setAll({list((CONF | conf).items())!r})
spark = SparkSession.builder.master({self.master!r}).config(conf=conf).getOrCreate()
endpoint_url = {self.dynamodb.endpoint_url!r}
"""
        return self._python("-c", begin + script)

    def _python(self, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self.disk,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> tuple[int, dict[str, object]]:
        """Run the command line on the cluster, and return its exit code and its answer."""
        driver = self.start(*words)
        out, err = driver.communicate(timeout=JOB_SECONDS)
        assert out, err
        return driver.returncode, json.loads(out)

    def restart(self, number: int) -> None:
        """Kill a worker with its executors, and start a new one."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        self.workers[number].wait()
        self.workers[number] = _worker(self.master, self.disk, self.disks[number])

    def executor(self, number: int) -> list[int]:
        """Return the processes of a worker's executor: Java's, then the Python daemon and its forks."""
        pids: list[int] = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes()
                if (
                    b"CoarseGrainedExecutorBackend" in words
                    and os.getpgid(int(process.name)) == self.workers[number].pid
                ):
                    pids.append(int(process.name))
        (java,) = pids
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
        return [java, *pids[1:]]

    def rows(self, folder: str) -> int:
        """Return the number of rows in the Parquet files under a folder of the bucket."""
        client = self.s3_spec.client("s3")
        keys = [key for key in self._keys(folder) if key.endswith(".parquet")]
        bodies = [client.get_object(Bucket="lake", Key=key)["Body"].read() for key in keys]
        return sum(pq.read_metadata(pa.BufferReader(body)).num_rows for body in bodies)

    def leftovers(self, folder: str) -> list[str]:
        """Return the keys in a folder of the bucket except its data and its manifests, including uploads."""
        uploads = self.s3_spec.client("s3").list_multipart_uploads(Bucket="lake", Prefix=folder).get("Uploads", [])
        leftover = (".claim.json", ".intent.json", ".probe")
        return [key for key in self._keys(folder) if key.endswith(leftover)] + [upload["Key"] for upload in uploads]

    @property
    def s3_spec(self) -> ClientSpec:
        """Return the specification of a client of the cluster's S3."""
        return ClientSpec(endpoint_url=self.s3, region="us-east-1")

    def _keys(self, folder: str) -> list[str]:
        pages = self.s3_spec.client("s3").get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix=f"{folder}/")
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def _java(*words: str) -> list[str]:
    home = Path(pyspark.__file__).parent
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else shutil.which("java")
    return [str(java), "-Xmx512m", "-cp", f"{home / 'jars'}/*", *words]


def _environment(**more: str) -> dict[str, str]:
    # A Spark of PySpark's wheel cannot detect its Scala, and its UI would listen on all interfaces.
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


@contextlib.contextmanager
def open_cluster(home: Path) -> Iterator[Cluster]:
    """Run two workers with one core each, a DynamoDB with the table ``orders`` and an S3 with a bucket ``lake``."""
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
        workers += [_worker(url, disk, worker_disk) for worker_disk in disks]
        with FakeDynamoDB(process=True) as fake, MotoServer() as s3:
            spec = ClientSpec(endpoint_url=s3.endpoint_url, region="us-east-1")
            spec.client("s3").create_bucket(Bucket="lake")
            items = b"".join(
                b'{"pk":{"S":"%05d"},"v":{"N":"%d"},"t":{"S":"%s"}}\n' % (n, n, b"x" * 400) for n in range(ITEMS)
            )
            fake.load("orders", items, "pk:S")
            yield Cluster(url, disk, disks, workers, fake, s3.endpoint_url)
    finally:
        for process in (*workers, master):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
