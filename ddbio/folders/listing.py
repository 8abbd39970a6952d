"""Listing of the live files of a folder, and of its history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.commit.contents import require_own_files
from ddbio.commit.snapshot import format_entries, format_links, live_files, read_history
from ddbio.jobs.stores import open_store
from ddbio.result import Result

if TYPE_CHECKING:
    from ddbio.folders.options import FilesListOptions


@dataclass(frozen=True)
class ListedFile(Result):
    """Live file of a folder.

    Attributes
    ----------
    path
        URI or local path.
    bytes
        Size.
    rows
        Number of rows, or null if they can only be counted by reading the file.
    partition
        The values of its partition columns, as text.
    """

    path: str
    bytes: int
    rows: int | None
    partition: dict[str, str | None]


@dataclass(frozen=True)
class FileList(Result):
    """The live files of a folder.

    Attributes
    ----------
    path
        The folder, as passed.
    version
        The version of the folder; 0 if no commit has written a snapshot.
    job_id, operation, created_at
        The job that created this version, its operation, and the time; empty in version 0.
    bytes
        Size of all files.
    rows
        Number of all rows, or null if that of a file is unknown.
    files
        The files.
    """

    path: str
    version: int
    job_id: str
    operation: str
    created_at: str
    bytes: int
    rows: int | None
    files: tuple[ListedFile, ...]

    @property
    def paths(self) -> list[str]:
        """Return the URIs or local paths, for readers of Parquet."""
        return [file.path for file in self.files]

    def to_symlinks(self) -> str:
        """Return a symlink manifest for Athena, Hive and Trino."""
        return format_links(self.paths)

    def to_manifest(self) -> str:
        """Return a manifest with URLs and sizes for Redshift's COPY."""
        return format_entries([(file.path, file.bytes) for file in self.files])


def list_files(options: FilesListOptions) -> FileList:
    """Return the live files of a folder of ddbio; pass their ``paths`` to a reader of files.

    Raises
    ------
    NotFoundError
        If the folder has no such version.
    OptionError
        If it is a lake table, or the output of a Spark stream.
    """
    folder = options.path.rstrip("/")
    store = open_store(options.path, options)
    require_own_files(store, "its files alone are not its rows", "read the table by its metadata")
    snapshot = live_files(store, options.at_version)
    files = tuple(
        ListedFile(f"{folder}/{file.path}", file.size_bytes, file.rows, dict(file.partition)) for file in snapshot.files
    )
    rows = [file.rows for file in files]
    return FileList(
        path=options.path,
        version=snapshot.version,
        job_id=snapshot.job_id,
        operation=snapshot.operation,
        created_at=snapshot.created_at,
        bytes=sum(file.bytes for file in files),
        rows=None if None in rows else sum(row for row in rows if row is not None),
        files=files,
    )


def list_versions(options: FilesListOptions) -> list[dict[str, Any]]:
    """Return the origin of each existing version of a folder, oldest first."""
    return [
        {
            "version": snapshot.version,
            "job_id": snapshot.job_id,
            "operation": snapshot.operation,
            "created_at": snapshot.created_at,
            "files": len(snapshot.files),
            "bytes": sum(file.size_bytes for file in snapshot.files),
            "added": len(snapshot.added),
            "removed": len(snapshot.removed),
        }
        for snapshot in read_history(open_store(options.path, options))
    ]
