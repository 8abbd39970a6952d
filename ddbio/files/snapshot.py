"""The live files of a folder: by its newest snapshot, else by the manifests of its jobs, else by listing it.

Each commit writes the next snapshot, ``_ddbio/snapshots/<version>.json``, only where none is: that object is the
pointer, and the version it moves. A snapshot names all live files: a reader needs one listing and one object.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ddbio.core.snapshot import LiveFile, Snapshot, parse_snapshot, sorted_files
from ddbio.core.staged import job_of
from ddbio.errors import NotFoundError
from ddbio.files.formats import is_row_file
from ddbio.files.meta import (
    META,
    SNAPSHOTS,
    is_claim,
    is_intent,
    is_manifest,
    job_of_state,
    parse_state,
    snapshot_path,
    version_at,
)
from ddbio.files.paths import hive_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddbio.core.staged import StoredObject
    from ddbio.files.object_store import ObjectStore

_THREADS = 16


def live_files(store: ObjectStore, version: int | None = None) -> Snapshot:
    """Return the files that make up a folder now, or that made it up in an older version.

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
        if newest := max(versions(found), default=0):
            return read_snapshot(store, newest)
        if manifests := [each.path for each in found if is_manifest(each.path)]:
            return Snapshot(0, _of_manifests(store, manifests))
        listed = [each for each in store.list() if is_row_file(each.path)]
        after = list(store.list(META))
        # A job may have committed meanwhile: then some of its files may be missing in the listing.
        if not versions(after) and not any(is_manifest(each.path) for each in after):
            return Snapshot(0, _of_listing(listed, [*found, *after]))


def read_snapshot(store: ObjectStore, version: int) -> Snapshot:
    """Return one version of a folder.

    Raises
    ------
    NotFoundError
        If it is not there.
    """
    path = snapshot_path(version)
    try:
        return parse_snapshot(store.read(path), f"{store.uri}/{path}")
    except NotFoundError:
        raise NotFoundError(
            f"{store.uri} has no version {version}: it never had, or a vacuum removed it ('ddbio files --history "
            f"{store.uri}' lists what is there)"
        ) from None


def versions(entries: Iterable[StoredObject]) -> list[int]:
    """Return the versions whose snapshots are among some objects, oldest first."""
    return sorted(version for each in entries if (version := version_at(each.path)) is not None)


def read_history(store: ObjectStore) -> list[Snapshot]:
    """Return all versions of a folder that are there, oldest first."""
    found = versions(store.list(SNAPSHOTS))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-snapshots") as pool:
        return list(pool.map(lambda version: read_snapshot(store, version), found))


def _of_manifests(store: ObjectStore, paths: Sequence[str]) -> tuple[LiveFile, ...]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-manifest") as pool:
        states = [parse_state(text, path) for path, text in zip(paths, pool.map(store.read, paths), strict=True)]
    return sorted_files(LiveFile.from_dict(each) for state in states for each in state.get("files", []))


def _of_listing(listed: Iterable[StoredObject], states: Iterable[StoredObject]) -> tuple[LiveFile, ...]:
    running = {job_of_state(each.path) for each in states if is_claim(each.path) or is_intent(each.path)}
    return sorted_files(
        LiveFile(each.path, each.size_bytes, partition=hive_partition(each.path))
        for each in listed
        if job_of(each.path) not in running
    )
