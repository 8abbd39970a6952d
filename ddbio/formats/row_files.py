"""Read the rows of files of any format as record batches, part by part, under errors that name the file."""

from __future__ import annotations

import codecs
import itertools
import zlib
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from ddbio.errors import DdbioError, DecodeError, NotFoundError
from ddbio.formats.avro import AvroReader
from ddbio.formats.decompress import line_blocks
from ddbio.formats.file_format import BATCH_ROWS, ReadOptions, TextLayout
from ddbio.formats.json_forms import starts_with_item
from ddbio.formats.registry import ENDINGS, format_of
from ddbio.formats.row_lines import RowLines
from ddbio.formats.text_ahead import AHEAD_BYTES, TextAhead
from ddbio.formats.text_reader import JSON, PIECE_BYTES, TextReader
from ddbio.items.framing import framing_of
from ddbio.storage.checksums import checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ddbio.formats.file_format import FileReader, Parts, Sample
    from ddbio.items.raw_items import RawItemReader, RawItems
    from ddbio.options import JsonFormat
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

# As pyarrow reads Parquet by default: for whole files that are read once.
_WHOLE_BATCH_ROWS = 65_536
_NO_OPTIONS = ReadOptions()


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
            return self._open(entry).parts()

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
            yield from self._open(entry, json_format, schema).read(part, batch_rows)

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
            if found is not None and not found.is_splittable and entry.size_bytes > PIECE_BYTES:
                options = replace(self._options, schema=schema)
                ahead = TextAhead(checked(self._store, entry), entry, found, options, AHEAD_BYTES)
                if ahead.is_split:
                    yield from ahead.batches()
                    return
            reader = self._open(entry, schema=schema)
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
        if format_of(entry) is JSON and json_format != "plain" and schema is None:
            with _naming(entry.path):
                file = cast("TextReader", self._open(entry, json_format))
                if file.has_item_ranges:
                    with file.items_of(part) as (blocks, head):
                        yield from _with_lines(file, reader.read_blocks(blocks, framing_of(head)))
                    return
                read = line_blocks(checked(self._store, entry).read_chunks(entry.path), entry.path)
                first = bytes(next(read, b""))
                text = first.removeprefix(codecs.BOM_UTF8)
                if starts_with_item(text):
                    file.row_lines = RowLines()
                    items = reader.read_blocks(itertools.chain([first], read), framing_of(text))
                    yield from _with_lines(file, items)
                    return
        yield from self.read(entry, part, json_format, schema=schema)

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
            reader = self._open(entry, json_format, schema)
            return reader.first_schema() if isinstance(reader, TextReader) else reader.schema()

    def is_split_items(self, entry: StoredObject, json_format: JsonFormat = "auto") -> bool:
        """Return whether a file is DynamoDB JSON that has parts."""
        with _naming(entry.path):
            reader = self._open(entry, json_format)
            return json_format != "plain" and isinstance(reader, TextReader) and reader.has_item_ranges

    def columns_of_text(self, entry: StoredObject, part: int, json_format: JsonFormat = "auto") -> pa.Schema | None:
        """Return columns that hold all rows of a part of text, which are read for that; None if it has no rows.

        Raises
        ------
        DecodeError
            If it is no such text.
        """
        with _naming(entry.path):
            reader = self._open(entry, json_format)
            return reader.columns(part) if isinstance(reader, TextReader) else reader.schema()

    def row_lines(self, entry: StoredObject) -> RowLines | None:
        """Return the lines of the rows that are read of a file of text, which grow as it is read; None for others."""
        if self._opened is None or self._opened[0][0] != entry.path:
            return None
        reader = self._opened[1]
        return reader.row_lines if isinstance(reader, TextReader) else None

    def unwritable(self, entry: StoredObject) -> str:
        """Return a type in a file of Avro that ddbio would write as another, or nothing."""
        with _naming(entry.path):
            reader = self._open(entry)
            return reader.unwritable if isinstance(reader, AvroReader) else ""

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
            return self._open(entry, json_format, schema).sample(rows)

    def _open(
        self, entry: StoredObject, json_format: JsonFormat = "auto", schema: pa.Schema | None = None
    ) -> FileReader:
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


def _with_lines(file: TextReader, items: Iterable[RawItems]) -> Iterator[RawItems]:
    """Yield items, and remember on which lines of the file they stand."""
    for some in items:
        file.row_lines.add(len(some), some.lines)
        yield some


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
    found = format_of(entry)
    with _naming(f"{store.uri}/{entry.path}"):
        if found is None:
            raise DecodeError(f"{entry.path} has no known format: name it {', '.join(ENDINGS)}", uri=entry.path)
        return found.open_reader(store, entry, ReadOptions(schema=None if found.keeps_types else schema)).schema()


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
