"""The live files of a folder: by its newest snapshot, else by the manifests of its jobs, else by listing it.

Each commit writes the next snapshot, ``_ddbio/snapshots/<version>.json``, only where none is: that object is the
pointer, and the version it moves. A snapshot names all live files: a reader needs one listing and one object.
"""

from __future__ import annotations

import dataclasses
import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddbio.errors import NotFoundError, TargetError
from ddbio.formats.registry import format_of, is_hidden, is_row_file
from ddbio.storage.meta import (
    META,
    SNAPSHOTS,
    is_claim,
    is_intent,
    is_manifest,
    job_of_state,
    read_state,
    snapshot_path,
    version_at,
)
from ddbio.storage.object_store import read_at_most
from ddbio.storage.paths import hive_partition
from ddbio.storage.staged import job_of
from ddbio.storage.states import FORMAT, MAX_BYTES, add_checksum, parse_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddbio.commit.committer import WriteMode
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

PUBLISHED = "_versions/"
"""Folder of the published files; whoever lists the folder that readers know sees none, not those of all versions."""


def published_folder(paths: Iterable[str]) -> str:
    """Return the folder of the one publication that all files are of, with a slash at its end; else an empty text."""
    found = {"/".join(path.split("/")[:2]) if path.startswith(PUBLISHED) else "" for path in paths}
    return f"{found.pop()}/" if len(found) == 1 and found != {""} else ""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that belongs to a snapshot.

    Attributes
    ----------
    path
        Its path relative to the folder.
    rows
        Its rows, or None if only reading it would tell.
    partition
        The values of its partition columns as text; None is null.
    statistics
        Least and greatest value and number of nulls of some columns, or None.
    digest
        Digest of its rows, with the columns of its folders; None if none was taken.
    """

    path: str
    size_bytes: int
    rows: int | None = None
    partition: Mapping[str, str | None] = field(default_factory=dict)
    statistics: Mapping[str, Any] | None = None
    digest: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the file as manifests and snapshots name it."""
        found: dict[str, Any] = {"path": self.path, "bytes": self.size_bytes, "rows": self.rows}
        if self.partition:
            found["partition"] = dict(self.partition)
        if self.statistics is not None:
            found["statistics"] = self.statistics
        if self.digest is not None:
            found["digest"] = self.digest
        return found

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> LiveFile:
        """Return the file that an entry of a manifest or a snapshot names."""
        partition, statistics = entry.get("partition") or {}, entry.get("statistics")
        return cls(entry["path"], entry["bytes"], entry.get("rows"), partition, statistics, entry.get("digest"))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files that make up a folder at one time.

    Attributes
    ----------
    version
        Its number; commits count it upwards from 1. 0 means that no commit has written a snapshot: the files are those
        of manifests, or of a listing.
    files
        The live files, sorted by path.
    job_id, operation, created_at
        The job that made it, what kind of job that was, and when; empty in version 0.
    added, removed
        Paths of the files by which it differs from the version before.
    """

    version: int
    files: tuple[LiveFile, ...]
    job_id: str = ""
    operation: str = ""
    created_at: str = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def paths(self) -> frozenset[str]:
        """Return the paths of the live files."""
        return frozenset(each.path for each in self.files)

    def changed(
        self, job: tuple[str, str, str], added: Iterable[LiveFile] = (), removed: Iterable[str] = ()
    ) -> Snapshot:
        """Return the next version, without some files and with others.

        Parameters
        ----------
        job
            Id, operation and time of the job that changes the folder.
        """
        new, gone = {each.path: each for each in added}, frozenset(removed)
        kept = {each.path: each for each in self.files if each.path not in gone}
        return Snapshot(
            self.version + 1,
            sorted_files({**kept, **new}.values()),
            *job,
            added=tuple(sorted(new)),
            removed=tuple(sorted(self.paths & gone)),
        )


def sorted_files(files: Iterable[LiveFile]) -> tuple[LiveFile, ...]:
    """Return files in the order of their paths."""
    return tuple(sorted(files, key=lambda each: each.path))


def format_snapshot(snapshot: Snapshot) -> bytes:
    """Return a snapshot as JSON text, a line for each file."""
    head = {
        "format": FORMAT,
        "version": snapshot.version,
        "job_id": snapshot.job_id,
        "operation": snapshot.operation,
        "created_at": snapshot.created_at,
        "added": list(snapshot.added),
        "removed": list(snapshot.removed),
    }
    lines = ",\n".join(json.dumps(each.to_dict(), ensure_ascii=False) for each in snapshot.files)
    return add_checksum(f'{json.dumps(head, ensure_ascii=False)[:-1]}, "files": [\n{lines}\n]}}')


def parse_snapshot(text: bytes, path: str, uri: str = "") -> Snapshot:
    """Return the snapshot of a JSON text.

    Raises
    ------
    TargetError
        If ddbio did not write it, or a newer version of ddbio did; or if it is damaged.
    """
    state = parse_state(text, path, uri)
    files = tuple(LiveFile.from_dict(each) for each in state["files"])
    job = state["job_id"], state["operation"], state["created_at"]
    return Snapshot(state["version"], files, *job, tuple(state["added"]), tuple(state["removed"]))


def format_links(urls: Iterable[str]) -> str:
    """Return a symlink manifest, as Hive, Athena and Trino read it: one URI a line."""
    return "".join(f"{url}\n" for url in urls)


def format_entries(files: Sequence[tuple[str, int]]) -> str:
    """Return URIs and sizes as a manifest of JSON, as Redshift's COPY reads it and other programs parse it."""
    entries = [{"url": url, "mandatory": True, "meta": {"content_length": size}} for url, size in files]
    return json.dumps({"entries": entries}, ensure_ascii=False)


_THREADS = 16
# A commit may replace files between the look at the snapshot and the listing.
_LOOKS = 3
_LOG_HEAD = re.compile(rf"{re.escape(META)}([A-Za-z0-9_]+)\.(?:capture|replay|archive|lambda)\.json")


def live_files(store: ObjectStore, version: int | None = None) -> Snapshot:
    """Return the files that make up a folder now, or that made it up in an older version.

    Files of a log of changes, whose jobs write them without a commit, belong to the newest version too.

    A folder without snapshots has the files that the manifests of its jobs name; one without manifests has the row
    files of its listing, except those of jobs that are still committing.

    Raises
    ------
    NotFoundError
        If there is no such version; a vacuum may have removed it.
    """
    if version is not None:
        return read_snapshot(store, version)
    while True:
        found = list(store.list(META))
        if versions(found) or any(is_manifest(each.path) for each in found):
            return _with_log(store, _committed(store, found), found)
        everything = {each.path: each for each in store.list()}
        replaced = _replaced_within(store, everything)
        listed = [each for path, each in everything.items() if is_row_file(path) and path not in replaced]
        after = list(store.list(META))
        # A job may have committed meanwhile: then some of its files may be missing in the listing.
        if not versions(after) and not any(is_manifest(each.path) for each in after):
            return Snapshot(0, _of_listing(listed, [*found, *after]))


@dataclass(frozen=True)
class FolderFiles:
    """Hold what lies in a folder.

    Attributes
    ----------
    files
        The files that are data, in the order of their paths; the names of some may tell no format.
    hidden
        The paths of files that would be data, but for a name that begins as those of metadata do.
    live
        The version of the folder.
    paths
        Everything in the folder.
    """

    files: tuple[StoredObject, ...]
    hidden: tuple[str, ...]
    live: Snapshot
    paths: tuple[str, ...]


def folder_files(store: ObjectStore) -> FolderFiles:
    """Return the files that a folder holds: live ones, and those of other programs.

    What jobs wrote counts only while it is live. Files of others, which no commit knows, count unless one replaced
    them; empty ones never do.

    Raises
    ------
    NotFoundError
        If a live file is gone.
    """
    for _ in range(_LOOKS):
        snapshot, found = live_files(store), {each.path: each for each in store.list()}
        live = snapshot.paths
        gone = sorted(live - found.keys()) if snapshot.version else []
        if not gone:
            break
    else:
        raise NotFoundError(
            f"{store.uri}/{gone[0]} belongs to version {snapshot.version} of its folder, and is gone: something "
            "else than ddbio deleted it; run the job again that wrote it"
        )
    within = _replaced_within(store, found)
    others = [path for path in found if path not in live and not job_of(path) and path not in within]
    if others and snapshot.version:
        replaced = replaced_files(store)
        others = [path for path in others if path not in replaced]
    data = {path for path in others if not is_hidden(path)}
    chosen = (found[path] for path in sorted({*data, *live} & found.keys()))
    hidden = (path for path in others if path not in data and format_of(path) and found[path].size_bytes)
    return FolderFiles(
        tuple(each for each in chosen if each.size_bytes),
        tuple(path for path in hidden if f"/{META}" not in f"/{path}"),
        snapshot,
        tuple(found),
    )


def replaced_files(store: ObjectStore, folder: str = "") -> set[str]:
    """Return the paths of files that commits have replaced, and that are not live again.

    Parameters
    ----------
    folder
        The path of the folder with the snapshots, which ends in a slash; default is the store's own.
    """
    history = read_history(store, folder)
    removed = {path for each in history for path in each.removed} - (history[-1].paths if history else set())
    return {f"{folder}{path}" for path in removed}


def _replaced_within(store: ObjectStore, paths: Iterable[str]) -> set[str]:
    """Return the paths of files that commits to the folders in a folder have replaced."""
    folders = {path.partition(SNAPSHOTS)[0] for path in paths if f"/{SNAPSHOTS}" in path}
    return {path for folder in folders for path in replaced_files(store, folder)}


def log_files(store: ObjectStore, files: Iterable[StoredObject]) -> list[StoredObject]:
    """Return those of some files that belong to a log of changes, or an archive, by what jobs noted in the folder."""
    jobs = _log_jobs(store.list(META))
    return [each for each in files if log_job_of(each.path) in jobs]


def read_snapshot(store: ObjectStore, version: int, folder: str = "") -> Snapshot:
    """Return one version of a folder, whose path in the store ends in a slash.

    Raises
    ------
    NotFoundError
        If it is not there.
    """
    path = f"{folder}{snapshot_path(version)}"
    try:
        return parse_snapshot(read_at_most(store, path, MAX_BYTES), path, store.uri)
    except NotFoundError:
        raise NotFoundError(
            f"{store.uri} has no version {version}: it never had, or a vacuum removed it ('ddbio files --history "
            f"{store.uri}' lists what is there)"
        ) from None


def versions(entries: Iterable[StoredObject]) -> list[int]:
    """Return the versions whose snapshots are among some objects, oldest first."""
    return sorted(version for each in entries if (version := version_at(each.path)) is not None)


def require_readable(store: ObjectStore) -> None:
    """Refuse a folder to which no job can commit, since what jobs have committed there cannot be read.

    Raises
    ------
    TargetError
        Naming the snapshot or the manifest that is damaged.
    """
    _committed(store, list(store.list(META)))


def read_history(store: ObjectStore, folder: str = "") -> list[Snapshot]:
    """Return all versions of a folder that are there, oldest first; its path in the store ends in a slash."""
    listed = store.list(f"{folder}{SNAPSHOTS}")
    found = versions(dataclasses.replace(each, path=each.path.removeprefix(folder)) for each in listed)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-snapshots") as pool:
        return list(pool.map(lambda version: read_snapshot(store, version, folder), found))


class ConflictError(TargetError):
    """Raised if other jobs changed what a commit would replace; running the job again plans anew."""


@dataclass(frozen=True, slots=True)
class Change:
    """Say how a commit changes the live files, beside adding its own.

    Attributes
    ----------
    mode
        The job's mode: appended files meet any others, all other modes exclude each other.
    operation
        What history calls the job.
    removed
        Paths that are live no more.
    base_version
        The version when the commit began.
    """

    mode: WriteMode
    operation: str
    removed: tuple[str, ...]
    base_version: int


def change_of(store: ObjectStore, mode: WriteMode, operation: str, replaced: Sequence[str]) -> Change:
    """Return the change that a commit which begins now makes."""
    removed, base = tuple(replaced), max(versions(store.list(SNAPSHOTS)), default=0)
    if mode == "error" and base:
        # The target was empty: somebody deleted what the last snapshot names.
        there = {each.path for each in store.list()}
        removed = tuple(sorted(read_snapshot(store, base).paths - there))
    return Change(mode, operation, removed, base)


def is_recorded(store: ObjectStore, change: Change, job_id: str) -> bool:
    """Return whether a job's commit has written its snapshot."""
    return any(each.job_id == job_id for each in _since(store, change, store.list(SNAPSHOTS)))


def record(store: ObjectStore, change: Change, manifest: Mapping[str, Any]) -> None:
    """Write the snapshot of a commit; do nothing if another process, which mends the job, did.

    Parameters
    ----------
    manifest
        The job's manifest, which names the files that it adds.

    Raises
    ------
    ConflictError
        If a job that excludes this one changed the target since the commit began, or a file to be replaced is gone.
    """
    job = manifest["job_id"], change.operation, manifest["created_at"]
    added = [LiveFile.from_dict(each) for each in manifest["files"]]
    while True:
        found = list(store.list(META))
        since = _since(store, change, found)
        if any(each.job_id == manifest["job_id"] for each in since):
            return
        base = _with_log(store, since[-1] if since else _committed(store, found), found)
        if not base.version and change.mode != "error":
            # Readers saw what is listed if no job had committed: the first version has it, too.
            base = live_files(store)
        rivals = [] if change.mode == "append" else [each for each in since if each.operation != "append"]
        gone = set(change.removed) - base.paths if change.mode == "replace" else set()
        if rivals or gone:
            by = f"job {rivals[-1].job_id} ({rivals[-1].operation})" if rivals else f"another job ({min(gone)} is gone)"
            raise ConflictError(
                f"{store.uri} was changed meanwhile by {by}: nothing of this job was committed; run it again", store.uri
            )
        made = base.changed(job, added, change.removed)
        if store.put_if_absent(snapshot_path(made.version), format_snapshot(made)):
            return


def _since(store: ObjectStore, change: Change, found: Iterable[StoredObject]) -> list[Snapshot]:
    """Return the versions, among some objects, that were committed since a commit began."""
    since = []
    for version in versions(found):
        # A vacuum may have removed it just now; never the newest.
        with suppress(NotFoundError):
            since += [read_snapshot(store, version)] if version > change.base_version else []
    return since


def _committed(store: ObjectStore, found: Sequence[StoredObject]) -> Snapshot:
    """Return what jobs have committed; files of others that are listed are no part of it."""
    if newest := max(versions(found), default=0):
        return read_snapshot(store, newest)
    return Snapshot(0, _of_manifests(store, [each.path for each in found if is_manifest(each.path)]))


def _with_log(store: ObjectStore, committed: Snapshot, found: Iterable[StoredObject]) -> Snapshot:
    """Return a version with the files that captures wrote since: a file of theirs is whole when it is there.

    Files that are gone, and older than all that are there, have expired by a lifecycle rule.
    """
    jobs = _log_jobs(found)
    if not jobs:
        return committed
    removed = {path for each in read_history(store) for path in each.removed}
    known = committed.paths | removed
    listed = {each.path: each for each in store.list() if is_row_file(each.path)}
    added = _of_listing([each for path, each in listed.items() if log_job_of(path) in jobs and path not in known], [])
    oldest = min(map(_folder_of, listed), default="")
    kept = [each for each in committed.files if each.path in listed or _folder_of(each.path) >= oldest]
    return dataclasses.replace(committed, files=sorted_files([*kept, *added]))


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def log_job_of(path: str) -> str:
    """Return the job that a file of a log is named by, as ``JOB-NUMBER.parquet``."""
    return path.rpartition("/")[2].partition("-")[0]


def _log_jobs(states: Iterable[StoredObject]) -> set[str]:
    """Return the ids of the jobs, by their heads among some objects, that write files of a log without a commit."""
    return {match[1] for each in states if (match := _LOG_HEAD.fullmatch(each.path))}


def _of_manifests(store: ObjectStore, paths: Sequence[str]) -> tuple[LiveFile, ...]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-manifest") as pool:
        states = list(pool.map(lambda path: read_state(store, path), paths))
    return sorted_files(LiveFile.from_dict(each) for state in states for each in state.get("files", []))


def _of_listing(listed: Iterable[StoredObject], states: Iterable[StoredObject]) -> tuple[LiveFile, ...]:
    running = {job_of_state(each.path) for each in states if is_claim(each.path) or is_intent(each.path)}
    return sorted_files(
        LiveFile(each.path, each.size_bytes, partition=hive_partition(each.path))
        for each in listed
        if job_of(each.path) not in running
    )
