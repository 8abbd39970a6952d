"""Native exports: verification of their manifests, and verified text of their data files."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.errors import DecodeError, ExportIncompleteError, NotFoundError, OptionError
from ddbio.formats import export_manifest as manifest
from ddbio.formats.decompress import MAX_CHANGE_BYTES, MAX_LINE_BYTES, GzipReader
from ddbio.formats.export_manifest import check_md5
from ddbio.items.ion import IonReader
from ddbio.jobs.stores import open_store
from ddbio.storage.object_store import is_there, read_at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.formats.export_manifest import ExportFile, ExportSummary
    from ddbio.options import ConnectionOptions
    from ddbio.storage.object_store import ObjectStore

_LINE = re.compile(r"line (\d+): ")


@dataclass(frozen=True)
class ExportSource:
    """Export with verified manifests. Picklable.

    Attributes
    ----------
    folder
        The folder with the manifests.
    summary, files
        The content of the manifests.
    store
        The store that has the data files below ``data/``.
    """

    folder: str
    summary: ExportSummary
    files: tuple[ExportFile, ...]
    store: ObjectStore

    @property
    def folders(self) -> tuple[str, str]:
        """Return the folders of the manifests and of the data."""
        return self.folder, f"{self.store.uri}/data"

    def path(self, file: ExportFile) -> str:
        """Return the path of a data file in the store."""
        return f"data/{file.name}"

    def uri(self, file: ExportFile) -> str:
        """Return the full URI of a data file."""
        return f"{self.store.uri}/{self.path(file)}"

    def sizes(self) -> dict[str, int]:
        """Return the listed size of each data file that has items.

        Raises
        ------
        ExportIncompleteError
            If a file is missing. The message has its URI.
        """
        listed = {entry.path: entry.size_bytes for entry in self.store.list("data/")}
        for file in self.files:
            if self.path(file) not in listed:
                raise ExportIncompleteError(f"{self.uri(file)} is missing: copy the whole export")
        return {file.name: listed[self.path(file)] for file in self.files}


def open_export(source: str, options: ConnectionOptions) -> ExportSource:
    """Return the export in a folder after verifying the MD5 and the counts of both manifests.

    A full export has its data in this folder, and an incremental export in the parent folder, also after a copy.

    Raises
    ------
    NotFoundError
        If the folder is not an export.
    ExportIncompleteError
        If the export has not completed, or a manifest is damaged or has files of another folder.
    """
    store = open_store(source, options)
    if not is_there(store, f"{manifest.SUMMARY}.json"):
        if is_there(store, manifest.STARTED) or is_there(store, f"{manifest.FILES}.json"):
            raise ExportIncompleteError(f"{store.uri} has no {manifest.SUMMARY}.json: the export has not completed")
        raise NotFoundError(f"{store.uri} has no {manifest.SUMMARY}.json: give the folder of one export")
    summary = manifest.parse_summary(*_verified(store, manifest.SUMMARY))
    files = manifest.parse_files(*_verified(store, manifest.FILES), summary)
    return ExportSource(store.uri, summary, files, store if summary.kind == "full" else _above(store))


def _verified(store: ObjectStore, name: str) -> tuple[bytes, str]:
    uri = f"{store.uri}/{name}.json"
    try:
        data = read_at_most(store, f"{name}.json", manifest.MAX_MANIFEST_BYTES)
    except NotFoundError:
        raise ExportIncompleteError(f"{uri} is missing: copy the whole export") from None
    for ending in manifest.CHECKSUM_ENDINGS:
        try:
            checksum = read_at_most(store, f"{name}{ending}", manifest.MAX_MANIFEST_BYTES)
        except NotFoundError:
            continue
        manifest.check_manifest(uri, data, checksum)
        return data, uri
    raise ExportIncompleteError(f"{uri} has no {name}.md5 next to it: copy the whole export")


def _above(store: ObjectStore) -> ObjectStore:
    above = store.above()
    if above is None:
        raise OptionError(f"{store.uri} has no parent folder, which has the data of an incremental export")
    return above[0]


class FileText:
    """Iterator over the text of one file in blocks of complete lines. Errors have the URI of the file.

    Attributes
    ----------
    rows
        Lines decoded so far. The caller counts them, so that an error in a block has the line number of the file.
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
        """Return the uncompressed bytes so far."""
        return self._text.text_bytes

    @contextmanager
    def blocks(self) -> Iterator[Iterator[bytes | memoryview]]:
        """Yield an iterator over the blocks. A block is valid until the next one is requested.

        Raises
        ------
        ExportIncompleteError
            If the file is missing, or not the exported one.
        DecodeError
            If the file is the exported one, but its text is not valid.
        """
        try:
            ion = self._ion
            yield iter(self._text) if ion is None else (piece for block in self._text for piece in ion.pieces(block))
        except DecodeError as error:
            # If the file was damaged, its MD5 is the better explanation.
            self._check_md5()
            raise self._placed(error) from None
        except NotFoundError:
            raise ExportIncompleteError(f"{self.uri} is missing: copy the whole export") from None

    def verify(self) -> None:
        """Check the MD5 of the file and the number of its rows against the manifest.

        Raises
        ------
        ExportIncompleteError
            If one differs. The message has the URI of the file.
        """
        self._check_md5()
        if self.rows != self._file.items:
            raise ExportIncompleteError(f"{self.uri} has {self.rows} items, the manifest has {self._file.items}")

    def _check_md5(self) -> None:
        check_md5(self.uri, self._text.md5(), self._file.md5)

    def _placed(self, error: DecodeError) -> DecodeError:
        """Return the error with its line in the file. A block counts only its own lines."""
        if error.line is None:
            return DecodeError(str(error), uri=self.uri)
        line = self.rows + error.line
        return DecodeError(f"{self.uri}, line {line}: {_LINE.sub('', str(error), count=1)}", uri=self.uri, line=line)
