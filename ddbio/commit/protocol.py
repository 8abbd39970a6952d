"""Publish the files of a job whole or not at all, on any object store.

A job claims the target and stages its files. Its commit writes an intent, completes the staged files, writes the next
snapshot, deletes what the job replaces, writes the small objects of the files' format and then the manifest, and
deletes intent and claim. The next job finishes the commit of a job that died, or undoes it if staged files are gone.
It leaves running jobs alone.
"""

from __future__ import annotations

import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ddbio.commit.committer import LEASE_SECONDS, AlreadyCommittedError, Claim
from ddbio.commit.snapshot import Change, ConflictError, change_of, is_recorded, record, require_readable
from ddbio.errors import DdbioError, NotFoundError, TargetError
from ddbio.storage.meta import (
    META,
    PROBE,
    STAGING,
    claim_path,
    format_state,
    intent_path,
    is_claim,
    is_intent,
    is_manifest,
    job_of_state,
    manifest_path,
    read_state,
)
from ddbio.storage.object_store import is_there
from ddbio.storage.staged import FileNaming, SmallObject, StagedFile, check_job_id, job_of, started_at
from ddbio.storage.states import FORMAT
from ddbio.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from ddbio.commit.committer import CommitInfo, ForeignClaim, WriteMode
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

# Completing an upload takes S3 a tenth of a second or more, mostly waiting.
_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a commit will do: the files to complete, what they replace, and the manifest to write.

    Attributes
    ----------
    replaced
        What the job replaces.
    change
        What becomes of the live files.
    deletes
        Whether what is replaced is deleted at once, or left to a vacuum.
    """

    job_id: str
    staged: tuple[StagedFile, ...]
    replaced: tuple[str, ...]
    manifest: dict[str, Any]
    objects: tuple[SmallObject, ...] = ()
    change: Change
    deletes: bool = True
    format: int = field(default=FORMAT)

    @property
    def path(self) -> str:
        """Return where the intent is kept."""
        return intent_path(self.job_id)


def carry_out(store: ObjectStore, intent: Intent, claim: Claim | None = None) -> None:
    """Complete all files, write the snapshot, delete what is replaced, and write the manifest.

    Raises
    ------
    NotFoundError
        If a staged file is gone.
    ConflictError
        If another job changed what this one replaces.
    TargetError
        If the job lost its claim, or its id is another job's.
    """
    if claim is not None or not is_recorded(store, intent.change, intent.job_id):
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-commit") as pool:
            for _ in pool.map(store.complete, intent.staged):
                pass
        if claim is not None:
            claim.require()
        # The commit: whoever goes by snapshots sees all of it from now on.
        record(store, intent.change, intent.manifest)
    if intent.deletes:
        store.delete(_without_newer(store, intent, intent.replaced))
    for each in intent.objects:
        store.put(each.path, each.text.encode())
    path, text = manifest_path(intent.job_id), format_state(intent.manifest)
    # Another process that repairs this job writes the same bytes.
    if not store.put_if_absent(path, text) and store.read(path) != text:
        raise TargetError(f"{store.uri}/{path} belongs to another job: job ids must be unique", store.uri)


def finish(store: ObjectStore, intent: Intent, *, keeps_claim: bool = False) -> None:
    """Carry out the commit of a job that died, or roll it back if that is impossible."""
    if not has_manifest(store, intent.job_id):
        try:
            carry_out(store, intent)
        except (NotFoundError, ConflictError):
            _roll_back(store, intent)
    tidy(store, intent, keeps_claim=keeps_claim)


def undo(store: ObjectStore, intent: Intent) -> None:
    """Roll a commit back, or finish it if it has written its snapshot."""
    if has_manifest(store, intent.job_id) or is_recorded(store, intent.change, intent.job_id):
        finish(store, intent)
    else:
        _roll_back(store, intent)
        tidy(store, intent)


def _without_newer(store: ObjectStore, intent: Intent, paths: Sequence[str]) -> list[str]:
    """Return the paths without what other jobs at the target have published under the same names meanwhile."""
    if all(map(owner_of, paths)):
        return list(paths)
    states = {each.path for each in store.list(META) if is_manifest(each.path) or is_intent(each.path)}
    others = {job_of_state(path) for path in states.difference(intent.replaced)} - {intent.job_id}
    spared = published_by(store, others)
    # Names that tell their job are given once: what is replaced under one is not what somebody published since.
    return [path for path in paths if owner_of(path) or path not in spared]


def _roll_back(store: ObjectStore, intent: Intent) -> None:
    store.abort(intent.job_id)
    store.delete([each.path for each in intent.staged])
    replaced = set(intent.replaced)
    store.delete(_without_newer(store, intent, [each.path for each in intent.objects if each.path not in replaced]))


def tidy(store: ObjectStore, intent: Intent, *, keeps_claim: bool = False) -> None:
    """Delete the intent, the claim, and what is still staged for the job."""
    # The intent first: without a claim any job may repair it.
    store.delete([intent.path])
    if not keeps_claim:
        store.delete([claim_path(intent.job_id)])
    # Attempts that lost or died staged files that nobody committed.
    store.abort(intent.job_id)


def has_manifest(store: ObjectStore, job_id: str) -> bool:
    """Return whether a job is committed."""
    return is_there(store, manifest_path(job_id))


def owner_of(path: str) -> str:
    """Return the id of the job whose file or manifest this is; empty for other objects, whose names do not tell."""
    return job_of_state(path) if is_manifest(path) else job_of(path)


def published_by(store: ObjectStore, job_ids: Iterable[str]) -> set[str]:
    """Return what the manifests of jobs name, or the intents of those that are in their commit."""
    named = set[str]()
    for job_id in job_ids:
        intent = read_intent(store, intent_path(job_id))
        if intent is not None:
            named.update(each.path for each in intent.staged)
            named.update(each.path for each in intent.objects)
        # After the intent: a commit that ends in between has its manifest by now.
        path = manifest_path(job_id)
        with contextlib.suppress(NotFoundError):
            manifest = read_state(store, path)
            named.update((*(file["path"] for file in manifest["files"]), *manifest.get("objects", [])))
    return named


def read_intent(store: ObjectStore, path: str) -> Intent | None:
    """Return the intent at a path, or None if it is gone."""
    try:
        state = read_state(store, path)
    except NotFoundError:
        # Gone in between: its job has just finished.
        return None
    change = state["change"]
    return Intent(
        job_id=state["job_id"],
        staged=tuple(map(StagedFile.from_dict, state["staged"])),
        replaced=tuple(state["replaced"]),
        manifest=state["manifest"],
        objects=tuple(SmallObject(each["path"], each["text"]) for each in state.get("objects", [])),
        change=Change(change["mode"], change["operation"], tuple(change["removed"]), change["base_version"]),
        deletes=state["deletes"],
    )


# What a job without a claim staged is deleted when its id is so old: an attempt to repair it deleted the claim.
DEAD_AFTER = timedelta(days=7)
_LOG = logging.getLogger("ddbio.commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Commit to a folder: say where a job's output goes, and what the job may do to what is there.

    Attributes
    ----------
    mode
        ``error`` wants an empty target, ``append`` adds to it, ``overwrite`` replaces what is there, ``replace`` the
        live files that the job names when it commits.
    overwrite_foreign
        Whether ``overwrite`` may delete what no manifest of ddbio names.
    partitions_only
        Whether ``overwrite`` replaces only the files of those partitions that the job writes to.
    command
        What is the same when the same job is asked for again, but for its id.
    lease_seconds
        Age at which the claims of other jobs count as dead.
    operation
        What history calls the job; default is the mode.
    keeps_replaced
        Leave what the job replaces in place until a vacuum, for readers of older versions.
    keeps_staged
        Leave what a job that failed has staged, for a run of the same job that goes on with it.
    """

    store: ObjectStore
    mode: WriteMode
    overwrite_foreign: bool = False
    partitions_only: bool = False
    command: str = ""
    lease_seconds: float = LEASE_SECONDS
    operation: str = ""
    keeps_replaced: bool = False
    keeps_staged: bool = False

    def claim(self, job_id: str) -> Claim:
        """Return the claim of a job to this target; it is not yet taken."""
        return Claim(self.store, job_id, self.mode, lease_seconds=self.lease_seconds)

    def prepare(self, job_id: str) -> tuple[str, ...]:
        """Claim a target and bring it in order; return the objects that the job replaces.

        Commits of jobs that died are finished, or undone if that is impossible, and what such jobs staged is deleted. A
        staged file does not make a target non-empty; a manifest does, even one without files.

        Raises
        ------
        AlreadyCommittedError
            If an earlier run of this job is committed; perhaps this call finished its commit.
        TargetError
            If another job writes to the target and excludes this one; if the target is not empty and the mode is
            ``error``; if the mode is ``overwrite`` and the target holds objects that no manifest names, or is more than
            a folder of output; if it is not writable.
        """
        check_job_id(job_id)
        store, claim = self.store, self.claim(job_id)
        _require_no_hazard(self)
        others = claim.take()
        try:
            live, finished = _clean_up(store, others, job_id)
            _require_not_done(self, job_id, finished)
            # If cleaning up took longer than the lease, another job may have taken the target over.
            claim.require()
            # Better refused now than after the scan.
            require_readable(store)
            require_uploads(store, job_id)
            return _replaced(self, live, job_id)
        except BaseException:
            self.abort(job_id)
            raise

    def renewed(self, job_id: str) -> contextlib.AbstractContextManager[None]:
        """Renew the job's claim while the context is open."""
        return self.claim(job_id).renewed()

    def commit(self, job_id: str, staged: Sequence[StagedFile], info: CommitInfo, replaced: Sequence[str] = ()) -> str:
        """Publish the staged files and then their manifest; return the manifest's path.

        If it fails, ``abort`` or the next ``prepare`` finishes or undoes it.

        Parameters
        ----------
        staged
            The files of one attempt of every task.
        replaced
            What ``prepare`` returned; in mode ``replace`` the live files that go.

        Raises
        ------
        TargetError
            If the job lost its claim, or another job published files in a target that was to be this job's alone, or
            replaced what this one replaces.
        """
        store, claim = self.store, self.claim(job_id)
        claim.require()
        removed = files_of_partitions(replaced, staged) if self.partitions_only else tuple(replaced)
        change = change_of(store, self.mode, self.operation or self.mode, removed)
        _require_unchanged(self, job_id, replaced)
        intent = Intent(
            job_id=job_id,
            staged=tuple(staged),
            replaced=removed,
            manifest=_manifest(self, job_id, staged, info),
            objects=info.objects,
            change=change,
            deletes=not self.keeps_replaced,
        )
        store.put(intent.path, format_state(asdict(intent)))
        carry_out(store, intent, claim)
        # The job is committed: the next job deletes what stays behind now.
        with contextlib.suppress(DdbioError):
            tidy(store, intent)
        return manifest_path(job_id)

    def abort(self, job_id: str) -> None:
        """Delete everything of a job that is not committed; see :func:`abort`.

        What a job has staged stays if it can go on, and has not begun to commit.
        """
        if self.keeps_staged and read_intent(self.store, intent_path(job_id)) is None:
            self.release(job_id)
        else:
            abort(self.store, job_id)

    def release(self, job_id: str) -> None:
        """Remove the claim of a job."""
        self.claim(job_id).release()


def files_of_partitions(paths: Iterable[str], staged: Iterable[StagedFile]) -> tuple[str, ...]:
    """Return those of some paths that are files in the folders of the staged files; manifests stay."""
    folders = {each.path.rpartition("/")[0] for each in staged}
    return tuple(path for path in paths if path.rpartition("/")[0] in folders and not path.startswith(META))


def require_uploads(store: ObjectStore, job_id: str) -> None:
    """Refuse a store in which a job could not stage a file, or not discard it: better now than after its work.

    Raises
    ------
    AccessDeniedError
        Naming the permission that is missing.
    """
    store.create(FileNaming(job_id, 0).path(0, "probe")).abort()


def abort(store: ObjectStore, job_id: str) -> None:
    """Delete everything of the job: files, uploads, staging folder and claim.

    A job that has its manifest stays, and a commit that has written its snapshot is finished: either way the target is
    whole. The commit of a job that has lost its claim belongs to the job that took it over: it is left
    alone. Call this after the tasks of the job have ended, since a running task stages more.
    """
    intent = read_intent(store, intent_path(job_id))
    if intent is not None:
        if not is_there(store, claim_path(job_id)):
            # Another job took this one for dead, and may just be finishing this very commit.
            return
        undo(store, intent)
    store.delete([claim_path(job_id)])
    store.abort(job_id)


def abort_old(store: ObjectStore, before: datetime, spared: Collection[str] = ()) -> None:
    """Discard what jobs have staged that began before a time, as their ids tell; killed ones leave it.

    Parameters
    ----------
    spared
        Jobs that keep what they have staged.
    """
    for each in old_jobs(store, before).difference(spared):
        store.abort(each)


def old_jobs(store: ObjectStore, before: datetime) -> set[str]:
    """Return the jobs that have something staged, and began before a time."""
    began = ((each, started_at(each)) for each in store.staged_jobs())
    return {job_id for job_id, at in began if at is not None and at <= before}


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
        **({} if info.partition_by is None else {"partition_by": list(info.partition_by)}),
        "digest": info.digest,
        "rows": sum(each.rows for each in staged),
        "files": [*(each.manifest_entry() for each in staged), *(each.to_dict() for each in info.restored)],
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
    if (now := started_at(job_id)) is not None:
        abort_old(store, now - DEAD_AFTER, live | {job_id})
    else:
        # The name of a job does not tell when it began. It needs the same permission to discard its own files.
        store.staged_jobs()
    store.delete([each.path for each in store.list(META) if each.path.endswith(PROBE)])
    store.delete([each.path for each in store.list(STAGING) if _is_old(each.path.removeprefix(STAGING), job_id)])
    return live, finished


def _recover(store: ObjectStore, job_id: str, *, keeps_claim: bool = False) -> list[dict[str, Any]]:
    """Finish the commit of a job that died and return its manifest, or undo it if staged files are gone.

    A later run of the same job has a claim of its own, and keeps it.
    """
    intent = read_intent(store, intent_path(job_id))
    if intent is None:
        store.abort(job_id)
        return []
    finish(store, intent, keeps_claim=keeps_claim)
    return [intent.manifest] if has_manifest(store, job_id) else []


def _require_not_done(target: Target, job_id: str, finished: Sequence[dict[str, Any]]) -> None:
    """Raise if this job is a run of one that is committed."""
    store, path = target.store, manifest_path(job_id)
    if has_manifest(store, job_id):
        raise AlreadyCommittedError(read_state(store, path))
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
    if target.mode in {"append", "replace"}:
        return ()
    found = (each.path for each in store.list() if _is_content(each.path))
    if target.mode == "error":
        if first := next(found, None):
            ways = "choose another target, empty this one, or use mode append or overwrite"
            raise TargetError(f"target {store.uri} is not empty (it holds {first}): {ways}", store.uri)
        return ()
    # Another job may append at the same time. The second listing finds its claim, intent or manifest; its files stay.
    paths = list(found)
    added = {each.path for each in store.list(META)} - set(paths)
    states = (path for path in added if is_claim(path) or is_intent(path) or is_manifest(path))
    retained = live | {job_of_state(path) for path in states} - {job_id}
    spared = published_by(store, retained)
    replaced = [path for path in paths if owner_of(path) not in retained and path not in spared]
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
        for state in pool.map(lambda path: read_state(store, path), manifests):
            foreign.difference_update(file["path"] for file in state.get("files", []))
            foreign.difference_update(state.get("objects", []))
    return sorted(foreign)


def _require_unchanged(target: Target, job_id: str, replaced: Sequence[str]) -> None:
    """Refuse to commit beside what another job, which took this one for dead, committed meanwhile."""
    store = target.store
    if target.mode in {"append", "replace"}:
        return
    known = {*replaced, manifest_path(job_id)}
    for each in store.list(META):
        if is_manifest(each.path) and each.path not in known:
            mode = read_state(store, each.path).get("mode")
            if mode != "append":
                raise TargetError(
                    f"target {store.uri} was written to meanwhile by job {job_of_state(each.path)} (mode "
                    f"{mode}): nothing of this job was committed; run it again if it is still wanted",
                    store.uri,
                )


def list_manifests(store: ObjectStore) -> list[StoredObject]:
    """Return the manifests of the jobs that are committed to a target."""
    return [each for each in store.list(META) if is_manifest(each.path)]


def _is_old(text: str, job_id: str) -> bool:
    began, now = started_at(text), started_at(job_id)
    return began is not None and now is not None and now - began > DEAD_AFTER


def _is_content(path: str) -> bool:
    """Return whether an object makes a target non-empty: a file that readers see, or a manifest."""
    return not path.startswith(META) or is_manifest(path)
