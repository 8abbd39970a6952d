"""Staged files, stored objects, job ids; the names of a job's files; and the check that paths stay in their folder."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ddbio.errors import OptionError, TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Without a hyphen, a job id never ends inside another one.
_JOB_ID = re.compile(r"[A-Za-z0-9_]+")
# The format of ids by ddbio.jobs.stores.
_INSTANT = re.compile(r"\d{8}T\d{6}Z(?=_)")
_FILE_NAME = re.compile(r"part-([A-Za-z0-9_]+)-\d+-\d+-\d+\.")
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Staged file: plain JSON values, from which any process can complete it; no credential.

    Attributes
    ----------
    path
        The future path of the file, relative to the target.
    size_bytes
        Size of the complete file.
    rows
        Rows in the file.
    token
        The data by which the store that staged the file completes it.
    partition
        Hive column and text of each folder that contains the file; None is null. Empty if rows are not partitioned.
    statistics
        ``nulls``, ``min`` and ``max`` of key and partition columns; None if none were collected.
    digest
        Digest of the rows, with the columns of the folders; None if none was computed.
    md5
        MD5 of the file's bytes as base64, if the manifests of its format store it.
    crc32
        CRC-32 of each mebibyte of the file, four bytes each, as base64; None if its format has checksums.
    """

    path: str
    size_bytes: int
    rows: int
    token: dict[str, Any]
    partition: dict[str, str | None] = field(default_factory=dict)
    statistics: dict[str, dict[str, Any]] | None = None
    digest: str | None = None
    md5: str | None = None
    crc32: str | None = None

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> StagedFile:
        """Return the file from the members of ``asdict``; members that this release does not know are ignored."""
        return cls(**{member.name: entry[member.name] for member in fields(cls) if member.name in entry})

    def manifest_entry(self) -> dict[str, Any]:
        """Return the file's entry in a manifest."""
        return {
            "path": self.path,
            "bytes": self.size_bytes,
            "rows": self.rows,
            "partition": self.partition,
            "statistics": self.statistics,
            **({} if self.digest is None else {"digest": self.digest}),
            **({} if self.crc32 is None else {"crc32": self.crc32}),
        }


@dataclass(frozen=True, slots=True)
class SmallObject:
    """A small object that a commit writes, such as a manifest of the files' format."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class StoredObject:
    """Visible object of a store.

    Attributes
    ----------
    path
        Its path relative to the target.
    version
        A text that changes when the object is replaced.
    modified_at
        The time of writing, in seconds since 1970 by the store's clock.
    crc32
        The checksums of a :class:`StagedFile`, if they were looked up in the manifest that names it.
    format
        The name of its format, if it was stated or detected; None if it follows from the object's name.
    """

    path: str
    size_bytes: int
    version: str = field(default="", compare=False)
    modified_at: float = field(default=0.0, compare=False)
    crc32: str | None = field(default=None, compare=False, repr=False)
    format: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class FileNaming:
    """Names of the files of one attempt of one task; no other attempt uses the same names.

    Raises
    ------
    OptionError
        If the job id has other characters than letters, digits and underscores.
    """

    job_id: str
    task: int
    attempt: int = 0

    def __post_init__(self) -> None:
        check_job_id(self.job_id)

    def path(self, number: int, extension: str, folder: str = "") -> str:
        """Return the path of this attempt's file with that number, counted from 0, in a folder that ends in a slash."""
        return f"{folder}part-{self.job_id}-{self.task:05d}-{self.attempt}-{number:04d}.{extension}"


def check_job_id(job_id: str) -> None:
    """Refuse a job id that could not be recognised in a file name.

    Raises
    ------
    OptionError
        If the job id has other characters than letters, digits and underscores.
    """
    if not is_job_id(job_id):
        raise OptionError(f"job id {job_id!r} does not fit into file names: use letters, digits and underscores")


def is_job_id(text: str) -> bool:
    """Return whether a text is valid as a job id: ids are parts of file names."""
    return _JOB_ID.fullmatch(text) is not None


def started_at(job_id: str) -> datetime | None:
    """Return the start time in the job id that a text starts with; None if the id has no time."""
    match = _INSTANT.match(job_id)
    try:
        return None if match is None else datetime.strptime(match[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def job_of(path: str) -> str:
    """Return the id of the job whose file has this path, or an empty text."""
    match = _FILE_NAME.match(path.rpartition("/")[2])
    return match[1] if match else ""


def contained(path: object, folder: str, *, is_key: bool = False) -> str:
    """Return a path if it is within its folder, and is canonical.

    It is relative and has no empty part, no part ``.`` or ``..`` and no NUL. A backslash counts as a slash in the
    search for
    parts ``..``, because some file systems and servers treat it as one.

    Parameters
    ----------
    folder
        URI of the folder, for the message.
    is_key
        Whether the path is the key of an existing object, which may have empty parts and parts ``.``.

    Raises
    ------
    TargetError
        If it is not.
    """
    if isinstance(path, str) and path and "\0" not in path:
        parts = path.split("/")
        climbs = ".." in (path.replace("\\", "/").split("/") if "\\" in path else parts)
        if not climbs and (is_key or not ("" in parts or "." in parts or path[0] == "\\")) and _is_encodable(path):
            return path
    raise outside(path, folder)


def outside(path: object, folder: str) -> TargetError:
    """Return the error of a path that leads out of its folder."""
    shown = repr(path)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return TargetError(
        f"{shown} is no path within {folder}, so it is neither read nor written: remove the reference to it, or move "
        "the file into that folder",
        folder,
    )


def _is_encodable(path: str) -> bool:
    """Return whether a path can be encoded: names of local files that are not UTF-8 have lone surrogates."""
    if path.isascii():
        return True
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
