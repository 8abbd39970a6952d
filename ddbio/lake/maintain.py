"""Maintenance of a lake table: remove tombstones, rewrite small or unsorted files, delete old versions and files."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.commit.protocol import DEAD_AFTER, abort_old
from ddbio.errors import DdbioError, NotFoundError, OptionError
from ddbio.formats.lake_columns import DELETED, KEY, TIME, attribute_columns
from ddbio.formats.rolling_writer import FileOptions
from ddbio.items.schema.arrow import name_of_field
from ddbio.jobs.report import Clock, JobReport, Report
from ddbio.jobs.stores import new_job_id
from ddbio.lake.apply import check_ours
from ddbio.lake.registering import check_lake_catalog, register_lake
from ddbio.lake.sweep import Sweep, plan_expiry, plan_sweep
from ddbio.lake_formats.bucket_files import STATISTICS_COLUMNS, BucketFiles
from ddbio.lake_formats.registry import TABLE_FORMATS, open_lake_table, require_writable
from ddbio.lake_formats.table import FLOOR, Commit, retry_conflicts
from ddbio.options.parsing import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddbio.lake.options import MaintainOptions
    from ddbio.lake_formats.table import LakeFile, LakeState, LakeTable

_LOG = logging.getLogger("ddbio.maintain")
SMALL_RATIO = 0.75
"""Files below this share of the target size are rewritten."""

_BATCH_ROWS = 65_536


@dataclass(frozen=True, kw_only=True)
class MaintainReport(JobReport):
    """Result of a run.

    Attributes
    ----------
    table
        The lake table.
    version
        Its version at the end.
    tombstones
        Removed rows of deleted items.
    rewritten_files, written_files
        Number of replaced files, and of the files that replaced them.
    gc_floor_us
        Time in microseconds up to which tombstones may have been removed; None if none ever was.
    deleted_files, deleted_bytes
        Files that belonged only to expired versions, or to no version.
    deleted_log_files, deleted_log_bytes
        Files of the table's own log that described expired versions.
    since_version
        The oldest version that can still be read; null if no age was set for deletion.
    """

    table: str
    version: int
    tombstones: int
    rewritten_files: int
    written_files: int
    gc_floor_us: int | None
    deleted_files: int = 0
    deleted_bytes: int = 0
    deleted_log_files: int = 0
    deleted_log_bytes: int = 0
    since_version: int | None = None


@dataclass(frozen=True)
class MaintainPlan(Report):
    """Expected effect of a run.

    Attributes
    ----------
    table, version
        The lake table, and its version.
    tombstones
        Rows of deleted items that would be removed.
    rewritten_files, rewritten_bytes
        Files that would be replaced.
    z_order_by
        Attributes by which all files would also be clustered.
    deleted_files, deleted_bytes
        Files that would be deleted, without those that the rewriting itself replaces.
    deleted_log_files, deleted_log_bytes
        Files of the table's own log that would be deleted.
    since_version
        The oldest version that could still be read; null if no age is set for deletion.
    """

    table: str
    version: int
    tombstones: int
    rewritten_files: int
    rewritten_bytes: int
    z_order_by: tuple[str, ...]
    deleted_files: int
    deleted_bytes: int
    deleted_log_files: int
    deleted_log_bytes: int
    since_version: int | None


@dataclass
class Maintainer:
    """Rewriting of the files of one table; errors are those of :func:`maintain`.

    Attributes
    ----------
    sort_by
        Attributes by which the rows of each bucket are sorted.
    nulls_first
        Whether the engine sorts rows without the attribute first.
    tombstones, rewritten, written
        The counts of this run.
    """

    table: LakeTable
    target_bytes: int
    sort_by: tuple[str, ...] = ()
    nulls_first: bool = False
    tombstones: int = 0
    rewritten: int = 0
    written: int = 0
    _files: list[Any] = field(default_factory=list)

    def run(self, until_us: int | None) -> LakeState:
        """Remove tombstones up to a time, and rewrite small files; return the state at the end.

        The floor is raised first, so that old changes are already stale if the process is killed afterwards.
        """
        # After a conflict, each bucket is committed separately, so that a new conflict repeats less work.
        commit_bytes = itertools.chain([self.target_bytes], itertools.repeat(0))
        return retry_conflicts(self.table.store, lambda: self._run_once(until_us, next(commit_bytes)))

    def _run_once(self, until_us: int | None, commit_bytes: int) -> LakeState:
        state = self.state()
        if until_us is not None and until_us > int(state.properties.get(FLOOR, -1)):
            state = self.table.alter(state, (), {FLOOR: str(until_us)})
        buckets = sorted({file.bucket for file in state.files})
        while buckets:
            done = self._rewrite(state, buckets, commit_bytes)
            buckets, state = buckets[done:], self.state()
        return state

    def horizon(self, age: str | None) -> int | None:
        """Return the time up to which tombstones are removed: the newest applied change minus the age.

        So changes that are not applied yet are newer than this time, regardless of when they were made.
        """
        if age is None:
            return None
        state = self.state()
        work = BucketFiles(self.table.store, self.table.file_schema(state), "plan", FileOptions())
        times = [pc.max(batch.column(0)).as_py() for file in state.files for batch in work.read(file, (TIME,))]
        newest = max((value for value in times if value is not None), default=0)
        return min(newest, int(time.time() * 1_000_000)) - seconds_of(age) * 1_000_000

    def forget(self, since: int) -> LakeState:
        """Forget the versions before ``since``, and return the newest state."""
        return retry_conflicts(self.table.store, lambda: self.table.forget(self.state(), since))

    def state(self) -> LakeState:
        """Return the newest state of the table."""
        state = self.table.load()
        if state is None:
            raise NotFoundError(f"there is no table at {self.table.store.uri}")
        check_ours(self.table, state)
        return state

    def plan(self, until_us: int | None) -> tuple[LakeState, int, list[LakeFile]]:
        """Return the state of the table, the number of tombstones to remove, and the files to rewrite."""
        state, tombstones, files = self.state(), 0, list[Any]()
        floor = max(int(state.properties.get(FLOOR, -1)), -1 if until_us is None else until_us)
        work = self._bucket_files(state, "plan")
        for bucket in sorted({file.bucket for file in state.files}):
            chosen, masks = self._choose(work, [file for file in state.files if file.bucket == bucket], floor)
            tombstones += sum(int((~mask).sum()) for mask in masks.values())
            files += chosen
        return state, tombstones, files

    def _bucket_files(self, state: LakeState, job_id: str) -> BucketFiles:
        options = FileOptions(
            compression="zstd", target_file_bytes=self.target_bytes, column_statistics=STATISTICS_COLUMNS
        )
        return BucketFiles(self.table.store, self.table.file_schema(state), job_id, options)

    def _choose(self, work: BucketFiles, files: list[LakeFile], floor: int) -> tuple[list[LakeFile], dict[str, Any]]:
        """Return the files of a bucket to rewrite, and the masks of the rows to keep in those that lose rows.

        These are files with tombstones to remove, small files if there are several, and all files if one is not sorted.
        """
        # All changes are from 1970 or later, so without a floor no row is removed and no file has to be read.
        all_masks = {file.path: _keep_mask(work, file, floor) for file in files if floor >= 0}
        masks = {path: mask for path, mask in all_masks.items() if not mask.all()}
        small = [file for file in files if file.size_bytes < SMALL_RATIO * self.target_bytes]
        chosen = [file for file in files if file.path in masks]
        if len(small) > 1:
            chosen = [file for file in files if file in small or file in chosen]
        names = columns_of(work.schema, self.sort_by)
        if names and (chosen or not all(self._is_sorted(work, file, names) for file in files)):
            chosen = files
        return chosen, masks

    def _is_sorted(self, work: BucketFiles, file: LakeFile, names: Sequence[str]) -> bool:
        """Return whether the rows of a file are sorted."""
        sort_columns = list(dict.fromkeys([*names, KEY]))
        rows = pa.Table.from_batches(
            work.read(file, sort_columns), pa.schema([work.schema.field(name) for name in sort_columns])
        )
        if self.nulls_first:
            # Arrow sorts nulls last. Sorting by is_valid first puts them first, because false is less than true.
            columns = [
                column for name in sort_columns for column in (pc.is_valid(rows.column(name)), rows.column(name))
            ]
            rows = pa.table(columns, names=[str(index) for index in range(len(columns))])
        order: Any = pc.sort_indices(rows, sort_keys=_ascending(rows.column_names))
        # The indices are unsigned, so a difference would never be negative.
        indices = order.to_numpy()
        return bool((indices[1:] > indices[:-1]).all())

    def _rewrite(self, state: LakeState, buckets: Sequence[int], commit_bytes: int) -> int:
        """Rewrite files of the first buckets in one commit, and return the number of these buckets.

        The commit includes at least one bucket, and ends after the given number of bytes.
        """
        job_id = new_job_id()
        work, floor = self._bucket_files(state, job_id), int(state.properties.get(FLOOR, -1))
        chosen, masks, removed, done = dict[int, list[Any]](), dict[str, Any](), list[Any](), 0
        for done, bucket in enumerate(buckets, 1):  # noqa: B007 - the number of examined buckets
            chosen[bucket], lost = self._choose(work, [file for file in state.files if file.bucket == bucket], floor)
            masks |= lost
            removed += chosen[bucket]
            if removed and sum(file.size_bytes for file in removed) >= commit_bytes:
                break
        if not removed:
            return done
        added = list[Any]()
        try:
            for bucket, files in chosen.items():
                if files:
                    added += work.write(bucket, self._rows(work, files, masks))
            for staged in added:
                self.table.store.complete(staged)
            self.table.commit(state, Commit(added=added, removed=removed, metadata={"ddbio": '{"verb": "maintain"}'}))
        finally:
            with contextlib.suppress(DdbioError):
                self.table.store.abort(job_id)
        self.tombstones += sum(int((~mask).sum()) for mask in masks.values())
        self.rewritten += len(removed)
        self.written += len(added)
        return done

    def _rows(self, work: BucketFiles, files: list[LakeFile], masks: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        rows = _kept_rows(work, files, masks)
        names = columns_of(work.schema, self.sort_by)
        if not names:
            yield from rows
            return
        table = pa.Table.from_batches(rows, work.schema)
        order = pc.sort_indices(table.select(list(dict.fromkeys([*names, KEY]))), sort_keys=_ascending([*names, KEY]))
        yield from table.take(order).combine_chunks().to_batches(_BATCH_ROWS)


def maintain(
    options: MaintainOptions, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> MaintainReport:
    """Rewrite small files of a lake table as larger ones, and remove old tombstones, versions and files.

    Parameters
    ----------
    master, conf
        Spark master and configuration for a new session.

    Raises
    ------
    NotFoundError
        If there is no such table.
    OptionError
        If ddbio did not create the table.
    TargetError
        If other writers repeatedly win the race for a commit, or the catalog has another table of this name.
    """
    clock, now = Clock(), time.time()
    if (writer := TABLE_FORMATS[options.format].spark_writer()) is not None:
        done: MaintainReport = writer.maintain_table(options, clock, master, conf or {})
        return done
    check_lake_catalog(options)
    job = open_maintainer(options)
    job.state()
    ages = (options.vacuum_older_than, options.expire_snapshots_older_than)
    require_writable(job.table.store, deletes=any(ages))
    state = job.run(job.horizon(options.tombstones_older_than))
    if options.z_order_by is not None:
        names = columns_of(job.table.file_schema(state), options.z_order_by)
        job.table.cluster(state, names, job.target_bytes)
        state = job.state()
    log = plan_expired(job.table, state, options, now)
    if log.files:
        state = job.forget(log.since_version)
    sweep = plan_swept(job.table, state, options, now)
    abort_staged(job.table, options, now)
    # The catalog must not refer readers to files that are deleted next.
    register_lake(options, job.table, state)
    # Data is deleted first: if the run is killed in between, the log still lists the remaining files.
    for part in (sweep, log):
        job.table.store.delete([file.path for file in part.files])
    _LOG.info("%s: %d files are deleted, %d of the log", job.table.store.uri, len(sweep.files), len(log.files))
    floor = state.properties.get(FLOOR)
    return MaintainReport(
        table=job.table.store.uri,
        version=state.version,
        tombstones=job.tombstones,
        rewritten_files=job.rewritten,
        written_files=job.written,
        gc_floor_us=None if floor is None else int(floor),
        **clock.times(),
        **_deleted(options, sweep, log),
    )


def plan_maintain(options: MaintainOptions) -> MaintainPlan:
    """Return the files that :func:`maintain` would rewrite and delete; nothing is written.

    Raises
    ------
    NotFoundError
        If there is no such table.
    OptionError
        If ddbio did not create the table.
    """
    job = open_maintainer(options)
    state, tombstones, files = job.plan(job.horizon(options.tombstones_older_than))
    now = time.time()
    sweep, log = plan_swept(job.table, state, options, now), plan_expired(job.table, state, options, now)
    return MaintainPlan(
        table=job.table.store.uri,
        version=state.version,
        tombstones=tombstones,
        rewritten_files=len(files),
        rewritten_bytes=sum(file.size_bytes for file in files),
        z_order_by=options.z_order_by or (),
        **_deleted(options, sweep, log),
    )


def open_maintainer(options: MaintainOptions) -> Maintainer:
    """Return the maintainer of the table that the options name."""
    table = open_lake_table(options.table, options.format, options)
    nulls_first = TABLE_FORMATS[options.format].sorts_nulls_first
    return Maintainer(table, int(options.target_file_bytes), options.sort_by or (), nulls_first)


def plan_swept(table: LakeTable, state: LakeState, options: MaintainOptions, now: float) -> Sweep:
    """Return the data files to delete because of their age."""
    age = options.vacuum_older_than
    return Sweep((), 0) if age is None else plan_sweep(table, state, now - seconds_of(age))


def plan_expired(table: LakeTable, state: LakeState, options: MaintainOptions, now: float) -> Sweep:
    """Return the files of the table's own log to delete because of their age."""
    age = options.expire_snapshots_older_than
    return Sweep((), 0) if age is None else plan_expiry(table, state, now - seconds_of(age))


def abort_staged(table: LakeTable, options: MaintainOptions, now: float) -> None:
    """Delete staged files of killed jobs after a week, or after the age at which files are deleted."""
    age = options.vacuum_older_than
    min_age = DEAD_AFTER if age is None else timedelta(seconds=seconds_of(age))
    # Without the permission to list the files, the run continues.
    with contextlib.suppress(DdbioError):
        abort_old(table.store, datetime.fromtimestamp(now, UTC) - min_age)


def _deleted(options: MaintainOptions, sweep: Sweep, log: Sweep) -> dict[str, Any]:
    has_age = options.vacuum_older_than is not None or options.expire_snapshots_older_than is not None
    return {
        "deleted_files": len(sweep.files),
        "deleted_bytes": sweep.bytes,
        "deleted_log_files": len(log.files),
        "deleted_log_bytes": log.bytes,
        "since_version": max(sweep.since_version, log.since_version) if has_age else None,
    }


def columns_of(schema: pa.Schema, attributes: Sequence[str]) -> list[str]:
    """Return the columns of the given attributes.

    Raises
    ------
    OptionError
        If there is no such attribute.
    """
    names = {name_of_field(field): field.name for field in attribute_columns(schema)}
    for attribute in attributes:
        if attribute not in names:
            raise OptionError(f"the lake table has no attribute {attribute!r} to sort by")
    return [names[attribute] for attribute in attributes]


def _ascending(names: Sequence[str]) -> list[tuple[str, Any]]:
    return [(name, "ascending") for name in names]


def _keep_mask(work: BucketFiles, file: LakeFile, floor: int) -> Any:
    masks = [np.ones(0, np.bool_)]
    for batch in work.read(file, (DELETED, TIME)):
        deleted = batch.column(0).to_numpy(zero_copy_only=False)
        times = batch.column(1).fill_null(floor + 1).to_numpy()
        masks.append(~(deleted & (times <= floor)))
    return np.concatenate(masks)


def _kept_rows(work: BucketFiles, files: list[LakeFile], masks: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    for file in files:
        if file.path in masks:
            yield from work.read_rows(file, masks[file.path])
        else:
            yield from work.read(file)
