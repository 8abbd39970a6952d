"""Maintain a lake table: let tombstones go, and rewrite small files as few."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.lake.columns import DELETED, TIME
from ddbio.errors import DdbioError, NotFoundError, TargetError
from ddbio.files.rolling_writer import FileOptions
from ddbio.lake.bucket_files import NOTED, BucketFiles
from ddbio.lake.lake_table import FLOOR, Commit, ConflictError
from ddbio.ops.job.lake_tables import open_lake_table
from ddbio.ops.job.report import Clock, Report
from ddbio.ops.job.storage import new_job_id
from ddbio.ops.lake.apply import check_ours

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.lake.lake_table import LakeFile, LakeState, LakeTable
    from ddbio.options.lake import MaintainOptions

_LOG = logging.getLogger("ddbio.maintain")
_TRIES = 30
_SECONDS = {"h": 3600, "d": 86_400, "w": 604_800}
_SMALL_RATIO = 0.75


@dataclass(frozen=True)
class MaintainReport(Report):
    """What a run did.

    Attributes
    ----------
    table
        The lake table.
    version
        Its version at the end.
    tombstones
        Rows of deleted items that went.
    rewritten_files, written_files
        Files that were replaced, and by how many.
    gc_floor_us
        Time in microseconds up to which tombstones may be gone; None if none ever went.
    seconds
        Wall time from the verb's start.
    cpu_seconds
        User + system seconds of this process.
    """

    table: str
    version: int
    tombstones: int
    rewritten_files: int
    written_files: int
    gc_floor_us: int | None
    seconds: float
    cpu_seconds: float


@dataclass
class Maintainer:
    """Rewrite files of one table; errors are those of :func:`maintain`.

    Attributes
    ----------
    tombstones, rewritten, written
        What this run has done.
    """

    table: LakeTable
    target_bytes: int
    tombstones: int = 0
    rewritten: int = 0
    written: int = 0
    _files: list[Any] = field(default_factory=list)

    def run(self, until_us: int | None) -> LakeState:
        """Let tombstones up to a time go, and rewrite small files; return the state at the end.

        The floor is raised first: a process that dies behind it leaves a table in which old changes are stale already.
        """
        for tries in range(1, _TRIES):
            state = self._state()
            try:
                if until_us is not None and until_us > int(state.properties.get(FLOOR, -1)):
                    state = self.table.alter(state, (), {FLOOR: str(until_us)})
                for bucket in sorted({each.bucket for each in state.files}):
                    self._rewrite(state, bucket)
                    state = self._state()
            except ConflictError:
                time.sleep(random.uniform(0, min(2.0, 0.02 * 2**tries)))
            else:
                return state
        raise TargetError(f"other writers were faster at {self.table.store.uri} again and again", self.table.store.uri)

    def horizon(self, age: str | None) -> int | None:
        """Return the time up to which tombstones go: an age before the newest change that is applied.

        Changes that are not applied yet, however long ago they were made, are above it so.
        """
        if age is None:
            return None
        state = self._state()
        work = BucketFiles(self.table.store, self.table.file_schema(state), "plan", FileOptions())
        times = [pc.max(batch.column(0)).as_py() for each in state.files for batch in work.read(each, (TIME,))]
        newest = max((each for each in times if each is not None), default=0)
        return min(newest, int(time.time() * 1_000_000)) - seconds_of(age) * 1_000_000

    def _state(self) -> LakeState:
        state = self.table.load()
        if state is None:
            raise NotFoundError(f"there is no table at {self.table.store.uri}")
        check_ours(self.table, state)
        return state

    def _rewrite(self, state: LakeState, bucket: int) -> None:
        """Rewrite those files of a bucket that have tombstones to go, and small ones if there are several."""
        files = [each for each in state.files if each.bucket == bucket]
        floor = int(state.properties.get(FLOOR, -1))
        job_id = new_job_id()
        options = FileOptions(compression="zstd", target_file_bytes=self.target_bytes, statistics=NOTED)
        work = BucketFiles(self.table.store, self.table.file_schema(state), job_id, options)
        masks = {each.path: _stays(work, each, floor) for each in files}
        small = [each for each in files if each.size_bytes < _SMALL_RATIO * self.target_bytes]
        chosen = [each for each in files if not masks[each.path].all()]
        if len(small) > 1:
            chosen = [each for each in files if each in small or each in chosen]
        if not chosen:
            return
        try:
            added = work.write(bucket, _kept(work, chosen, masks))
            for staged in added:
                self.table.store.complete(staged)
            self.table.commit(state, Commit(added=added, removed=chosen, metadata={"ddbio": '{"verb": "maintain"}'}))
        finally:
            with contextlib.suppress(DdbioError):
                self.table.store.abort(job_id)
        self.tombstones += sum(int((~masks[each.path]).sum()) for each in chosen)
        self.rewritten += len(chosen)
        self.written += len(added)


def maintain(options: MaintainOptions) -> MaintainReport:
    """Let tombstones of a table go that are old enough, and rewrite its small files.

    Raises
    ------
    NotFoundError
        If there is no such table.
    OptionError
        If ddbio did not make the table.
    TargetError
        If other writers are faster again and again.
    """
    clock = Clock()
    job = Maintainer(open_lake_table(options.table, options.format, options), int(options.target_file_bytes))
    state = job.run(job.horizon(options.tombstones_older_than))
    floor = state.properties.get(FLOOR)
    return MaintainReport(
        table=job.table.store.uri,
        version=state.version,
        tombstones=job.tombstones,
        rewritten_files=job.rewritten,
        written_files=job.written,
        gc_floor_us=None if floor is None else int(floor),
        seconds=round(clock.seconds(), 3),
        cpu_seconds=round(clock.cpu_seconds(), 3),
    )


def seconds_of(age: str) -> int:
    """Return the seconds of an age such as ``7d``."""
    return int(age[:-1]) * _SECONDS[age[-1]]


def _stays(work: BucketFiles, file: LakeFile, floor: int) -> Any:
    masks = [np.ones(0, np.bool_)]
    for batch in work.read(file, (DELETED, TIME)):
        deleted = batch.column(0).to_numpy(zero_copy_only=False)
        times = batch.column(1).fill_null(floor + 1).to_numpy()
        masks.append(~(deleted & (times <= floor)))
    return np.concatenate(masks)


def _kept(work: BucketFiles, files: list[LakeFile], masks: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    for file in files:
        start = 0
        for batch in work.read(file):
            end = start + batch.num_rows
            yield batch.filter(pa.array(masks[file.path][start:end]))
            start = end
