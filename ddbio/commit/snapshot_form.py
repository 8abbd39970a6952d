"""The live files of a folder, and what becomes of them: snapshots, as values and as JSON text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddbio.storage.json_checksum import add_checksum
from ddbio.storage.states import FORMAT, parse_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
