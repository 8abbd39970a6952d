"""Commit protocol that publishes the files of a job atomically, on any object store.

A job claims the target and stages its files. Its commit writes an intent, completes the staged files, writes the next
snapshot, deletes the replaced objects, writes the small objects of the files' format and then the manifest, and deletes
intent and claim. The next job finishes the commit of a dead job, or undoes it if staged files are gone. It does not
touch running jobs.
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

# S3 takes a tenth of a second or more to complete an upload, mostly waiting.
_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Plan of a commit: the files to complete, the objects that they replace, and the manifest to write.

    Attributes
    ----------
    replaced
        The objects that the job replaces.
    change
        The change of the live files.
    deletes
        Whether replaced objects are deleted immediately, or left to a vacuum.
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
        """Return the path of the intent."""
        return intent_path(self.job_id)


def execute(store: ObjectStore, intent: Intent, claim: Claim | None = None) -> None:
    """Complete all files, write the snapshot, delete the replaced objects, and write the manifest.

    Raises
    ------
    NotFoundError
        If a staged file is gone.
    ConflictError
        If another job changed objects that this one replaces.
    TargetError
        If the job lost its claim, or its id is another job's.
    """
    if claim is not None or not is_recorded(store, intent.change, intent.job_id):
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-commit") as pool:
            for _ in pool.map(store.complete, intent.staged):
                pass
        if claim is not None:
            claim.require()
        # The commit: readers of snapshots see all of it from now on.
        record(store, intent.change, intent.manifest)
    if intent.deletes:
        store.delete(_without_newer(store, intent, intent.replaced))
    for small_object in intent.objects:
        store.put(small_object.path, small_object.text.encode())
    path, text = manifest_path(intent.job_id), format_state(intent.manifest)
    # Another process that repairs this job writes the same bytes.
    if not store.put_if_absent(path, text) and store.read(path) != text:
        raise TargetError(f"{store.uri}/{path} belongs to another job: job ids must be unique", store.uri)


def finish(store: ObjectStore, intent: Intent, *, keeps_claim: bool = False) -> None:
    """Complete the commit of a dead job, or roll it back if that is impossible."""
    if not has_manifest(store, intent.job_id):
        try:
            execute(store, intent)
        except (NotFoundError, ConflictError):
            _roll_back(store, intent)
    remove_remains(store, intent, keeps_claim=keeps_claim)


def undo(store: ObjectStore, intent: Intent) -> None:
    """Roll a commit back, or finish it if it has written its snapshot."""
    if has_manifest(store, intent.job_id) or is_recorded(store, intent.change, intent.job_id):
        finish(store, intent)
    else:
        _roll_back(store, intent)
        remove_remains(store, intent)


def _without_newer(store: ObjectStore, intent: Intent, paths: Sequence[str]) -> list[str]:
    """Return the paths, except those that other jobs have published under the same names in the meantime."""
    if all(map(owner_of, paths)):
        return list(paths)
    states = {entry.path for entry in store.list(META) if is_manifest(entry.path) or is_intent(entry.path)}
    others = {job_of_state(path) for path in states.difference(intent.replaced)} - {intent.job_id}
    spared = published_by(store, others)
    # Names with a job id are unique: nobody can have published a replaced one again.
    return [path for path in paths if owner_of(path) or path not in spared]


def _roll_back(store: ObjectStore, intent: Intent) -> None:
    store.abort(intent.job_id)
    store.delete([file.path for file in intent.staged])
    replaced = set(intent.replaced)
    store.delete(
        _without_newer(
            store, intent, [small_object.path for small_object in intent.objects if small_object.path not in replaced]
        )
    )


def remove_remains(store: ObjectStore, intent: Intent, *, keeps_claim: bool = False) -> None:
    """Delete the intent, the claim, and the remaining staged files of the job."""
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
    """Return the id of the job whose file or manifest this is; empty for objects without a job id in their names."""
    return job_of_state(path) if is_manifest(path) else job_of(path)


def published_by(store: ObjectStore, job_ids: Iterable[str]) -> set[str]:
    """Return the paths in the manifests of jobs, or in the intents of those that are in their commit."""
    named = set[str]()
    for job_id in job_ids:
        intent = read_intent(store, intent_path(job_id))
        if intent is not None:
            named.update(file.path for file in intent.staged)
            named.update(small_object.path for small_object in intent.objects)
        # After the intent: a commit that ends in between has its manifest by now.
        path = manifest_path(job_id)
        with contextlib.suppress(NotFoundError):
            manifest = read_state(store, path)
            named.update((*(file["path"] for file in manifest["files"]), *manifest.get("objects", [])))
    return named


def read_intent(store: ObjectStore, path: str) -> Intent | None:
    """Return the intent at a path, or None if it does not exist any more."""
    try:
        state = read_state(store, path)
    except NotFoundError:
        # Its job has just finished.
        return None
    change = state["change"]
    return Intent(
        job_id=state["job_id"],
        staged=tuple(map(StagedFile.from_dict, state["staged"])),
        replaced=tuple(state["replaced"]),
        manifest=state["manifest"],
        objects=tuple(SmallObject(entry["path"], entry["text"]) for entry in state.get("objects", [])),
        change=Change(change["mode"], change["operation"], tuple(change["removed"]), change["base_version"]),
        deletes=state["deletes"],
    )


# Staged files of a job without a claim are deleted when its id is this old: an attempt to repair it deleted the claim.
DEAD_AFTER = timedelta(days=7)
_LOG = logging.getLogger("ddbio.commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Committer to a folder: the location of a job's output, and the allowed changes of existing files.

    Attributes
    ----------
    mode
        ``error`` requires an empty target, ``append`` adds to it, ``overwrite`` replaces all existing files,
        ``replace``
        the live files that the job names when it commits.
    overwrite_foreign
        Whether ``overwrite`` may delete objects that no manifest of ddbio names.
    partitions_only
        Whether ``overwrite`` replaces only the files of those partitions that the job writes to.
    command
        A text that is the same for every run of the same command, regardless of the job's id.
    lease_seconds
        Age at which the claims of other jobs count as dead.
    operation
        The name of the job in the history; default is the mode.
    keeps_replaced
        Keep replaced objects until a vacuum, for readers of older versions.
    keeps_staged
        Keep the staged files of a failed job, for a run of the same job that resumes it.
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
        """Claim and clean up a target; return the objects that the job replaces.

        Commits of dead jobs are finished, or undone if that is impossible, and the staged files of such jobs are
        deleted. A
        staged file does not make a target non-empty; a manifest does, even one without files.

        Raises
        ------
        AlreadyCommittedError
            If an earlier run of this job is committed; perhaps this call finished its commit.
        TargetError
            If another job writes to the target and excludes this one; if the target is not empty and the mode is
            ``error``; if the mode is ``overwrite`` and the target has objects that no manifest names, or is more than a
            folder of output; if it is not writable.
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
            return _objects_to_replace(self, live, job_id)
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
            The result of ``prepare``; in mode ``replace`` the live files that are removed.

        Raises
        ------
        TargetError
            If the job lost its claim, or another job published files in a target that was to be this job's alone, or
            replaced files that this one replaces.
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
        execute(store, intent, claim)
        # The job is committed: the next job deletes any remaining objects.
        with contextlib.suppress(DdbioError):
            remove_remains(store, intent)
        return manifest_path(job_id)

    def abort(self, job_id: str) -> None:
        """Delete everything of a job that is not committed; see :func:`abort`.

        Staged files stay if the job can be resumed, and has not started its commit.
        """
        if self.keeps_staged and read_intent(self.store, intent_path(job_id)) is None:
            self.release(job_id)
        else:
            abort(self.store, job_id)

    def release(self, job_id: str) -> None:
        """Remove the claim of a job."""
        self.claim(job_id).release()


def files_of_partitions(paths: Iterable[str], staged: Iterable[StagedFile]) -> tuple[str, ...]:
    """Return the paths of files in the folders of the staged files; manifests are left out."""
    folders = {file.path.rpartition("/")[0] for file in staged}
    return tuple(path for path in paths if path.rpartition("/")[0] in folders and not path.startswith(META))


def require_uploads(store: ObjectStore, job_id: str) -> None:
    """Refuse a store in which a job could not stage or discard a file, before the job does its work.

    Raises
    ------
    AccessDeniedError
        With the missing permission.
    """
    store.create(FileNaming(job_id, 0).path(0, "probe")).abort()


def abort(store: ObjectStore, job_id: str) -> None:
    """Delete everything of the job: files, uploads, staging folder and claim.

    A job with a manifest stays, and a commit that has written its snapshot is finished: either way the target is
    consistent. The commit of a job that has lost its claim belongs to the job that took it over, and is not touched.
    Call
    this after the tasks of the job have ended, since a running task stages more.
    """
    intent = read_intent(store, intent_path(job_id))
    if intent is not None:
        if not is_there(store, claim_path(job_id)):
            # Another job considered this one dead, and may be finishing this commit now.
            return
        undo(store, intent)
    store.delete([claim_path(job_id)])
    store.abort(job_id)


def abort_old(store: ObjectStore, before: datetime, spared: Collection[str] = ()) -> None:
    """Discard the staged files of jobs that started before a time, by their ids; killed jobs leave such files.

    Parameters
    ----------
    spared
        Jobs that keep their staged files.
    """
    for job_id in old_jobs(store, before).difference(spared):
        store.abort(job_id)


def old_jobs(store: ObjectStore, before: datetime) -> set[str]:
    """Return the jobs that have staged files, and started before a time."""
    began = ((job_id, started_at(job_id)) for job_id in store.staged_jobs())
    return {job_id for job_id, at in began if at is not None and at <= before}


def check_target(target: Target) -> None:
    """Refuse a target that ``prepare`` would refuse because of the mode, without writing anything.

    Raises
    ------
    TargetError
        If it is not empty and the mode is ``error``, or ``overwrite`` and no manifest names an object.
    """
    _require_no_hazard(target)
    _objects_to_replace(target, set(), "")


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
        "rows": sum(file.rows for file in staged),
        "files": [*(file.manifest_entry() for file in staged), *(file.to_dict() for file in info.restored)],
        "objects": [small_object.path for small_object in info.objects],
        "report": info.report,
    }


def _clean_up(store: ObjectStore, others: Sequence[ForeignClaim], job_id: str) -> tuple[set[str], list[dict[str, Any]]]:
    """Finish or undo the commits of dead jobs; return the ids of running jobs and the finished commits' manifests."""
    live, finished = set[str](), list[dict[str, Any]]()
    for other in others:
        if other.is_live:
            live.add(other.job_id)
        else:
            _LOG.info("%s at %s has died: cleaning up after it", other, store.uri)
            # First, so that the job cannot continue if it was only suspended.
            store.delete([claim_path(other.job_id)])
            finished += _recover(store, other.job_id)
            # Spilled rows of a fold on Spark.
            store.delete([entry.path for entry in store.list(f"{STAGING}{other.job_id}/")])
    for entry in list(store.list(META)):
        # A commit without a claim: a job that started to repair it died too, or the job itself did at its very end.
        if is_intent(entry.path) and (dead := job_of_state(entry.path)) not in live:
            finished += _recover(store, dead, keeps_claim=dead == job_id)
    if (now := started_at(job_id)) is not None:
        abort_old(store, now - DEAD_AFTER, live | {job_id})
    else:
        # The name of the job does not contain its start time. It needs the same permission to discard its own files.
        store.staged_jobs()
    store.delete([entry.path for entry in store.list(META) if entry.path.endswith(PROBE)])
    store.delete([entry.path for entry in store.list(STAGING) if _is_old(entry.path.removeprefix(STAGING), job_id)])
    return live, finished


def _recover(store: ObjectStore, job_id: str, *, keeps_claim: bool = False) -> list[dict[str, Any]]:
    """Finish the commit of a dead job and return its manifest, or undo it if staged files are gone.

    A later run of the same job has its own claim, and keeps it.
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


def _objects_to_replace(target: Target, live: set[str], job_id: str) -> tuple[str, ...]:
    """Return the objects that the job replaces, or refuse a target that the mode does not allow."""
    store = target.store
    if target.mode in {"append", "replace"}:
        return ()
    contents = (entry.path for entry in store.list() if _is_content(entry.path))
    if target.mode == "error":
        if first := next(contents, None):
            ways = "choose another target, empty this one, or use mode append or overwrite"
            raise TargetError(f"target {store.uri} is not empty (it holds {first}): {ways}", store.uri)
        return ()
    # Another job may append at the same time. The second listing has its claim, intent or manifest; its files stay.
    paths = list(contents)
    added = {entry.path for entry in store.list(META)} - set(paths)
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
    """Refuse to commit in addition to another job, which considered this one dead and committed in the meantime."""
    store = target.store
    if target.mode in {"append", "replace"}:
        return
    expected = {*replaced, manifest_path(job_id)}
    for entry in store.list(META):
        if is_manifest(entry.path) and entry.path not in expected:
            mode = read_state(store, entry.path).get("mode")
            if mode != "append":
                raise TargetError(
                    f"target {store.uri} was written to meanwhile by job {job_of_state(entry.path)} (mode "
                    f"{mode}): nothing of this job was committed; run it again if it is still needed",
                    store.uri,
                )


def list_manifests(store: ObjectStore) -> list[StoredObject]:
    """Return the manifests of the jobs that are committed to a target."""
    return [entry for entry in store.list(META) if is_manifest(entry.path)]


def _is_old(text: str, job_id: str) -> bool:
    began, now = started_at(text), started_at(job_id)
    return began is not None and now is not None and now - began > DEAD_AFTER


def _is_content(path: str) -> bool:
    """Return whether an object makes a target non-empty: a file that readers see, or a manifest."""
    return not path.startswith(META) or is_manifest(path)
