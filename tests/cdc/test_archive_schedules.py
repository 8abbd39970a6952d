"""Archives that are killed at any step while the log grows and is compacted, in schedules drawn from a seed."""

from __future__ import annotations

import io
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddbio.cdc.archive import Archiver
from ddbio.cdc.log_rows import hour_folder
from ddbio.errors import NotFoundError
from ddbio.formats.log_columns import EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE, OPERATION, SEQUENCE
from ddbio.storage.job_state import JobState
from ddbio.storage.staged import StoredObject

AT = 1_793_491_200
HOUR = AT // 3600
IMAGE = pa.struct([("pk", pa.string()), ("ttl", pa.int64())])


class KilledError(BaseException):
    """The process is killed here."""


class Store:
    """Objects in memory. A process may be killed before or after each change of them."""

    uri = "memory:"

    def __init__(self, random):
        self.random, self.objects, self.kill = random, {}, 0.0

    def step(self):
        """Kill the process at random."""
        if self.random.random() < self.kill:
            raise KilledError

    def put(self, path, data):
        """Write an object."""
        self.step()
        self.objects[path] = data
        self.step()

    def put_if_absent(self, path, data):
        """Write an object if it does not exist."""
        if path in self.objects:
            return False
        self.put(path, data)
        return True

    def read(self, path):
        """Return an object."""
        if path not in self.objects:
            raise NotFoundError(path)
        return self.objects[path]

    def read_chunks(self, path):
        """Yield an object's bytes."""
        yield self.read(path)

    def read_range(self, entry, start, length):
        """Return a part of an object."""
        return self.objects[entry.path][start : start + length]

    def list(self, prefix=""):
        """Yield the objects with a prefix."""
        return (StoredObject(path, len(data)) for path, data in sorted(self.objects.items()) if path.startswith(prefix))


class World:
    """A log of some hours, and its archive."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.log, self.archive = Store(self.random), Store(self.random)
        self.expected, self.number = set(), 0

    def write(self):
        """Add a file to an hour of the log, with expired and other changes."""
        rows, hour = [], HOUR + self.random.randrange(3)
        for _ in range(self.random.randint(1, 4)):
            self.number += 1
            expired = self.random.random() < 0.6
            self.expected |= {str(self.number)} if expired else set()
            image = {"pk": str(self.number), "ttl": AT - self.random.choice([0, 40 * 86_400])}
            rows.append({OPERATION: "REMOVE", SEQUENCE: str(self.number), EVENT_TIME: hour * 3_600_000_000,
                         EXPIRED: expired, OLD_IMAGE: image, OLD_RESCUE: None})  # fmt: skip
        types = {OPERATION: pa.string(), SEQUENCE: pa.string(), EVENT_TIME: pa.int64(), EXPIRED: pa.bool_(),
                 OLD_IMAGE: IMAGE, OLD_RESCUE: pa.string()}  # fmt: skip
        table = pa.Table.from_pylist(rows, pa.schema(list(types.items())))
        times = table.column(EVENT_TIME).cast(pa.timestamp("us", "UTC"))
        self._put(hour, table.set_column(2, EVENT_TIME, times))

    def compact(self):
        """Merge some files of an hour into one."""
        hour = HOUR + self.random.randrange(3)
        paths = [entry.path for entry in self.log.list(hour_folder(hour))]
        if len(paths) > 1:
            tables = [pq.read_table(io.BytesIO(self.log.objects.pop(path))) for path in paths]
            self._put(hour, pa.concat_tables(tables))

    def _put(self, hour, table):
        sink = io.BytesIO()
        pq.write_table(table, sink)
        self.log.objects[f"{hour_folder(hour)}{len(self.log.objects)}-{self.random.random()}.parquet"] = sink.getvalue()

    def run(self, kill):
        """Archive the new items."""
        self.archive.kill = kill
        batch_bytes = self.random.choice([1, 1 << 20])
        Archiver(self.log, JobState(self.archive, "job", "archive"), "ttl", batch_bytes=batch_bytes).run()

    def archived(self):
        """Return the archived sequence numbers."""
        files = [data for path, data in self.archive.objects.items() if path.endswith(".parquet")]
        return [number for file in files for number in pq.read_table(io.BytesIO(file)).column(SEQUENCE).to_pylist()]


@pytest.mark.timeout(3600)
def test_every_expired_item_is_archived_once(seeds):
    """With kills at every step, late files and compactions, nothing is archived twice and nothing is missing."""
    for seed in seeds(60, 500):
        world = World(seed)
        for _ in range(6):
            for step in world.random.choices([world.write, world.compact], [3, 1], k=3):
                step()
            try:
                world.run(0.15)
            except KilledError:
                continue
        world.run(0.0)
        actual = world.archived()
        assert set(actual) == world.expected, seed
        assert len(actual) == len(set(actual)), seed
