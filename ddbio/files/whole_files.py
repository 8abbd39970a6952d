"""JSON, CSV and Arrow IPC: formats whose files are read whole, compressed or not, and sampled by their heads."""

from __future__ import annotations

import codecs
import re
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from ddbio.core.arrow_input import checked_batches
from ddbio.core.decode import from_dynamodb_json
from ddbio.files.decompress import decompress, decompress_head
from ddbio.files.file_format import BATCH_ROWS, FileFormat, Parts, ReadOptions, Sample
from ddbio.files.text_rows import read_csv, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddbio.core.staged import StoredObject
    from ddbio.files.object_store import ObjectStore

    Parse: TypeAlias = Callable[[bytes, ReadOptions], Iterator[pa.RecordBatch]]

_SAMPLE_BYTES = 512 * 1024
_SAMPLE_TEXT_BYTES = 8 * _SAMPLE_BYTES
_IPC_MAGIC = b"ARROW1"
_TAGS = rb"(?:S|N|B|BOOL|NULL|SS|NS|BS|L|M)"
_FIRST = rb'\s*"(?:[^"\\]|\\.)*"\s*:\s*\{\s*"' + _TAGS + rb'"\s*:'
# An item, or an export's line: the first value has one of DynamoDB's types. Plain JSON has none.
_TYPED = re.compile(rb'\s*\{(?:\s*"Item"\s*:\s*\{)?' + _FIRST)
# A saved answer of Scan or Query, of which no member but Items holds items.
_ANSWER = re.compile(rb'\s*\{\s*"(?:ConsumedCapacity|Count|Items|LastEvaluatedKey|ScannedCount)"\s*:')
_ITEMS = re.compile(rb'"Items"\s*:\s*\[\s*\{' + _FIRST)
_NO_ITEMS = re.compile(rb'"Items"\s*:\s*\[\s*\][^\[]*\Z')


class WholeFileReader:
    """Read one file as one part."""

    def __init__(self, store: ObjectStore, entry: StoredObject, options: ReadOptions, *, parse: Parse) -> None:
        self._store, self._entry, self._options, self._parse = store, entry, options, parse

    def parts(self) -> Parts:
        """Return the file as one part of unknown rows."""
        return Parts((self._entry.size_bytes,), None)

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows, which are read for that."""
        return next((batch.schema for batch in self.read(0, BATCH_ROWS)), pa.schema([]))

    def read(self, _: int, __: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the file."""
        yield from self._parse(decompress(self._store.read(self._entry.path), self._entry.path), self._options)

    def sample(self, rows: int) -> Sample | None:
        """Return the first rows."""
        return next((Sample(batch.slice(0, rows), None) for batch in self.read(0, BATCH_ROWS)), None)


class TextReader(WholeFileReader):
    """Read one file of text as one part; its head is enough for a sample."""

    def sample(self, rows: int) -> Sample | None:
        """Return the first rows of the file's head; None for one document of which that is only the beginning."""
        entry = self._entry
        head = self._store.read_range(entry, 0, min(entry.size_bytes, _SAMPLE_BYTES))
        text, read_bytes = decompress_head(head, _SAMPLE_TEXT_BYTES)
        may_be_answer = self._options.json_format != "plain"
        if read_bytes < entry.size_bytes and may_be_answer and _is_answer(text.removeprefix(codecs.BOM_UTF8)):
            return None
        whole = text if read_bytes == entry.size_bytes else text[: text.rfind(b"\n") + 1]
        found = list(self._parse(whole, self._options)) if whole else []
        if not found:
            return None
        row_bytes = read_bytes * len(whole) / len(text) / sum(batch.num_rows for batch in found)
        return Sample(found[0].slice(0, rows), row_bytes)


def starts_with_item(text: bytes) -> bool:
    """Return whether a text begins with DynamoDB JSON: an item, or a line of an export."""
    return bool(_TYPED.match(text))


def _parse_json(data: bytes, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    text = data.removeprefix(codecs.BOM_UTF8)
    if not text.strip():
        return
    if _is_dynamodb_json(text, options):
        yield from_dynamodb_json(text)
        return
    yield from read_json(text, options.keys).to_batches(BATCH_ROWS)


def _is_dynamodb_json(text: bytes, options: ReadOptions) -> bool:
    if options.json_format != "auto":
        return options.json_format == "dynamodb"
    return starts_with_item(text) or _is_answer(text)


def _is_answer(text: bytes) -> bool:
    if not _ANSWER.match(text):
        return False
    return bool(_ITEMS.search(text) or (b'"ScannedCount"' in text and _NO_ITEMS.search(text)))


def _parse_csv(data: bytes, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    yield from read_csv(data, options.keys).to_batches(BATCH_ROWS)


def _parse_arrow(data: bytes, _: ReadOptions) -> Iterator[pa.RecordBatch]:
    source = pa.BufferReader(data)
    if not data.startswith(_IPC_MAGIC):
        yield from checked_batches(pa.ipc.open_stream(source))
        return
    file = pa.ipc.open_file(source)
    yield from checked_batches(file.get_batch(number) for number in range(file.num_record_batches))


JSON = FileFormat("json", (".jsonl", ".ndjson", ".json"), partial(TextReader, parse=_parse_json))
CSV = FileFormat("csv", (".csv",), partial(TextReader, parse=_parse_csv))
ARROW = FileFormat("arrow", (".arrow", ".feather", ".ipc"), partial(WholeFileReader, parse=_parse_arrow))
