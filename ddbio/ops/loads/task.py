"""Write a part of a load's rows in a worker, by units or by shares of all keys; plan nothing, and count."""

from __future__ import annotations

import dataclasses
import heapq
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from ddbio.core.item_key import key_hashes
from ddbio.core.kernel.encode.fields import take_rows
from ddbio.core.loads.counts import WriteCounts
from ddbio.core.loads.requests import ItemEncoder, columns_of
from ddbio.engine import Shuffle
from ddbio.errors import DdbioError
from ddbio.files.row_files import RowFiles
from ddbio.ops.loads.rejects import RejectWriter
from ddbio.ops.loads.scheduler import write_batches
from ddbio.ops.loads.sources import Origins, columns_of_unit, unit_batches
from ddbio.ops.loads.spreading import Spreading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ddbio.budget import Budget, LocalBudget
    from ddbio.core.loads.plan import LoadPlan, WritePlan
    from ddbio.core.loads.rejects import RejectedRow
    from ddbio.core.raw_items import RawItems
    from ddbio.engine import Engine, ShufflingEngine
    from ddbio.files.object_store import ObjectStore
    from ddbio.ops.exports.source import ExportSource
    from ddbio.ops.loads.checkpoint import CheckpointStore
    from ddbio.ops.loads.scheduler import Checkpoint, WriteInput, WriteTask
    from ddbio.ops.loads.sources import Unit
    from ddbio.options import WriteOptions

Place: TypeAlias = tuple[int, int, int]
"""The share of a batch, and what puts the batches of a share in the order of the source: unit, then number."""


@dataclass(frozen=True)
class LoadJob:
    """Give every worker of a load what all of them need, picklable."""

    options: WriteOptions
    task: WriteTask
    store: ObjectStore
    checkpoints: CheckpointStore
    first_row: int = 0
    any_order: bool = False
    """Whether rows may be written in any order, as each key occurs once or the end does not depend on it."""
    export: ExportSource | None = None

    def write(
        self,
        feed: Iterable[pa.RecordBatch | RawItems | Checkpoint],
        rejects: RejectWriter,
        budget: Budget,
        origins: Origins | None = None,
    ) -> WriteCounts:
        """Write all of it; whatever ends this, rejected rows are kept and what is finished is noted."""
        spreading = Spreading(self.task.plan, any_order=self.any_order)

        def place(row: RejectedRow) -> RejectedRow:
            number = spreading.number_of(row.row)
            file, file_row = (None, None) if origins is None else origins.of(number)
            return dataclasses.replace(row, row=number, file=file, file_row=file_row)

        try:
            return write_kept(self.task, spreading.spread(feed), rejects, budget, place)
        finally:
            self.checkpoints.flush()


def write_kept(
    task: WriteTask,
    feed: Iterable[WriteInput],
    rejects: RejectWriter,
    budget: Budget,
    place: Callable[[RejectedRow], RejectedRow] | None = None,
) -> WriteCounts:
    """Write all of it; whatever ends this, rejected rows are kept first, and an error counts them.

    Parameters
    ----------
    place
        Returns a row, known by its number in the feed, with its place in the source.
    """

    def reject(rows: list[RejectedRow]) -> None:
        rejects.add(rows if place is None else [place(row) for row in rows])

    try:
        return write_batches(task, feed, budget, reject)
    except DdbioError as error:
        if rejects.count:
            error.args = (f"{error} ({rejects.count} rejected rows lie in {rejects.uri})", *error.args[1:])
        raise
    finally:
        rejects.flush()


def run_load(
    job: LoadJob, units: Sequence[Unit], plan: LoadPlan, engine: Engine, budget: LocalBudget
) -> list[WriteCounts]:
    """Return what each task of a load counted; what is finished already is left out."""
    if plan.key_partitions is None:
        left = [unit for unit in units if unit.number not in job.checkpoints.finished]
        # Each task carries the job: what is finished is of no use to it, and may be long.
        job = dataclasses.replace(job, checkpoints=job.checkpoints.of_task())
        return engine.run(write_units, [UnitsTask(job, each) for each in deal(left, plan.tasks)], budget)
    shuffle = Shuffle(split_units, partial(Share, job), plan.key_partitions)
    splits = [SplitTask(job, each, plan.key_partitions) for each in deal(units, plan.tasks)]
    return cast("ShufflingEngine", engine).run_shuffled(shuffle, splits, write_share, budget)


def deal(units: Sequence[Unit], tasks: int) -> list[tuple[Unit, ...]]:
    """Return the units by task: about the same bytes for each, in the order of the source; no task without any."""
    piles: list[list[Unit]] = [[] for _ in range(min(tasks, len(units)))]
    lightest = [(0, number) for number in range(len(piles))]
    for unit in sorted(units, key=attrgetter("size_bytes"), reverse=True):
        size_bytes, number = lightest[0]
        piles[number].append(unit)
        heapq.heapreplace(lightest, (size_bytes + unit.size_bytes, number))
    return [tuple(sorted(pile, key=attrgetter("number"))) for pile in piles]


@dataclass(frozen=True)
class UnitsTask:
    """Name the units that one task writes."""

    job: LoadJob
    units: tuple[Unit, ...]


def write_units(task: UnitsTask, budget: Budget) -> WriteCounts:
    """Write every row of some units, rows of one key in the order of the source unless any order will do."""
    job = task.job
    rejects = RejectWriter(job.options, job.checkpoints.job_id, job.first_row)

    def finish(unit: int, rows: int) -> None:
        # Nobody would look for the rejected rows of a finished unit again.
        rejects.flush()
        job.checkpoints.finish(unit, rows)

    origins = Origins(job.store.uri)
    feed = unit_batches(
        job.store, task.units, job.task.plan, finish, any_order=job.any_order, export=job.export, origins=origins
    )
    return job.write(feed, rejects, budget, origins)


@dataclass(frozen=True)
class SplitTask:
    """Name the units that one task splits into shares."""

    job: LoadJob
    units: tuple[Unit, ...]
    shares: int


def split_units(task: SplitTask) -> Iterator[tuple[Place, bytes]]:
    """Yield the rows of some units by the shares of their keys: all rows of a key are in one share.

    A row without a legal key goes to the first share; shares that are finished are left out.
    """
    plan, finished = task.job.task.plan, task.job.checkpoints.finished
    files = RowFiles(task.job.store, dict(plan.key_types))
    for unit in task.units:
        for number, batch in enumerate(columns_of_unit(files, unit, plan)):
            shares = _shares(batch, plan, task.shares)
            for share in sorted(set(shares.tolist()) - finished):
                yield (share, unit.number, number), _packed(take_rows(batch, np.flatnonzero(shares == share)))


@dataclass(frozen=True)
class Share:
    """Hold the rows of one share, in the order of the source."""

    job: LoadJob
    number: int
    packed: Iterable[bytes]


def write_share(share: Share, budget: Budget) -> WriteCounts:
    """Write every row of one share."""
    job = share.job
    if share.number in job.checkpoints.finished:
        return WriteCounts()
    batches = (batch for packed in share.packed for batch in pa.ipc.open_stream(packed))
    counts = job.write(batches, RejectWriter(job.options, job.checkpoints.job_id), budget)
    job.checkpoints.finish(share.number, counts.rows)
    job.checkpoints.flush()
    return counts


def _shares(batch: pa.RecordBatch, plan: WritePlan, shares: int) -> NDArray[np.int64]:
    keys = dict(plan.key_types)
    made = ItemEncoder(batch.schema, columns_of(batch.schema, keys), keys).encode(batch)
    legal = np.flatnonzero(np.diff(made.offsets))
    # The top bits choose the lane within the share.
    hashes = key_hashes(take_rows(batch, legal), list(keys))
    found = np.zeros(batch.num_rows, np.int64)
    found[legal] = (hashes % np.uint64(shares)).astype(np.int64)
    return found


def _packed(batch: pa.RecordBatch) -> bytes:
    sink: Any = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
