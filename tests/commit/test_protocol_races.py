"""Jobs that share a target, interleaved call by call in an order drawn by a seed, some of them killed.

Only one thread runs at a time, and yields before each call to the store: a seed is one repeatable schedule.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from dataclasses import replace

import pytest

from ddbio.commit.committer import CommitInfo
from ddbio.commit.protocol import Target, abort
from ddbio.commit.snapshot import live_files
from ddbio.errors import NotFoundError, TargetError
from ddbio.storage.meta import META, is_claim, manifest_path, version_at
from ddbio.storage.staged import FileNaming, SmallObject, StagedFile, StoredObject

INFO = CommitInfo(created_at="2025-01-02T03:04:05Z", source={}, schema="{}")
LONGEST = 10**9
LEASE_SECONDS = 0.3
WAKES = 0.02
NOW = 1_000.0


class KilledError(BaseException):
    """End of a process: all its later calls raise it, too."""


class Schedule:
    """Scheduler of threads, one at a time, in an order drawn by a seed; some are suspended longer than any lease."""

    def __init__(self, seed, suspends):
        self.rng = random.Random(seed)
        self.suspended = set()
        self._suspends = suspends
        self._turns = {}
        self._returned = threading.Semaphore(0)

    def run(self, works):
        """Run all of the functions to their ends; each is called with its number."""
        threads = {}
        for number, work in enumerate(works):
            self._turns[number] = threading.Semaphore(0)
            threads[number] = threading.Thread(target=self._thread, args=(number, work), daemon=True)
            threads[number].start()
        while threads:
            if self.suspended and self.rng.random() < WAKES:
                self.suspended.remove(self.rng.choice(sorted(self.suspended)))
            awake = [number for number in threads if number not in self.suspended]
            number = self.rng.choice(awake or list(threads))
            self.suspended.discard(number)
            self._turns[number].release()
            self._returned.acquire()
            if number not in self._turns:
                threads.pop(number).join()

    def hand_over(self, number, *, may_suspend):
        """Run other threads until it is this thread's turn again."""
        if may_suspend and self.rng.random() < self._suspends:
            self.suspended.add(number)
        self._returned.release()
        self._turns[number].acquire()

    def _thread(self, number, work):
        self._turns[number].acquire()
        try:
            work(number)
        finally:
            del self._turns[number]
            self._returned.release()


class MemoryStore:
    """Store in memory. A handle belongs to one job: it yields before each call, and may die at one.

    Calls of a job's own pool of threads run during its turn.
    """

    uri, hazard = "memory://target", None

    def __init__(self, world=None):
        self.world = world or {"objects": {}, "staged": {}, "ticks": itertools.count(1), "dead": set()}
        self._schedule = self._number = self._thread = None
        self._left = LONGEST

    def handle(self, schedule, number, calls):
        """Return a handle for the job in this thread, which dies after this number of calls."""
        made = MemoryStore(self.world)
        made._schedule, made._number, made._thread, made._left = schedule, number, threading.get_ident(), calls
        return made

    def _call(self, *, may_suspend=False):
        self._left -= 1
        if self._left < 0:
            self.world["dead"].add(self._number)
            raise KilledError
        if self._schedule is not None and threading.get_ident() == self._thread:
            self._schedule.hand_over(self._number, may_suspend=may_suspend)

    def create(self, path):
        """Return a sink for a staged file."""
        self._call(may_suspend=True)
        return MemorySink(self.world["staged"], path)

    def complete(self, staged):
        """Make a staged file visible."""
        self._call(may_suspend=True)
        data = self.world["staged"].pop(staged.path, None)
        if data is not None:
            self._write(staged.path, data)
        elif staged.path not in self.world["objects"]:
            raise NotFoundError(staged.path)

    def abort(self, job_id):
        """Discard the staged files of a job."""
        self._call()
        for path in [path for path in self.world["staged"] if job_id in path]:
            del self.world["staged"][path]

    def staged_jobs(self):
        """Return no job: staged files of a killed job that lost its claim are deleted after a week."""
        return set()

    def list(self, prefix=""):
        """Return the objects below a prefix."""
        self._call()
        entries = sorted((path, entry) for path, entry in self.world["objects"].items() if path.startswith(prefix))
        return iter(
            [StoredObject(path, len(data), str(at), self._written_at(path, at)) for path, (data, at) in entries]
        )

    def read(self, path):
        """Return an object."""
        self._call()
        if path not in self.world["objects"]:
            raise NotFoundError(path)
        return self.world["objects"][path][0]

    def read_chunks(self, path):
        """Yield an object's bytes."""
        yield self.read(path)

    def put(self, path, data):
        """Write an object; a job that is suspended at a small object has checked its claim just before."""
        self._call(may_suspend=path.startswith(META))
        self._write(path, data)

    def put_if_absent(self, path, data):
        """Write an object that does not exist."""
        self._call()
        if path in self.world["objects"]:
            return False
        self._write(path, data)
        return True

    def delete(self, paths):
        """Delete objects, one after the other."""
        for path in paths:
            self._call()
            self.world["objects"].pop(path, None)

    def _written_at(self, path, at):
        """Return the time of writing of an object: running jobs have renewed their claims recently, others long ago."""
        if self._schedule is None or not is_claim(path):
            return NOW
        number = int(path.removeprefix(f"{META}job")[0])
        if number in self._schedule.suspended or number in self.world["dead"]:
            return 0.0
        return NOW - self._schedule.rng.uniform(0, LEASE_SECONDS / 2) * (number != self._number)

    def _write(self, path, data):
        self.world["objects"][path] = data, float(next(self.world["ticks"]))


class MemorySink:
    """Sink that stages one file when it is finished."""

    def __init__(self, staged, path):
        self._staged, self._path = staged, path

    def finish(self, rows):
        """Stage the file."""
        self._staged[self._path] = b"x" * rows
        return StagedFile(self._path, rows, rows, {})

    def abort(self):
        """Discard the file."""


def _small_object(number):
    """Return an additional object of a job's format, whose name does not contain the job id."""
    return SmallObject(f"{'abcd'[number]}.json", "{}")


class Jobs:
    """Jobs at one target that run by a schedule, with their outcomes."""

    def __init__(self, seed, modes, *, suspends, killed):
        self.seed, self.schedule, self.store = seed, Schedule(seed, suspends), MemoryStore()
        rng = self.schedule.rng
        self.modes = [rng.choice(modes) for _ in range(rng.randint(2, 4))]
        self._calls = [rng.randrange(60) if rng.random() < killed else LONGEST for _ in self.modes]
        self.committed, self.failed, self.replaced = set(), {}, {}
        self.schedule.run([self._job] * len(self.modes))

    def _job(self, number):
        job_id, mode = f"job{number}", self.modes[number]
        store = self.store.handle(self.schedule, number, self._calls[number])
        target = Target(store=store, mode=mode, lease_seconds=LEASE_SECONDS)
        try:
            self.replaced[number] = replaced = target.prepare(job_id)
            try:
                staged = [store.create(FileNaming(job_id, task).path(0, "parquet")).finish(1 + task) for task in (0, 1)]
                target.commit(job_id, staged, replace(INFO, objects=(_small_object(number),)), replaced)
            except BaseException:
                abort(store, job_id)
                raise
        except KilledError:
            return
        except (TargetError, NotFoundError) as error:
            self.failed[number] = error
        else:
            self.committed.add(number)

    def clean_up(self):
        """Clean up the target like the next job; return the paths of all remaining objects."""
        last = Target(store=self.store, mode="append", lease_seconds=0)
        last.prepare("last")
        abort(self.store, "last")
        return {path for path in self.store.world["objects"] if version_at(path) is None}

    def check(self):
        """Check the invariants; return the numbers of the jobs whose files exist.

        Each job has all its files or none; a committed job stays unless an overwrite replaced it.
        """
        left = self.clean_up()
        shown = {number for number in range(len(self.modes)) if manifest_path(f"job{number}") in left}
        files = {FileNaming(f"job{number}", task).path(0, "parquet") for number in shown for task in (0, 1)}
        objects = {_small_object(number).path for number in shown}
        assert left == files | objects | {manifest_path(f"job{number}") for number in shown}, self.seed
        assert live_files(self.store).paths == files, self.seed
        for number in self.committed - shown:
            by = [job for job, paths in self.replaced.items() if manifest_path(f"job{number}") in paths]
            assert any(self.modes[job] == "overwrite" for job in by), self.seed
        return shown


@pytest.mark.timeout(3600)
def test_jobs_of_all_modes(seeds):
    """Jobs that exclude each other, are suspended, considered dead, or killed, keep the target consistent."""
    outcomes = Counter()
    for seed in seeds(500, 10_000):
        jobs = Jobs(seed, ["error", "append", "overwrite"], suspends=seed % 3 * 0.1, killed=0.3)
        shown = jobs.check()
        assert sum(jobs.modes[number] == "error" for number in shown) <= 1, seed
        outcomes.update(committed=len(jobs.committed), failed=len(jobs.failed))
    assert min(outcomes["committed"], outcomes["failed"]) > 0


@pytest.mark.timeout(3600)
def test_jobs_that_append(seeds):
    """Jobs that append all succeed, also during an overwrite, which does not delete their files."""
    for seed in seeds(200, 2_000):
        jobs = Jobs(seed, ["append"], suspends=0, killed=0)
        assert jobs.check() == set(range(len(jobs.modes))), seed
        beside = Jobs(seed, ["append", "append", "overwrite"], suspends=0, killed=0.2)
        if beside.modes.count("overwrite") == 1:
            beside.check()
            assert not beside.failed, (seed, beside.failed)


def test_a_schedule_is_repeatable():
    """One seed is one order of calls."""
    first, second = (Jobs(7, ["append", "overwrite"], suspends=0.1, killed=0.5) for _ in range(2))
    assert first.committed == second.committed
    assert first.store.world["objects"].keys() == second.store.world["objects"].keys()


class Rewrites(Jobs):
    """Jobs that append, and jobs that replace all live files by one with their rows."""

    def __init__(self, seed, **chances):
        self.rows = {}
        super().__init__(seed, ["append", "append", "replace"], **chances)

    def _job(self, number):
        job_id, mode = f"job{number}", self.modes[number]
        store = self.store.handle(self.schedule, number, self._calls[number])
        target = Target(store=store, mode=mode, lease_seconds=LEASE_SECONDS)
        path = FileNaming(job_id, 0).path(0, "parquet")
        try:
            target.prepare(job_id)
            try:
                replaced = () if mode == "append" else sorted(live_files(store).paths)
                self.rows[path] = {number} if mode == "append" else set().union(*(self.rows[path] for path in replaced))
                target.commit(job_id, [store.create(path).finish(1)], INFO, replaced)
            except BaseException:
                abort(store, job_id)
                raise
        except KilledError:
            return
        except (TargetError, NotFoundError) as error:
            self.failed[number] = error
        else:
            self.committed.add(number)

    def check(self):
        """Check that each appended row exists once, and that a listing shows the live files."""
        left = {path for path in self.clean_up() if not path.startswith(META)}
        live = live_files(self.store).paths
        rows = Counter(row for path in live for row in self.rows[path])
        assert left == live, self.seed
        assert set(rows.values()) <= {1}, self.seed
        assert {number for number in self.committed if self.modes[number] == "append"} <= rows.keys(), self.seed
        assert {row for row in rows if self.modes[row] != "append"} == set(), self.seed
        return rows


@pytest.mark.timeout(3600)
def test_jobs_that_replace_files_lose_and_double_no_row(seeds):
    """During concurrent compactions and appends, suspended or killed, every row is live exactly once."""
    outcomes = Counter()
    for seed in seeds(500, 2_000):
        jobs = Rewrites(seed, suspends=seed % 3 * 0.1, killed=0.4)
        jobs.check()
        outcomes.update(jobs.modes[number] for number in jobs.committed)
    assert min(outcomes["append"], outcomes["replace"]) > 0
