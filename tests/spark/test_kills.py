"""Drivers and workers killed at random moments of every verb, on two workers with separate disks."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ddbio
from ddbio.testing.export import Change, ExportWriter
from tests.spark.two_workers import ITEMS, JOB_SECONDS, Cluster, may_unshare, open_cluster

KILLS = int(os.environ.get("DDBIO_KILLS", "5"))
"""Number of kills: a few by default, 40 manually before a release."""

VERBS = ("scan", "load", "copy", "read", "fold")

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not may_unshare(), reason="mount namespaces take Linux and root"),
]


def item(number: int, version: int) -> dict[str, dict[str, str]]:
    """Return one item of the exports."""
    return {"pk": {"S": f"{number:05d}"}, "v": {"N": str(version)}, "t": {"S": "x" * 400}}


class Jobs:
    """Input of the verbs, and the duration of each without a kill."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        writer = ExportWriter(folder, files=8)
        full = writer.full(item(number, 0) for number in range(ITEMS))
        changes = [
            Change(1, {"pk": {"S": f"{number:05d}"}}, item(number, 1), item(number, 0)) for number in range(0, ITEMS, 3)
        ]
        increment = writer.incremental(changes)
        client = cluster.s3_spec.client("s3")
        for path in folder.rglob("*"):
            if path.is_file():
                client.put_object(Bucket="lake", Key=f"exports/{path.relative_to(folder)}", Body=path.read_bytes())
        self._full, self._increment = (
            f"s3://lake/exports/{export.relative_to(folder)}" for export in (full, increment)
        )
        self._numbers = itertools.count()
        self._source = "s3://lake/source"
        code, report = cluster.run("scan", "orders", self._source, "--tasks", "4", "--target-file-bytes", "1000000")
        assert code == 0, report
        orders = self._table_digest("orders")
        read = ddbio.digest(ddbio.read_export(full))
        fold = ddbio.digest(ddbio.fold_exports(full, [increment]))
        self._digests = {"scan": orders, "load": orders, "copy": orders, "read": read, "fold": fold}
        self._seconds: dict[str, float] = {}

    def begin(self, verb: str) -> tuple[list[str], str]:
        """Return the arguments of a new job, and its target."""
        number = next(self._numbers)
        target = f"{verb}{number}"
        dest, name = f"s3://lake/{target}", ["--job-id", target]
        if verb in {"load", "copy"}:
            self.cluster.dynamodb.load(target, b"", "pk:S")
        rate = ["--wcu-per-second", "4000"]
        return {
            "scan": ["scan", "orders", dest, "--segments", "8", "--tasks", "4", "--rcu-per-second", "300", *name],
            "load": ["load", self._source, target, "--state", "s3://lake/notes", *rate, *name],
            "copy": ["copy", "orders", target, *rate],
            "read": ["export", "read", self._full, dest, "--tasks", "4", *name],
            "fold": ["export", "fold", self._full, self._increment, dest, "--tasks", "4", *name],
        }[verb], target

    def seconds(self, verb: str) -> float:
        """Return the duration of a verb's job, from the start of its process."""
        if verb not in self._seconds:
            words, target = self.begin(verb)
            began = time.monotonic()
            self.finish(words)
            self._seconds[verb] = time.monotonic() - began
            self.check(verb, target)
        return self._seconds[verb]

    def start(self, words: list[str]) -> subprocess.Popen[str]:
        """Start a job. A copy runs in one process."""
        return self.cluster.start(*words, engine=words[0] != "copy")

    def finish(self, words: list[str]) -> None:
        """Run a job to its end."""
        _end(self.start(words))

    def check(self, verb: str, target: str) -> None:
        """Raise unless a target has its rows exactly once, and no leftover files."""
        if verb in {"load", "copy"}:
            assert self._table_digest(target) == self._digests[verb]
            return
        digest = ddbio.digest(f"s3://lake/{target}", region="us-east-1", s3_endpoint_url=self.cluster.s3)
        assert (self.cluster.rows(target), digest) == (ITEMS, self._digests[verb])
        assert self.cluster.leftovers(target) == []

    def _table_digest(self, table: str) -> str:
        return ddbio.digest(table, endpoint_url=self.cluster.dynamodb.endpoint_url)


def _end(driver: subprocess.Popen[str]) -> None:
    out, err = driver.communicate(timeout=JOB_SECONDS)
    assert driver.returncode == 0, out + err


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """Return the verbs on a cluster of two workers."""
    with open_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield Jobs(cluster, tmp_path_factory.mktemp("exports"))


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_random_kill_costs_nothing(jobs, seed, seeds):
    """A lost worker only costs time.

    After a lost driver the same command completes the job. Nothing is written twice.
    """
    rng = random.Random(seeds(KILLS, KILLS)[seed])
    verb = VERBS[seed % len(VERBS)]
    victim = "driver" if verb == "copy" or rng.random() < 0.5 else "worker"
    delay = rng.uniform(0.2, 1.0) * jobs.seconds(verb)
    words, target = jobs.begin(verb)
    driver = jobs.start(words)
    time.sleep(delay)
    if victim == "worker":
        jobs.cluster.restart(rng.randrange(2))
        _end(driver)
    else:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate(timeout=JOB_SECONDS)
        jobs.finish(words)
    jobs.check(verb, target)
