"""Open a native export, verify its manifests and read its data files as verified text."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.core.exports import manifest
from ddbio.core.exports.manifest import check_md5
from ddbio.core.ion.blocks import IonReader
from ddbio.errors import DecodeError, ExportIncompleteError, NotFoundError, OptionError
from ddbio.files.decompress import MAX_CHANGE_BYTES, MAX_LINE_BYTES, GzipReader
from ddbio.ops.job.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.core.exports.manifest import ExportFile, ExportSummary
    from ddbio.files.object_store import ObjectStore
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


_LINE = re.compile(r"line (\d+): ")


class FileText:
    """Iterate over one file's text in blocks of whole lines, under errors that name the file.

    Attributes
    ----------
    rows
        Lines taken so far: the caller counts them, so that an error in a block has its line in the file.
    """

    def __init__(self, source: ExportSource, file: ExportFile) -> None:
        self.uri = source.uri(file)
        self.rows = 0
        longest = MAX_LINE_BYTES if source.summary.kind == "full" else MAX_CHANGE_BYTES
        self._ion = IonReader(longest) if source.summary.encoding == "ion" else None
        self._file = file
        self._text = GzipReader(source.store.read_chunks(source.path(file)), self.uri, longest)

    @property
    def text_bytes(self) -> int:
        """Return the bytes inflated so far."""
        return self._text.text_bytes

    @contextmanager
    def blocks(self) -> Iterator[Iterator[bytes | memoryview]]:
        """Hand out the blocks, each good until the next is asked for; what goes wrong is told in terms of the file.

        Raises
        ------
        ExportIncompleteError
            The file is missing, or not the one that was exported.
        DecodeError
            The file is the one that was exported, and yet not an export's.
        """
        try:
            ion = self._ion
            yield iter(self._text) if ion is None else (piece for block in self._text for piece in ion.pieces(block))
        except DecodeError as error:
            # Bytes that are not the export's own explain themselves best by their MD5.
            self._check_md5()
            raise self._placed(error) from None
        except NotFoundError:
            raise ExportIncompleteError(f"{self.uri} is missing: copy the whole export") from None

    def verify(self) -> None:
        """Refuse the file if its bytes or the rows taken from it are not what the manifest says.

        Raises
        ------
        ExportIncompleteError
            Naming the file.
        """
        self._check_md5()
        if self.rows != self._file.items:
            raise ExportIncompleteError(f"{self.uri} holds {self.rows} items, the manifest says {self._file.items}")

    def _check_md5(self) -> None:
        check_md5(self.uri, self._text.md5(), self._file.md5)

    def _placed(self, error: DecodeError) -> DecodeError:
        """Return the error with its place in the file; a block knows only its own lines."""
        if error.line is None:
            return DecodeError(str(error), uri=self.uri)
        line = self.rows + error.line
        return DecodeError(f"{self.uri}, line {line}: {_LINE.sub('', str(error), count=1)}", uri=self.uri, line=line)
