"""Vacuum of a folder: deletes old versions, files that no remaining version names, and the remains of dead jobs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ddbio.commit import committer
from ddbio.commit.contents import require_own_files
from ddbio.commit.protocol import Target, old_jobs
from ddbio.commit.snapshot import live_files, read_snapshot
from ddbio.jobs.report import Clock, Report
from ddbio.jobs.stores import new_job_id, open_store
from ddbio.options.parsing import seconds_of
from ddbio.storage.meta import META, claim_path, is_claim, is_intent, job_of_state, snapshot_path, version_at
from ddbio.storage.staged import job_of

if TYPE_CHECKING:
    from ddbio.folders.options import VacuumOptions
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject


@dataclass(frozen=True)
class VacuumReport(Report):
    """Result of a vacuum, or of its dry run.

    Attributes
    ----------
    path
        The folder, as passed.
    version
        Its newest version, which stays.
    versions_removed
        Older versions that were deleted.
    files_removed, bytes_removed
        Files that no version names any more.
    jobs_removed
        Dead jobs whose staged files or uploads were deleted.
    paths
        The files that were deleted, relative to the folder.
    seconds
        Wall time.
    dry_run
        Whether nothing was deleted.
    """

    path: str
    version: int
    versions_removed: tuple[int, ...]
    files_removed: int
    bytes_removed: int
    jobs_removed: int
    paths: tuple[str, ...]
    seconds: float
    dry_run: bool = False


def vacuum(options: VacuumOptions, *, dry_run: bool = False) -> VacuumReport:
    """Delete old versions of a folder, files that only they name, and remains of dead jobs; other files stay.

    Parameters
    ----------
    dry_run
        Delete nothing, and report what would be deleted.

    Raises
    ------
    TargetError
        If another job replaces files of the folder now.
    """
    clock, store, job_id = Clock(), open_store(options.path, options), new_job_id()
    require_own_files(store, "a vacuum would break it", changes=True)
    if dry_run:
        return _report(options, _find(store, options, datetime.now(UTC).timestamp(), job_id), clock, dry_run=True)
    target = Target(store=store, mode="replace", operation="vacuum")
    # Before anything is read, jobs that replace files are excluded, and commits of dead jobs finished or undone.
    with committer.publishing(target, job_id):
        own = next((entry.modified_at for entry in store.list(claim_path(job_id))), datetime.now(UTC).timestamp())
        garbage = _find(store, options, own, job_id)
        # The files first: if this vacuum is killed here, the next one sees the same versions and completes it.
        store.delete([file.path for file in garbage.files])
        store.delete([snapshot_path(version) for version in garbage.versions])
        for job in garbage.jobs:
            store.abort(job)
        target.abort(job_id)
    return _report(options, garbage, clock, dry_run=False)


@dataclass(frozen=True)
class _Garbage:
    version: int
    versions: tuple[int, ...]
    files: tuple[StoredObject, ...]
    jobs: tuple[str, ...]


def _find(store: ObjectStore, options: VacuumOptions, now: float, job_id: str) -> _Garbage:
    """Return the objects that are old enough, and named by no remaining version."""
    states = list(store.list(META))
    before = now - seconds_of(options.older_than)
    running = {job_of_state(entry.path) for entry in states if is_claim(entry.path) or is_intent(entry.path)} | {job_id}
    written = sorted((version, entry.modified_at) for entry in states if (version := version_at(entry.path)))
    # A version is old when the next one has existed for long.
    old = [version for (version, _), (_, ended) in itertools.pairwise(written) if ended <= before]
    remaining = [read_snapshot(store, version) for version, _ in written if version not in old] or [live_files(store)]
    named = {path for snapshot in remaining for path in snapshot.paths}
    dropped = {path for version in old for path in read_snapshot(store, version).paths}
    files = tuple(
        file
        for file in store.list()
        if not file.path.startswith(META) and file.path not in named and job_of(file.path) not in running
        # Files of other programs are deleted only if a version named them.
        if file.path in dropped or (job_of(file.path) and file.modified_at <= before)
    )
    jobs = tuple(sorted(old_jobs(store, datetime.fromtimestamp(before, UTC)) - running))
    return _Garbage(remaining[-1].version, tuple(old), files, jobs)


def _report(options: VacuumOptions, garbage: _Garbage, clock: Clock, *, dry_run: bool) -> VacuumReport:
    return VacuumReport(
        path=options.path,
        version=garbage.version,
        versions_removed=garbage.versions,
        files_removed=len(garbage.files),
        bytes_removed=sum(file.size_bytes for file in garbage.files),
        jobs_removed=len(garbage.jobs),
        paths=tuple(file.path for file in garbage.files),
        seconds=round(clock.seconds(), 3),
        dry_run=dry_run,
    )
