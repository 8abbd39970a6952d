"""Open a native export: its manifests, verified, and the place of its files; read no data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.core.exports import manifest
from ddbio.errors import ExportIncompleteError, NotFoundError, OptionError
from ddbio.ops.job.target import open_store

if TYPE_CHECKING:
    from ddbio.core.exports.manifest import ExportFile, ExportSummary
    from ddbio.files.store import ObjectStore
    from ddbio.options import ConnectionOptions


@dataclass(frozen=True)
class ExportSource:
    """Hold an export whose manifests are whole: their folder, what they say, and the store of the files; picklable."""

    home: str
    summary: ExportSummary
    files: tuple[ExportFile, ...]
    store: ObjectStore

    @property
    def places(self) -> tuple[str, str]:
        """Return the folders of the manifests and of the data."""
        return self.home, f"{self.store.uri}/data"

    def path(self, file: ExportFile) -> str:
        """Return a data file's place in the store."""
        return f"data/{file.name}"

    def uri(self, file: ExportFile) -> str:
        """Return a data file's whole name."""
        return f"{self.store.uri}/{self.path(file)}"

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each data file that holds something, as the store lists them.

        Raises
        ------
        ExportIncompleteError
            If one is missing; the message names it.
        """
        listed = {each.path: each.size_bytes for each in self.store.list("data/")}
        for file in self.files:
            if self.path(file) not in listed:
                raise ExportIncompleteError(f"{self.uri(file)} is missing: copy the whole export")
        return {file.name: listed[self.path(file)] for file in self.files}


def open_export(source: str, options: ConnectionOptions) -> ExportSource:
    """Return the export that a folder holds, once both manifests have the MD5 and the counts that they should have.

    The data of a full export lies in the folder, that of an incremental one in the folder above, wherever both were
    copied to.

    Raises
    ------
    NotFoundError
        If the folder holds no export.
    ExportIncompleteError
        If the export has not completed, or a manifest is not whole or not to be trusted.
    """
    store = open_store(source, options)
    if not _is_there(store, f"{manifest.SUMMARY}.json"):
        if _is_there(store, manifest.STARTED) or _is_there(store, f"{manifest.FILES}.json"):
            raise ExportIncompleteError(f"{store.uri} has no {manifest.SUMMARY}.json: the export has not completed")
        raise NotFoundError(f"{store.uri} holds no {manifest.SUMMARY}.json: name the folder of one export")
    summary = manifest.parse_summary(*_verified(store, manifest.SUMMARY))
    files = manifest.parse_files(*_verified(store, manifest.FILES), summary)
    return ExportSource(store.uri, summary, files, store if summary.kind == "full" else _above(store, options))


def _verified(store: ObjectStore, name: str) -> tuple[bytes, str]:
    place = f"{store.uri}/{name}.json"
    try:
        data = _small(store, f"{name}.json")
    except NotFoundError:
        raise ExportIncompleteError(f"{place} is missing: copy the whole export") from None
    for ending in manifest.CHECKSUM_ENDINGS:
        try:
            checksum = _small(store, f"{name}{ending}")
        except NotFoundError:
            continue
        manifest.check_manifest(place, data, checksum)
        return data, place
    raise ExportIncompleteError(f"{place} has no {name}.md5 beside it: copy the whole export")


def _small(store: ObjectStore, path: str) -> bytes:
    """Return an object's bytes, or just more of them than a manifest may have."""
    data = bytearray()
    for chunk in store.read_chunks(path):
        data += chunk
        if len(data) > manifest.MAX_MANIFEST_BYTES:
            break
    return bytes(data)


def _is_there(store: ObjectStore, path: str) -> bool:
    return any(each.path == path for each in store.list(path))


def _above(store: ObjectStore, options: ConnectionOptions) -> ObjectStore:
    scheme, mark, path = store.uri.rpartition("://")
    above = os.path.dirname(os.path.normpath(path))  # noqa: PTH120 - of a URI as of a path
    if not above:
        raise OptionError(f"{store.uri} has no folder above it, where the data of an incremental export lies")
    return open_store(f"{scheme}{mark}{above}", options)
