"""Captures shared by processes: schedules with lost leases, drawn from a seed, and real processes with a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from random import Random

import boto3
import pyarrow.dataset as ds
import pytest

import ddbio
from ddbio.cdc.leases import LEASE_SECONDS, LEASES, Leases
from ddbio.errors import OptionError, TargetError
from ddbio.storage.job_state import JobState
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import StoredObject
from ddbio.testing import FakeDynamoDB
from tests.cdc.tables import create_table
from tests.cdc.virtual_stream import KilledError, MemoryStore, World

COUNT = 3
SECONDS = 300


class SharedWorld(World):
    """A table whose stream is captured with three leases, held by changing processes."""

    def capture(self, *, steps=None, lease=None, **_):
        """Run the capture of a lease in a new process, which is stopped after some waits."""
        lease = self.random.randrange(COUNT) if lease is None else lease
        return self.capture_shared(lease, COUNT, steps)


def run(seed, **chances):
    """Run leases in any order, with kills and takeovers, until the log is complete."""
    world = SharedWorld(seed, **chances)
    for _ in range(8):
        try:
            world.capture(steps=4)
        except (KilledError, TargetError):
            continue
    world.is_quiet = True
    for _ in range(60):
        for lease in range(COUNT):
            world.capture(steps=12, lease=lease)
        if world.captured()[1] == len(world.expected()):
            break
    return world


@pytest.mark.timeout(3600)
def test_every_change_is_logged_once(seeds):
    """With lost leases at any step and split shards of other leases, nothing is repeated and nothing is missing."""
    for seed in seeds(50, 350):
        kinds = ({"kill": 0.05, "split": 0.04}, {"kill": 0.03, "overtake": 0.04, "split": 0.04})
        world = run(seed, **kinds[seed % 2])
        logged, count = world.captured()
        assert logged == world.expected(), seed
        assert count == len(logged), seed


class TimedStore(MemoryStore):
    """Store whose objects have virtual times."""

    def __init__(self, world):
        super().__init__(world)
        self.written = {}

    def put(self, path, data):
        """Write an object."""
        self.written[path] = self._world.clock.at
        super().put(path, data)

    def put_if_absent(self, path, data):
        """Write an object if it does not exist."""
        self.written.setdefault(path, self._world.clock.at)
        return super().put_if_absent(path, data)

    def list(self, prefix=""):
        """Yield the objects with a prefix."""
        for value in super().list(prefix):
            yield StoredObject(value.path, value.size_bytes, "", self.written[value.path])

    def delete(self, paths):
        """Delete objects."""
        for path in paths:
            self._world.objects.pop(path, None)
            self.written.pop(path, None)


def test_leases_are_shared_and_taken_over():
    """A new process gets its share. Leases of a silent process are taken over. A lease has one holder at a time."""
    world = World(1, kill=0.0, split=0.0)
    world.is_quiet = True
    state = JobState(TimedStore(world), "job", LEASES)
    one, two = (Leases(state, 5) for _ in range(2))
    one.look()
    assert sorted(one.held) == [0, 1, 2, 3, 4]
    two.look()
    assert not two.held
    one.look()
    assert (one.share, one.surplus()) == (3, [3, 4])
    for lease in one.surplus():
        one.give(lease)
    two.look()
    assert sorted(two.held) == [3, 4]
    world.clock.at += LEASE_SECONDS
    two.look()
    assert sorted(two.held) == [0, 1, 2, 3, 4]
    two.close()
    one.look()
    assert sorted(one.held) == [0, 1, 2, 3, 4]
    assert len(state.listed()) == 6


def test_leases_change_hands_by_one_record():
    """In any order of heartbeats, no two processes hold the same lease after both have looked."""
    random = Random(1)
    world = World(1, kill=0.0, split=0.0)
    world.is_quiet = True

    state = JobState(TimedStore(world), "job", LEASES)
    processes = [Leases(state, 6, 15.0) for _ in range(3)]
    for _ in range(300):
        process = random.choice(processes)
        world.clock.at += random.choice([0.1, 1.0, 8.0])
        process.look()
        if random.random() < 0.5:
            for lease in process.surplus():
                process.give(lease)
    for process in processes:
        process.look()
    held = [lease for process in processes for lease in process.held]
    assert len(held) == len(set(held))


CODE = """
import sys, ddbio
ddbio.capture(sys.argv[1], sys.argv[2], leases=4, job_id="shared", endpoint_url=sys.argv[3])
"""


@pytest.fixture(scope="module")
def fake():
    """Serve one fake for the tests with real processes."""
    with FakeDynamoDB(partitions=4, burst_at_creation=1.0) as served:
        yield served


@pytest.fixture
def table(fake):
    """Return the name of a table with a stream, and its client."""
    client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
    yield create_table(client, view="NEW_IMAGE"), client
    client.close()


def log_of(folder):
    """Return the numbers in the log, in order."""
    rows = ds.dataset(folder, partitioning="hive", ignore_prefixes=["_"]).to_table(columns=["n"])
    return sorted(rows.column("n").to_pylist())


def test_a_killed_process_is_taken_over(fake, table, tmp_path):
    """Two processes share the shards. After a kill, the other one and a last run log each change once."""
    name, client = table
    for number in range(40):
        client.put_item(TableName=name, Item={"pk": {"S": str(number)}, "n": {"N": str(number)}})
    arguments = [sys.executable, "-c", CODE, name, str(tmp_path), fake.endpoint_url]
    state = JobState(LocalStore(tmp_path), "shared", LEASES)
    processes = [subprocess.Popen(arguments) for _ in range(2)]
    try:
        deadline, number = time.monotonic() + SECONDS, 40
        while time.monotonic() < deadline:
            members = [value for value in state.listed() if value.startswith("member-")]
            parts = {path.name.rpartition("-")[0] for path in tmp_path.rglob("*.parquet")}
            if len(members) == 2 and len(parts) >= 2:
                break
            client.put_item(TableName=name, Item={"pk": {"S": str(number)}, "n": {"N": str(number)}})
            number += 1
            time.sleep(0.05)
        processes[0].send_signal(signal.SIGKILL)
        fake.split_shards(name)
        for _ in range(20):
            client.put_item(TableName=name, Item={"pk": {"S": str(number)}, "n": {"N": str(number)}})
            number += 1
    finally:
        for value in processes:
            value.kill()
            value.wait()
    deadline = time.monotonic() + SECONDS
    while log_of(tmp_path) != [*range(number)] and time.monotonic() < deadline:
        ddbio.capture(name, tmp_path, leases=4, job_id="shared", available_now=True, endpoint_url=fake.endpoint_url)
    assert log_of(tmp_path) == [*range(number)]
    with pytest.raises(OptionError, match="started with leases 4"):
        ddbio.capture(name, tmp_path, leases=2, job_id="shared", available_now=True, endpoint_url=fake.endpoint_url)
