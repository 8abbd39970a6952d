"""Read a side of a validation by the tasks of an engine: they hash rows and evaluate rules, and little comes back."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from ddbio.export.tasks import ExportStream
from ddbio.formats.file_format import ReadOptions
from ddbio.formats.registry import is_splittable
from ddbio.formats.row_files import RowFiles
from ddbio.items.decode import Decoder
from ddbio.items.key_hashes import Rows
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import declare_types
from ddbio.jobs.balance import balance
from ddbio.jobs.engine import SplitTasks
from ddbio.scan.stream import PageStream
from ddbio.storage.paths import with_columns
from ddbio.validation.meeting import Wanted, meet, parts_of
from ddbio.validation.sums import RowHasher, Sums, chosen_buckets, rows_in

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager, ExitStack
    from typing import Literal, TypeAlias

    from ddbio.budget import Budget, LocalBudget
    from ddbio.export.tasks import ExportTask
    from ddbio.items.key_hashes import Words
    from ddbio.jobs.engine import ShufflingEngine
    from ddbio.scan.stream import ScanTask
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.paths import FolderColumns
    from ddbio.storage.staged import StoredObject
    from ddbio.validation.meeting import PartKey
    from ddbio.validation.sums import Checks, HashedRows, Hashing

    OpenBudget: TypeAlias = Callable[[], AbstractContextManager[LocalBudget]]


_LARGE_BYTES = 64 * 1024 * 1024


class Portion(Protocol):
    """Read what one task reads of a side; a picklable value."""

    def hashed(self, hashing: Hashing, budget: Budget, misfits: MisfitLog) -> Generator[HashedRows, None, None]:
        """Yield the rows with their hashes; values that did not fit their columns are logged at the end."""
        ...


class HashingDecoder:
    """Decode pages into rows, and hash these."""

    def __init__(self, decoder: Decoder, hasher: RowHasher) -> None:
        self._decoder, self._hasher = decoder, hasher

    @property
    def log(self) -> MisfitLog:
        """Return the misfits so far."""
        return self._decoder.log

    def decode_batches(self, data: bytes, framing: Literal["page"], /) -> list[HashedRows]:
        """Return the rows of a page."""
        return self._hasher.all_hashed(self._decoder.decode_batches(data, framing))


@dataclass(frozen=True)
class TablePortion:
    """Scan some segments of a table."""

    scan: ScanTask

    def hashed(self, hashing: Hashing, budget: Budget, misfits: MisfitLog) -> Generator[HashedRows, None, None]:
        """Yield the rows, hashed by the lanes that decode them."""
        scan = self.scan
        stream = PageStream(
            scan, budget, lambda: HashingDecoder(Decoder(scan.schema, nulls=scan.nulls), RowHasher(hashing))
        )
        with closing(iter(stream)) as blocks:
            yield from blocks
        misfits.merge(stream.counts.misfits)


@dataclass(frozen=True)
class ExportPortion:
    """Read some files of an export, verified against its manifests."""

    files: ExportTask

    def hashed(self, hashing: Hashing, budget: Budget, misfits: MisfitLog) -> Generator[HashedRows, None, None]:
        """Yield the rows; a file is verified when its last row has been yielded."""
        del budget
        stream, hasher = ExportStream(self.files), RowHasher(hashing)
        yield from map(hasher.hashed, stream)
        misfits.merge(stream.counts.misfits)


@dataclass(frozen=True)
class FileUnit:
    """Name a file, or one part of it; the columns that its job noted, or that are declared; those of its folders."""

    entry: StoredObject
    part: int | None
    schema: pa.Schema | None
    declared: pa.Schema | tuple[()]
    folders: FolderColumns


@dataclass(frozen=True)
class FilesPortion:
    """Read some files, or parts of them."""

    store: ObjectStore
    keys: Mapping[str, str]
    units: tuple[FileUnit, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with the columns of their folders; all batches of a file have one schema."""
        reader = RowFiles(self.store, ReadOptions(self.keys))
        for unit in self.units:
            typed: pa.Schema | None = None
            if unit.part is None:
                read = reader.read_file(unit.entry, schema=unit.schema)
            else:
                read = reader.read(unit.entry, unit.part, schema=unit.schema)
            for given in read:
                batch = with_columns(given, unit.folders)
                if typed is None:
                    typed = declare_types(batch, unit.declared).schema
                yield pa.RecordBatch.from_arrays(batch.columns, schema=typed)

    def hashed(self, hashing: Hashing, budget: Budget, misfits: MisfitLog) -> Generator[HashedRows, None, None]:
        """Yield the rows with their hashes."""
        del budget, misfits
        yield from map(RowHasher(hashing).hashed, self.batches())

    def divided(self, count: int) -> list[FilesPortion]:
        """Return portions of about equal bytes; large files are divided into their parts."""
        reader, units = RowFiles(self.store, ReadOptions(self.keys)), list[tuple[int, FileUnit]]()
        for unit in self.units:
            size = unit.entry.size_bytes
            sizes = reader.parts(unit.entry).sizes_bytes if size > _LARGE_BYTES and is_splittable(unit.entry) else ()
            if len(sizes) > 1:
                units += [(each, replace(unit, part=part)) for part, each in enumerate(sizes)]
            else:
                units.append((size, unit))
        hands = balance([size for size, _ in units], count)
        return [replace(self, units=tuple(units[index][1] for index in hand)) for hand in hands]


@dataclass(frozen=True)
class PortionTask:
    """Say what a task does with its portion.

    Attributes
    ----------
    wanted
        The buckets of which rows are wanted, and the attributes that make them; or None.
    keys
        The hashes of the keys whose rows are wanted as they are; or None.
    """

    portion: Portion
    hashing: Hashing
    checks: Checks | None = None
    wanted: tuple[tuple[int, ...], tuple[str, ...] | None] | None = None
    keys: Words | None = None


def sum_portion(task: PortionTask, budget: Budget) -> tuple[bytes, MisfitLog]:
    """Return the sums of a portion, and what did not fit its columns."""
    sums, misfits = Sums(task.checks), MisfitLog()
    with closing(task.portion.hashed(task.hashing, budget, misfits)) as read:
        for each in read:
            if each.batch.num_rows:
                sums.add(each)
    return sums.to_bytes(), misfits


@dataclass(frozen=True)
class PartsTask:
    """Say which rows of a portion a task reads for a shuffle."""

    portion: Portion
    hashing: Hashing
    wanted: Wanted


def parts_of_portion(task: PartsTask, budget: Budget) -> Iterator[tuple[PartKey, bytes]]:
    """Yield the wanted rows of a portion as parts of a shuffle."""
    with closing(task.portion.hashed(task.hashing, budget, MisfitLog())) as read:
        yield from parts_of(read, task.wanted)


def words_of_portion(task: PortionTask, budget: Budget) -> Rows:
    """Return two words of each row of a portion that lies in a wanted bucket."""
    buckets, names = task.wanted or ((), None)
    chosen, found = chosen_buckets(buckets), list[Rows]()
    with closing(task.portion.hashed(task.hashing, budget, MisfitLog())) as read:
        found += (rows_in(each, chosen, names) for each in read)
    return Rows.joined(found)


def rows_of_portion(task: PortionTask, budget: Budget) -> list[bytes]:
    """Return the rows of a portion with wanted keys, as Arrow's stream format."""
    found = list[bytes]()
    keys = np.zeros(0, np.uint64) if task.keys is None else task.keys
    with closing(task.portion.hashed(task.hashing, budget, MisfitLog())) as read:
        for each in read:
            rows = each.batch.filter(pa.array(np.isin(each.rows.keys, keys)))
            if rows.num_rows:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, rows.schema) as stream:
                    stream.write_batch(rows)
                found.append(sink.getvalue().to_pybytes())
    return found


@dataclass(frozen=True)
class TasksSummary:
    """Hold what the tasks of an engine have summed, and read their portions again if need be.

    Attributes
    ----------
    open_budget
        Opens the budget of one more reading.
    """

    engine: ShufflingEngine
    portions: Sequence[Portion]
    hashing: Hashing
    sums: Sums
    open_budget: OpenBudget

    def rows(self, buckets: Sequence[int], group: int | None = None) -> Iterator[Rows]:
        """Yield two words of each row of some buckets; as many tasks' at a time as run side by side."""
        names = None if group is None else self.sums.unique_names[group]
        wanted = tuple(buckets), names
        tasks = [PortionTask(each, self.hashing, wanted=wanted) for each in self.portions]
        with self.open_budget() as budget:
            for first in range(0, len(tasks), self.engine.parallelism):
                yield from self.engine.run(words_of_portion, tasks[first : first + self.engine.parallelism], budget)

    def repeated(self, buckets: Sequence[int], group: int | None = None) -> int:
        """Return how many rows of some buckets have the key of another: a shuffle brings equal keys together."""
        if not buckets:
            return 0
        names, sums = None, self.sums.buckets
        if group is not None:
            names, sums = self.sums.unique_names[group], self.sums.unique[group]
        wanted = replace(Wanted.of(buckets, sums.counts, self.engine.parallelism), names=names)
        return meet(self.engine, [self], wanted).repeated[0]

    def parts(self, wanted: Wanted, stack: ExitStack) -> SplitTasks:
        """Return the tasks that read the wanted rows for a shuffle."""
        tasks = [PartsTask(each, self.hashing, wanted) for each in self.portions]
        return SplitTasks(tasks, parts_of_portion, stack.enter_context(self.open_budget()))

    def batches_with(self, keys: Words) -> Iterator[pa.RecordBatch]:
        """Yield the rows with some keys."""
        tasks = [PortionTask(each, self.hashing, keys=keys) for each in self.portions]
        with self.open_budget() as budget:
            for found in self.engine.run(rows_of_portion, tasks, budget):
                for each in found:
                    yield from pa.ipc.open_stream(each)


def summarise(
    engine: ShufflingEngine,
    portions: Sequence[Portion],
    hashing: Hashing,
    checks: Checks | None,
    open_budget: OpenBudget,
) -> tuple[TasksSummary, MisfitLog]:
    """Have the tasks of an engine read a side once; return what they have summed, and what did not fit its columns."""
    sums, misfits = Sums(checks), MisfitLog()
    with open_budget() as budget:
        for added, log in engine.run(sum_portion, [PortionTask(each, hashing, checks) for each in portions], budget):
            sums.add_bytes(added)
            misfits.merge(log)
    return TasksSummary(engine, portions, hashing, sums, open_budget), misfits
