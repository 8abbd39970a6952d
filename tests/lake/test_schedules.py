"""Random schedules: late and repeated changes, new attributes, kills, concurrent writers, and removed tombstones.

After every kill and at the end, each version of the lake table equals the model for readers of other projects.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from random import Random

import deltalake
import polars as pl
import pytest
from pyiceberg.table import StaticTable

from ddbio.cdc.log_reader import open_log
from ddbio.lake.apply import Applier
from ddbio.lake.changes import LogChanges
from ddbio.lake.maintain import Maintainer
from ddbio.lake.merging import LocalMerging, SpreadMerging
from ddbio.lake.options import ApplyOptions
from ddbio.lake_formats.delta import DeltaLakeTable
from ddbio.lake_formats.iceberg import IcebergLakeTable
from ddbio.storage.local_store import LocalStore
from tests.lake.virtual_engine import VirtualEngine
from tests.lake.virtual_log import BEGAN, VirtualLog, Writer, columns, expected, items_of

POSITION = "ddbio/0/job/1000"
ATTRIBUTES = ("a", "A", "b c")
MERGINGS = {"local": LocalMerging, "spread": lambda: SpreadMerging(VirtualEngine())}


class KilledError(BaseException):
    """The process is killed here."""


class Steps:
    """Kill the process, or run another writer, at one of the next steps."""

    def __init__(self):
        self.left, self.happens = None, None

    def __call__(self):
        """Take a step."""
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left, happens = None, self.happens
            happens()


class FatalStore(LocalStore):
    """Store on a worker that dies at the first file to be written, unless it or another one died before."""

    def __init__(self, target, fate):
        super().__init__(target)
        self.fate = fate

    def create(self, path):
        """Return a sink, or die."""
        if self.fate is not None:
            with contextlib.suppress(FileExistsError), self.fate.open("x"):
                os._exit(70)
        return super().create(path)


class SteppedStore(LocalStore):
    """Store that takes a step before and after each write; its copies on workers may die."""

    def __init__(self, target, steps, fate=None):
        super().__init__(target)
        self.steps, self.fate = steps, fate

    def __reduce__(self):
        """Leave the steps to the driver."""
        return FatalStore, (self.uri, self.fate)

    def complete(self, staged):
        """Complete a file between two steps."""
        self.steps()
        super().complete(staged)
        self.steps()

    def put(self, path, data):
        """Write an object between two steps."""
        self.steps()
        super().put(path, data)
        self.steps()


class SteppedTable:
    """Table that takes a step before and after each commit."""

    def __init__(self, table, steps):
        self.table, self.steps = table, steps

    def __getattr__(self, name):
        method = getattr(self.table, name)
        if name not in {"create", "alter", "commit"}:
            return method

        def stepped(*args):
            self.steps()
            result = method(*args)
            self.steps()
            return result

        return stepped


class World:
    """A log, a table in a folder, and the runs of apply on both.

    Parameters
    ----------
    merging
        Creates the merging engine of each run.
    fates
        Whether workers die, too.
    """

    def __init__(self, seed, folder, kind, merging, *, fates=False):
        self.kind, self.merging, self.fates, self.folder = kind, merging, fates, folder
        self.seed, self.random, self.writer, self.steps = seed, Random(seed), Writer(seed), Steps()
        self.log_store, self.place = LocalStore(folder / "log"), folder / "lake"
        self.log, self.attributes, self.runs = VirtualLog(self.log_store), (), 0

    def apply(self):
        """Run apply like a new process."""
        self.runs += 1
        fate = self.folder / f"fate-{self.runs}" if self.fates and self.random.random() < 0.1 else None
        table = SteppedTable(self.table(SteppedStore(self.place, self.steps, fate)), self.steps)
        most = self.random.choice([1, 15, 10**6])
        values = {"source": self.log_store.uri, "table": str(self.place), "buckets": 3, "max_records_per_batch": most}
        source = LogChanges(self.log_store, open_log(self.log_store))
        job = Applier(source, table, ApplyOptions(**values), self.merging())
        job.run()
        outcome = job.outcome
        assert outcome.inserted + outcome.updated + outcome.deleted + outcome.stale == job.changes, self.seed

    def collect(self):
        """Remove tombstones for which no late change is possible, except an applied one."""
        table = self.table()
        state = table.load()
        if state is None:
            return
        applied = table.position(state, POSITION)
        waiting = [*self.writer.held, *(change for batch in self.log.batches[applied:] for change in batch)]
        oldest = min((change.time_us for change in waiting), default=BEGAN + self.writer.made * 1_000_000)
        Maintainer(table, 1 << 20).run(oldest - 1)

    def table(self, store=None):
        """Return the table as a separate process opens it."""
        kinds = {"delta": DeltaLakeTable, "iceberg": IcebergLakeTable}
        return kinds[self.kind](store or LocalStore(self.place))

    def step(self):
        """Take a random action."""
        drawn = self.random.random()
        if drawn < 0.15 and len(self.attributes) < len(ATTRIBUTES):
            self.attributes = ATTRIBUTES[: len(self.attributes) + 1]
            if self.random.random() < 0.5:
                self.log.declare(columns(*self.attributes))
        elif drawn < 0.6:
            self.log.append(self.writer.batch(self.attributes))
        elif drawn < 0.7 and self.place.exists():
            self.collect()
        else:
            self.disturbed()

    def disturbed(self):
        """Apply, with a kill or a concurrent writer at some step, or undisturbed."""
        if not self.log.batches:
            return

        def die():
            raise KilledError

        def overtake():
            if self.random.random() < 0.5:
                self.log.append(self.writer.batch(self.attributes))
            self.apply()

        self.steps.left = self.random.choice([None, self.random.randrange(14)])
        self.steps.happens = self.random.choice([die, overtake])
        with contextlib.suppress(KilledError):
            self.apply()
        self.steps.left = None

    def check(self):
        """Compare the table with the model, at all versions."""
        state = self.table().load()
        fields = [(field.name, (field.metadata or {}).get(b"ddb:name", field.name.encode())) for field in state.schema]
        names = {name: attribute.decode() for name, attribute in fields}
        for rows, applied in self.versions(state.version):
            assert items_of(rows, names) == expected(self.log.model(applied)), self.seed
        rows = self.newest()
        assert len({row["_key"] for row in rows}) == len(rows), self.seed
        assert items_of(rows, names) == expected(self.log.model()), self.seed

    def versions(self, last):
        """Yield the rows of each version, read by the format's own library, and its number of batches."""
        if self.kind == "delta":
            for version in range(last + 1):
                at = deltalake.DeltaTable(self.place, version=version)
                yield at.to_pyarrow_table().to_pylist(), at.transaction_version(POSITION) or 0
        else:
            for version in range(1, last + 1):
                at = StaticTable.from_metadata(str(self.place / f"metadata/v{version}.metadata.json"))
                applied = int(at.metadata.properties.get(f"ddbio.position.{POSITION}", 0))
                yield at.scan().to_arrow().to_pylist(), applied

    def newest(self):
        """Return the rows of the newest version, read by polars."""
        if self.kind == "delta":
            return pl.read_delta(str(self.place)).to_dicts()
        # The hint is older than the metadata if a process was killed in between.
        newest = self.table().load().version
        with warnings.catch_warnings():
            # The query planner of polars is faster with an optional package.
            warnings.simplefilter("ignore", pl.exceptions.PerformanceWarning)
            return pl.scan_iceberg(str(self.place / f"metadata/v{newest}.metadata.json")).collect().to_dicts()


def run(seed, folder, kind, merging, *, fates=False):
    """Run one schedule, compare the result, and delete all files."""
    world = World(seed, folder, kind, merging, fates=fates)
    for _ in range(12):
        world.step()
    if not world.log.batches:
        world.log.append(world.writer.batch())
    world.apply()
    world.check()
    shutil.rmtree(folder)


def sweep(seeds, kind, merging, *, fates=False):
    """Run schedules in memory, if the machine has such a folder, since waiting for the disk takes most of the time."""
    shared_memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared_memory if os.access(shared_memory, os.W_OK) else None) as folder:
        for seed in seeds:
            run(seed, Path(folder) / str(seed), kind, merging, fates=fates)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("kind", "merging", "commit", "nightly"),
    [
        ("delta", "local", 15, 300),
        ("iceberg", "local", 5, 60),
        ("delta", "spread", 8, 100),
        ("iceberg", "spread", 5, 40),
    ],
)
def test_a_table_equals_the_model_after_any_schedule(kind, merging, commit, nightly, seeds):
    """At each version of the table, the live rows are the newest states of the applied batches."""
    sweep(seeds(commit, nightly), kind, MERGINGS[merging])
