"""Reader of text files as blocks of complete rows: in pieces, by ranges of bytes, or by ranges on several threads.

A format converts blocks to columns by its :class:`TextRows`. A file of one block is read once. A larger file without
declared columns is read twice: first to infer the columns for all its rows, then for the rows.
"""

from __future__ import annotations

import codecs
import itertools
import os
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.formats.decompress import decompress_head, is_compressed, line_blocks
from ddbio.formats.file_format import BATCH_ROWS, Block, FileReader, Parts, Sample
from ddbio.formats.row_lines import RowLines
from ddbio.formats.text_ranges import (
    RANGE_BYTES,
    LineCounts,
    byte_ranges,
    count_csv,
    csv_starts,
    document_blocks,
    read_documents,
)
from ddbio.items.expansion import MAX_ROW_BYTES
from ddbio.items.framing import framing_of
from ddbio.items.raw_items import shift_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ddbio.formats.file_format import FileFormat, ReadOptions, TextRows
    from ddbio.items.raw_items import RawItemReader, RawItems
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

_ArgumentT = TypeVar("_ArgumentT")
_ResultT = TypeVar("_ResultT")
PIECE_BYTES = 32 * 1024 * 1024
"""Size of text that is read in one step, unless one row is longer."""

AHEAD_BYTES = 8 * 1024 * 1024
"""Size of text that a thread reads in one step: all threads together buffer no more than one reader of a file."""

_THREADS = 4
_SAMPLE_BYTES = 512 * 1024
_FIRST_BYTES = 64 * 1024
_SAMPLE_TEXT_BYTES = 8 * _SAMPLE_BYTES
# https://www.unicode.org/faq/utf_bom.html: the byte order marks that Excel and others write before "Unicode text".
_OTHER_UNICODE = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class TextReader(FileReader):
    """Reader of one text file, as one part or by ranges of bytes; a sample needs only the file's head."""

    def __init__(
        self,
        store: ObjectStore,
        entry: StoredObject,
        options: ReadOptions,
        *,
        make_rows: type[TextRows],
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._store, self._entry, self._options, self._make_rows = store, entry, options, make_rows
        self._piece_bytes = piece_bytes
        self._range_bytes = options.range_bytes or RANGE_BYTES
        self._line_counts = LineCounts(store)
        self.row_lines: RowLines = RowLines()

    @cached_property
    def head(self) -> bytes | None:
        """The complete rows at the start of the file, if it is read by ranges; else None."""
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
        """Return whether the file is read by ranges, and starts with DynamoDB JSON."""
        return self.head is not None and self._make_rows.begins_with_items(self.head)

    def parts(self) -> Parts:
        """Return the parts of the file, with unknown numbers of rows."""
        if self.head is None:
            return Parts((self._entry.size_bytes,), None)
        ranges = byte_ranges(self._entry.size_bytes, self._range_bytes)
        return Parts(tuple(end - begin for begin, end in ranges), None, (0, *[None] * (len(ranges) - 1)))

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows, after reading some of them."""
        return next((batch.schema for batch in self.read(0, BATCH_ROWS)), pa.schema([]))

    def columns(self, part: int = 0) -> pa.Schema | None:
        """Return columns that fit all rows of a part, after reading it; None if it has no rows."""
        rows = self._make_rows(self._options)
        return rows.columns(self._blocks(part, rows))

    def read(self, part: int, _: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        self.row_lines = RowLines()
        options, rows = self._options, self._make_rows(self._options)
        columns, blocks = options.columns if options.schema is None else options.schema, self._blocks(part, rows)
        if columns is None:
            first = list(itertools.islice(blocks, 2))
            if len(first) > 1:
                columns = rows.columns(itertools.chain(first, blocks))
                rows = self._make_rows(options)
                first = []
                blocks = self._blocks(part, rows)
            blocks = itertools.chain(first, blocks)
        for block in blocks:
            yield from self._batches(block, rows, columns)

    def _batches(self, block: Block, rows: TextRows, columns: pa.Schema | None) -> list[pa.RecordBatch]:
        """Return the rows of a block, and record their line numbers."""
        batches = block.apply(lambda text: list(rows.rows(text, columns)))
        count, before = sum(batch.num_rows for batch in batches), block.lines_before
        if isinstance(before, int):
            self.row_lines.add(count, rows.lines(block.text, count, before + 1))
        else:
            self.row_lines.add(count, rows.lines(block.text, count, 1), before)
        return batches

    def raw_items(self, part: int, reader: RawItemReader) -> Iterator[RawItems] | None:
        """Return the items of a part of DynamoDB JSON, read in bounded memory; None for other formats."""
        if not self._make_rows.row_begin or self._options.json_format == "plain" or self._options.schema is not None:
            return None
        lines_before: Callable[[], int] | None = None
        blocks: Iterable[bytes | memoryview]
        if self.has_item_ranges:
            begin, end = byte_ranges(self._entry.size_bytes, self._range_bytes)[part]
            begin, blocks = document_blocks(self._store, self._entry, begin, end)
            head, lines_before = self.head or b"", partial(self._line_counts.before, self._entry, begin)
        else:
            read = line_blocks(self._store.read_chunks(self._entry.path), self._entry.path)
            first = bytes(next(read, b""))
            head, blocks = first.removeprefix(codecs.BOM_UTF8), itertools.chain([first], read)
            if not self._make_rows.begins_with_items(head):
                return None
        return self._with_lines(reader.read_blocks(blocks, framing_of(head)), lines_before)

    def _with_lines(self, items: Iterable[RawItems], lines_before: Callable[[], int] | None) -> Iterator[RawItems]:
        """Yield items, and record their line numbers."""
        self.row_lines = RowLines()
        try:
            for some in items:
                self.row_lines.add(len(some), some.lines, lines_before)
                yield some
        except DecodeError as error:
            raise shift_line(error, lines_before() if lines_before else 0) from None

    def blocks(self, part: int) -> Iterator[Block]:
        """Yield the text of a part in blocks of complete rows."""
        return self._blocks(part, self._make_rows(self._options))

    def _blocks(self, part: int, rows: TextRows) -> Iterator[Block]:
        starts, entry = self._options.starts, self._entry
        if self.head is None or (starts and starts[part].byte == 0 and starts[part + 1].byte == entry.size_bytes):
            lines, before = 0, b""
            for text in self._pieces(rows):
                lines += before.count(b"\n")
                yield Block(text, lines)
                before = text
            return
        if part:
            rows.begin(self.head)
        lines_before: int | Callable[[], int]
        if starts:
            begin, end = starts[part].byte, starts[part + 1].byte
            _check_row(end - begin - self._range_bytes)
            view = memoryview(self._store.read_range(entry, begin, end - begin) if begin < end else b"")
            lines_before = starts[part].lines
        else:
            begin, view = read_documents(self._store, entry, *byte_ranges(entry.size_bytes, self._range_bytes)[part])
            lines_before = partial(self._line_counts.before, entry, begin)
        text = view.obj if isinstance(view.obj, bytes) and len(view.obj) == len(view) else bytes(view)
        if text:
            yield Block(text if part else _utf8(text), lines_before)

    def _pieces(self, rows: TextRows) -> Iterator[bytes]:
        """Yield the text of the file in pieces of complete rows, at least one piece."""
        texts, text_bytes, is_first = list[bytes](), 0, True
        for text in self._text():
            texts.append(text)
            text_bytes += len(text)
            if text_bytes < self._piece_bytes:
                continue
            joined = b"".join(texts)
            end = rows.cut(joined)
            _check_row(len(joined) - end - self._piece_bytes)
            if end:
                yield joined[:end]
                is_first = False
            texts, text_bytes = [joined[end:]], len(joined) - end
        if text_bytes or is_first:
            yield b"".join(texts)

    def _text(self) -> Iterator[bytes]:
        """Yield the text of the file in blocks of at most the size of a piece."""
        is_first = True
        for block in line_blocks(self._store.read_chunks(self._entry.path), self._entry.path, MAX_ROW_BYTES):
            text = _utf8(bytes(block)) if is_first else bytes(block)
            is_first = False
            for start in range(0, len(text), self._piece_bytes):
                yield text[start : start + self._piece_bytes]

    def first_schema(self) -> pa.Schema | None:
        """Return the columns by the file's head; None if it is too short to show all columns.

        A small file is read completely, and so is a file that does not start with a row: it is a list, or not valid.
        """
        entry, make_rows = self._entry, self._make_rows
        head = self._store.read_range(entry, 0, min(entry.size_bytes, _FIRST_BYTES))
        if make_rows.row_begin:
            try:
                text, _ = decompress_head(head, _FIRST_BYTES)
            except zlib.error:
                text = b"damaged"
            text = _utf8(text).lstrip()
            if text and not text.startswith(make_rows.row_begin):
                next(self.read(0, BATCH_ROWS), None)
                return None
        if len(head) == entry.size_bytes:
            schemas = [batch.schema for batch in self.read(0, BATCH_ROWS)]
            return schemas[0] if schemas else None
        sample = self.sample(1, _FIRST_BYTES)
        return sample.batch.schema if sample is not None and make_rows.has_header else None

    def sample(self, rows: int, head_bytes: int = _SAMPLE_BYTES) -> Sample | None:
        """Return the first rows of the file's head; None if the head is only the start of a single document."""
        entry = self._entry
        head = self._store.read_range(entry, 0, min(entry.size_bytes, head_bytes))
        text, read_bytes = decompress_head(head, _SAMPLE_TEXT_BYTES)
        is_complete, text_bytes = read_bytes == entry.size_bytes, len(text)
        text = _utf8(text)
        reader = self._make_rows(self._options)
        if not is_complete and reader.is_one_document(text):
            return None
        complete_rows = text if is_complete else text[: reader.cut(text) or text.rfind(b"\n") + 1]
        batches = list(reader.rows(complete_rows, None)) if complete_rows else []
        count = sum(batch.num_rows for batch in batches)
        if not count:
            return None
        return Sample(batches[0].slice(0, rows), read_bytes * len(complete_rows) / text_bytes / count)


def _check_row(size_bytes: int) -> None:
    if size_bytes > MAX_ROW_BYTES:
        raise DecodeError(f"a row is larger than {MAX_ROW_BYTES:,} bytes: a quote or a bracket is not closed")


def _utf8(text: bytes) -> bytes:
    """Return the start of a text without its byte order mark.

    Raises
    ------
    DecodeError
        If the mark is of another encoding than UTF-8.
    """
    if text.startswith(_OTHER_UNICODE):
        raise DecodeError(
            "this is UTF-16 or UTF-32, as 'Unicode text' of Excel is: write it in UTF-8 ('CSV UTF-8' in Excel, or "
            "iconv -f UTF-16 -t UTF-8)"
        )
    return text.removeprefix(codecs.BOM_UTF8)


class TextAhead:
    """Reader of one file by its ranges, on several threads, in the order of its rows.

    The ranges of a load are its units, so their size is fixed. These ranges are only read ahead, and may be smaller.
    """

    def __init__(
        self, store: ObjectStore, entry: StoredObject, file_format: FileFormat, options: ReadOptions, range_bytes: int
    ) -> None:
        self._store, self._entry, self._format = store, entry, file_format
        self._options = replace(options, splits_text=True, range_bytes=range_bytes)
        self._ranges = byte_ranges(entry.size_bytes, range_bytes)

    @property
    def is_split(self) -> bool:
        """Return whether the file has ranges: it is large, and not compressed."""
        return (
            self._format.text_rows is not None and len(self._ranges) > 1 and len(self._open().parts().sizes_bytes) > 1
        )

    @property
    def has_items(self) -> bool:
        """Return whether the file starts with DynamoDB JSON."""
        return self._open().has_item_ranges

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in the order of the file; all batches have one schema.

        Raises
        ------
        DecodeError
            If the file is not such text; line numbers are those of the file.
        """
        parts, text_rows = range(len(self._ranges)), cast("type[TextRows]", self._format.text_rows)
        if text_rows.needs_starts:
            counts = side_by_side(lambda part: count_csv(self._store, self._entry, *self._ranges[part]), parts)
            self._options = replace(self._options, starts=csv_starts(list(counts), self._entry.size_bytes))
        if self._options.schema is None:
            columns_of_parts = side_by_side(lambda part: self._open().columns(part), parts)
            self._options = replace(self._options, columns=text_rows.joined(columns_of_parts))
        for read in side_by_side(lambda part: list(self._open().read(part, BATCH_ROWS)), parts):
            yield from read

    def made(self, make: Callable[[bytes, bytes], _ResultT]) -> Iterator[_ResultT]:
        """Yield the results of ``make``, on threads, for the documents of each range of JSON and the file's start."""

        def of_range(part: int) -> _ResultT:
            reader = self._open()
            block = next(reader.blocks(part), Block(b""))
            return block.apply(lambda text: make(text, reader.head or b"" if part else text))

        return side_by_side(of_range, range(len(self._ranges)))

    def _open(self) -> TextReader:
        # Each range has its own reader: readers are for one thread.
        return cast("TextReader", self._format.open_reader(self._store, self._entry, self._options))


def side_by_side(make: Callable[[_ArgumentT], _ResultT], arguments: Iterable[_ArgumentT]) -> Iterator[_ResultT]:
    """Yield the results in order; threads compute a few ahead, and have ended when the iteration ends."""
    count = min(_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    waiting = deque[Future[_ResultT]]()
    remaining = iter(arguments)
    pool = ThreadPoolExecutor(count, thread_name_prefix="ddbio-text")
    try:
        while True:
            waiting += [pool.submit(make, argument) for argument in itertools.islice(remaining, count - len(waiting))]
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
