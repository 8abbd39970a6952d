"""Carry out a commit by its intent: finish one that was cut off, or undo it.

Every step can be repeated, by the job or by any other process that mends it.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddbio.commit.snapshot import Change, ConflictError, is_recorded, record
from ddbio.errors import NotFoundError, TargetError
from ddbio.storage.meta import (
    META,
    claim_path,
    format_state,
    intent_path,
    is_intent,
    is_manifest,
    job_of_state,
    manifest_path,
    read_state,
)
from ddbio.storage.staged import SmallObject, StagedFile, job_of
from ddbio.storage.states import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddbio.commit.claim import Claim
    from ddbio.storage.object_store import ObjectStore

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
    path = manifest_path(job_id)
    return any(each.path == path for each in store.list(path))


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
