"""Publish the files of a job whole or not at all, on any object store.

A job claims the target and stages its files. Its commit writes an intent, completes the staged files, deletes what the
job replaces, writes the small objects of the files' format and then the manifest, and deletes intent and claim. The
next job finishes the commit of a job that died, or undoes it if staged files are gone. It leaves running jobs alone.
"""

from __future__ import annotations

import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ddbio.core.staged import FileNaming, SmallObject, StagedFile, check_job_id, job_of, started_at
from ddbio.errors import DdbioError, NotFoundError, TargetError
from ddbio.files.claim import LEASE_SECONDS, Claim
from ddbio.files.meta import (
    FORMAT,
    META,
    PROBE,
    STAGING,
    claim_path,
    format_state,
    intent_path,
    is_intent,
    is_manifest,
    job_of_state,
    manifest_path,
    parse_state,
)
from ddbio.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from ddbio.core.staged import StoredObject
    from ddbio.files.claim import ForeignClaim, WriteMode
    from ddbio.files.object_store import ObjectStore

    Publish: TypeAlias = Callable[[Sequence[StagedFile], "CommitInfo"], object]

# What a job without a claim staged is deleted when its id is so old: an attempt to repair it deleted the claim.
_DEAD_AFTER = timedelta(days=7)
# Completing an upload takes S3 a tenth of a second or more, mostly waiting.
_THREADS = 16
_LOG = logging.getLogger("ddbio.commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """What a manifest says of a job beside its files.

    Attributes
    ----------
    created_at
        When the job started, as ISO 8601 in UTC.
    source
        Where the rows came from.
    schema
        Schema of the files as JSON text.
    digest
        Digest of all rows, if one was taken.
    objects
        Small objects that the format needs beside the files, in the order in which they are written after the files.
    report
        The job's report; running the job again under its id returns it.
    """

    created_at: str
    source: Mapping[str, Any]
    schema: str
    digest: str | None = None
    objects: tuple[SmallObject, ...] = ()
    report: Mapping[str, Any] | None = None


class AlreadyCommittedError(Exception):
    """Raised if an earlier run of the same job is committed: there is nothing to do.

    Attributes
    ----------
    manifest
        What that run's manifest says.
    """

    def __init__(self, manifest: dict[str, Any]) -> None:
        super().__init__(manifest)
        self.manifest = manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Say where a job's output goes, and what the job may do to what is there.

    Attributes
    ----------
    mode
        ``error`` wants an empty target, ``append`` adds to it, ``overwrite`` replaces what is there.
    overwrite_foreign
        Whether ``overwrite`` may delete what no manifest of ddbio names.
    command
        What is the same when the same job is asked for again, but for its id.
    lease_seconds
        Age at which the claims of other jobs count as dead.
    """

    store: ObjectStore
    mode: WriteMode
    overwrite_foreign: bool = False
    command: str = ""
    lease_seconds: float = LEASE_SECONDS

    def claim(self, job_id: str) -> Claim:
        """Return the claim of a job to this target; it is not yet taken."""
        return Claim(self.store, job_id, self.mode, lease_seconds=self.lease_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Intent:
    job_id: str
    staged: tuple[StagedFile, ...]
    replaced: tuple[str, ...]
    manifest: dict[str, Any]
    objects: tuple[SmallObject, ...] = ()
    format: int = field(default=FORMAT)

    @property
    def path(self) -> str:
        return intent_path(self.job_id)


@contextlib.contextmanager
def publishing(target: Target, job_id: str) -> Iterator[Publish]:
    """Claim and prepare a target, and hand out the function that publishes files there.

    Nothing of the job stays at the target if the block raises. The job's tasks must have ended when the block ends.

    Raises
    ------
    AlreadyCommittedError, TargetError
        As :func:`prepare` says.
    """
    replaced, claim = prepare(target, job_id), target.claim(job_id)
    try:
        with claim.renewed():
            yield lambda staged, info: commit(target, job_id, staged, info, replaced)
    except BaseException:
        abort(target.store, job_id)
        raise
    # A renewal may have written the claim again after the commit deleted it.
    with contextlib.suppress(DdbioError):
        claim.release()


def prepare(target: Target, job_id: str) -> tuple[str, ...]:
    """Claim a target and bring it in order; return the objects that the job replaces.

    Commits of jobs that died are finished, or undone if that is impossible, and what such jobs staged is deleted. A
    staged file does not make a target non-empty; a manifest does, even one without files.

    Raises
    ------
    AlreadyCommittedError
        If an earlier run of this job is committed; perhaps this call finished its commit.
    TargetError
        If another job writes to the target and excludes this one; if the target is not empty and the mode is
        ``error``; if the mode is ``overwrite`` and the target holds objects that no manifest names, or is more than a
        folder of output; if it is not writable.
    """
    check_job_id(job_id)
    store, claim = target.store, target.claim(job_id)
    _require_no_hazard(target)
    others = claim.take()
    try:
        live, finished = _clean_up(store, others, job_id)
        _require_not_done(target, job_id, finished)
        # If cleaning up took longer than the lease, another job may have taken the target over.
        claim.require()
        # Better refused now than after the scan.
        store.create(FileNaming(job_id, 0).path(0, "probe")).abort()
        return _replaced(target, live, job_id)
    except BaseException:
        abort(store, job_id)
        raise


def commit(
    target: Target, job_id: str, staged: Sequence[StagedFile], info: CommitInfo, replaced: Sequence[str] = ()
) -> str:
    """Publish the staged files and then their manifest; return the manifest's path.

    If it fails, ``abort`` or the next ``prepare`` finishes or undoes it.

    Parameters
    ----------
    staged
        The files of one attempt of every task.
    replaced
        What ``prepare`` returned.

    Raises
    ------
    TargetError
        If the job lost its claim, or another job published files in a target that was to be this job's alone.
    """
    store, claim = target.store, target.claim(job_id)
    claim.require()
    _require_unchanged(target, job_id, replaced)
    intent = _Intent(
        job_id=job_id,
        staged=tuple(staged),
        replaced=tuple(replaced),
        manifest=_manifest(target, job_id, staged, info),
        objects=info.objects,
    )
    store.put(intent.path, format_state(asdict(intent)))
    _carry_out(store, intent, claim)
    # The job is committed: the next job deletes what stays behind now.
    with contextlib.suppress(DdbioError):
        _tidy(store, intent)
    return manifest_path(job_id)


def abort(store: ObjectStore, job_id: str) -> None:
    """Delete everything of the job: files, uploads, staging folder and claim.

    A job that has its manifest stays, and a commit that has begun to delete what it replaces is finished: either way
    the target is whole. The commit of a job that has lost its claim belongs to the job that took it over: it is left
    alone. Call this after the tasks of the job have ended, since a running task stages more.
    """
    intent = _read_intent(store, intent_path(job_id))
    if intent is not None:
        if not any(each.path == claim_path(job_id) for each in store.list(claim_path(job_id))):
            # Another job took this one for dead, and may just be finishing this very commit.
            return
        _undo(store, intent)
    store.delete([claim_path(job_id)])
    store.abort(job_id)


def check_target(target: Target) -> None:
    """Refuse a target that ``prepare`` would refuse because of the mode, without writing anything.

    Raises
    ------
    TargetError
        If it holds something and the mode is ``error``, or ``overwrite`` and no manifest names it.
    """
    _require_no_hazard(target)
    _replaced(target, set(), "")


def _require_no_hazard(target: Target) -> None:
    store = target.store
    if target.mode == "overwrite" and store.hazard and not target.overwrite_foreign:
        raise TargetError(
            f"mode overwrite would delete {store.hazard} ({store.uri}): name a folder below it, or give "
            "overwrite_foreign",
            store.uri,
        )


def _manifest(target: Target, job_id: str, staged: Sequence[StagedFile], info: CommitInfo) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "job_id": job_id,
        "ddbio_version": __version__,
        "mode": target.mode,
        "command": target.command,
        "created_at": info.created_at,
        "source": info.source,
        "schema": info.schema,
        "digest": info.digest,
        "rows": sum(each.rows for each in staged),
        "files": [each.manifest_entry() for each in staged],
        "objects": [each.path for each in info.objects],
        "report": info.report,
    }


def _clean_up(store: ObjectStore, others: Sequence[ForeignClaim], job_id: str) -> tuple[set[str], list[dict[str, Any]]]:
    """Finish or undo what dead jobs left; return the ids of running jobs, and the manifests of finished commits."""
    live, finished = set[str](), list[dict[str, Any]]()
    for other in others:
        if other.is_live:
            live.add(other.job_id)
        else:
            _LOG.info("%s at %s has died: cleaning up after it", other, store.uri)
            # First, so that it cannot go on if it was only suspended.
            store.delete([claim_path(other.job_id)])
            finished += _recover(store, other.job_id)
            # What a fold on Spark has spilled.
            store.delete([each.path for each in store.list(f"{STAGING}{other.job_id}/")])
    for each in list(store.list(META)):
        # A commit without a claim: a job that began to repair it died too, or the job itself did at its very end.
        if is_intent(each.path) and (dead := job_of_state(each.path)) not in live:
            finished += _recover(store, dead, keeps_claim=dead == job_id)
    for staged in store.staged_jobs() - live - {job_id}:
        if _is_old(staged, job_id):
            store.abort(staged)
    store.delete([each.path for each in store.list(META) if each.path.endswith(PROBE)])
    store.delete([each.path for each in store.list(STAGING) if _is_old(each.path.removeprefix(STAGING), job_id)])
    return live, finished


def _recover(store: ObjectStore, job_id: str, *, keeps_claim: bool = False) -> list[dict[str, Any]]:
    """Finish the commit of a job that died and return its manifest, or undo it if staged files are gone.

    A later run of the same job has a claim of its own, and keeps it.
    """
    intent = _read_intent(store, intent_path(job_id))
    if intent is None:
        store.abort(job_id)
        return []
    _finish(store, intent, keeps_claim=keeps_claim)
    return [intent.manifest] if _has_manifest(store, job_id) else []


def _require_not_done(target: Target, job_id: str, finished: Sequence[dict[str, Any]]) -> None:
    """Raise if this job is a run of one that is committed."""
    store, path = target.store, manifest_path(job_id)
    if _has_manifest(store, job_id):
        raise AlreadyCommittedError(parse_state(store.read(path), path))
    for manifest in finished if target.command else ():
        if manifest.get("command") == target.command and target.mode == "error":
            raise AlreadyCommittedError(manifest)
        if manifest.get("command") == target.command and target.mode == "append":
            raise TargetError(
                f"an earlier run of this command, job {manifest['job_id']}, was killed in its commit: its "
                f"{manifest['rows']:,} rows are committed to {store.uri} now, and nothing was appended to them: run "
                "the command again to append once more",
                store.uri,
            )


def _replaced(target: Target, live: set[str], job_id: str) -> tuple[str, ...]:
    """Return what the job replaces, or refuse a target that the mode does not allow."""
    store = target.store
    if target.mode == "append":
        return ()
    found = (each.path for each in store.list() if _is_content(each.path))
    if target.mode == "error":
        if first := next(found, None):
            ways = "choose another target, empty this one, or use mode append or overwrite"
            raise TargetError(f"target {store.uri} is not empty (it holds {first}): {ways}", store.uri)
        return ()
    # Files of jobs that append meanwhile are not replaced, even if such a job ended between the two listings.
    paths = list(found)
    added = {each.path for each in store.list(META)} - set(paths)
    retained = live | {job_of_state(path) for path in added if is_manifest(path)} - {job_id}
    replaced = [path for path in paths if _owner_of(path) not in retained]
    foreign = None if target.overwrite_foreign else _foreign(store, replaced)
    if foreign:
        raise TargetError(
            f"target {store.uri} holds {len(foreign):,} objects that no manifest of ddbio names (first: {foreign[0]}), "
            "which mode overwrite would delete: choose another target, or give overwrite_foreign",
            store.uri,
        )
    return tuple(replaced)


def _foreign(store: ObjectStore, paths: Sequence[str]) -> list[str]:
    """Return the paths outside ddbio's own folder that no manifest names."""
    foreign = {path for path in paths if not path.startswith(META)}
    manifests = [path for path in paths if is_manifest(path)] if foreign else []
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-manifest") as pool:
        for path, text in zip(manifests, pool.map(store.read, manifests), strict=True):
            state = parse_state(text, path)
            foreign.difference_update(file["path"] for file in state.get("files", []))
            foreign.difference_update(state.get("objects", []))
    return sorted(foreign)


def _require_unchanged(target: Target, job_id: str, replaced: Sequence[str]) -> None:
    """Refuse to commit beside what another job, which took this one for dead, committed meanwhile."""
    store = target.store
    if target.mode == "append":
        return
    known = {*replaced, manifest_path(job_id)}
    for each in store.list(META):
        if is_manifest(each.path) and each.path not in known:
            mode = parse_state(store.read(each.path), each.path).get("mode")
            if mode != "append":
                raise TargetError(
                    f"target {store.uri} was written to meanwhile by job {job_of_state(each.path)} (mode "
                    f"{mode}): nothing of this job was committed; run it again if it is still wanted",
                    store.uri,
                )


def _carry_out(store: ObjectStore, intent: _Intent, claim: Claim | None = None) -> None:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-commit") as pool:
        for _ in pool.map(store.complete, intent.staged):
            pass
    if claim is not None:
        claim.require()
    store.delete(intent.replaced)
    for each in intent.objects:
        store.put(each.path, each.text.encode())
    path, text = manifest_path(intent.job_id), format_state(intent.manifest)
    # Another process that repairs this job writes the same bytes.
    if not store.put_if_absent(path, text) and store.read(path) != text:
        raise TargetError(f"{store.uri}/{path} belongs to another job: job ids must be unique", store.uri)


def _finish(store: ObjectStore, intent: _Intent, *, keeps_claim: bool = False) -> None:
    if not _has_manifest(store, intent.job_id):
        try:
            _carry_out(store, intent)
        except NotFoundError:
            _roll_back(store, intent)
    _tidy(store, intent, keeps_claim=keeps_claim)


def _undo(store: ObjectStore, intent: _Intent) -> None:
    """Roll a commit back, or finish it if it has deleted what it replaces."""
    there = {each.path for each in store.list()} if intent.replaced else set()
    if _has_manifest(store, intent.job_id) or not there.issuperset(intent.replaced):
        _finish(store, intent)
    else:
        _roll_back(store, intent)
        _tidy(store, intent)


def _roll_back(store: ObjectStore, intent: _Intent) -> None:
    store.abort(intent.job_id)
    store.delete([each.path for each in intent.staged])
    replaced = set(intent.replaced)
    store.delete([each.path for each in intent.objects if each.path not in replaced])


def _tidy(store: ObjectStore, intent: _Intent, *, keeps_claim: bool = False) -> None:
    # The intent first: without a claim any job may repair it.
    store.delete([intent.path])
    if not keeps_claim:
        store.delete([claim_path(intent.job_id)])
    # Attempts that lost or died staged files that nobody committed.
    store.abort(intent.job_id)


def list_manifests(store: ObjectStore) -> list[StoredObject]:
    """Return the manifests of the jobs that are committed to a target."""
    return [each for each in store.list(META) if is_manifest(each.path)]


def _has_manifest(store: ObjectStore, job_id: str) -> bool:
    path = manifest_path(job_id)
    return any(each.path == path for each in store.list(path))


def _read_intent(store: ObjectStore, path: str) -> _Intent | None:
    try:
        state = parse_state(store.read(path), path)
    except NotFoundError:
        # Gone in between: its job has just finished.
        return None
    return _Intent(
        job_id=state["job_id"],
        staged=tuple(StagedFile(**each) for each in state["staged"]),
        replaced=tuple(state["replaced"]),
        manifest=state["manifest"],
        objects=tuple(SmallObject(**each) for each in state.get("objects", [])),
    )


def _is_old(text: str, job_id: str) -> bool:
    began, now = started_at(text), started_at(job_id)
    return began is not None and now is not None and now - began > _DEAD_AFTER


def _owner_of(path: str) -> str:
    """Return the id of the job whose file or manifest this is, as far as its name tells."""
    return job_of_state(path) if is_manifest(path) else job_of(path)


def _is_content(path: str) -> bool:
    """Return whether an object makes a target non-empty: a file that readers see, or a manifest."""
    return not path.startswith(META) or is_manifest(path)
