"""Read rows as record batches from files of any format, part by part, told by names; decide nothing about the rows."""

from __future__ import annotations

import codecs
import gzip
import itertools
import re
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

from ddbio.core.arrow_input import checked_batches
from ddbio.core.decode import from_dynamodb_json
from ddbio.core.text.framing import framing_of
from ddbio.errors import DdbioError, DecodeError
from ddbio.files.decompress import line_blocks
from ddbio.files.local_store import LocalStore
from ddbio.files.object_store import RangeFile
from ddbio.files.text_rows import NO_KEYS, read_csv, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ddbio.core.raw_items import RawItemReader, RawItems
    from ddbio.core.staged import StoredObject
    from ddbio.files.object_store import ObjectStore
    from ddbio.options import JsonFormat

    _Reader = Callable[[bytes, Mapping[str, str], JsonFormat], Iterator[pa.RecordBatch]]

_GZIP_MAGIC = b"\x1f\x8b"
BATCH_ROWS = 16_384
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SAMPLE_BYTES = 512 * 1024
_SAMPLE_TEXT_BYTES = 8 * _SAMPLE_BYTES
_BLOCK_BYTES = 64 * 1024
# Stored bytes of row groups that are not held whole, and those that are read of a column at once.
_LARGE_BYTES = 32 * 1024 * 1024
_STREAM_BYTES = 1024 * 1024
_TAGS = rb"(?:S|N|B|BOOL|NULL|SS|NS|BS|L|M)"
_FIRST = rb'\s*"(?:[^"\\]|\\.)*"\s*:\s*\{\s*"' + _TAGS + rb'"\s*:'
# An item, or an export's line: the first value has one of DynamoDB's types. Plain JSON has none.
_TYPED = re.compile(rb'\s*\{(?:\s*"Item"\s*:\s*\{)?' + _FIRST)
# A saved answer of Scan or Query, of which no member but Items holds items.
_ANSWER = re.compile(rb'\s*\{\s*"(?:ConsumedCapacity|Count|Items|LastEvaluatedKey|ScannedCount)"\s*:')
_ITEMS = re.compile(rb'"Items"\s*:\s*\[\s*\{' + _FIRST)
_NO_ITEMS = re.compile(rb'"Items"\s*:\s*\[\s*\][^\[]*\Z')
_IPC_MAGIC = b"ARROW1"
# What the files of AWS and Spark are named that hold no rows.
_NO_ROWS = re.compile(r"(?:^|/)(?:_|\.|manifest-)")


@dataclass(frozen=True)
class Parts:
    """Say of what parts a file consists that can be read one by one: row groups, stripes, or the file as one.

    Attributes
    ----------
    sizes_bytes
        Stored bytes of each part, or its share of the file's where the format does not tell.
    rows
        Rows of the file, or None where only reading it would tell.
    first_rows
        Rows of the file before each part; None where only reading those would tell.
    """

    sizes_bytes: tuple[int, ...]
    rows: int | None
    first_rows: tuple[int | None, ...] = (0,)


@dataclass(frozen=True)
class Sample:
    """Hold the first rows of a file, and what a row takes in it where rows are not counted."""

    batch: pa.RecordBatch
    row_bytes: float | None


def is_row_file(path: str) -> bool:
    """Return whether a file of that name holds rows that can be read."""
    return not _NO_ROWS.search(path) and (_ending(path) in _PARTED or _reader_of(path) is not None)


def is_splittable(path: str) -> bool:
    """Return whether files of that name are read by parts, and others whole."""
    return _ending(path) in _PARTED


class RowFiles:
    """Read files of one store; keep one per thread, and read the parts of a file in a row: it is opened once.

    Parameters
    ----------
    keys
        Key attributes and their types, by which text formats are read.
    """

    def __init__(self, store: ObjectStore, keys: Mapping[str, str] = NO_KEYS) -> None:
        self._store = store
        self._keys = dict(keys)
        self._opened: tuple[str, Any] = ("", None)

    def parts(self, entry: StoredObject) -> Parts:
        """Return the parts of a file by its footer, without reading its rows.

        Raises
        ------
        DecodeError
            If the bytes are not of the format that the name tells.
        """
        with _named(entry.path):
            match _ending(entry.path):
                case ".parquet":
                    told = self._open(entry).metadata
                    counts = (told.row_group(number).num_rows for number in range(told.num_row_groups))
                    first_rows = tuple(itertools.accumulate(counts, initial=0))[:-1]
                    return Parts(_stored_bytes(told, entry), told.num_rows, first_rows)
                case ".orc":
                    file = self._open(entry)
                    count = file.nstripes
                    sizes = (entry.size_bytes // max(1, count),) * count
                    return Parts(sizes, file.nrows, (0, *[None] * (count - 1))[:count])
        return Parts((entry.size_bytes,), None)

    def read(
        self, entry: StoredObject, part: int, json_format: JsonFormat = "auto", batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; all batches of a file have one schema.

        Parameters
        ----------
        batch_rows
            Rows of a batch of Parquet; those of other formats are as large as they are read.

        Raises
        ------
        DecodeError
            If the bytes are not of the format that the name tells, or the name tells none.
        """
        with _named(entry.path):
            match _ending(entry.path):
                case ".parquet":
                    yield from self._open(entry).iter_batches(batch_rows, row_groups=[part])
                case ".orc":
                    yield from _batches(self._open(entry).read_stripe(part))
                case _:
                    yield from read_rows(entry.path, self._store.read(entry.path), self._keys, json_format)

    def read_raw(
        self, entry: StoredObject, part: int, reader: RawItemReader, json_format: JsonFormat = "auto"
    ) -> Iterator[pa.RecordBatch | RawItems]:
        """Yield the rows of one part; of DynamoDB JSON as items that stay the text they are, however large the file.

        Raises
        ------
        DecodeError
            As ``read`` says.
        """
        if _reader_of(entry.path) is _json:
            with _named(entry.path):
                blocks = line_blocks(self._store.read_chunks(entry.path), entry.path)
                first = bytes(next(blocks, b""))
                text = first.removeprefix(codecs.BOM_UTF8)
                if json_format != "plain" and _TYPED.match(text):
                    yield from reader.read_blocks(itertools.chain([first], blocks), framing_of(text))
                    return
            yield from self.read(entry, part, json_format)
        else:
            yield from self.read(entry, part, json_format)

    def sample(self, entry: StoredObject, rows: int, json_format: JsonFormat = "auto") -> Sample | None:
        """Return the first rows of a file, reading little of it; None where that cannot be done.

        Raises
        ------
        DecodeError
            If the bytes are not of the format that the name tells.
        """
        with _named(entry.path):
            match _ending(entry.path):
                case ".parquet":
                    file = pa.PythonFile(RangeFile(self._store, entry), "r")
                    # A row group's first rows do not cost the whole of it.
                    batches = _streamed(file, _SAMPLE_BYTES // 8).iter_batches(rows)
                    return next((Sample(batch, None) for batch in batches), None)
                case ".orc" if not self._open(entry).nstripes:
                    return None
                case ".orc" | ".arrow" | ".feather" | ".ipc":
                    return next((Sample(batch.slice(0, rows), None) for batch in self.read(entry, 0)), None)
        head = self._store.read_range(entry, 0, min(entry.size_bytes, _SAMPLE_BYTES))
        text, read_bytes = _inflated_head(head)
        is_answer = json_format != "plain" and _is_answer(text.removeprefix(codecs.BOM_UTF8))
        if read_bytes < entry.size_bytes and is_answer:
            return None
        whole = text if read_bytes == entry.size_bytes else text[: text.rfind(b"\n") + 1]
        found = list(read_rows(entry.path, whole, self._keys, json_format)) if whole else []
        if not found:
            return None
        row_bytes = read_bytes * len(whole) / len(text) / sum(batch.num_rows for batch in found)
        return Sample(found[0].slice(0, rows), row_bytes)

    def _open(self, entry: StoredObject) -> Any:
        if self._opened[0] != entry.path:
            file = pa.PythonFile(RangeFile(self._store, entry), "r")
            opened = _PARTED[_ending(entry.path)](file)
            # On a disk small reads cost little, and large ones fresh memory for the whole of a row group.
            is_on_disk = isinstance(opened, pq.ParquetFile) and isinstance(self._store, LocalStore)
            if is_on_disk and max(_stored_bytes(opened.metadata, entry), default=0) > _LARGE_BYTES:
                opened = _streamed(file, _STREAM_BYTES, metadata=opened.metadata)
            self._opened = entry.path, opened
        return self._opened[1]


def read_rows(
    path: str, data: bytes, keys: Mapping[str, str], json_format: JsonFormat = "auto"
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a whole file of text or Arrow.

    Raises
    ------
    DecodeError
        If the bytes are not of the format that the name tells, or the name tells none.
    """
    read = _reader_of(path)
    if read is None:
        raise DecodeError(f"{path} has no known format: name it {', '.join([*_PARTED, *_READERS])}", uri=path)
    with _named(path):
        yield from read(inflated(data), keys, json_format)


@contextmanager
def _named(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeError, zlib.error) as error:
        if isinstance(error, DdbioError):
            raise
        raise DecodeError(f"{path} cannot be read as its name says: {error}", uri=path) from error
    except DecodeError as error:
        if error.uri is None:
            raise DecodeError(f"{path}: {error}", uri=path, line=error.line) from error
        raise


def _ending(path: str) -> str:
    return "." + path.lower().rpartition(".")[2]


def _reader_of(path: str) -> _Reader | None:
    return _READERS.get(_ending(path.lower().removesuffix(".gz").removesuffix(".zst")))


def _parquet(file: pa.NativeFile, **options: Any) -> pq.ParquetFile:
    # Checksums are verified where the writer left some.
    return pq.ParquetFile(file, page_checksum_verification=True, **options)


def _streamed(file: pa.NativeFile, buffer_bytes: int, **options: Any) -> pq.ParquetFile:
    # A column is read by a buffer of its own. Unless told otherwise, Arrow reads row groups whole before that.
    return _parquet(file, pre_buffer=False, buffer_size=buffer_bytes, **options)


def _stored_bytes(told: Any, entry: StoredObject) -> tuple[int, ...]:
    """Return about how many bytes each row group takes of a file."""
    # pyarrow 25 ends the process where the footer says something impossible of a group's columns.
    groups = [max(0, told.row_group(number).total_byte_size) for number in range(told.num_row_groups)]
    whole = max(1, sum(groups))
    return tuple(entry.size_bytes * group // whole for group in groups)


def inflated(data: bytes) -> bytes:
    """Return a file's bytes, inflated if they are those of gzip or zstd.

    Raises
    ------
    OSError, EOFError, zlib.error
        They are cut short or damaged.
    """
    if data.startswith(_ZSTD_MAGIC):
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return stream.read()
    return gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data


def _inflated_head(head: bytes) -> tuple[bytes, int]:
    """Return the text that a file begins with, and how many of the bytes it was stored as."""
    if head.startswith(_GZIP_MAGIC):
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)
        text = inflater.decompress(head, _SAMPLE_TEXT_BYTES)
        return text, len(head) - len(inflater.unconsumed_tail)
    if not head.startswith(_ZSTD_MAGIC):
        return head, len(head)
    source, blocks, read_bytes = pa.BufferReader(head), list[bytes](), 0
    # What is cut short ends in an error, after what can be read.
    with pa.CompressedInputStream(source, "zstd") as stream, suppress(OSError):
        while len(blocks) * _BLOCK_BYTES < _SAMPLE_TEXT_BYTES and (block := stream.read(_BLOCK_BYTES)):
            blocks.append(block)
            read_bytes = source.tell()
    return b"".join(blocks), read_bytes


def _json(data: bytes, keys: Mapping[str, str], json_format: JsonFormat) -> Iterator[pa.RecordBatch]:
    text = data.removeprefix(codecs.BOM_UTF8)
    if not text.strip():
        return
    if _is_typed(text, json_format):
        yield from_dynamodb_json(text)
        return
    yield from read_json(text, keys).to_batches(BATCH_ROWS)


def _is_typed(text: bytes, json_format: JsonFormat) -> bool:
    if json_format != "auto":
        return json_format == "dynamodb"
    return bool(_TYPED.match(text)) or _is_answer(text)


def _is_answer(text: bytes) -> bool:
    if not _ANSWER.match(text):
        return False
    return bool(_ITEMS.search(text) or (b'"ScannedCount"' in text and _NO_ITEMS.search(text)))


def _csv(data: bytes, keys: Mapping[str, str], _: JsonFormat) -> Iterator[pa.RecordBatch]:
    yield from read_csv(data, keys).to_batches(BATCH_ROWS)


def _ipc(data: bytes, _: Mapping[str, str], __: JsonFormat) -> Iterator[pa.RecordBatch]:
    source = pa.BufferReader(data)
    if not data.startswith(_IPC_MAGIC):
        yield from checked_batches(pa.ipc.open_stream(source))
        return
    file = pa.ipc.open_file(source)
    yield from checked_batches(file.get_batch(number) for number in range(file.num_record_batches))


def _batches(rows: Any) -> Iterator[pa.RecordBatch]:
    yield from rows.to_batches() if isinstance(rows, pa.Table) else [rows]


_PARTED: dict[str, Callable[[pa.NativeFile], Any]] = {
    # A row group's columns are asked for in few, large ranges.
    ".parquet": lambda file: _parquet(file, pre_buffer=True),
    ".orc": pa.orc.ORCFile,
}

_READERS: dict[str, _Reader] = {
    ".jsonl": _json,
    ".ndjson": _json,
    ".json": _json,
    ".csv": _csv,
    ".arrow": _ipc,
    ".feather": _ipc,
    ".ipc": _ipc,
}
