"""The live files of a folder: by its newest snapshot, else by the manifests of its jobs, else by listing it.

Each commit writes the next snapshot, ``_ddbio/snapshots/<version>.json``, only if this object does not exist: the
object
is both the pointer and the version. A snapshot names all live files, so a reader needs one listing and one object.
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
"""Folder of the published files; a listing of the folder that readers use shows none of them, not all versions."""


def published_folder(paths: Iterable[str]) -> str:
    """Return the folder of the one publication that has all files, with a slash at its end; else an empty text."""
    folders = {"/".join(path.split("/")[:2]) if path.startswith(PUBLISHED) else "" for path in paths}
    return f"{folders.pop()}/" if len(folders) == 1 and folders != {""} else ""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """File of a snapshot.

    Attributes
    ----------
    path
        Its path relative to the folder.
    rows
        Its rows, or None if they can only be counted by reading it.
    partition
        The values of its partition columns as text; None is null.
    statistics
        Minimum, maximum and number of nulls of some columns, or None.
    digest
        Digest of its rows, with the columns of its folders; None if none was computed.
    """

    path: str
    size_bytes: int
    rows: int | None = None
    partition: Mapping[str, str | None] = field(default_factory=dict)
    statistics: Mapping[str, Any] | None = None
    digest: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the file in manifests and snapshots."""
        entry: dict[str, Any] = {"path": self.path, "bytes": self.size_bytes, "rows": self.rows}
        if self.partition:
            entry["partition"] = dict(self.partition)
        if self.statistics is not None:
            entry["statistics"] = self.statistics
        if self.digest is not None:
            entry["digest"] = self.digest
        return entry

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> LiveFile:
        """Return the file from an entry of a manifest or a snapshot."""
        partition, statistics = entry.get("partition") or {}, entry.get("statistics")
        return cls(entry["path"], entry["bytes"], entry.get("rows"), partition, statistics, entry.get("digest"))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a folder at one time.

    Attributes
    ----------
    version
        Its number; commits count it upwards from 1. 0 means that no commit has written a snapshot: the files are those
        of manifests, or of a listing.
    files
        The live files, sorted by path.
    job_id, operation, created_at
        The job that created it, the kind of that job, and the time; empty in version 0.
    added, removed
        Paths of the files by which it differs from the previous version.
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
        return frozenset(file.path for file in self.files)

    def changed(
        self, job: tuple[str, str, str], added: Iterable[LiveFile] = (), removed: Iterable[str] = ()
    ) -> Snapshot:
        """Return the next version, without some files and with others.

        Parameters
        ----------
        job
            Id, operation and time of the job that changes the folder.
        """
        new, gone = {file.path: file for file in added}, frozenset(removed)
        remaining = {file.path: file for file in self.files if file.path not in gone}
        return Snapshot(
            self.version + 1,
            sorted_files({**remaining, **new}.values()),
            *job,
            added=tuple(sorted(new)),
            removed=tuple(sorted(self.paths & gone)),
        )


def sorted_files(files: Iterable[LiveFile]) -> tuple[LiveFile, ...]:
    """Return files in the order of their paths."""
    return tuple(sorted(files, key=lambda file: file.path))


def format_snapshot(snapshot: Snapshot) -> bytes:
    """Return a snapshot as JSON text, with one line per file."""
    head = {
        "format": FORMAT,
        "version": snapshot.version,
        "job_id": snapshot.job_id,
        "operation": snapshot.operation,
        "created_at": snapshot.created_at,
        "added": list(snapshot.added),
        "removed": list(snapshot.removed),
    }
    lines = ",\n".join(json.dumps(file.to_dict(), ensure_ascii=False) for file in snapshot.files)
    return add_checksum(f'{json.dumps(head, ensure_ascii=False)[:-1]}, "files": [\n{lines}\n]}}')


def parse_snapshot(text: bytes, path: str, uri: str = "") -> Snapshot:
    """Return the snapshot of a JSON text.

    Raises
    ------
    TargetError
        If another program or a newer version of ddbio wrote it, or if it is damaged.
    """
    state = parse_state(text, path, uri)
    files = tuple(LiveFile.from_dict(entry) for entry in state["files"])
    job = state["job_id"], state["operation"], state["created_at"]
    return Snapshot(state["version"], files, *job, tuple(state["added"]), tuple(state["removed"]))


def format_links(urls: Iterable[str]) -> str:
    """Return a symlink manifest for Hive, Athena and Trino: one URI per line."""
    return "".join(f"{url}\n" for url in urls)


def format_entries(files: Sequence[tuple[str, int]]) -> str:
    """Return URIs and sizes as a JSON manifest for Redshift's COPY, which other programs can parse, too."""
    entries = [{"url": url, "mandatory": True, "meta": {"content_length": size}} for url, size in files]
    return json.dumps({"entries": entries}, ensure_ascii=False)


_THREADS = 16
# A commit may replace files between the reading of the snapshot and the listing.
_ATTEMPTS = 3
_LOG_HEAD = re.compile(rf"{re.escape(META)}([A-Za-z0-9_]+)\.(?:capture|replay|archive|lambda)\.json")


def live_files(store: ObjectStore, version: int | None = None) -> Snapshot:
    """Return the files of a folder now, or in an older version.

    Files of a log of changes, whose jobs write them without a commit, belong to the newest version, too.

    A folder without snapshots has the files in the manifests of its jobs. A folder without manifests has the row files
    of
    its listing, except those of jobs that are still committing.

    Raises
    ------
    NotFoundError
        If there is no such version; a vacuum may have removed it.
    """
    if version is not None:
        return read_snapshot(store, version)
    while True:
        states = list(store.list(META))
        if versions(states) or any(is_manifest(entry.path) for entry in states):
            return _with_log(store, _committed(store, states), states)
        everything = {entry.path: entry for entry in store.list()}
        replaced = _replaced_within(store, everything)
        listed = [entry for path, entry in everything.items() if is_row_file(path) and path not in replaced]
        after = list(store.list(META))
        # A job may have committed in the meantime: then some of its files may be missing from the listing.
        if not versions(after) and not any(is_manifest(entry.path) for entry in after):
            return Snapshot(0, _of_listing(listed, [*states, *after]))


@dataclass(frozen=True)
class FolderFiles:
    """Files in a folder.

    Attributes
    ----------
    files
        The data files, in the order of their paths; the names of some may have no known format.
    hidden
        The paths of files that would be data, but have names of metadata.
    live
        The version of the folder.
    paths
        All paths in the folder.
    """

    files: tuple[StoredObject, ...]
    hidden: tuple[str, ...]
    live: Snapshot
    paths: tuple[str, ...]


def folder_files(store: ObjectStore) -> FolderFiles:
    """Return the files in a folder: live ones, and those of other programs.

    Files of jobs count only while they are live. Files of other programs, which no commit records, count unless a
    commit
    replaced them; empty files never count.

    Raises
    ------
    NotFoundError
        If a live file is gone.
    """
    for _ in range(_ATTEMPTS):
        snapshot, entries = live_files(store), {entry.path: entry for entry in store.list()}
        live = snapshot.paths
        gone = sorted(live - entries.keys()) if snapshot.version else []
        if not gone:
            break
    else:
        raise NotFoundError(
            f"{store.uri}/{gone[0]} belongs to version {snapshot.version} of its folder, and is gone: a program other "
            "than ddbio deleted it; rerun the job that wrote it"
        )
    within = _replaced_within(store, entries)
    others = [path for path in entries if path not in live and not job_of(path) and path not in within]
    if others and snapshot.version:
        replaced = replaced_files(store)
        others = [path for path in others if path not in replaced]
    data = {path for path in others if not is_hidden(path)}
    chosen = (entries[path] for path in sorted({*data, *live} & entries.keys()))
    hidden = (path for path in others if path not in data and format_of(path) and entries[path].size_bytes)
    return FolderFiles(
        tuple(file for file in chosen if file.size_bytes),
        tuple(path for path in hidden if f"/{META}" not in f"/{path}"),
        snapshot,
        tuple(entries),
    )


def replaced_files(store: ObjectStore, folder: str = "") -> set[str]:
    """Return the paths of files that commits have replaced, and that are not live again.

    Parameters
    ----------
    folder
        The path of the folder with the snapshots, which ends in a slash; default is the store's own.
    """
    history = read_history(store, folder)
    removed = {path for snapshot in history for path in snapshot.removed} - (history[-1].paths if history else set())
    return {f"{folder}{path}" for path in removed}


def _replaced_within(store: ObjectStore, paths: Iterable[str]) -> set[str]:
    """Return the paths of files that commits to subfolders have replaced."""
    folders = {path.partition(SNAPSHOTS)[0] for path in paths if f"/{SNAPSHOTS}" in path}
    return {path for folder in folders for path in replaced_files(store, folder)}


def log_files(store: ObjectStore, files: Iterable[StoredObject]) -> list[StoredObject]:
    """Return the files that belong to a log of changes or an archive, by the state files in the folder."""
    jobs = _log_jobs(store.list(META))
    return [file for file in files if log_job_of(file.path) in jobs]


def read_snapshot(store: ObjectStore, version: int, folder: str = "") -> Snapshot:
    """Return one version of a folder, whose path in the store ends in a slash.

    Raises
    ------
    NotFoundError
        If it does not exist.
    """
    path = f"{folder}{snapshot_path(version)}"
    try:
        return parse_snapshot(read_at_most(store, path, MAX_BYTES), path, store.uri)
    except NotFoundError:
        raise NotFoundError(
            f"{store.uri} has no version {version}: it never had, or a vacuum removed it ('ddbio files --history "
            f"{store.uri}' lists the existing versions)"
        ) from None


def versions(entries: Iterable[StoredObject]) -> list[int]:
    """Return the versions whose snapshots are among some objects, oldest first."""
    return sorted(version for entry in entries if (version := version_at(entry.path)) is not None)


def require_readable(store: ObjectStore) -> None:
    """Refuse a folder to which no job can commit, because its committed state cannot be read.

    Raises
    ------
    TargetError
        With the damaged snapshot or manifest.
    """
    _committed(store, list(store.list(META)))


def read_history(store: ObjectStore, folder: str = "") -> list[Snapshot]:
    """Return all existing versions of a folder, oldest first; its path in the store ends in a slash."""
    listed = store.list(f"{folder}{SNAPSHOTS}")
    existing = versions(dataclasses.replace(entry, path=entry.path.removeprefix(folder)) for entry in listed)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-snapshots") as pool:
        return list(pool.map(lambda version: read_snapshot(store, version, folder), existing))


class ConflictError(TargetError):
    """Raised if other jobs changed objects that a commit would replace; running the job again makes a new plan."""


@dataclass(frozen=True, slots=True)
class Change:
    """Change of the live files by a commit, other than its new files.

    Attributes
    ----------
    mode
        The job's mode: appended files are compatible with any others, all other modes exclude each other.
    operation
        The name of the job in the history.
    removed
        Paths that are not live any more.
    base_version
        The version when the commit started.
    """

    mode: WriteMode
    operation: str
    removed: tuple[str, ...]
    base_version: int


def change_of(store: ObjectStore, mode: WriteMode, operation: str, replaced: Sequence[str]) -> Change:
    """Return the change of a commit that starts now."""
    removed, base = tuple(replaced), max(versions(store.list(SNAPSHOTS)), default=0)
    if mode == "error" and base:
        # The target was empty: another program deleted the files of the last snapshot.
        existing = {entry.path for entry in store.list()}
        removed = tuple(sorted(read_snapshot(store, base).paths - existing))
    return Change(mode, operation, removed, base)


def is_recorded(store: ObjectStore, change: Change, job_id: str) -> bool:
    """Return whether a job's commit has written its snapshot."""
    return any(snapshot.job_id == job_id for snapshot in _since(store, change, store.list(SNAPSHOTS)))


def record(store: ObjectStore, change: Change, manifest: Mapping[str, Any]) -> None:
    """Write the snapshot of a commit; do nothing if another process, which repairs the job, did.

    Parameters
    ----------
    manifest
        The job's manifest, which names the files that it adds.

    Raises
    ------
    ConflictError
        If a job that excludes this one changed the target since the commit started, or a file to be replaced is gone.
    """
    job = manifest["job_id"], change.operation, manifest["created_at"]
    added = [LiveFile.from_dict(entry) for entry in manifest["files"]]
    while True:
        states = list(store.list(META))
        since = _since(store, change, states)
        if any(snapshot.job_id == manifest["job_id"] for snapshot in since):
            return
        base = _with_log(store, since[-1] if since else _committed(store, states), states)
        if not base.version and change.mode != "error":
            # Readers saw the listed files if no job had committed: the first version has them, too.
            base = live_files(store)
        rivals = [] if change.mode == "append" else [snapshot for snapshot in since if snapshot.operation != "append"]
        gone = set(change.removed) - base.paths if change.mode == "replace" else set()
        if rivals or gone:
            by = f"job {rivals[-1].job_id} ({rivals[-1].operation})" if rivals else f"another job ({min(gone)} is gone)"
            raise ConflictError(
                f"{store.uri} was changed meanwhile by {by}: nothing of this job was committed; run it again", store.uri
            )
        next_version = base.changed(job, added, change.removed)
        if store.put_if_absent(snapshot_path(next_version.version), format_snapshot(next_version)):
            return


def _since(store: ObjectStore, change: Change, entries: Iterable[StoredObject]) -> list[Snapshot]:
    """Return the versions, among some objects, that were committed since a commit started."""
    since = []
    for version in versions(entries):
        # A vacuum may have removed it just now; never the newest.
        with suppress(NotFoundError):
            since += [read_snapshot(store, version)] if version > change.base_version else []
    return since


def _committed(store: ObjectStore, entries: Sequence[StoredObject]) -> Snapshot:
    """Return the committed version, which excludes listed files of other programs."""
    if newest := max(versions(entries), default=0):
        return read_snapshot(store, newest)
    return Snapshot(0, _of_manifests(store, [entry.path for entry in entries if is_manifest(entry.path)]))


def _with_log(store: ObjectStore, committed: Snapshot, entries: Iterable[StoredObject]) -> Snapshot:
    """Return a version with the files that captures wrote since; such a file is complete when it exists.

    Missing files that are older than all existing ones have expired by a lifecycle rule.
    """
    jobs = _log_jobs(entries)
    if not jobs:
        return committed
    removed = {path for snapshot in read_history(store) for path in snapshot.removed}
    recorded = committed.paths | removed
    listed = {entry.path: entry for entry in store.list() if is_row_file(entry.path)}
    added = _of_listing(
        [entry for path, entry in listed.items() if log_job_of(path) in jobs and path not in recorded], []
    )
    oldest = min(map(_folder_of, listed), default="")
    existing = [file for file in committed.files if file.path in listed or _folder_of(file.path) >= oldest]
    return dataclasses.replace(committed, files=sorted_files([*existing, *added]))


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def log_job_of(path: str) -> str:
    """Return the job in the name of a file of a log, as ``JOB-NUMBER.parquet``."""
    return path.rpartition("/")[2].partition("-")[0]


def _log_jobs(states: Iterable[StoredObject]) -> set[str]:
    """Return the ids of the jobs, by their heads among some objects, that write files of a log without a commit."""
    return {match[1] for entry in states if (match := _LOG_HEAD.fullmatch(entry.path))}


def _of_manifests(store: ObjectStore, paths: Sequence[str]) -> tuple[LiveFile, ...]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-manifest") as pool:
        states = list(pool.map(lambda path: read_state(store, path), paths))
    return sorted_files(LiveFile.from_dict(entry) for state in states for entry in state.get("files", []))


def _of_listing(listed: Iterable[StoredObject], states: Iterable[StoredObject]) -> tuple[LiveFile, ...]:
    running = {job_of_state(entry.path) for entry in states if is_claim(entry.path) or is_intent(entry.path)}
    return sorted_files(
        LiveFile(entry.path, entry.size_bytes, partition=hive_partition(entry.path))
        for entry in listed
        if job_of(entry.path) not in running
    )
