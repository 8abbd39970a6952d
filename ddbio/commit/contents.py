"""Detection of a folder's contents: plain files, a table of a lake, the output of a stream, a log, or an export."""

from __future__ import annotations

import itertools
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast
from urllib.parse import unquote

from ddbio.commit.snapshot import live_files
from ddbio.errors import AccessDeniedError, DecodeError, NotFoundError, OptionError
from ddbio.formats.export_manifest import FILES, STARTED, SUMMARY
from ddbio.options.format_names import LakeFormatName
from ddbio.options.lake_formats import LAKE_FORMATS
from ddbio.storage.local_store import LocalStore
from ddbio.storage.meta import META

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ddbio.storage.object_store import ObjectStore

STREAM_LOG = "_spark_metadata/"
"""Folder of the log of a Spark stream."""

# https://github.com/apache/spark: FileStreamSinkLog.scala and CompactibleFileStreamLog.scala
_BATCH = re.compile(rf"{re.escape(STREAM_LOG)}(\d+)(\.compact)?")
_VERSION = "v1"


def committed_files(store: ObjectStore, listed: Collection[str]) -> set[str]:
    """Return the paths of the files that a stream has committed.

    Parameters
    ----------
    listed
        The paths of all files in the folder, which may be a copy of the stream's folder.

    Raises
    ------
    NotFoundError
        If a batch, or a committed file, does not exist.
    DecodeError
        If the log is damaged, or of another version.
    """
    batch_files = [(int(match[1]), bool(match[2]), match[0]) for entry in store.list(STREAM_LOG) if (match := _BATCH.fullmatch(entry.path))]  # fmt: skip # noqa: E501
    # A compacted batch has the entries of all previous batches.
    first = max((number for number, is_compact, _ in batch_files if is_compact), default=-1)
    batches = {number: path for number, is_compact, path in sorted(batch_files) if number > first or is_compact}
    batches = {number: path for number, path in batches.items() if number >= first}
    expected = range(max(first, 0), max(batches, default=-1) + 1)
    if missing := [number for number in expected if number not in batches]:
        raise NotFoundError(
            f"{store.uri}/{STREAM_LOG}{missing[0]} is gone: without it, the stream's committed files are unknown"
        )
    paths = dict[str, bool]()
    for number in expected:
        for name, is_there in _entries(store, batches[number]):
            paths[name] = is_there
    existing = set(listed)
    return {_path_in(name, existing, store) for name, is_there in paths.items() if is_there}


def _entries(store: ObjectStore, path: str) -> list[tuple[str, bool]]:
    """Return the URIs in a batch, and for each whether it was added, and not deleted."""
    text = store.read(path)
    try:
        version, *lines = text.decode().splitlines()
        if version != _VERSION:
            raise ValueError(f"its version is {version}")  # noqa: TRY301 - one error for all
        entries = [json.loads(line) for line in lines if line.strip()]
        return [
            (unquote(entry["path"]), entry.get("action", "add") == "add") for entry in entries if not entry.get("isDir")
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        uri = f"{store.uri}/{path}"
        raise DecodeError(f"{uri} is not a batch of a Spark stream: {error}", uri=uri) from None


def _path_in(name: str, existing: set[str], store: ObjectStore) -> str:
    """Return the path in the folder of a file with a URI: the longest ending of the URI that exists."""
    ending = name
    while ending:
        if ending in existing:
            return ending
        ending = ending.partition("/")[2]
    raise NotFoundError(f"{name} is gone: the stream whose log is in {store.uri} has committed it")


Kind: TypeAlias = Literal["files", "ddbio", "log", "archive", "export", "spark", LakeFormatName]

LOGS: Final = frozenset({"log", "archive"})
"""Kinds whose folders are times of changes, and whose rows have ddbio's own columns and those of attributes."""


_NAMES: Final[dict[str, str]] = {
    **{name: facts.table for name, facts in LAKE_FORMATS.items()},
    "files": "a folder of files",
    "ddbio": "a folder that jobs of ddbio wrote",
    "log": "a log of changes",
    "archive": "an archive of expired items",
    "export": "a native export",
    "spark": "the output of a Spark stream",
}
_TABLES = {name: (facts.folder, re.escape(facts.folder) + facts.metadata) for name, facts in LAKE_FORMATS.items()}
_STATES = rf"{META}(?:snapshots/.+|[^./]+\.json)"
_LOG = rf"{META}[A-Za-z0-9_]+\.(?:capture|replay|lambda)\.json"
_ARCHIVE = rf"{META}[A-Za-z0-9_]+\.archive\.json"
_WITHIN = re.compile(
    rf"(?P<root>.+?)/(?:{'|'.join(f'(?P<{name}>{pattern})' for name, (_, pattern) in _TABLES.items())}"
    rf"|(?P<spark>{STREAM_LOG}.+)"
    rf"|(?P<log>{_LOG})|(?P<archive>{_ARCHIVE})|(?P<export>{SUMMARY}\.json)|(?P<ddbio>{_STATES}))"
)
# Substrings that the paths of all patterns contain.
_SUBSTRINGS = (*(f"/{folder}" for folder, _ in _TABLES.values()), f"/{STREAM_LOG}", f"/{META}", f"/{SUMMARY}.json")
# The metadata of each kind, as a prefix and a pattern of paths; the first kind with a match is the folder's kind.
_PATTERNS: Final[tuple[tuple[str, str, str], ...]] = (
    *((name, *pattern) for name, pattern in _TABLES.items()),
    ("spark", STREAM_LOG, r".+"),
    ("export", "manifest-", rf"(?:{SUMMARY}|{FILES})\.json"),
    ("export", STARTED, STARTED),
    ("log", META, _LOG),
    ("archive", META, _ARCHIVE),
    ("ddbio", META, _STATES),
)
_MARKS: Final = tuple((cast("Kind", kind), prefix, re.compile(pattern)) for kind, prefix, pattern in _PATTERNS)
# One page of a listing.
_LISTED_PATHS = 1000
_THREADS = 16


@dataclass(frozen=True)
class Contents:
    """Contents of a folder.

    Attributes
    ----------
    kind
        ``files`` are plain files, also in Hive-style partitions. ``ddbio`` are files whose manifests and snapshots
        define
        the live ones, also in a folder that was published.
    root
        The folder of this kind: the given one, or one above it.
    below
        The path of the given folder in the root, which ends in a slash; empty if it is the root.
    """

    kind: Kind
    root: ObjectStore
    below: str = ""

    def __str__(self) -> str:
        return _NAMES[self.kind]

    @property
    def place(self) -> str:
        """Return a description of the root folder and its kind."""
        return f"{self.root.uri} is {self}"


def recognize(store: ObjectStore) -> Contents:
    """Return the contents of a folder, by the metadata in it, or above it.

    A folder in a lake table, in the output of a Spark stream or in a folder of ddbio is a part of it. If the caller may
    not
    list a folder, it counts as one without metadata.
    """
    if kind := kind_of(store):
        return Contents(kind, store)
    above = next(_above(store), None)
    return Contents("files", store) if above is None else above


def require_own_files(store: ObjectStore, problem: str, advice: str | None = None, *, changes: bool = False) -> None:
    """Refuse a folder whose files are listed in the metadata of another program, which a job would not update.

    Parameters
    ----------
    problem
        The consequence, for the message.
    advice
        The alternative for a lake table; default is the command that rewrites its files.
    changes
        Whether the job replaces or deletes files, which is not allowed for those of an export.

    Raises
    ------
    OptionError
        With the kind of the folder, and the alternative.
    """
    contents = recognize(store)
    refused = f"{_describe(store, contents)}: {problem}"
    if contents.kind in LAKE_FORMATS:
        services = LAKE_FORMATS[contents.kind].services
        own = f"use 'ddbio maintain' for a lake table of ddbio, and otherwise the table's own {services}"
        raise OptionError(f"{refused}, since its metadata names its files: {advice or own}")
    if contents.kind == "spark":
        raise OptionError(f"{refused}, since {STREAM_LOG} names its files: write its rows to another folder first")
    if changes and (contents.kind == "export" or _is_export_data(store)):
        refused = refused if contents.kind == "export" else f"{store.uri} holds the data of a native export: {problem}"
        raise OptionError(f"{refused}, since its manifest names its files: convert them by 'ddbio export read'")
    if contents.below and any(path.startswith(contents.below) for path in live_files(contents.root).paths):
        raise OptionError(f"{refused}, since that has records of its files: give {contents.root.uri}")
    require_no_tables(store, (entry.path for entry in store.list()), reads=not changes)


def require_target(store: ObjectStore, table_format: str | None = None) -> None:
    """Refuse to write into a folder that other programs keep a record of: a lake table, or a Spark stream's output.

    Parameters
    ----------
    table_format
        The format of the lake table that is written, if any: it may exist already.

    Raises
    ------
    OptionError
        With the kind of the existing contents.
    """
    contents = recognize(store)
    if contents.kind in {*LAKE_FORMATS, "spark"} and (contents.kind != table_format or contents.below):
        raise OptionError(
            f"{_describe(store, contents)}: other files in it could be read as rows of it, or be deleted with it: "
            "choose another folder"
        )


def _roots_within(paths: Iterable[str]) -> dict[str, Kind]:
    """Return the folders in a folder that are more than plain files, by their paths, which end in a slash."""
    roots: dict[str, Kind] = {}
    for path in paths:
        # Most paths are of data files.
        if any(part in path for part in _SUBSTRINGS) and (match := _WITHIN.fullmatch(path)):
            root = f"{match['root']}/"
            # A log is also a folder of ddbio.
            if roots.get(root, "ddbio") == "ddbio":
                roots[root] = cast("Kind", match.lastgroup)
    return roots


def require_no_tables(
    store: ObjectStore, paths: Iterable[str], chosen: Iterable[str] | None = None, *, reads: bool = False
) -> None:
    """Refuse files in a subfolder that belong to other contents: without their metadata they have no meaning.

    Parameters
    ----------
    paths
        All paths in the folder.
    chosen
        The selected files; None if all are.
    reads
        Whether files are only read, and not moved or deleted: this is allowed for those of a folder of ddbio.

    Raises
    ------
    OptionError
        With the first such folder.
    """
    selected = None if chosen is None else list(chosen)
    for root, kind in sorted(_roots_within(paths).items()):
        if (kind != "ddbio" or not reads) and (selected is None or any(path.startswith(root) for path in selected)):
            raise OptionError(
                f"{store.uri} holds {_NAMES[kind]} in {root}, whose files mean nothing without its metadata: give "
                f"{store.uri}/{root.rstrip('/')}, or a folder or glob without it"
            )


def _is_export_data(store: ObjectStore) -> bool:
    """Return whether a folder contains the data of an export, or the data of incremental exports."""
    above = store.above()
    if above is None or above[1] != "data":
        return False
    return any(entry.path.endswith(f"{SUMMARY}.json") for entry in above[0].list())


def _describe(store: ObjectStore, contents: Contents) -> str:
    return (
        f"{store.uri} is in {contents.root.uri}, which is {contents}"
        if contents.below
        else f"{store.uri} is {contents}"
    )


def _above(store: ObjectStore) -> Iterator[Contents]:
    """Yield the folders above one that are more than plain files, from the bottom up."""
    folders = list[tuple["ObjectStore", str]]()
    # The parents of a link are those of its target.
    current: ObjectStore = LocalStore(os.path.realpath(store.uri)) if isinstance(store, LocalStore) else store
    below = ""
    while (parent := current.above()) is not None:
        current, name = parent
        below = f"{name}/{below}"
        folders.append((current, below))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-above") as pool:
        for kind, (folder, path) in zip(
            pool.map(lambda folder_and_path: kind_of(folder_and_path[0], is_above=True), folders), folders, strict=True
        ):
            if kind is not None:
                yield Contents(kind, folder, path)


def kind_of(store: ObjectStore, *, is_above: bool = False) -> Kind | None:
    """Return the kind of a folder by the metadata in it; None if it has no metadata.

    A folder above others is not an export: the data of an export is read as plain files.
    """
    listed: dict[str, list[str]] = {}
    for kind, prefix, pattern in _MARKS:
        if is_above and kind == "export":
            continue
        paths = listed[prefix] if prefix in listed else listed.setdefault(prefix, _list_paths(store, prefix))
        if any(pattern.fullmatch(path) for path in paths):
            return kind
    return None


def _list_paths(store: ObjectStore, prefix: str) -> list[str]:
    """Return the first paths with a prefix, or all state files of ddbio; none if the caller may not list them."""
    is_folder = prefix.endswith("/")
    if isinstance(store, LocalStore) and is_folder and not os.path.isdir(f"{store.uri}/{prefix}"):  # noqa: PTH112 - as in above()
        return []
    try:
        return [entry.path for entry in itertools.islice(store.list(prefix), None if prefix == META else _LISTED_PATHS)]
    except (AccessDeniedError, NotFoundError):
        return []
