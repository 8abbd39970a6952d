"""Writer and reader of ORC, stripe by stripe. ORC does not store field metadata."""

from __future__ import annotations

import contextlib
import re
import zlib
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.orc

from ddbio.errors import DecodeError, EncodeError
from ddbio.formats.file_format import BATCH_ROWS, FileFormat, FileReader, Parts, ReadOptions, Sample
from ddbio.formats.layout import Footer
from ddbio.formats.orc_process import OrcProcess
from ddbio.items.expansion import MAX_UNSPLIT_BYTES, check_expansion, check_rows
from ddbio.items.plain_json import orc_type, restore_batch
from ddbio.storage.object_store import RangeFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from ddbio.formats.file_format import WriterOptions
    from ddbio.options import Compression
    from ddbio.storage.object_store import ObjectStore, Sink
    from ddbio.storage.staged import StagedFile, StoredObject

_CODECS: dict[Compression, Literal["UNCOMPRESSED", "ZLIB", "SNAPPY", "LZ4", "ZSTD"]] = {
    "zstd": "ZSTD",
    "snappy": "SNAPPY",
    "gzip": "ZLIB",
    "lz4": "LZ4",
    "none": "UNCOMPRESSED",
}
# A stripe is buffered until it is full; a file has this number of them, so that its size is known well enough.
_STRIPES = 8
_STRIPE_BYTES, _MIN_STRIPE_BYTES = 64 * 1024 * 1024, 64 * 1024
_PIECE_BYTES, _MIN_PIECE_BYTES = 2 * 1024 * 1024, 128 * 1024
# Before the first stripe is written, its size is estimated from this number of bytes of rows, unless the rows are a
# small part of a file.
_SAMPLE_BYTES = 1024 * 1024
_SMALL_RATIO = 1 / 4
# Bytes before the first stripe.
_MAGIC_BYTES = 3
# A damaged file may keep the reader busy forever; an intact one is read at many megabytes per second.
_LIMIT_SECONDS = 30.0
_LIMIT_BYTES_PER_SECOND = 1_000_000


class OrcFileWriter:
    """Writer of one ORC file into a sink, which counts the bytes; those of an unfinished stripe are estimated.

    An error of the sink is kept until the library has returned: it would end the process within the library's
    destructors.
    """

    def __init__(self, sink: Sink, schema: pa.Schema, options: WriterOptions) -> None:
        self._sink = sink
        self._schema = pa.schema([field.with_type(orc_type(field.type)) for field in schema])
        self.closed = False
        self._failed: BaseException | None = None
        self._rows = 0
        self._written_bytes = self._arrow_bytes = 0
        # Stored bytes per byte of Arrow.
        self._ratio = options.ratio
        self._options = options
        self._piece_bytes = max(_MIN_PIECE_BYTES, min(_PIECE_BYTES, options.target_file_bytes // 64))
        handle: Any = self
        self._writer: Any = pyarrow.orc.ORCWriter(
            pa.PythonFile(handle, mode="w"),
            compression=_CODECS[options.compression],
            batch_size=BATCH_ROWS,
            stripe_size=min(_STRIPE_BYTES, max(_MIN_STRIPE_BYTES, options.target_file_bytes // _STRIPES)),
        )

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the finished stripes, plus the estimated bytes of the buffered stripe."""
        return max(self._written_bytes, int((self._ratio or 1.0) * self._arrow_bytes))

    def write(self, data: Buffer, /) -> int:
        """Pass the writer's bytes to the sink, unless it has failed."""
        if self._failed is None:
            try:
                self._sink.write(data)
            except BaseException as error:  # noqa: BLE001 - an interruption must not pass through the library either
                self._failed = error
        size = memoryview(data).nbytes
        self._written_bytes += size
        return size

    @contextlib.contextmanager
    def _raising(self) -> Iterator[None]:
        """Raise the sink's error after a call of the library, instead of the library's own error."""
        try:
            yield
        finally:
            failed, self._failed = self._failed, None
            if failed is not None:
                raise failed

    def flush(self) -> None:
        """Do nothing: the sink flushes itself."""

    def write_group(self, table: pa.Table) -> None:
        """Write a table's rows in small steps, which shows when a stripe is finished."""
        # pyarrow 25 becomes slower with the number of batches that it makes of the rows of one call.
        step = max(1, min(BATCH_ROWS, table.num_rows * self._piece_bytes // max(1, table.nbytes)))
        for start in range(0, table.num_rows, step):
            self._write(table.slice(start, step))
        if self._ratio is None and self._arrow_bytes >= _SMALL_RATIO * self._options.target_file_bytes:
            self._ratio = self._ratio_of(table)

    def _write(self, table: pa.Table) -> None:
        before = self._written_bytes
        rows = self._cast(table)
        with self._raising():
            self._writer.write(rows)
        self._rows += table.num_rows
        self._arrow_bytes += table.nbytes
        if self._written_bytes - before > _MAGIC_BYTES:
            # The rows are one batch, and stripes end at the end of a batch.
            self._ratio = self._written_bytes / self._arrow_bytes

    def _cast(self, table: pa.Table) -> pa.Table:
        try:
            return _unsliced(table).cast(self._schema)
        except pa.ArrowInvalid as error:
            raise EncodeError(f"ORC cannot store a value: {error}: choose another format", 0, "", "orc") from None

    def _ratio_of(self, table: pa.Table) -> float:
        """Return the stored bytes per byte of Arrow, by writing the first rows to memory."""
        rows = table.slice(0, max(1, table.num_rows * _SAMPLE_BYTES // max(1, table.nbytes)))
        out = pa.BufferOutputStream()
        with pyarrow.orc.ORCWriter(out, compression=_CODECS[self._options.compression]) as writer:
            writer.write(self._cast(rows))
        return float(out.getvalue().size / max(1, rows.nbytes))

    def finish(self) -> StagedFile:
        """Write the footer, and return the staged file."""
        with self._raising():
            if not self._rows:
                # The writer learns its columns from rows: without any, it would not write a valid ORC file.
                self._writer.write(self._schema.empty_table())
            self._writer.close()
        # The writer keeps its buffers and a reference to this object, and no error would reveal it.
        self._writer = None
        return self._sink.finish(self._rows)

    def abort(self) -> None:
        """Discard the file."""
        self._sink.abort()
        # The aborted sink discards the footer; a writer that failed half-way may refuse to write one.
        if self._writer is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                self._writer.close()
        self._writer = None


def _unsliced(table: pa.Table) -> pa.Table:
    """Return the table with copies of its nested columns: pyarrow 25 writes the first rows of slices of structs."""
    for index, field in enumerate(table.schema):
        if field.type.num_fields:
            chunks: Any = table.column(index).chunks
            copied = pa.concat_arrays([*chunks, chunks[0].slice(0, 0)]) if chunks else pa.array([], field.type)
            table = table.set_column(index, field, copied)
    return table


class OrcReader(FileReader):
    """Reader of one ORC file by its stripes, in a child process.

    Parameters
    ----------
    limit_seconds
        Limit of processor time for opening the file, and for reading a stripe; one more second for each megabyte.
    """

    def __init__(
        self, store: ObjectStore, entry: StoredObject, options: ReadOptions, *, limit_seconds: float = _LIMIT_SECONDS
    ) -> None:
        self._declared = options.schema
        self._size_bytes = entry.size_bytes
        limit_seconds += entry.size_bytes / _LIMIT_BYTES_PER_SECOND
        self._opened = OrcProcess(RangeFile(store, entry), entry.path, entry.size_bytes, limit_seconds)

    def parts(self) -> Parts:
        """Return the stripes; the footer has neither their bytes nor their rows."""
        check_rows(self._size_bytes, self._opened.rows)
        count = self._opened.stripes
        sizes = (self._size_bytes // max(1, count),) * count
        return Parts(sizes, self._opened.rows, (0, *[None] * (count - 1))[:count])

    def schema(self) -> pa.Schema:
        """Return the Arrow schema, with DynamoDB's types if the columns are declared."""
        schema = self._opened.schema
        return schema if self._declared is None else restore_batch(_no_rows(schema), self._declared).schema

    def read(self, part: int, _: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one stripe, as it was written."""
        for batch in self._opened.read_stripe(part):
            yield batch if self._declared is None else restore_batch(batch, self._declared)

    def sample(self, rows: int) -> Sample | None:
        """Return the first rows of the first stripe, which is read completely."""
        if not self._opened.stripes:
            return None
        return next((Sample(batch.slice(0, rows), None) for batch in self.read(0, BATCH_ROWS)), None)


def _footer(store: ObjectStore, entry: StoredObject, _: object) -> Footer:
    parts = OrcReader(store, entry, ReadOptions()).parts()
    return Footer(parts.rows or 0, len(parts.sizes_bytes))


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


# https://github.com/apache/orc-format/blob/main/src/main/proto/orc/proto/orc_proto.proto
_UNWRITABLE = {13: "uniontype", 16: "varchar", 17: "char", 19: "geometry", 20: "geography"}
_TAIL_BYTES = 16 * 1024
_HEADER_BYTES = 3
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_BYTES = 1, 2, 3
_TYPES, _KIND = 4, 1
_SUBTYPES, _FIELD_NAMES = 2, 3
_STRIPES_OF_FILE, _OFFSET, _INDEX_LENGTH, _DATA_LENGTH, _STRIPE_FOOTER_LENGTH = 3, 1, 2, 3, 4
_STREAMS, _STREAM_COLUMN, _STREAM_LENGTH = 1, 2, 3
# The length of a block has 23 bits; a writer that does not record the block size uses this one.
_MAX_BLOCK_BYTES, _DEFAULT_BLOCK_BYTES = 1 << 23, 256 * 1024
_MAX_BITS = 63
_NONE, _ZLIB, _SNAPPY, _LZ4, _ZSTD = 0, 1, 2, 4, 5
# Errors of parsing a damaged footer.
_DAMAGED = (
    *(IndexError, KeyError, StopIteration, TypeError, ValueError, AttributeError),
    *(zlib.error, pa.ArrowException, OSError, DecodeError),
)


def unwritable_type(store: ObjectStore, entry: StoredObject) -> str:
    """Return a column type that Arrow would write as another one; an empty text if none, or if the footer is damaged.

    Raises
    ------
    NotFoundError
        If the file does not exist any more.
    """
    tail = _tail(store, entry, _TAIL_BYTES)
    try:
        footer = _file_footer(store, entry, tail).text
        kinds = {dict(_fields(value)).get(_KIND, 0) for field, value in _fields(footer) if field == _TYPES}
    except _DAMAGED:
        # Reading the rows raises the specific error.
        return ""
    return ", ".join(name for kind, name in _UNWRITABLE.items() if kind in kinds)


def column_streams(store: ObjectStore, entry: StoredObject) -> dict[str, int]:
    """Return the bytes of the streams of each top-level column, with its indexes; empty if the file is damaged.

    The footer of each stripe is read by a request.

    Raises
    ------
    NotFoundError
        If the file does not exist any more.
    """
    tail = _tail(store, entry, _TAIL_BYTES)
    try:
        footer = _file_footer(store, entry, tail)
        root = [*_fields(next(value for field, value in _fields(footer.text) if field == _TYPES))]
        names = [value.decode() for field, value in root if field == _FIELD_NAMES]
        # The ids of a column and of the columns within it are consecutive.
        first_ids = [number for field, value in root if field == _SUBTYPES for number in _numbers(value)]
        sums = dict.fromkeys(names, 0)
        for stripe in (dict(_fields(value)) for field, value in _fields(footer.text) if field == _STRIPES_OF_FILE):
            begin = stripe.get(_OFFSET, 0) + stripe.get(_INDEX_LENGTH, 0) + stripe.get(_DATA_LENGTH, 0)
            text = footer.decompress(store.read_range(entry, begin, stripe[_STRIPE_FOOTER_LENGTH]))
            for stream in (dict(_fields(value)) for field, value in _fields(text) if field == _STREAMS):
                column = bisect_right(first_ids, stream.get(_STREAM_COLUMN, 0)) - 1
                if column >= 0:
                    sums[names[column]] += stream.get(_STREAM_LENGTH, 0)
    except _DAMAGED:
        # Reading the rows raises the specific error.
        return {}
    return sums


class _FileFooter(NamedTuple):
    """Uncompressed footer of a file, with its codec and the size of its blocks."""

    text: bytes
    codec: int
    block_bytes: int

    def decompress(self, data: bytes) -> bytes:
        """Return the uncompressed footer of a stripe."""
        return _decompress(data, self.codec, self.block_bytes)


def _file_footer(store: ObjectStore, entry: StoredObject, tail: bytes) -> _FileFooter:
    """Return the footer of a file with these last bytes; a longer one is read by a second request."""
    end = len(tail) - 1 - tail[-1]
    postscript = dict(_fields(tail[end:-1]))
    length = postscript[_FOOTER_LENGTH]
    if length > end:
        tail = _tail(store, entry, length + len(tail) - end)
        end = length
    codec = postscript.get(_COMPRESSION, 0)
    block_bytes = min(postscript.get(_BLOCK_BYTES) or _DEFAULT_BLOCK_BYTES, _MAX_BLOCK_BYTES)
    return _FileFooter(_decompress(tail[end - length : end], codec, block_bytes), codec, block_bytes)


def _numbers(data: bytes | int) -> Iterator[int]:
    """Yield the numbers of a repeated field, packed or not."""
    if isinstance(data, int):
        yield data
        return
    at = 0
    while at < len(data):
        number, at = _number(data, at)
        yield number


def _tail(store: ObjectStore, entry: StoredObject, length: int) -> bytes:
    length = min(length, entry.size_bytes)
    return store.read_range(entry, entry.size_bytes - length, length)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and the values of the fields of a message of Protocol Buffers."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _number(data, at)
            yield key >> 3, value
            continue
        if wire == 2:  # noqa: PLR2004 - a value with a length
            length, at = _number(data, at)
        else:
            length = {1: 8, 5: 4}[wire]
        yield key >> 3, data[at : at + length]
        at += length


def _number(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last byte
            return number, at
        shift += 7
        if shift > _MAX_BITS:
            raise ValueError(shift)


def _decompress(data: bytes, codec: int, block_bytes: int) -> bytes:
    if codec == _NONE:
        return data
    text, at = bytearray(), 0
    while at < len(data):
        header = int.from_bytes(data[at : at + _HEADER_BYTES], "little")
        at += _HEADER_BYTES
        chunk = data[at : at + (header >> 1)]
        at += header >> 1
        text += chunk if header & 1 else _decompress_block(chunk, codec, block_bytes)
        check_expansion(len(data), len(text), MAX_UNSPLIT_BYTES)
    return bytes(text)


def _decompress_block(chunk: bytes, codec: int, block_bytes: int) -> bytes:
    if codec == _ZLIB:
        return zlib.decompressobj(-15).decompress(chunk, block_bytes)
    if codec == _ZSTD:
        with pa.CompressedInputStream(pa.BufferReader(chunk), "zstd") as stream:
            return stream.read(block_bytes)
    if codec == _SNAPPY:
        return pa.Codec("snappy").decompress(chunk, min(_number(chunk, 0)[0], block_bytes), asbytes=True)
    if codec == _LZ4:
        return pa.Codec("lz4_raw").decompress(chunk, block_bytes, asbytes=True)
    raise ValueError(codec)


ORC = FileFormat(
    name="orc",
    endings=(".orc",),
    open_reader=OrcReader,
    is_splittable=True,
    open_writer=OrcFileWriter,
    extensions={
        "zstd": "zstd.orc",
        "snappy": "snappy.orc",
        "gzip": "zlib.orc",
        "lz4": "lz4.orc",
        "none": "orc",
    },
    magic=b"ORC",
    # https://orc.apache.org/specification/ORCv1/: the last byte is a length.
    magic_end=re.compile(rb"(?s)ORC.\Z"),
    read_footer=_footer,
    read_streams=column_streams,
    unwritable_type=unwritable_type,
)
