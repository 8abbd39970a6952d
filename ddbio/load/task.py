"""Run the tasks of a load: each writes some units of the source, or one key partition of all rows after a shuffle."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from ddbio.items.kernel.arrays import take_rows
from ddbio.jobs.balance import balance
from ddbio.jobs.engine import Shuffle
from ddbio.load.batches import WriteCounts
from ddbio.load.encode import ItemsOfRows, legal_key_hashes
from ddbio.load.rejects import RejectWriter
from ddbio.load.spreading import RowSpreader
from ddbio.load.unit_reader import RowOrigins, RowPlaces, ShuffledOrigins, UnitReader, WithinUnits
from ddbio.load.write import write_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ddbio.budget import Budget, LocalBudget
    from ddbio.formats.file_format import TextLayout
    from ddbio.items.raw_items import RawItems
    from ddbio.jobs.engine import Engine, ShufflingEngine
    from ddbio.jobs.rejected_rows import RejectedRow
    from ddbio.load.checkpoint import Checkpoint, CheckpointStore
    from ddbio.load.options import WriteOptions
    from ddbio.load.plan import LoadPlan, WritePlan
    from ddbio.load.sources import Unit
    from ddbio.load.write import WriteTask
    from ddbio.sources.export_source import ExportSource
    from ddbio.storage.object_store import ObjectStore

ShuffleKey: TypeAlias = tuple[int, int, int]
"""The key partition of a batch, then its unit and its number, which put the batches in the order of the source."""


@dataclass(frozen=True)
class LoadJob:
    """Hold what every worker of a load needs; picklable."""

    options: WriteOptions
    task: WriteTask
    store: ObjectStore
    checkpoints: CheckpointStore
    first_row: int = 0
    any_order: bool = False
    """Whether rows may be written in any order: each key occurs once, or the result does not depend on it."""
    export: ExportSource | None = None
    types: Mapping[str, pa.Field[Any]] = dataclasses.field(default_factory=dict)
    """The declared columns of text."""
    texts: Mapping[str, TextLayout] = dataclasses.field(default_factory=dict)
    """What was found out of files of text before their rows are read."""
    null_values: tuple[str, ...] | None = None
    """The words of CSV that are missing values."""

    @property
    def reader(self) -> UnitReader:
        """Return the reader of the source."""
        return UnitReader(
            *(self.store, self.task.plan, self.export, self.types, self.texts), null_values=self.null_values
        )

    def write(
        self,
        rows: Iterable[pa.RecordBatch | RawItems | Checkpoint],
        rejects: RejectWriter,
        budget: Budget,
        origins: RowOrigins | ShuffledOrigins | None = None,
    ) -> WriteCounts:
        """Write rows; whatever ends this, rejected rows and finished units are stored."""
        spreader = RowSpreader(self.task.plan, any_order=self.any_order)

        def locate(row: RejectedRow) -> RejectedRow:
            number = spreader.number_of(row.row)
            file, file_row, line = (None, None, None) if origins is None else origins.of(number)
            return dataclasses.replace(row, row=number, file=file, file_row=file_row, line=line)

        try:
            return write_batches(self.task, spreader.spread(_as_items(rows, self.task.plan)), rejects, budget, locate)
        finally:
            self.checkpoints.flush()


def _as_items(
    rows: Iterable[pa.RecordBatch | RawItems | Checkpoint], plan: WritePlan
) -> Iterator[pa.RecordBatch | RawItems | Checkpoint]:
    """Yield rows as raw items where the plan lets them be."""
    items = ItemsOfRows(plan)
    for each in rows:
        if isinstance(each, pa.RecordBatch):
            yield from items.of(each)
        else:
            yield each


def run_load(
    job: LoadJob, units: Sequence[Unit], plan: LoadPlan, engine: Engine, budget: LocalBudget
) -> list[WriteCounts]:
    """Run the tasks of a load, without units that are finished; return the counts of each task."""
    if plan.key_partitions is None:
        left = [unit for unit in units if unit.number not in job.checkpoints.finished]
        # Each task carries the job, but needs no list of finished units, which may be long.
        job = dataclasses.replace(job, checkpoints=job.checkpoints.of_task())
        return engine.run(write_units, [UnitsTask(job, each) for each in assign_units(left, plan.tasks)], budget)
    shuffle = Shuffle(split_units, partial(KeyPartition, job), plan.key_partitions)
    splits = [SplitTask(job, each, plan.key_partitions) for each in assign_units(units, plan.tasks)]
    return cast("ShufflingEngine", engine).run_shuffled(shuffle, splits, write_key_partition, budget)


def assign_units(units: Sequence[Unit], tasks: int) -> list[tuple[Unit, ...]]:
    """Return the units of each task, in the order of the source: about the same bytes for each, and none empty."""
    return [tuple(units[index] for index in task) for task in balance([unit.size_bytes for unit in units], tasks)]


@dataclass(frozen=True)
class UnitsTask:
    """Hold the units that one task writes."""

    job: LoadJob
    units: tuple[Unit, ...]


def write_units(task: UnitsTask, budget: Budget) -> WriteCounts:
    """Write the rows of some units; rows of one key in the order of the source, unless any order will do."""
    job = task.job
    rejects = RejectWriter(job.options, job.checkpoints.job_id, job.first_row)

    def finish(unit: int, rows: int) -> None:
        # A later run does not read a finished unit, so its rejected rows must be stored first.
        rejects.flush()
        job.checkpoints.finish(unit, rows)

    def begin(unit: int, rows: int) -> None:
        if job.checkpoints.is_due:
            rejects.flush()
            job.checkpoints.begin(unit, rows)

    origins = RowOrigins(job.store.uri)
    within = WithinUnits(job.checkpoints.begun, begin)
    rows = job.reader.read(task.units, finish, any_order=job.any_order, origins=origins, within=within)
    return job.write(rows, rejects, budget, origins)


@dataclass(frozen=True)
class SplitTask:
    """Hold the units whose rows one task splits by key partition."""

    job: LoadJob
    units: tuple[Unit, ...]
    key_partitions: int


def split_units(task: SplitTask) -> Iterator[tuple[ShuffleKey, bytes]]:
    """Yield the rows of some units by key partition, so that all rows of a key are in one.

    Rows without a legal key go to the first partition. Finished partitions are left out.
    """
    plan, finished = task.job.task.plan, task.job.checkpoints.finished
    for unit, number, batch, places in task.job.reader.read_columns(task.units):
        found = _key_partitions(batch, plan, task.key_partitions)
        for partition in sorted(set(found.tolist()) - finished):
            chosen = np.flatnonzero(found == partition)
            yield (partition, unit.number, number), _to_ipc(take_rows(batch, chosen), places.to_metadata(chosen))


@dataclass(frozen=True)
class KeyPartition:
    """Hold the rows of one key partition, in the order of the source, as streams of Arrow IPC."""

    job: LoadJob
    number: int
    streams: Iterable[bytes]


def write_key_partition(partition: KeyPartition, budget: Budget) -> WriteCounts:
    """Write the rows of one key partition."""
    job = partition.job
    if partition.number in job.checkpoints.finished:
        return WriteCounts()
    origins = ShuffledOrigins()

    def batches() -> Iterator[pa.RecordBatch]:
        for stream in partition.streams:
            with pa.ipc.open_stream(stream) as reader:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            origins.add(RowPlaces.of_metadata(dict(metadata.items())), batch.num_rows)
            yield batch

    counts = job.write(batches(), RejectWriter(job.options, job.checkpoints.job_id), budget, origins)
    job.checkpoints.finish(partition.number, counts.rows)
    job.checkpoints.flush()
    return counts


def _key_partitions(batch: pa.RecordBatch, plan: WritePlan, count: int) -> NDArray[np.int64]:
    """Return the key partition of each row."""
    # The top bits of the hash choose the lane within the partition.
    legal, hashes = legal_key_hashes(batch, plan)
    found = np.zeros(batch.num_rows, np.int64)
    found[legal] = (hashes % np.uint64(count)).astype(np.int64)
    return found


def _to_ipc(batch: pa.RecordBatch, metadata: dict[bytes, bytes]) -> bytes:
    sink: Any = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata=metadata)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
