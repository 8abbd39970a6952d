"""Reader of the rows of files of any format as record batches, part by part; its errors name the file."""

from __future__ import annotations

import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.errors import DdbioError, DecodeError, NotFoundError
from ddbio.formats.file_format import BATCH_ROWS, ReadOptions, TextLayout
from ddbio.formats.registry import ENDINGS, format_of
from ddbio.formats.text_reader import AHEAD_BYTES, PIECE_BYTES, TextAhead
from ddbio.storage.checksums import checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from concurrent.futures import Future

    from ddbio.formats.file_format import FileReader, Parts, Sample
    from ddbio.formats.layout import Footer
    from ddbio.formats.row_lines import RowLines
    from ddbio.items.raw_items import RawItemReader, RawItems
    from ddbio.load.options import JsonFormat
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

# The batch size of pyarrow's own Parquet reader: for complete files that are read once.
_FILE_BATCH_ROWS = 65_536
_NO_OPTIONS = ReadOptions()
# A request for a footer to S3 takes some tens of milliseconds, mostly waiting.
_FOOTER_CONCURRENCY = 32
_FOOTERS_AHEAD = 8 * _FOOTER_CONCURRENCY


class RowFiles:
    """Reader of files of one store. Use one per thread, and read the parts of a file in sequence: it is opened once.

    Parameters
    ----------
    options
        Rules for the interpretation of text.
    texts
        Columns and row positions of text files that were determined by reading them once.
    """

    def __init__(
        self,
        store: ObjectStore,
        options: ReadOptions = _NO_OPTIONS,
        texts: Mapping[str, TextLayout] = MappingProxyType({}),
    ) -> None:
        self._store, self._options, self._texts = store, options, texts
        self._opened: tuple[tuple[str, str, bool], FileReader] | None = None

    def parts(self, entry: StoredObject) -> Parts:
        """Return the parts of a file by its footer, without reading its rows.

        Raises
        ------
        DecodeError
            If the bytes do not have the format of the file's name, or the name has no known format.
        """
        with _named_errors(entry.path):
            return self.open(entry).parts()

    def read(
        self,
        entry: StoredObject,
        part: int,
        json_format: JsonFormat = "auto",
        batch_rows: int = BATCH_ROWS,
        schema: pa.Schema | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part. All batches of a file have one schema, except those of split text.

        Parameters
        ----------
        batch_rows
            Rows of a batch of Parquet; batches of other formats have the size in which they are read.
        schema
            The columns that were written, if known.

        Raises
        ------
        DecodeError
            If the bytes do not have the format of the file's name, or the name has no known format.
        """
        with _named_errors(entry.path):
            yield from self.open(entry, json_format, schema).read(part, batch_rows)

    def read_file(
        self, entry: StoredObject, batch_rows: int = BATCH_ROWS, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all parts in order; ranges of a large text file are read by several threads.

        Raises
        ------
        DecodeError
            If ``read`` raises it.
        """
        file_format = format_of(entry)
        with _named_errors(entry.path):
            if file_format is not None and file_format.text_rows is not None and entry.size_bytes > PIECE_BYTES:
                options = replace(self._options, schema=schema)
                ahead = TextAhead(checked(self._store, entry), entry, file_format, options, AHEAD_BYTES)
                if ahead.is_split:
                    yield from ahead.batches()
                    return
            reader = self.open(entry, schema=schema)
            for part in range(len(reader.parts().sizes_bytes)):
                yield from reader.read(part, batch_rows)

    def read_raw(
        self,
        entry: StoredObject,
        part: int,
        reader: RawItemReader,
        json_format: JsonFormat = "auto",
        schema: pa.Schema | None = None,
    ) -> Iterator[pa.RecordBatch | RawItems]:
        """Yield the rows of one part; those of DynamoDB JSON as raw items, in bounded memory for a file of any size.

        Raises
        ------
        DecodeError
            If ``read`` raises it.
        """
        with _named_errors(entry.path):
            file = self.open(entry, json_format, schema)
            items = file.raw_items(part, reader)
            yield from file.read(part, BATCH_ROWS) if items is None else items

    def first_schema(
        self, entry: StoredObject, json_format: JsonFormat = "auto", schema: pa.Schema | None = None
    ) -> pa.Schema | None:
        """Return the columns of a file by its footer or its start alone; None if these do not show the columns.

        Raises
        ------
        DecodeError
            If the bytes do not have the format of the file's name.
        """
        with _named_errors(entry.path):
            return self.open(entry, json_format, schema).first_schema()

    def is_split_items(self, entry: StoredObject, json_format: JsonFormat = "auto") -> bool:
        """Return whether a file is DynamoDB JSON with several parts."""
        with _named_errors(entry.path):
            return json_format != "plain" and self.open(entry, json_format).has_item_ranges

    def columns_of_text(self, entry: StoredObject, part: int, json_format: JsonFormat = "auto") -> pa.Schema | None:
        """Return columns that fit all rows of a part of text, after reading the part; None if it has no rows.

        Raises
        ------
        DecodeError
            If it is not such text.
        """
        with _named_errors(entry.path):
            return self.open(entry, json_format).columns(part)

    def row_lines(self, entry: StoredObject) -> RowLines | None:
        """Return the line numbers of the rows read from a text file, updated while reading; None for other files."""
        if self._opened is None or self._opened[0][0] != entry.path:
            return None
        return self._opened[1].row_lines

    def sample(
        self, entry: StoredObject, rows: int, json_format: JsonFormat = "auto", schema: pa.Schema | None = None
    ) -> Sample | None:
        """Return the first rows of a file after reading little of it; None if that is impossible.

        Raises
        ------
        DecodeError
            If the bytes do not have the format of the file's name.
        """
        with _named_errors(entry.path):
            return self.open(entry, json_format, schema).sample(rows)

    def open(
        self, entry: StoredObject, json_format: JsonFormat = "auto", schema: pa.Schema | None = None
    ) -> FileReader:
        """Return the reader of a file; the last reader is kept open.

        Raises
        ------
        DecodeError
            If the name has no known format.
        """
        file_format = format_of(entry)
        if file_format is None:
            raise DecodeError(f"{entry.path} has no known format: name it {', '.join(ENDINGS)}", uri=entry.path)
        request = entry.path, "auto" if file_format.is_splittable else json_format, schema is not None
        if self._opened is None or self._opened[0] != request:
            declared = None if file_format.keeps_types else schema
            text = self._texts.get(entry.path, TextLayout())
            options = replace(
                self._options, json_format=json_format, schema=declared, columns=text.columns, starts=text.starts
            )
            self._opened = request, file_format.open_reader(checked(self._store, entry), entry, options)
        return self._opened[1]


class FooterReader:
    """Reader of the footers of files of one store, from any number of threads.

    Parameters
    ----------
    reads_streams
        Whether the bytes of columns are also read if the footer does not record them, with more requests.
    """

    def __init__(self, store: ObjectStore, *, reads_streams: bool = False) -> None:
        self._store, self._reads_streams = store, reads_streams
        self._columns: dict[tuple[str, ...], tuple[str, ...]] = {}

    def read(self, entry: StoredObject) -> Footer | None:
        """Return a file's footer, with one request if it is short; None if its format has no footer.

        Raises
        ------
        DecodeError
            If the bytes do not have the format of the file's name.
        NotFoundError
            If the file does not exist any more.
        """
        file_format = format_of(entry)
        if file_format is None or file_format.read_footer is None:
            return None
        with _named_errors(entry.path):
            footer = file_format.read_footer(checked(self._store, entry), entry, self._columns)
            if self._reads_streams and file_format.read_streams is not None:
                footer = replace(footer, streams=file_format.read_streams(checked(self._store, entry), entry))
            return footer

    def read_ahead(self, entries: Iterable[StoredObject]) -> Iterator[Footer | None]:
        """Yield the footers of files in order, while a bounded number of them is read ahead."""
        waiting: deque[Future[Footer | None]] = deque()
        with ThreadPoolExecutor(_FOOTER_CONCURRENCY, thread_name_prefix="ddbio-footer") as pool:
            for entry in entries:
                waiting.append(pool.submit(self.read, entry))
                if len(waiting) == _FOOTERS_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


def unwritable_type(store: ObjectStore, entry: StoredObject) -> str:
    """Return a type in a file that ddbio would write as another one, or an empty text.

    Raises
    ------
    DecodeError
        If the bytes do not have the format of the file's name.
    """
    file_format = format_of(entry)
    if file_format is None or file_format.unwritable_type is None:
        return ""
    with _named_errors(entry.path):
        return file_format.unwritable_type(checked(store, entry), entry)


def read_schema(store: ObjectStore, path: str) -> pa.Schema:
    """Return a file's Arrow schema; that of Parquet has the fields' metadata.

    Raises
    ------
    NotFoundError
        If there is no such file.
    DecodeError
        If the bytes do not have the format of the file's name.
    """
    entry = next((stored for stored in store.list(path) if stored.path == path), None)
    if entry is None or format_of(path) is None:
        raise NotFoundError(f"{store.uri}/{path}: there is no such file")
    return schema_of(store, entry)


def schema_of(store: ObjectStore, entry: StoredObject, schema: pa.Schema | None = None) -> pa.Schema:
    """Return the Arrow schema of a stored file; that of Parquet has the fields' metadata.

    Parameters
    ----------
    schema
        The columns that were written, if known.

    Raises
    ------
    DecodeError
        If the bytes do not have the file's format.
    """
    with _named_errors(f"{store.uri}/{entry.path}"):
        return RowFiles(store).open(entry, schema=schema).schema()


def read_batches(store: ObjectStore, entry: StoredObject, schema: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a file.

    Parameters
    ----------
    schema
        The columns that were written, if known.

    Raises
    ------
    NotFoundError
        If the file does not exist any more.
    DecodeError
        If the bytes do not have the format of the file's name, or are damaged.
    """
    with _named_errors(f"{store.uri}/{entry.path}"):
        yield from RowFiles(store).read_file(entry, _FILE_BATCH_ROWS, schema)


@contextmanager
def _named_errors(path: str) -> Iterator[None]:
    """Convert exceptions to errors that name the file."""
    try:
        yield
    except (MemoryError, RecursionError) as error:
        # The file has a value that is larger than any item.
        needs = "more memory than available" if isinstance(error, MemoryError) else "deeper nesting than any item has"
        raise DecodeError(f"{path} cannot be read: it needs {needs}", uri=path) from None
    except (pa.ArrowException, OSError, EOFError, UnicodeError, zlib.error) as error:
        if isinstance(error, DdbioError):
            raise
        raise DecodeError(f"{path} cannot be read in the format of its name: {error}", uri=path) from error
    except DecodeError as error:
        if error.uri is None:
            raise DecodeError(f"{path}: {error}", uri=path, line=error.line) from error
        raise
