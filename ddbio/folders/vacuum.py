"""Delete what no version of a folder that readers may still use names: old files, old versions, dead uploads."""

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
    """What a vacuum deleted, or would delete.

    Attributes
    ----------
    path
        The folder as given.
    version
        Its newest version, which stays.
    versions_removed
        Older versions that are gone.
    files_removed, bytes_removed
        Files that no version names any more.
    jobs_removed
        Dead jobs whose staged files or uploads are gone.
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
    """Delete old versions of a folder, files that only they name, and what dead jobs left; others' files stay.

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
    # Jobs that replace files are excluded, and commits of dead ones finished or undone, before anything is looked at.
    with committer.publishing(target, job_id):
        own = next((each.modified_at for each in store.list(claim_path(job_id))), datetime.now(UTC).timestamp())
        found = _find(store, options, own, job_id)
        # First the files: a vacuum that dies here is made good by the next one, which finds the same versions.
        store.delete([each.path for each in found.files])
        store.delete([snapshot_path(each) for each in found.versions])
        for each in found.jobs:
            store.abort(each)
        target.abort(job_id)
    return _report(options, found, clock, dry_run=False)


@dataclass(frozen=True)
class _Found:
    version: int
    versions: tuple[int, ...]
    files: tuple[StoredObject, ...]
    jobs: tuple[str, ...]


def _find(store: ObjectStore, options: VacuumOptions, now: float, job_id: str) -> _Found:
    """Return what is old enough, and named by no version that stays."""
    states = list(store.list(META))
    before = now - seconds_of(options.older_than)
    running = {job_of_state(each.path) for each in states if is_claim(each.path) or is_intent(each.path)} | {job_id}
    written = sorted((version, each.modified_at) for each in states if (version := version_at(each.path)))
    # A version is old when the next one has been there for long.
    old = [version for (version, _), (_, ended) in itertools.pairwise(written) if ended <= before]
    kept = [read_snapshot(store, version) for version, _ in written if version not in old] or [live_files(store)]
    named = {path for each in kept for path in each.paths}
    dropped = {path for version in old for path in read_snapshot(store, version).paths}
    files = tuple(
        each
        for each in store.list()
        if not each.path.startswith(META) and each.path not in named and job_of(each.path) not in running
        # Files of other programs are deleted only if a version named them.
        if each.path in dropped or (job_of(each.path) and each.modified_at <= before)
    )
    jobs = tuple(sorted(old_jobs(store, datetime.fromtimestamp(before, UTC)) - running))
    return _Found(kept[-1].version, tuple(old), files, jobs)


def _report(options: VacuumOptions, found: _Found, clock: Clock, *, dry_run: bool) -> VacuumReport:
    return VacuumReport(
        path=options.path,
        version=found.version,
        versions_removed=found.versions,
        files_removed=len(found.files),
        bytes_removed=sum(each.size_bytes for each in found.files),
        jobs_removed=len(found.jobs),
        paths=tuple(each.path for each in found.files),
        seconds=round(clock.seconds(), 3),
        dry_run=dry_run,
    )
