"""Read files of JSON and CSV in pieces of whole rows, compressed or not, in bounded memory.

A file of one piece is read as it stands. A larger one whose columns nobody declares is read twice: first to choose the
columns for all its rows, then for the rows.
"""

from __future__ import annotations

import codecs
import functools
import itertools
import zlib
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.formats.csv_records import header_names, whole_records
from ddbio.formats.declared_rows import read_csv_as
from ddbio.formats.decompress import decompress_head, is_compressed, line_blocks
from ddbio.formats.file_format import BATCH_ROWS, FileFormat, Parts, Sample
from ddbio.formats.json_forms import is_answer, starts_with_item
from ddbio.formats.json_rows import JsonRows
from ddbio.formats.row_lines import RowLines, lines_of_csv
from ddbio.formats.text_ranges import RANGE_BYTES, LineCounts, byte_ranges, document_blocks, read_documents
from ddbio.formats.text_rows import csv_columns, joined_columns, read_csv
from ddbio.formats.text_writers import write_csv, write_dynamodb_json, write_json
from ddbio.items.expansion import MOST_ROW_BYTES
from ddbio.items.raw_items import shift_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ddbio.formats.file_format import ReadOptions
    from ddbio.formats.row_lines import Lines
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

PIECE_BYTES = 32 * 1024 * 1024
"""Text that is read at once, unless one row is more."""

_SAMPLE_BYTES = 512 * 1024
_FIRST_BYTES = 64 * 1024
_SAMPLE_TEXT_BYTES = 8 * _SAMPLE_BYTES
# https://www.unicode.org/faq/utf_bom.html: what Excel and others write before "Unicode text".
_OTHER_UNICODE = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class _Rows(Protocol):
    """Read the rows of one file's text, piece by piece, in order."""

    @property
    def given_columns(self) -> pa.Schema | None:
        """Return the columns that were chosen by more than what is read at once."""
        ...

    def begin(self, head: bytes) -> None:
        """Learn from the beginning of a file what holds for all its rows; what is read next begins later."""
        ...

    def cut(self, text: bytes) -> int:
        """Return how many bytes of the text are whole rows, if more text follows; 0 if that cannot be told."""
        ...

    def whole(self, text: bytes) -> Iterable[pa.RecordBatch]:
        """Return the rows of a file that is one piece."""
        ...

    def columns(self, pieces: Iterator[bytes]) -> pa.Schema:
        """Return columns that hold the rows of all pieces."""
        ...

    def rows(self, piece: bytes, columns: pa.Schema) -> Iterable[pa.RecordBatch]:
        """Return the rows of the next piece as these columns."""
        ...

    def lines(self, piece: bytes, rows: int, first_line: int) -> Lines | None:
        """Return the lines of the file on which the rows of a piece begin, if that can be told.

        Parameters
        ----------
        first_line
            The line of the file with which the piece begins.
        """
        ...


class TextReader:
    """Read one file of text, as one part or by ranges of bytes; its head is enough for a sample.

    Attributes
    ----------
    row_lines
        The lines on which the rows stand that were read last.
    """

    def __init__(
        self,
        store: ObjectStore,
        entry: StoredObject,
        options: ReadOptions,
        *,
        make_rows: Callable[[ReadOptions], _Rows],
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._store, self._entry, self._options, self._make_rows = store, entry, options, make_rows
        self._piece_bytes = piece_bytes
        self._range_bytes = options.range_bytes or RANGE_BYTES
        self._line_counts = LineCounts(store)
        self.row_lines = RowLines()

    @cached_property
    def _head(self) -> bytes | None:
        """The whole rows that the file begins with, if it is read by ranges; else None."""
        entry = self._entry
        if not self._options.splits_text or entry.size_bytes <= self._range_bytes:
            return None
        head = self._store.read_range(entry, 0, _SAMPLE_BYTES)
        if is_compressed(head):
            return None
        text = _utf8(head)
        return text[: self._make_rows(self._options).cut(text)] or None

    @property
    def has_item_ranges(self) -> bool:
        """Return whether the file is read by ranges, and begins with DynamoDB JSON."""
        return self._make_rows is JsonRows and self._head is not None and starts_with_item(self._head)

    def parts(self) -> Parts:
        """Return the parts of the file, whose rows are not known."""
        if self._head is None:
            return Parts((self._entry.size_bytes,), None)
        ranges = byte_ranges(self._entry.size_bytes, self._range_bytes)
        return Parts(tuple(end - begin for begin, end in ranges), None, (0, *[None] * (len(ranges) - 1)))

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows, some of which are read for that."""
        return next((batch.schema for batch in self.read(0, BATCH_ROWS)), pa.schema([]))

    def columns(self, part: int = 0) -> pa.Schema | None:
        """Return columns that hold all rows of a part, which are read for that; None if it has no rows."""
        rows = self._make_rows(self._options)
        if self._is_whole(part):
            with _lines_of_file(self._pieces(rows)) as counted:
                return rows.columns(counted)
        with self.range_of(part) as (text, head):
            if head is not None:
                rows.begin(head)
            return rows.columns(iter([text])) if text else None

    def read(self, part: int, _: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        rows = self._make_rows(self._options)
        if self._is_whole(part):
            yield from self._read_file(rows)
            return
        columns, starts = self._options.schema or rows.given_columns, self._options.starts
        with self.range_of(part) as (text, head):
            if head is not None:
                rows.begin(head)
            if text:
                batches = rows.whole(text) if columns is None else rows.rows(text, columns)
                yield from self._with_lines(text, starts[part].lines + 1 if starts else 1, rows, batches)

    def _is_whole(self, part: int) -> bool:
        """Return whether a part is the whole file."""
        starts, size_bytes = self._options.starts, self._entry.size_bytes
        return self._head is None or bool(starts and starts[part].byte == 0 and starts[part + 1].byte == size_bytes)

    @contextmanager
    def range_of(self, part: int) -> Iterator[tuple[bytes, bytes | None]]:
        """Return the whole rows that begin in a range, and what the file begins with if these are other rows.

        Lines in errors become those of the file, and so do the lines of rows that are added to ``row_lines``.
        """
        with self._text_of(part) as view:
            text = view.obj if isinstance(view.obj, bytes) and len(view.obj) == len(view) else bytes(view)
            yield (text, self._head) if part else (_utf8(text), None)

    @contextmanager
    def items_of(self, part: int) -> Iterator[tuple[Iterable[memoryview], bytes]]:
        """Return the DynamoDB JSON that begins in a range, in blocks of lines, and what the file begins with."""
        begin, end = byte_ranges(self._entry.size_bytes, self._range_bytes)[part]
        begin, blocks = document_blocks(self._store, self._entry, begin, end)
        with self._line_counts.located(self._entry, begin) as self.row_lines:
            yield blocks, self._head or b""

    @contextmanager
    def _text_of(self, part: int) -> Iterator[memoryview]:
        starts, entry = self._options.starts, self._entry
        if starts:
            begin, end = starts[part].byte, starts[part + 1].byte
            _check_row(end - begin - self._range_bytes)
            text = memoryview(self._store.read_range(entry, begin, end - begin) if begin < end else b"")
        else:
            begin, end = byte_ranges(entry.size_bytes, self._range_bytes)[part]
            begin, text = read_documents(self._store, entry, begin, end)
        with self._line_counts.located(entry, begin, starts[part].lines if starts else None) as self.row_lines:
            yield text

    def _read_file(self, rows: _Rows) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the file in pieces."""
        self.row_lines = RowLines()
        columns = self._options.schema or rows.given_columns
        pieces = self._pieces(rows)
        first, second = next(pieces, b""), next(pieces, None)
        if second is None and rows.given_columns is None:
            yield from self._with_lines(first, 1, rows, rows.whole(first))
            return
        whole: Iterator[bytes] = itertools.chain(filter(None, [first, second]), pieces)
        if columns is None:
            with _lines_of_file(whole) as counted:
                columns = rows.columns(counted)
            rows = self._make_rows(self._options)
            whole = self._pieces(rows)
        with _lines_of_file(whole) as counted:
            first_line = 1
            for piece in counted:
                yield from self._with_lines(piece, first_line, rows, rows.rows(piece, columns))
                first_line += piece.count(b"\n")

    def _with_lines(
        self, piece: bytes, first_line: int, rows: _Rows, batches: Iterable[pa.RecordBatch]
    ) -> list[pa.RecordBatch]:
        """Return the rows of a piece, and remember their lines."""
        batches = list(batches)
        count = sum(batch.num_rows for batch in batches)
        self.row_lines.add(count, rows.lines(piece, count, first_line))
        return batches

    def first_schema(self) -> pa.Schema | None:
        """Return the columns that the file's head shows; None if it is too short to show all.

        A small file is read whole, as is JSON that does not begin with an object: it is a list, or none of ours.
        """
        entry = self._entry
        head = self._store.read_range(entry, 0, min(entry.size_bytes, _FIRST_BYTES))
        if self._make_rows is JsonRows:
            try:
                text, _ = decompress_head(head, _FIRST_BYTES)
            except zlib.error:
                text = b"damaged"
            text = _utf8(text).lstrip()
            if text and not text.startswith(b"{"):
                next(self.read(0, BATCH_ROWS), None)
                return None
        if len(head) == entry.size_bytes:
            schemas = [batch.schema for batch in self.read(0, BATCH_ROWS)]
            return schemas[0] if schemas else None
        found = self.sample(1, _FIRST_BYTES)
        # Later rows of JSON may have members that the first ones lack.
        return found.batch.schema if found is not None and self._make_rows is CsvRows else None

    def sample(self, rows: int, head_bytes: int = _SAMPLE_BYTES) -> Sample | None:
        """Return the first rows of the file's head; None for one document of which that is only the beginning."""
        entry = self._entry
        head = self._store.read_range(entry, 0, min(entry.size_bytes, head_bytes))
        text, read_bytes = decompress_head(head, _SAMPLE_TEXT_BYTES)
        is_whole, text_bytes = read_bytes == entry.size_bytes, len(text)
        text = _utf8(text)
        may_be_answer = self._options.json_format != "plain" and self._options.schema is None
        if not is_whole and may_be_answer and is_answer(text):
            return None
        reader = self._make_rows(self._options)
        whole = text if is_whole else text[: reader.cut(text) or text.rfind(b"\n") + 1]
        found = list(reader.whole(whole)) if whole else []
        if not sum(batch.num_rows for batch in found):
            return None
        row_bytes = read_bytes * len(whole) / text_bytes / sum(batch.num_rows for batch in found)
        return Sample(found[0].slice(0, rows), row_bytes)

    def _pieces(self, rows: _Rows) -> Iterator[bytes]:
        """Yield the text in pieces of whole rows."""
        held, held_bytes = list[bytes](), 0
        for text in self._blocks():
            held.append(text)
            held_bytes += len(text)
            if held_bytes < self._piece_bytes:
                continue
            joined = b"".join(held)
            end = rows.cut(joined)
            _check_row(len(joined) - end - self._piece_bytes)
            if end:
                yield joined[:end]
            held, held_bytes = [joined[end:]], len(joined) - end
        if held_bytes:
            yield b"".join(held)

    def _blocks(self) -> Iterator[bytes]:
        """Yield the text in blocks of at most the size of a piece."""
        is_first = True
        for block in line_blocks(self._store.read_chunks(self._entry.path), self._entry.path, MOST_ROW_BYTES):
            text = _utf8(bytes(block)) if is_first else bytes(block)
            is_first = False
            for start in range(0, len(text), self._piece_bytes):
                yield text[start : start + self._piece_bytes]


@contextmanager
def _lines_of_file(pieces: Iterable[bytes]) -> Iterator[Iterator[bytes]]:
    """Hand the pieces of a file out; lines in errors of the last one that was taken become those of the file."""
    lines = 0

    def counted() -> Iterator[bytes]:
        nonlocal lines
        for piece in pieces:
            yield piece
            lines += piece.count(b"\n")

    try:
        yield counted()
    except DecodeError as error:
        raise shift_line(error, lines) from None


def _check_row(size_bytes: int) -> None:
    if size_bytes > MOST_ROW_BYTES:
        raise DecodeError(f"a row is larger than {MOST_ROW_BYTES:,} bytes: a quote or a bracket is not closed")


def _utf8(text: bytes) -> bytes:
    """Return the beginning of a text without its byte order mark.

    Raises
    ------
    DecodeError
        If the mark is that of another encoding than UTF-8.
    """
    if text.startswith(_OTHER_UNICODE):
        raise DecodeError(
            "this is UTF-16 or UTF-32, as 'Unicode text' of Excel is: write it in UTF-8 ('CSV UTF-8' in Excel, or "
            "iconv -f UTF-16 -t UTF-8)"
        )
    return text.removeprefix(codecs.BOM_UTF8)


class CsvRows:
    """Read CSV; the first record has the names of the columns."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._names: list[str] | None = None

    @property
    def given_columns(self) -> pa.Schema | None:
        """Return the columns that were chosen by more than what is read at once."""
        return None if self._options.schema is not None else self._options.columns

    def begin(self, head: bytes) -> None:
        """Learn the names of the columns from a file's beginning."""
        self._header(head)

    def cut(self, text: bytes) -> int:
        """Return where the last record ends that is known to be whole."""
        return whole_records(text)

    def whole(self, text: bytes) -> Iterable[pa.RecordBatch]:
        """Return the rows of a file that is one piece."""
        if self._options.schema is not None:
            return read_csv_as(text, self._options.schema).to_batches(BATCH_ROWS)
        return read_csv(text, self._options).to_batches(BATCH_ROWS)

    def columns(self, pieces: Iterator[bytes]) -> pa.Schema:
        """Return columns that hold the rows of all pieces."""
        first = next(pieces, b"")
        if set(self._names or header_names(first)) <= self._options.types.keys():
            # All is declared: there is nothing to choose.
            pieces = iter(())
        pieces = itertools.chain([first], pieces)
        found = (csv_columns(piece, self._options, self._header(piece)) for piece in pieces)
        return functools.reduce(joined_columns, found)

    def rows(self, piece: bytes, columns: pa.Schema) -> Iterable[pa.RecordBatch]:
        """Return the rows of the next piece as these columns."""
        names = self._header(piece)
        if self._options.schema is not None:
            return read_csv_as(piece, columns, names).to_batches(BATCH_ROWS)
        return read_csv(piece, self._options, names, columns).to_batches(BATCH_ROWS)

    def lines(self, piece: bytes, rows: int, first_line: int) -> Lines | None:
        """Return the lines on which records begin."""
        return lines_of_csv(piece, rows, first_line, has_header=first_line == 1)

    def _header(self, piece: bytes) -> list[str] | None:
        """Return the names of the columns if the piece does not begin with them."""
        known = self._names
        if known is None:
            self._names = header_names(piece)
        return known


_TEXT_EXTENSIONS: dict[Any, str] = {"gzip": ".gz", "zstd": ".zst", "none": ""}

JSON = FileFormat(
    name="json",
    endings=(".jsonl", ".ndjson", ".json"),
    open_reader=functools.partial(TextReader, make_rows=JsonRows),
    open_writer=write_json,
    extensions={codec: f"json{ending}" for codec, ending in _TEXT_EXTENSIONS.items()},
    default_compression="gzip",
)
DYNAMODB_JSON = FileFormat(
    name="dynamodb-json",
    # Read as JSON, which knows it by its first value.
    endings=(),
    open_reader=JSON.open_reader,
    open_writer=write_dynamodb_json,
    extensions={codec: f"dynamodb.json{ending}" for codec, ending in _TEXT_EXTENSIONS.items()},
    default_compression="gzip",
)
CSV = FileFormat(
    name="csv",
    endings=(".csv",),
    open_reader=functools.partial(TextReader, make_rows=CsvRows),
    open_writer=write_csv,
    extensions={codec: f"csv{ending}" for codec, ending in _TEXT_EXTENSIONS.items()},
    default_compression="gzip",
)
