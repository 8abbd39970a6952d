"""Merge of a batch of changes into the files of a lake table, on threads of this process or on an engine.

Files are only staged here. The caller passes them to the committer.
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

_MAX_THREADS = 4
# Columns of new attributes are inferred from this number of rows of each task; values that do not fit are rescued.
_MAX_SAMPLED_TEXTS = 1_000
_TASKS_PER_CORE = 4
_CHANGES = b"ddbio:changes"


@dataclass(frozen=True)
class RowMaker:
    """Conversion of changes to rows of a table.

    Attributes
    ----------
    epochs
        The streams in the order of their epochs.
    since_us
        Changes before this time are left out, because the base load includes them.
    """

    shape: LakeShape
    epochs: tuple[str, ...]
    since_us: int

    def rows(self, lineage: str, batch: pa.RecordBatch) -> pa.Table:
        """Return the rows for changes of one stream."""
        rows = pa.Table.from_batches([rows_of_log(batch, self.shape, self.epochs.index(lineage) + 1)])
        if self.since_us > 0:
            rows = rows.filter(pc.greater_equal(rows.column(TIME), pa.scalar(self.since_us)))
        return rows


class BucketRows:
    """Rows by bucket in separate tables, so that the memory of a bucket is free after it was taken."""

    def __init__(self, tables: Iterable[pa.Table] = ()) -> None:
        self._parts = defaultdict[int, list[pa.Table]](list)
        for table in tables:
            self.add(table)

    def add(self, rows: pa.Table) -> None:
        """Add rows."""
        column: Any = rows.column(BUCKET)
        for bucket in map(int, pc.unique(column).to_pylist()):
            self._parts[bucket].append(rows.filter(pc.equal(column, pa.scalar(bucket, column.type))))

    def take(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield and remove each bucket, with the newest row of each key."""
        for bucket in sorted(self._parts):
            yield bucket, newest(pa.concat_tables(self._parts.pop(bucket)))


@dataclass(frozen=True)
class BucketMerger:
    """Merge of rows into the live files of a table, bucket by bucket.

    Attributes
    ----------
    live
        The live files of all buckets, or of those with changes.
    floor
        See ``ddbio.lake.bucket_merge.BucketMerge``.
    """

    files: BucketFiles
    live: tuple[LakeFile, ...]
    floor: int | None

    def merge(self, part: tuple[int, list[LakeFile], pa.Table]) -> MergedBucket:
        """Stage the files of one bucket."""
        return merge_bucket(self.files, *part, self.floor)

    def of_bucket(self, rows: BucketRows) -> Iterator[tuple[int, list[LakeFile], pa.Table]]:
        """Yield each bucket with its files and its changes, which are freed afterwards."""
        by_bucket = defaultdict[int, list[LakeFile]](list)
        for file in self.live:
            by_bucket[file.bucket].append(file)
        for bucket, changes in rows.take():
            yield bucket, by_bucket[bucket], changes


@dataclass(frozen=True)
class Merged:
    """Result of the merge of a batch.

    Attributes
    ----------
    changes
        The number of changes.
    """

    changes: int
    buckets: tuple[MergedBucket, ...]

    @property
    def outcome(self) -> Outcome:
        """Return the effects of the changes; a change that a newer one in the batch supersedes is stale."""
        total = sum((bucket.outcome for bucket in self.buckets), Outcome())
        merged = total.inserted + total.updated + total.deleted + total.stale
        return total + Outcome(stale=self.changes - merged)


class Merging(Protocol):
    """Engine that reads and merges changes."""

    def grown(self, shape: LakeShape, columns: pa.Schema, parts: Sequence[ChangePart]) -> LakeShape:
        """Return the shape with columns for the attributes of the changes."""
        ...

    def merge(self, parts: Sequence[ChangePart], maker: RowMaker, merger: BucketMerger) -> Merged:
        """Merge changes; after an error, the job must be aborted."""
        ...


@dataclass
class LocalMerging:
    """Merge on threads of this process, which keeps the changes of a batch in memory."""

    _read_rows: list[tuple[str, pa.RecordBatch]] = field(default_factory=list)

    def grown(self, shape: LakeShape, columns: pa.Schema, parts: Sequence[ChangePart]) -> LakeShape:
        """Read the changes, and return the shape with columns for their attributes."""
        with ThreadPoolExecutor(min(_MAX_THREADS, available_cores())) as threads:
            read = threads.map(lambda part: [(part.lineage, batch) for batch in part.batches()], parts)
            self._read_rows = [row for rows in read for row in rows]
        rescued = [text for _, batch in self._read_rows for text in rescued_texts(batch)]
        return shape.grown(item_columns(columns), rescued)

    def rows(self, maker: RowMaker) -> tuple[int, BucketRows]:
        """Return the number and the rows of the changes that were read, and free the changes."""
        rows, changes = BucketRows(), 0
        self._read_rows.reverse()
        while self._read_rows:
            lineage, batch = self._read_rows.pop()
            changes += batch.num_rows
            rows.add(maker.rows(lineage, batch))
        return changes, rows

    def merge(self, parts: Sequence[ChangePart], maker: RowMaker, merger: BucketMerger) -> Merged:
        """Merge the changes that were last read."""
        del parts
        changes, rows = self.rows(maker)
        return Merged(changes, tuple(_on_threads(merger.merge, merger.of_bucket(rows))))


def _on_threads(work: Callable[[PartT], ResultT], parts: Iterator[PartT]) -> list[ResultT]:
    """Return the results of the parts; a part is made only when a thread is free for it."""
    results, lock, failed = list[ResultT](), threading.Lock(), threading.Event()

    def run() -> None:
        try:
            while not failed.is_set():
                with lock:
                    part = next(parts, None)
                if part is None:
                    return
                results.append(work(part))
                # The memory of the part is freed before the next part is made.
                del part
        except BaseException:
            failed.set()
            raise

    count = min(_MAX_THREADS, available_cores())
    with ThreadPoolExecutor(count) as threads:
        running = [threads.submit(run) for _ in range(count)]
    for future in running:
        future.result()
    return results


def rescued_texts(batch: pa.RecordBatch) -> list[str]:
    """Return the texts of the rescue column."""
    column = batch.column(RESCUE_NAME)
    return [] if column.null_count == batch.num_rows else [str(text) for text in column.drop_null().to_pylist()]


@dataclass(frozen=True)
class SplitTask:
    """Changes that one task converts to rows.

    Attributes
    ----------
    partitions
        The number of tasks that the buckets are divided among.
    """

    number: int
    parts: tuple[ChangePart, ...]
    maker: RowMaker
    partitions: int


@dataclass(frozen=True)
class BucketsTask:
    """The changes of some buckets, as Arrow streams."""

    merger: BucketMerger
    streams: tuple[bytes, ...]


def split(task: SplitTask) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Yield the rows of a task's changes, with the number of the task that merges them."""
    batches = ((part.lineage, batch) for part in task.parts for batch in part.batches())
    for number, (lineage, batch) in enumerate(batches):
        for partition, data in split_batch(task.maker, lineage, batch, task.partitions):
            yield (partition, task.number, number), data


def split_batch(maker: RowMaker, lineage: str, batch: pa.RecordBatch, partitions: int) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of changes by merging task; the metadata of the first stream has the number of changes."""
    rows, changes = newest(maker.rows(lineage, batch)), batch.num_rows
    column: Any = rows.column(BUCKET)
    partition_numbers = pa.array(column.to_numpy() % partitions)
    for partition in sorted(map(int, pc.unique(partition_numbers).to_pylist())) or [0]:
        chosen = rows.filter(pc.equal(partition_numbers, pa.scalar(partition, partition_numbers.type)))
        sink = pa.BufferOutputStream()
        schema = chosen.schema.with_metadata({_CHANGES: str(changes)})
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_table(chosen.replace_schema_metadata(schema.metadata))
        yield partition, sink.getvalue().to_pybytes()
        changes = 0


def gather(merger: BucketMerger, partition: int, streams: Iterable[bytes]) -> BucketsTask:
    """Return the task that merges the streams of a partition."""
    del partition
    return BucketsTask(merger, tuple(streams))


def merge_buckets(task: BucketsTask, budget: Budget) -> Merged:
    """Stage the files of a task's buckets."""
    del budget
    tables = [pa.ipc.open_stream(stream).read_all() for stream in task.streams]
    if not tables:
        return Merged(0, ())
    changes = sum(int((table.schema.metadata or {})[_CHANGES]) for table in tables)
    rows = BucketRows(table.replace_schema_metadata(None) for table in tables)
    return Merged(changes, tuple(map(task.merger.merge, task.merger.of_bucket(rows))))


@dataclass(frozen=True)
class SearchTask:
    """Changes that are searched for attributes without a column."""

    parts: tuple[ChangePart, ...]
    column_names: frozenset[str]


def find_unmapped(task: SearchTask, budget: Budget) -> list[str]:
    """Return the rescued attributes without a column, as texts of a rescue column."""
    del budget
    texts = (text for part in task.parts for batch in part.batches() for text in rescued_texts(batch))
    return list(itertools.islice(unknown_texts(texts, task.column_names), _MAX_SAMPLED_TEXTS))


def unknown_texts(texts: Iterable[str], column_names: frozenset[str]) -> Iterator[str]:
    """Yield texts of a rescue column without the attributes that have a column; empty texts are skipped."""
    for text in texts:
        remaining = {name: value for name, value in json.loads(text).items() if name not in column_names}
        if remaining:
            yield compact_json(remaining)


class SpreadMerging:
    """Merge on an engine with a shuffle: its tasks read the changes, and merge those of their buckets.

    The driver has only the lists of files, and no rows.
    """

    def __init__(self, engine: ShufflingEngine) -> None:
        self._engine = engine

    def grown(self, shape: LakeShape, columns: pa.Schema, parts: Sequence[ChangePart]) -> LakeShape:
        """Return the shape with columns for the attributes of the changes; each task reads its own sample."""
        items = item_columns(columns)
        column_names = frozenset(name_of_field(field) for field in (*shape.attributes, *items))
        tasks = [SearchTask(group, column_names) for group in self._groups(parts)]
        results = self._engine.run(find_unmapped, tasks, LocalBudget(None, job="apply"))
        return shape.grown(items, [text for texts in results for text in texts])

    def merge(self, parts: Sequence[ChangePart], maker: RowMaker, merger: BucketMerger) -> Merged:
        """Merge changes with a shuffle."""
        partitions = partitions_of(maker, self._engine.parallelism)
        tasks = [SplitTask(number, group, maker, partitions) for number, group in enumerate(self._groups(parts))]
        shuffle = Shuffle(split, functools.partial(gather, merger), partitions)
        results = self._engine.run_shuffled(shuffle, tasks, merge_buckets, LocalBudget(None, job="apply"))
        return joined(results)

    def _groups(self, parts: Sequence[ChangePart]) -> list[tuple[ChangePart, ...]]:
        small = [small_part for part in parts for small_part in part.divided()]
        count = min(len(small), self._engine.parallelism * _TASKS_PER_CORE)
        return [tuple(small[number::count]) for number in range(count)]


def partitions_of(maker: RowMaker, parallelism: int) -> int:
    """Return the number of tasks that the buckets of a table are divided among."""
    return min(maker.shape.buckets, parallelism * _TASKS_PER_CORE)


def joined(results: Iterable[Merged]) -> Merged:
    """Return the merged result of all tasks."""
    merged = list(results)
    return Merged(sum(result.changes for result in merged), tuple(one for result in merged for one in result.buckets))
