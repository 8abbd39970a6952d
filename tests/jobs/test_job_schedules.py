"""Scans, reads of exports and folds with random faults: the output is complete, and the same job can be repeated.

Each schedule runs a job until it succeeds. Store calls are lost or refused, files are truncated or damaged, the table
throttles and resets, tasks run twice, workers and drivers are killed at any call. Time is virtual.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import random
from collections import Counter

import pytest

from ddbio.aws.retry import RetryPolicy
from ddbio.budget import LocalBudget
from ddbio.commit.committer import AlreadyCommittedError, CommitInfo, publishing
from ddbio.commit.protocol import Target
from ddbio.errors import DdbioError
from ddbio.export import fold
from ddbio.export.fold import open_fold
from ddbio.export.options import ExportFoldOptions, ExportReadOptions
from ddbio.export.tasks import ExportFilesTask, export_columns, export_tasks, write_export_task
from ddbio.formats.rolling_writer import FileOptions
from ddbio.items.decode import Decoder
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.item_schema import ItemSchema
from ddbio.jobs.staging import Staging
from ddbio.options import parse_options
from ddbio.scan.pages import ReadRequest
from ddbio.scan.stream import PageStream, ScanTask
from ddbio.sources.export_source import open_export
from ddbio.storage.meta import META, STAGING, is_manifest, version_at
from ddbio.testing.export import ExportWriter
from tests.export.fold_model import item, window
from tests.jobs.virtual_job import DriverKilledError, Engine, Faults, Pages, Stop, Store, World, rows_at

JOB = "job"
MOST_RUNS = 5
DEADLINE_SECONDS = 20.0
INFO = CommitInfo(created_at="2025-01-02T03:04:05Z", source={}, schema="{}", report={})
KINDS = {
    **dict.fromkeys(["driver", "worker", "lost", "refused"], (0, 0, 0.01, 0.05)),
    **dict.fromkeys(["broken", "damaged"], (0, 0, 0.1)),
    **dict.fromkeys(["throttled", "reset", "timeout", "truncated", "error"], (0, 0.1, 0.3)),
    "denied": (0, 0, 0.05),
}


def texts_of(items):
    """Return items as sorted texts."""
    return sorted(json.dumps(item, sort_keys=True) for item in items)


class Scan:
    """Scan of a table of four segments."""

    def __init__(self, folder):
        del folder
        rng = random.Random(1)
        self.items = [item(number, rng) for number in range(60)]
        self._segments = [self.items[segment::4] for segment in range(4)]
        self._schema = ItemSchema.of_items(self.items).to_arrow()

    def stage(self, staging, engine, faults):
        """Return the staged files, and the number of read items."""

        def write(task, budget):
            policy = RetryPolicy(DEADLINE_SECONDS, Stop(faults), lambda: faults.now)
            pages = Pages(self._segments, faults)
            stream = PageStream(task, budget, lambda: Decoder(self._schema), pages=pages, policy=policy)
            with contextlib.closing(iter(stream)) as batches:
                return staging.write(batches, self._schema, task.number, MisfitLog()), stream.counts.items

        tasks = [self._task(number, engine.parallelism) for number in range(engine.parallelism)]
        results = engine.run(write, tasks, LocalBudget(None))
        return [file for staged, _ in results for file in staged], sum(items for _, items in results)

    def _task(self, number, tasks):
        requests = tuple(ReadRequest("t", segment, 4) for segment in range(number, 4, tasks))
        return ScanTask(number=number, spec=None, requests=requests, lanes=1 + number % 2, schema=self._schema)


@functools.cache
def copied(store):
    """Return a copy of a folder in memory."""
    world = World()
    for entry in store.list("data/"):
        world.objects[entry.path] = store.read(entry.path), 0, 0.0
    return world


def faulty(source, faults):
    """Return an export whose data files are read from a store with faults."""
    return dataclasses.replace(source, store=Store(copied(source.store), faults, uri="virtual://source"))


class ExportRead:
    """Read of an export of three files."""

    def __init__(self, folder):
        rng = random.Random(2)
        self.items = [item(number, rng) for number in range(60)]
        home = str(ExportWriter(folder / "read", files=3).full(self.items))
        self._options = parse_options(ExportReadOptions, {"source": home})
        self._source = open_export(home, self._options)
        self._columns = export_columns(self._source, self._options)

    def stage(self, staging, engine, faults):
        """Return the staged files, and the number of read items."""
        source = faulty(self._source, faults)
        reads = export_tasks(source, self._columns, self._options, engine.parallelism)
        tasks = [ExportFilesTask(read, staging) for read in reads]
        results = engine.run(write_export_task, tasks, LocalBudget(None))
        return [file for result in results for file in result.staged], sum(result.counts.items for result in results)


class VirtualFold(fold.Fold):
    """Fold that spills like one on Spark: below the staging of its target."""

    @contextlib.contextmanager
    def _spill_store(self):
        yield self.staging.store.below(f"{STAGING}{JOB}/spill")


class Fold:
    """Fold of three windows into an export."""

    def __init__(self, folder):
        rng, writer = random.Random(5), ExportWriter(folder / "fold", files=3)
        state = {number: item(number, rng) for number in range(20)}
        home = str(writer.full(state.values()))
        increments = [str(writer.incremental(window(state, rng, 1_000_000 * turn))) for turn in range(1, 4)]
        self.items = list(state.values())
        self._options = parse_options(ExportFoldOptions, {"source": home, "dest": "unused"})
        self._sources = open_fold(self._options, increments)

    def stage(self, staging, engine, faults):
        """Return the staged files. A fold does not count its items."""
        changed = tuple((faulty(source, faults), columns) for source, columns in self._sources.changed)
        sources = dataclasses.replace(self._sources, full=faulty(self._sources.full, faults), changed=changed)
        _, results = VirtualFold(self._options, sources, staging, engine).run(LocalBudget(None))
        return [file for result in results for file in result.staged], len(self.items)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Return the jobs. Each knows its final rows."""
    return [kind(tmp_path_factory.mktemp("exports")) for kind in (Scan, ExportRead, Fold)]


class Course:
    """Runs of a job at a target until it succeeds, with checks of the target after each run."""

    def __init__(self, seed, jobs):
        self.rng, self.seed = random.Random(seed), seed
        self.job, self.mode = jobs[seed % len(jobs)], self.rng.choice(["error", "append", "overwrite"])
        self.world, self.outcomes = World(), Counter()
        self._old = [] if self.mode == "error" else self._before()

    def _before(self):
        """Write a file that exists before the job. Return its rows."""
        store = Store(self.world, Faults(0, {}))
        items = [item(1000 + number, self.rng) for number in range(3)]
        batch = Decoder(ItemSchema.of_items(items).to_arrow()).decode(
            "".join(json.dumps(item) for item in items).encode(), "items"
        )
        with publishing(Target(store=store, mode="append"), "old") as publish:
            publish(Staging(store, "old", FileOptions()).write([batch], batch.schema, 0, MisfitLog()), INFO)
        return items

    @property
    def expected(self):
        """The rows after the job has succeeded."""
        return texts_of([*self.job.items, *(self._old if self.mode == "append" else [])])

    def go(self):
        """Run the job until it succeeds, the last time without faults, and then once more."""
        for run in range(MOST_RUNS):
            ratios = {kind: self.rng.choice(odds) for kind, odds in KINDS.items()} if run < MOST_RUNS - 1 else {}
            outcome = self._run(Faults(f"{self.seed} {run}", ratios))
            if outcome != "failed":
                break
        self.outcomes[outcome] += 1
        assert self._run(Faults(0, {})) == "committed before", self.seed
        self.check()
        self.check_tidy()

    def _run(self, faults):
        engine, store = Engine(faults, self.rng), Store(self.world, faults)
        # Long enough for the claim of a dead run to count as dead.
        self.world.now += 1000
        try:
            with publishing(Target(store=store, mode=self.mode, command="c"), JOB) as publish:
                staged, items = self.job.stage(Staging(store, JOB, FileOptions()), engine, faults)
                assert items == len(self.job.items), self.seed
                publish(staged, INFO)
        except DdbioError as error:
            self.outcomes[type(error).__name__] += 1
            return "failed"
        except DriverKilledError:
            self.outcomes["killed"] += 1
            return "failed"
        except AlreadyCommittedError:
            return "committed before"
        return "done"

    def check(self):
        """Check that the target contains the rows of the job, each once."""
        assert rows_at(Store(self.world, Faults(0, {}))) == self.expected, self.seed

    def check_tidy(self):
        """Check that no temporary files remain."""
        assert not self.world.staged, self.seed
        states = [path for path in self.world.objects if path.startswith(META)]
        assert all(is_manifest(path) or version_at(path) is not None for path in states), (self.seed, states)


@pytest.mark.timeout(3600)
def test_a_job_ends_complete_after_any_failure(jobs, seeds):
    """A successful run has all rows, each once. Repeating the job finishes failed or killed work."""
    outcomes = Counter()
    for seed in seeds(150, 10_000):
        course = Course(seed, jobs)
        course.go()
        outcomes += course.outcomes
    assert min(outcomes[name] for name in ("done", "killed", "EndpointError")) > 0
