"""Merge a batch of changes into the files of a lake table: on threads of this process, or spread over an engine.

Nothing is committed here: the files are staged, and who merges names them to the committer.
"""

from __future__ import annotations

import functools
import itertools
import json
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.budget import LocalBudget
from ddbio.formats.lake_columns import BUCKET, TIME
from ddbio.items.json_text import compact_json
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field
from ddbio.jobs.engine import Shuffle, available_cores
from ddbio.lake.bucket_merge import Outcome, merge_bucket
from ddbio.lake_formats.rows import LakeShape, item_columns, newest, rows_of_log
from ddbio.lake_formats.table import LakeFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ddbio.budget import Budget
    from ddbio.jobs.engine import ShufflingEngine
    from ddbio.lake.bucket_merge import MergedBucket
    from ddbio.lake.change_source import ChangePart
    from ddbio.lake_formats.bucket_files import BucketFiles

PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")

_MOST_THREADS = 4
# Attributes without a column are inferred from so many rows of each task; what does not fit is rescued.
_SAMPLED_TEXTS = 1_000
_TASKS_PER_CORE = 4
_CHANGES = b"ddbio:changes"


@dataclass(frozen=True)
class RowMaker:
    """Make rows of a table of changes.

    Attributes
    ----------
    epochs
        The streams in the order of their epochs.
    since_us
        Changes before this time are left out: the base load has them.
    """

    shape: LakeShape
    epochs: tuple[str, ...]
    since_us: int

    def rows(self, lineage: str, batch: pa.RecordBatch) -> pa.Table:
        """Return the rows for changes of one stream."""
        made = pa.Table.from_batches([rows_of_log(batch, self.shape, self.epochs.index(lineage) + 1)])
        if self.since_us > 0:
            made = made.filter(pc.greater_equal(made.column(TIME), pa.scalar(self.since_us)))
        return made


class BucketRows:
    """Hold rows by their buckets, each in memory of its own: what was taken is let go with its bucket."""

    def __init__(self, tables: Iterable[pa.Table] = ()) -> None:
        self._parts = defaultdict[int, list[pa.Table]](list)
        for each in tables:
            self.add(each)

    def add(self, rows: pa.Table) -> None:
        """Take rows."""
        column: Any = rows.column(BUCKET)
        for bucket in map(int, pc.unique(column).to_pylist()):
            self._parts[bucket].append(rows.filter(pc.equal(column, pa.scalar(bucket, column.type))))

    def take(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield each bucket with the newest row of each of its keys, and forget them."""
        for bucket in sorted(self._parts):
            yield bucket, newest(pa.concat_tables(self._parts.pop(bucket)))


@dataclass(frozen=True)
class BucketMerger:
    """Merge rows into the live files of a table, bucket by bucket.

    Attributes
    ----------
    live
        The live files of the buckets with changes, or of all.
    floor
        As of ``ddbio.lake.bucket_merge.BucketMerge``.
    """

    files: BucketFiles
    live: tuple[LakeFile, ...]
    floor: int | None

    def merge(self, part: tuple[int, list[LakeFile], pa.Table]) -> MergedBucket:
        """Stage the files of one bucket."""
        return merge_bucket(self.files, *part, self.floor)

    def of_bucket(self, rows: BucketRows) -> Iterator[tuple[int, list[LakeFile], pa.Table]]:
        """Yield each bucket with changes, its files and its changes, which are let go then."""
        by_bucket = defaultdict[int, list[LakeFile]](list)
        for each in self.live:
            by_bucket[each.bucket].append(each)
        for bucket, found in rows.take():
            yield bucket, by_bucket[bucket], found


@dataclass(frozen=True)
class Merged:
    """Say what became of a batch.

    Attributes
    ----------
    changes
        How many there were.
    """

    changes: int
    buckets: tuple[MergedBucket, ...]

    @property
    def outcome(self) -> Outcome:
        """What the changes do; those that a newer one of the batch supersedes are stale."""
        found = sum((each.outcome for each in self.buckets), Outcome())
        merged = found.inserted + found.updated + found.deleted + found.stale
        return found + Outcome(stale=self.changes - merged)


class Merging(Protocol):
    """Read changes and merge them."""

    def grown(self, shape: LakeShape, columns: pa.Schema, parts: Sequence[ChangePart]) -> LakeShape:
        """Return the shape with columns for the attributes of some changes."""
        ...

    def merge(self, parts: Sequence[ChangePart], maker: RowMaker, merger: BucketMerger) -> Merged:
        """Merge changes; if it fails, the job has to be aborted."""
        ...


@dataclass
class LocalMerging:
    """Merge on threads of this process, which holds the changes of a batch."""

    _found: list[tuple[str, pa.RecordBatch]] = field(default_factory=list)

    def grown(self, shape: LakeShape, columns: pa.Schema, parts: Sequence[ChangePart]) -> LakeShape:
        """Return the shape with columns for the attributes of some changes, which are read now."""
        with ThreadPoolExecutor(min(_MOST_THREADS, available_cores())) as threads:
            read = threads.map(lambda part: [(part.lineage, batch) for batch in part.batches()], parts)
            self._found = [each for found in read for each in found]
        rescued = [text for _, batch in self._found for text in rescued_texts(batch)]
        return shape.grown(item_columns(columns), rescued)

    def rows(self, maker: RowMaker) -> tuple[int, BucketRows]:
        """Return how many changes were read, and their rows; the changes are let go meanwhile."""
        made, changes = BucketRows(), 0
        self._found.reverse()
        while self._found:
            lineage, batch = self._found.pop()
            changes += batch.num_rows
            made.add(maker.rows(lineage, batch))
        return changes, made

    def merge(self, parts: Sequence[ChangePart], maker: RowMaker, merger: BucketMerger) -> Merged:
        """Merge the changes that were read last."""
        del parts
        changes, rows = self.rows(maker)
        return Merged(changes, tuple(_on_threads(merger.merge, merger.of_bucket(rows))))


def _on_threads(work: Callable[[PartT], ResultT], parts: Iterator[PartT]) -> list[ResultT]:
    """Return the results of some parts, each of which is made when a thread is free for it."""
    found, lock, failed = list[ResultT](), threading.Lock(), threading.Event()

    def run() -> None:
        try:
            while not failed.is_set():
                with lock:
                    part = next(parts, None)
                if part is None:
                    return
                found.append(work(part))
                # It goes before the next is made.
                del part
        except BaseException:
            failed.set()
            raise

    count = min(_MOST_THREADS, available_cores())
    with ThreadPoolExecutor(count) as threads:
        running = [threads.submit(run) for _ in range(count)]
    for each in running:
        each.result()
    return found


def rescued_texts(batch: pa.RecordBatch) -> list[str]:
    """Return the texts of the rescue column."""
    column = batch.column(RESCUE_NAME)
    return [] if column.null_count == batch.num_rows else [str(each) for each in column.drop_null().to_pylist()]


@dataclass(frozen=True)
class SplitTask:
    """Name changes that one task makes rows of.

    Attributes
    ----------
    partitions
        Among so many tasks the buckets are divided.
    """

    number: int
    parts: tuple[ChangePart, ...]
    maker: RowMaker
    partitions: int


@dataclass(frozen=True)
class BucketsTask:
    """Hold the changes of some buckets, as streams of Arrow."""

    merger: BucketMerger
    streams: tuple[bytes, ...]


def split(task: SplitTask) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Yield the rows of a task's changes, under the number of the task that merges them."""
    batches = ((part.lineage, batch) for part in task.parts for batch in part.batches())
    for number, (lineage, batch) in enumerate(batches):
        for partition, data in split_batch(task.maker, lineage, batch, task.partitions):
            yield (partition, task.number, number), data


def split_batch(maker: RowMaker, lineage: str, batch: pa.RecordBatch, partitions: int) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of some changes by the task that merges them; the first says how many changes there were."""
    rows, changes = newest(maker.rows(lineage, batch)), batch.num_rows
    column: Any = rows.column(BUCKET)
    place = pa.array(column.to_numpy() % partitions)
    for partition in sorted(map(int, pc.unique(place).to_pylist())) or [0]:
        chosen = rows.filter(pc.equal(place, pa.scalar(partition, place.type)))
        sink = pa.BufferOutputStream()
        schema = chosen.schema.with_metadata({_CHANGES: str(changes)})
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_table(chosen.replace_schema_metadata(schema.metadata))
        yield partition, sink.getvalue().to_pybytes()
        changes = 0


def gather(merger: BucketMerger, partition: int, streams: Iterable[bytes]) -> BucketsTask:
    """Return the task that merges what has arrived at a partition."""
    del partition
    return BucketsTask(merger, tuple(streams))


def merge_buckets(task: BucketsTask, budget: Budget) -> Merged:
    """Stage the files of a task's buckets."""
    del budget
    tables = [pa.ipc.open_stream(each).read_all() for each in task.streams]
    if not tables:
        return Merged(0, ())
    changes = sum(int((each.schema.metadata or {})[_CHANGES]) for each in tables)
    rows = BucketRows(each.replace_schema_metadata(None) for each in tables)
    return Merged(changes, tuple(map(task.merger.merge, task.merger.of_bucket(rows))))


@dataclass(frozen=True)
class LookTask:
    """Name changes that are searched for attributes without a column."""

    parts: tuple[ChangePart, ...]
    known: frozenset[str]


def look(task: LookTask, budget: Budget) -> list[str]:
    """Return rescued attributes that have no column, as texts of a rescue column."""
    del budget
    found = (text for part in task.parts for batch in part.batches() for text in rescued_texts(batch))
    return list(itertools.islice(unknown_texts(found, task.known), _SAMPLED_TEXTS))


def unknown_texts(texts: Iterable[str], known: frozenset[str]) -> Iterator[str]:
    """Yield texts of a rescue column without the attributes that have a column; none that are empty so."""
    for text in texts:
        left = {name: value for name, value in json.loads(text).items() if name not in known}
        if left:
            yield compact_json(left)


class SpreadMerging:
    """Merge on an engine that shuffles: its tasks read the changes, and merge those of their buckets.

    The driver holds the lists of files, and no row.
    """

    def __init__(self, engine: ShufflingEngine) -> None:
        self._engine = engine

    def grown(self, shape: LakeShape, columns: pa.Schema, parts: Sequence[ChangePart]) -> LakeShape:
        """Return the shape with columns for the attributes of some changes; each task looks at a sample of its own."""
        items = item_columns(columns)
        known = frozenset(name_of_field(each) for each in (*shape.attributes, *items))
        tasks = [LookTask(each, known) for each in self._groups(parts)]
        found = self._engine.run(look, tasks, LocalBudget(None, job="apply"))
        return shape.grown(items, [text for texts in found for text in texts])

    def merge(self, parts: Sequence[ChangePart], maker: RowMaker, merger: BucketMerger) -> Merged:
        """Merge changes by a shuffle."""
        partitions = partitions_of(maker, self._engine.parallelism)
        tasks = [SplitTask(number, each, maker, partitions) for number, each in enumerate(self._groups(parts))]
        shuffle = Shuffle(split, functools.partial(gather, merger), partitions)
        found = self._engine.run_shuffled(shuffle, tasks, merge_buckets, LocalBudget(None, job="apply"))
        return joined(found)

    def _groups(self, parts: Sequence[ChangePart]) -> list[tuple[ChangePart, ...]]:
        small = [each for part in parts for each in part.divided()]
        count = min(len(small), self._engine.parallelism * _TASKS_PER_CORE)
        return [tuple(small[number::count]) for number in range(count)]


def partitions_of(maker: RowMaker, parallelism: int) -> int:
    """Return among how many tasks the buckets of a table are divided."""
    return min(maker.shape.buckets, parallelism * _TASKS_PER_CORE)


def joined(found: Iterable[Merged]) -> Merged:
    """Return what became of all changes."""
    merged = list(found)
    return Merged(sum(each.changes for each in merged), tuple(one for each in merged for one in each.buckets))
