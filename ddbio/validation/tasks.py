"""Tasks of an engine that read a side of a validation: they hash rows and evaluate rules, and return small results."""

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
from ddbio.validation.key_join import JoinSpec, join_keys, parts_of
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
    from ddbio.validation.key_join import PartKey
    from ddbio.validation.sums import Checks, HashedRows, Hashing

    OpenBudget: TypeAlias = Callable[[], AbstractContextManager[LocalBudget]]


_LARGE_BYTES = 64 * 1024 * 1024


class Portion(Protocol):
    """The part of a side that one task reads. It is picklable."""

    def hashed(self, hashing: Hashing, budget: Budget, misfits: MisfitLog) -> Generator[HashedRows, None, None]:
        """Yield the rows with their hashes. Values that did not fit their columns are logged at the end."""
        ...


class HashingDecoder:
    """Decoder of pages into rows with their hashes."""

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
    """Some segments of a table."""

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
    """Some files of an export, verified against its manifests."""

    files: ExportTask

    def hashed(self, hashing: Hashing, budget: Budget, misfits: MisfitLog) -> Generator[HashedRows, None, None]:
        """Yield the rows. A file is verified after its last row."""
        del budget
        stream, hasher = ExportStream(self.files), RowHasher(hashing)
        yield from map(hasher.hashed, stream)
        misfits.merge(stream.counts.misfits)


@dataclass(frozen=True)
class FileUnit:
    """A file or a part of it, with the columns that its job recorded or that are declared, and those of its folders."""

    entry: StoredObject
    part: int | None
    schema: pa.Schema | None
    declared: pa.Schema | tuple[()]
    folders: FolderColumns


@dataclass(frozen=True)
class FilesPortion:
    """Some files, or parts of files."""

    store: ObjectStore
    keys: Mapping[str, str]
    units: tuple[FileUnit, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with the columns of their folders. All batches of a file have one schema."""
        reader = RowFiles(self.store, ReadOptions(self.keys))
        for unit in self.units:
            typed: pa.Schema | None = None
            if unit.part is None:
                read = reader.read_file(unit.entry, schema=unit.schema)
            else:
                read = reader.read(unit.entry, unit.part, schema=unit.schema)
            for rows in read:
                batch = with_columns(rows, unit.folders)
                if typed is None:
                    typed = declare_types(batch, unit.declared).schema
                yield pa.RecordBatch.from_arrays(batch.columns, schema=typed)

    def hashed(self, hashing: Hashing, budget: Budget, misfits: MisfitLog) -> Generator[HashedRows, None, None]:
        """Yield the rows with their hashes."""
        del budget, misfits
        yield from map(RowHasher(hashing).hashed, self.batches())

    def divided(self, count: int) -> list[FilesPortion]:
        """Return portions of about equal bytes. Large files are divided into their parts."""
        reader, units = RowFiles(self.store, ReadOptions(self.keys)), list[tuple[int, FileUnit]]()
        for unit in self.units:
            size = unit.entry.size_bytes
            sizes = reader.parts(unit.entry).sizes_bytes if size > _LARGE_BYTES and is_splittable(unit.entry) else ()
            if len(sizes) > 1:
                units += [(part_bytes, replace(unit, part=part)) for part, part_bytes in enumerate(sizes)]
            else:
                units.append((size, unit))
        groups = balance([size for size, _ in units], count)
        return [replace(self, units=tuple(units[index][1] for index in group)) for group in groups]


@dataclass(frozen=True)
class PortionTask:
    """A portion and its processing.

    Attributes
    ----------
    wanted
        The buckets whose rows are requested, and the attributes that are hashed; or None.
    keys
        The hashes of the keys whose full rows are requested; or None.
    """

    portion: Portion
    hashing: Hashing
    checks: Checks | None = None
    wanted: tuple[tuple[int, ...], tuple[str, ...] | None] | None = None
    keys: Words | None = None


def sum_portion(task: PortionTask, budget: Budget) -> tuple[bytes, MisfitLog]:
    """Return the sums of a portion, and the values that did not fit its columns."""
    sums, misfits = Sums(task.checks), MisfitLog()
    with closing(task.portion.hashed(task.hashing, budget, misfits)) as read:
        for hashed in read:
            if hashed.batch.num_rows:
                sums.add(hashed)
    return sums.to_bytes(), misfits


@dataclass(frozen=True)
class PartsTask:
    """The rows of a portion that a task reads for a shuffle."""

    portion: Portion
    hashing: Hashing
    wanted: JoinSpec


def parts_of_portion(task: PartsTask, budget: Budget) -> Iterator[tuple[PartKey, bytes]]:
    """Yield the requested rows of a portion as parts of a shuffle."""
    with closing(task.portion.hashed(task.hashing, budget, MisfitLog())) as read:
        yield from parts_of(read, task.wanted)


def words_of_portion(task: PortionTask, budget: Budget) -> Rows:
    """Return two words of each row of a portion in a requested bucket."""
    buckets, names = task.wanted or ((), None)
    chosen, rows = chosen_buckets(buckets), list[Rows]()
    with closing(task.portion.hashed(task.hashing, budget, MisfitLog())) as read:
        rows += (rows_in(hashed, chosen, names) for hashed in read)
    return Rows.joined(rows)


def rows_of_portion(task: PortionTask, budget: Budget) -> list[bytes]:
    """Return the rows of a portion with requested keys, in Arrow's stream format."""
    streams = list[bytes]()
    keys = np.zeros(0, np.uint64) if task.keys is None else task.keys
    with closing(task.portion.hashed(task.hashing, budget, MisfitLog())) as read:
        for hashed in read:
            rows = hashed.batch.filter(pa.array(np.isin(hashed.rows.keys, keys)))
            if rows.num_rows:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, rows.schema) as stream:
                    stream.write_batch(rows)
                streams.append(sink.getvalue().to_pybytes())
    return streams


@dataclass(frozen=True)
class TasksSummary:
    """The sums of an engine's tasks, which can read their portions again.

    Attributes
    ----------
    open_budget
        Opens the budget of one more pass.
    """

    engine: ShufflingEngine
    portions: Sequence[Portion]
    hashing: Hashing
    sums: Sums
    open_budget: OpenBudget

    def rows(self, buckets: Sequence[int], group: int | None = None) -> Iterator[Rows]:
        """Yield two words of each row of some buckets. At most ``parallelism`` tasks run at a time."""
        names = None if group is None else self.sums.unique_names[group]
        wanted = tuple(buckets), names
        tasks = [PortionTask(portion, self.hashing, wanted=wanted) for portion in self.portions]
        with self.open_budget() as budget:
            for first in range(0, len(tasks), self.engine.parallelism):
                yield from self.engine.run(words_of_portion, tasks[first : first + self.engine.parallelism], budget)

    def repeated(self, buckets: Sequence[int], group: int | None = None) -> int:
        """Return the number of rows of some buckets with the key of another row.

        A shuffle brings equal keys together.
        """
        if not buckets:
            return 0
        names, sums = None, self.sums.buckets
        if group is not None:
            names, sums = self.sums.unique_names[group], self.sums.unique[group]
        wanted = replace(JoinSpec.of(buckets, sums.counts, self.engine.parallelism), names=names)
        return join_keys(self.engine, [self], wanted).repeated[0]

    def parts(self, wanted: JoinSpec, stack: ExitStack) -> SplitTasks:
        """Return the tasks that read the requested rows for a shuffle."""
        tasks = [PartsTask(portion, self.hashing, wanted) for portion in self.portions]
        return SplitTasks(tasks, parts_of_portion, stack.enter_context(self.open_budget()))

    def batches_with(self, keys: Words) -> Iterator[pa.RecordBatch]:
        """Yield the rows with some keys."""
        tasks = [PortionTask(portion, self.hashing, keys=keys) for portion in self.portions]
        with self.open_budget() as budget:
            for streams in self.engine.run(rows_of_portion, tasks, budget):
                for stream in streams:
                    yield from pa.ipc.open_stream(stream)


def summarise(
    engine: ShufflingEngine,
    portions: Sequence[Portion],
    hashing: Hashing,
    checks: Checks | None,
    open_budget: OpenBudget,
) -> tuple[TasksSummary, MisfitLog]:
    """Read a side once by the tasks of an engine. Return their sums, and the values that did not fit the columns."""
    sums, misfits = Sums(checks), MisfitLog()
    with open_budget() as budget:
        for added, log in engine.run(
            sum_portion, [PortionTask(portion, hashing, checks) for portion in portions], budget
        ):
            sums.add_bytes(added)
            misfits.merge(log)
    return TasksSummary(engine, portions, hashing, sums, open_budget), misfits
