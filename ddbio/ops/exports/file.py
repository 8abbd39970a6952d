"""Open one data file of an export, and tell what is wrong with it by its name; decode nothing."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ddbio.core.exports.manifest import check_md5
from ddbio.core.ion.lines import IonLines
from ddbio.errors import DecodeError, ExportIncompleteError, NotFoundError
from ddbio.files.gunzip import MAX_CHANGE_BYTES, MAX_LINE_BYTES, GunzipLines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.core.exports.manifest import ExportFile
    from ddbio.ops.exports.source import ExportSource

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
        self._ion = IonLines(longest) if source.summary.encoding == "ion" else None
        self._file = file
        self._text = GunzipLines(source.store.read_chunks(source.path(file)), self.uri, longest)

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
