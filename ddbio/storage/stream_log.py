"""Read which files Spark's Structured Streaming has committed to a folder, by the log that it keeps there."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ddbio.errors import DecodeError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Collection

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
