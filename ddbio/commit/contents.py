"""Recognize what a folder contains: plain files, a table of a lake, the output of a stream, a log, or an export."""

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
"""The folder of the log."""

# https://github.com/apache/spark: FileStreamSinkLog.scala and CompactibleFileStreamLog.scala
_BATCH = re.compile(rf"{re.escape(STREAM_LOG)}(\d+)(\.compact)?")
_VERSION = "v1"


def committed_files(store: ObjectStore, listed: Collection[str]) -> set[str]:
    """Return the paths of the files that a stream has committed.

    Parameters
    ----------
    listed
        The paths of all files in the folder, which may have been copied from where the stream wrote it.

    Raises
    ------
    NotFoundError
        If a batch, or a committed file, is gone.
    DecodeError
        If the log is damaged, or of another version.
    """
    found = [(int(match[1]), bool(match[2]), match[0]) for each in store.list(STREAM_LOG) if (match := _BATCH.fullmatch(each.path))]  # fmt: skip # noqa: E501
    # A compacted batch holds what all batches before it have.
    first = max((number for number, is_compact, _ in found if is_compact), default=-1)
    batches = {number: path for number, is_compact, path in sorted(found) if number > first or is_compact}
    batches = {number: path for number, path in batches.items() if number >= first}
    wanted = range(max(first, 0), max(batches, default=-1) + 1)
    if missing := [number for number in wanted if number not in batches]:
        raise NotFoundError(
            f"{store.uri}/{STREAM_LOG}{missing[0]} is gone: nothing else says which files the stream has committed"
        )
    paths = dict[str, bool]()
    for number in wanted:
        for name, is_there in _entries(store, batches[number]):
            paths[name] = is_there
    known = set(listed)
    return {_path_in(name, known, store) for name, is_there in paths.items() if is_there}


def _entries(store: ObjectStore, path: str) -> list[tuple[str, bool]]:
    """Return the URIs in a batch, and whether each was added, and not deleted."""
    text = store.read(path)
    try:
        version, *lines = text.decode().splitlines()
        if version != _VERSION:
            raise ValueError(f"its version is {version}")  # noqa: TRY301 - one error for all
        entries = [json.loads(line) for line in lines if line.strip()]
        return [
            (unquote(each["path"]), each.get("action", "add") == "add") for each in entries if not each.get("isDir")
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        uri = f"{store.uri}/{path}"
        raise DecodeError(f"{uri} is no batch of a Spark stream: {error}", uri=uri) from None


def _path_in(name: str, known: set[str], store: ObjectStore) -> str:
    """Return the path in the folder of a file with a URI: the longest of its ends that is there."""
    rest = name
    while rest:
        if rest in known:
            return rest
        rest = rest.partition("/")[2]
    raise NotFoundError(f"{name} is gone: the stream whose log lies in {store.uri} has committed it")


Kind: TypeAlias = Literal["files", "ddbio", "log", "archive", "export", "spark", LakeFormatName]

LOGS: Final = frozenset({"log", "archive"})
"""Kinds whose folders are times of changes, and whose rows have columns of ddbio's own beside those of attributes."""


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
_NOTED = rf"{META}(?:snapshots/.+|[^./]+\.json)"
_LOG = rf"{META}[A-Za-z0-9_]+\.(?:capture|replay|lambda)\.json"
_ARCHIVE = rf"{META}[A-Za-z0-9_]+\.archive\.json"
_WITHIN = re.compile(
    rf"(?P<root>.+?)/(?:{'|'.join(f'(?P<{name}>{pattern})' for name, (_, pattern) in _TABLES.items())}"
    rf"|(?P<spark>{STREAM_LOG}.+)"
    rf"|(?P<log>{_LOG})|(?P<archive>{_ARCHIVE})|(?P<export>{SUMMARY}\.json)|(?P<ddbio>{_NOTED}))"
)
# What the path of each of these has in it.
_NEAR = (*(f"/{folder}" for folder, _ in _TABLES.values()), f"/{STREAM_LOG}", f"/{META}", f"/{SUMMARY}.json")
# What metadata there is in a folder of each kind, the first that is found decides: a prefix, and the paths with it.
_PATTERNS: Final[tuple[tuple[str, str, str], ...]] = (
    *((name, *pattern) for name, pattern in _TABLES.items()),
    ("spark", STREAM_LOG, r".+"),
    ("export", "manifest-", rf"(?:{SUMMARY}|{FILES})\.json"),
    ("export", STARTED, STARTED),
    ("log", META, _LOG),
    ("archive", META, _ARCHIVE),
    ("ddbio", META, _NOTED),
)
_MARKS: Final = tuple((cast("Kind", kind), prefix, re.compile(pattern)) for kind, prefix, pattern in _PATTERNS)
# One page of a listing.
_LISTED = 1000
_THREADS = 16


@dataclass(frozen=True)
class Contents:
    """Say what a folder contains.

    Attributes
    ----------
    kind
        ``files`` are plain files, also in Hive-style partitions. ``ddbio`` are files whose manifests and snapshots
        say which of them are live, also in a folder that was published.
    root
        The folder that is of this kind: the given one, or one above it.
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
        """Return what the folder is, and where its root is."""
        return f"{self.root.uri} is {self}"


def recognize(store: ObjectStore) -> Contents:
    """Return what a folder contains, by the metadata in it, or above it.

    A folder in a lake table, in the output of a Spark stream or in a folder of ddbio's is a part of that. What the
    caller may not list is taken to hold no metadata.
    """
    if kind := kind_of(store):
        return Contents(kind, store)
    above = next(_above(store), None)
    return Contents("files", store) if above is None else above


def require_own_files(store: ObjectStore, problem: str, advice: str | None = None, *, changes: bool = False) -> None:
    """Refuse a folder whose files are named by the metadata of something else, which a job would not keep right.

    Parameters
    ----------
    problem
        What would be wrong, for the message.
    advice
        What to do with a lake table instead; default is what rewrites its files.
    changes
        Whether the job replaces or deletes files, which those of an export must not be.

    Raises
    ------
    OptionError
        Naming what the folder is, and what to use instead.
    """
    found = recognize(store)
    refused = f"{_place(store, found)}: {problem}"
    if found.kind in LAKE_FORMATS:
        services = LAKE_FORMATS[found.kind].services
        own = f"use 'ddbio maintain' for a lake table of ddbio, and otherwise the table's own {services}"
        raise OptionError(f"{refused}, since its metadata names its files: {advice or own}")
    if found.kind == "spark":
        raise OptionError(f"{refused}, since {STREAM_LOG} names its files: write its rows to another folder first")
    if changes and (found.kind == "export" or _is_export_data(store)):
        refused = refused if found.kind == "export" else f"{store.uri} holds the data of a native export: {problem}"
        raise OptionError(f"{refused}, since its manifest names its files: make others of it by 'ddbio export read'")
    if found.below and any(path.startswith(found.below) for path in live_files(found.root).paths):
        raise OptionError(f"{refused}, since that has notes of its files: give {found.root.uri}")
    require_no_tables(store, (each.path for each in store.list()), reads=not changes)


def require_target(store: ObjectStore, table_format: str | None = None) -> None:
    """Refuse to write into what other programs keep a record of: a lake table, or the output of a Spark stream.

    Parameters
    ----------
    table_format
        The format of the lake table that is written, if one is: it may be there already.

    Raises
    ------
    OptionError
        Naming what is there.
    """
    found = recognize(store)
    if found.kind in {*LAKE_FORMATS, "spark"} and (found.kind != table_format or found.below):
        raise OptionError(
            f"{_place(store, found)}: other files in it could be read as rows of it, or be deleted with it: choose "
            "another folder"
        )


def _roots_within(paths: Iterable[str]) -> dict[str, Kind]:
    """Return the folders in a folder that are more than files, by their paths, which end in a slash."""
    roots: dict[str, Kind] = {}
    for path in paths:
        # Most paths are of data files.
        if any(part in path for part in _NEAR) and (found := _WITHIN.fullmatch(path)):
            root = f"{found['root']}/"
            # A log is a folder of ddbio's, too.
            if roots.get(root, "ddbio") == "ddbio":
                roots[root] = cast("Kind", found.lastgroup)
    return roots


def require_no_tables(
    store: ObjectStore, paths: Iterable[str], chosen: Iterable[str] | None = None, *, reads: bool = False
) -> None:
    """Refuse files that belong to something else in a folder of a folder: without its metadata they mean nothing.

    Parameters
    ----------
    paths
        Everything in the folder.
    chosen
        The files that are wanted; None if all are.
    reads
        Whether files are only read, and not moved or deleted: those of a folder of ddbio's may be.

    Raises
    ------
    OptionError
        Naming the first such folder.
    """
    wanted = None if chosen is None else list(chosen)
    for root, kind in sorted(_roots_within(paths).items()):
        if (kind != "ddbio" or not reads) and (wanted is None or any(path.startswith(root) for path in wanted)):
            raise OptionError(
                f"{store.uri} holds {_NAMES[kind]} in {root}, whose files mean nothing without its metadata: give "
                f"{store.uri}/{root.rstrip('/')}, or a folder or glob without it"
            )


def _is_export_data(store: ObjectStore) -> bool:
    """Return whether a folder is that of an export's data, or of that of incremental exports."""
    above = store.above()
    if above is None or above[1] != "data":
        return False
    return any(each.path.endswith(f"{SUMMARY}.json") for each in above[0].list())


def _place(store: ObjectStore, found: Contents) -> str:
    return f"{store.uri} lies in {found.root.uri}, which is {found}" if found.below else f"{store.uri} is {found}"


def _above(store: ObjectStore) -> Iterator[Contents]:
    """Yield the folders above one that are more than files, from the bottom up."""
    folders = list[tuple["ObjectStore", str]]()
    # A link leads to where a folder is.
    place: ObjectStore = LocalStore(os.path.realpath(store.uri)) if isinstance(store, LocalStore) else store
    below = ""
    while (found := place.above()) is not None:
        place, name = found
        below = f"{name}/{below}"
        folders.append((place, below))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-above") as pool:
        for kind, (folder, path) in zip(
            pool.map(lambda each: kind_of(each[0], is_above=True), folders), folders, strict=True
        ):
            if kind is not None:
                yield Contents(kind, folder, path)


def kind_of(store: ObjectStore, *, is_above: bool = False) -> Kind | None:
    """Return what a folder is by the metadata in it; None if it has none.

    The folder above others is no export: the data of an export is read as plain files.
    """
    listed: dict[str, list[str]] = {}
    for kind, prefix, pattern in _MARKS:
        if is_above and kind == "export":
            continue
        paths = listed[prefix] if prefix in listed else listed.setdefault(prefix, _listed(store, prefix))
        if any(pattern.fullmatch(path) for path in paths):
            return kind
    return None


def _listed(store: ObjectStore, prefix: str) -> list[str]:
    """Return the first paths with a prefix, or all that jobs of ddbio noted; none if the caller may not list them."""
    is_folder = prefix.endswith("/")
    if isinstance(store, LocalStore) and is_folder and not os.path.isdir(f"{store.uri}/{prefix}"):  # noqa: PTH112 - as in above()
        return []
    try:
        return [each.path for each in itertools.islice(store.list(prefix), None if prefix == META else _LISTED)]
    except (AccessDeniedError, NotFoundError):
        return []
