"""List the live files of a folder, and its history."""

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
    """A live file of a folder.

    Attributes
    ----------
    path
        URI or local path.
    bytes
        Size.
    rows
        Number of rows, or null if only reading the file would tell.
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
        The folder as given.
    version
        The version of the folder; 0 if no commit has written a snapshot.
    job_id, operation, created_at
        The job that made this version, what it did, and when; empty in version 0.
    bytes
        Size of all files.
    rows
        Number of all rows, or null if it is not known of each file.
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
        """Return the URIs or local paths, as readers of Parquet take them."""
        return [each.path for each in self.files]

    def to_symlinks(self) -> str:
        """Return a symlink manifest, as Athena, Hive and Trino read it."""
        return format_links(self.paths)

    def to_manifest(self) -> str:
        """Return a manifest with URLs and sizes, as Redshift's COPY reads it."""
        return format_entries([(each.path, each.bytes) for each in self.files])


def list_files(options: FilesListOptions) -> FileList:
    """Return the live files of a folder that ddbio writes: give their ``paths`` to a reader of files.

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
    found = live_files(store, options.at_version)
    files = tuple(
        ListedFile(f"{folder}/{each.path}", each.size_bytes, each.rows, dict(each.partition)) for each in found.files
    )
    rows = [each.rows for each in files]
    return FileList(
        path=options.path,
        version=found.version,
        job_id=found.job_id,
        operation=found.operation,
        created_at=found.created_at,
        bytes=sum(each.bytes for each in files),
        rows=None if None in rows else sum(row for row in rows if row is not None),
        files=files,
    )


def list_versions(options: FilesListOptions) -> list[dict[str, Any]]:
    """Return what made each version of a folder that is there, oldest first."""
    return [
        {
            "version": each.version,
            "job_id": each.job_id,
            "operation": each.operation,
            "created_at": each.created_at,
            "files": len(each.files),
            "bytes": sum(file.size_bytes for file in each.files),
            "added": len(each.added),
            "removed": len(each.removed),
        }
        for each in read_history(open_store(options.path, options))
    ]
