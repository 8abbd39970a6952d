"""Read the rows of files of any format as record batches, part by part, under errors that name the file."""

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

# As pyarrow reads Parquet by default: for whole files that are read once.
_WHOLE_BATCH_ROWS = 65_536
_NO_OPTIONS = ReadOptions()
# A request for a footer to S3 takes some tens of milliseconds, mostly waiting.
_FOOTERS_AT_ONCE = 32
_FOOTERS_AHEAD = 8 * _FOOTERS_AT_ONCE


class RowFiles:
    """Read files of one store. Use one per thread, and read the parts of a file in a row: it is opened once.

    Parameters
    ----------
    options
        How text is understood.
    texts
        What was found out of files of text by reading them once.
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
            If the bytes are not of the format that the name tells, or the name tells none.
        """
        with _naming(entry.path):
            return self.open(entry).parts()

    def read(
        self,
        entry: StoredObject,
        part: int,
        json_format: JsonFormat = "auto",
        batch_rows: int = BATCH_ROWS,
        schema: pa.Schema | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; all batches of a file have one schema, but for text that is split.

        Parameters
        ----------
        batch_rows
            Rows of a batch of Parquet; those of other formats are as large as they are read.
        schema
            The columns that were written, if they are known.

        Raises
        ------
        DecodeError
            If the bytes are not of the format that the name tells, or the name tells none.
        """
        with _naming(entry.path):
            yield from self.open(entry, json_format, schema).read(part, batch_rows)

    def read_file(
        self, entry: StoredObject, batch_rows: int = BATCH_ROWS, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all parts in order; ranges of a large file of text are read side by side on threads.

        Raises
        ------
        DecodeError
            As ``read`` says.
        """
        found = format_of(entry)
        with _naming(entry.path):
            if found is not None and found.text_rows is not None and entry.size_bytes > PIECE_BYTES:
                options = replace(self._options, schema=schema)
                ahead = TextAhead(checked(self._store, entry), entry, found, options, AHEAD_BYTES)
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
        """Yield the rows of one part; those of DynamoDB JSON as raw items, in bounded memory however large the file.

        Raises
        ------
        DecodeError
            As ``read`` says.
        """
        with _naming(entry.path):
            file = self.open(entry, json_format, schema)
            items = file.raw_items(part, reader)
            yield from file.read(part, BATCH_ROWS) if items is None else items

    def first_schema(
        self, entry: StoredObject, json_format: JsonFormat = "auto", schema: pa.Schema | None = None
    ) -> pa.Schema | None:
        """Return the columns of a file, reading its footer or its beginning only; None if that does not show them.

        Raises
        ------
        DecodeError
            If the bytes are not of the format that the name tells.
        """
        with _naming(entry.path):
            return self.open(entry, json_format, schema).first_schema()

    def is_split_items(self, entry: StoredObject, json_format: JsonFormat = "auto") -> bool:
        """Return whether a file is DynamoDB JSON that has parts."""
        with _naming(entry.path):
            return json_format != "plain" and self.open(entry, json_format).has_item_ranges

    def columns_of_text(self, entry: StoredObject, part: int, json_format: JsonFormat = "auto") -> pa.Schema | None:
        """Return columns that hold all rows of a part of text, which are read for that; None if it has no rows.

        Raises
        ------
        DecodeError
            If it is no such text.
        """
        with _naming(entry.path):
            return self.open(entry, json_format).columns(part)

    def row_lines(self, entry: StoredObject) -> RowLines | None:
        """Return the lines of the rows that are read of a file of text, which grow as it is read; None for others."""
        if self._opened is None or self._opened[0][0] != entry.path:
            return None
        return self._opened[1].row_lines

    def sample(
        self, entry: StoredObject, rows: int, json_format: JsonFormat = "auto", schema: pa.Schema | None = None
    ) -> Sample | None:
        """Return the first rows of a file, reading little of it; None if that cannot be done.

        Raises
        ------
        DecodeError
            If the bytes are not of the format that the name tells.
        """
        with _naming(entry.path):
            return self.open(entry, json_format, schema).sample(rows)

    def open(
        self, entry: StoredObject, json_format: JsonFormat = "auto", schema: pa.Schema | None = None
    ) -> FileReader:
        """Return the reader of a file; the last one is kept.

        Raises
        ------
        DecodeError
            If the name tells no format.
        """
        found = format_of(entry)
        if found is None:
            raise DecodeError(f"{entry.path} has no known format: name it {', '.join(ENDINGS)}", uri=entry.path)
        asked = entry.path, "auto" if found.is_splittable else json_format, schema is not None
        if self._opened is None or self._opened[0] != asked:
            known = None if found.keeps_types else schema
            text = self._texts.get(entry.path, TextLayout())
            options = replace(
                self._options, json_format=json_format, schema=known, columns=text.columns, starts=text.starts
            )
            self._opened = asked, found.open_reader(checked(self._store, entry), entry, options)
        return self._opened[1]


class FooterReader:
    """Read what files of one store say of themselves at their ends, from any number of threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._columns: dict[tuple[str, ...], tuple[str, ...]] = {}

    def read(self, entry: StoredObject) -> Footer | None:
        """Return a file's footer, read by one request where it is short; None if its format has none.

        Raises
        ------
        DecodeError
            If the bytes are not of the format that the name tells.
        NotFoundError
            If the file is gone.
        """
        found = format_of(entry)
        if found is None or found.read_footer is None:
            return None
        with _naming(entry.path):
            return found.read_footer(checked(self._store, entry), entry, self._columns)

    def read_ahead(self, entries: Iterable[StoredObject]) -> Iterator[Footer | None]:
        """Yield the footers of files, in their order, while a bounded number of them is read ahead."""
        waiting: deque[Future[Footer | None]] = deque()
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="ddbio-footer") as pool:
            for entry in entries:
                waiting.append(pool.submit(self.read, entry))
                if len(waiting) == _FOOTERS_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


def unwritable_type(store: ObjectStore, entry: StoredObject) -> str:
    """Return a type in a file that ddbio would write as another, or nothing.

    Raises
    ------
    DecodeError
        If the bytes are not of the format that the name tells.
    """
    found = format_of(entry)
    if found is None or found.unwritable_type is None:
        return ""
    with _naming(entry.path):
        return found.unwritable_type(checked(store, entry), entry)


def read_schema(store: ObjectStore, path: str) -> pa.Schema:
    """Return a file's Arrow schema; that of Parquet has the fields' metadata.

    Raises
    ------
    NotFoundError
        If there is no such file.
    DecodeError
        If it is not of the format that its name tells.
    """
    entry = next((each for each in store.list(path) if each.path == path), None)
    if entry is None or format_of(path) is None:
        raise NotFoundError(f"{store.uri}/{path}: there is no such file")
    return schema_of(store, entry)


def schema_of(store: ObjectStore, entry: StoredObject, schema: pa.Schema | None = None) -> pa.Schema:
    """Return the Arrow schema of a stored file; that of Parquet has the fields' metadata.

    Parameters
    ----------
    schema
        The columns that were written, if they are known.

    Raises
    ------
    DecodeError
        If it is not of its format.
    """
    with _naming(f"{store.uri}/{entry.path}"):
        return RowFiles(store).open(entry, schema=schema).schema()


def read_batches(store: ObjectStore, entry: StoredObject, schema: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a file.

    Parameters
    ----------
    schema
        The columns that were written, if they are known.

    Raises
    ------
    NotFoundError
        If the file is gone.
    DecodeError
        If it is not of the format that its name tells, or damaged.
    """
    with _naming(f"{store.uri}/{entry.path}"):
        yield from RowFiles(store).read_file(entry, _WHOLE_BATCH_ROWS, schema)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turn what goes wrong into errors that name the file."""
    try:
        yield
    except (MemoryError, RecursionError) as error:
        # What is larger than any item was meant to be.
        needs = "more memory than there is" if isinstance(error, MemoryError) else "deeper nesting than any item has"
        raise DecodeError(f"{path} cannot be read: it needs {needs}", uri=path) from None
    except (pa.ArrowException, OSError, EOFError, UnicodeError, zlib.error) as error:
        if isinstance(error, DdbioError):
            raise
        raise DecodeError(f"{path} cannot be read as its name says: {error}", uri=path) from error
    except DecodeError as error:
        if error.uri is None:
            raise DecodeError(f"{path}: {error}", uri=path, line=error.line) from error
        raise
