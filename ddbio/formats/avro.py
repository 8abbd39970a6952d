"""Writer and reader of Avro object container files, block by block; fastavro checks schemas and decodes records.

The header also stores the columns exactly, in addition to Avro's own schema: DynamoDB's types, and names that Avro does
not allow.

References
----------
https://avro.apache.org/docs/1.12.0/specification/#object-container-files
"""

from __future__ import annotations

import io
import json
import secrets
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from ddbio.errors import DecodeError, OptionError
from ddbio.formats.avro_schema import (
    arrow_schema_of_avro,
    as_stored,
    avro_names,
    avro_schema_of,
    columns_to_json,
    from_records,
    renamed,
    require_bytes,
    unwritable_type,
)
from ddbio.formats.file_format import BATCH_ROWS, FileFormat, FileReader, Parts, ReadOptions, Sample
from ddbio.items.expansion import MAX_ROW_BYTES, check_expansion
from ddbio.items.schema.arrow import is_decimal, is_list
from ddbio.items.schema.times import is_time_column
from ddbio.storage.object_store import RangeFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddbio.formats.file_format import WriterOptions
    from ddbio.options import Compression
    from ddbio.storage.object_store import ObjectStore, Sink
    from ddbio.storage.staged import StagedFile, StoredObject

    _Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]

COLUMNS_KEY = "ddbio.schema"
"""Key of the header's metadata that stores the columns."""

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_HEADER_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "org.apache.avro.file.Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(_MAGIC)}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": _SYNC_BYTES}},
    ],
}
_CODECS: dict[Compression, str] = {"zstd": "zstandard", "snappy": "snappy", "gzip": "deflate", "none": "null"}
# Avro's own readers take some 64 kB at a time, compressed.
_BLOCK_BYTES = 256 * 1024
# Rows that are encoded in one step: many blocks.
_ENCODED_BYTES = 4 * 1024 * 1024
_DEFLATE_LEVEL = 2
_RAW_DEFLATE = -15
# Size of a part, which is read by itself.
_PART_BYTES = 64 * 1024 * 1024
_BUFFER_BYTES = 1024 * 1024
_HEADER_BYTES = 64 * 1024
_MAX_HEADER_BYTES = 16 * 1024 * 1024
# A block is decoded in one step, to Python objects that take far more memory; writers keep blocks small.
_MAX_BLOCK_BYTES = MAX_ROW_BYTES
_ROW_BYTES, _MAX_BLOCK_ROWS = 64, 4_000_000
_LONG_BYTES = 10


def _fastavro() -> Any:
    try:
        import fastavro  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OptionError("Avro needs the library fastavro: pip install 'ddbio[avro]'") from error
    return fastavro


def _zstd() -> Any:
    """Return a compressor of blocks with a checksum, which every zstd reader verifies."""
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OptionError("Avro needs the library zstandard: pip install 'ddbio[avro]'") from error
    return zstandard.ZstdCompressor(level=1, write_checksum=True)


class AvroFileWriter:
    """Writer of one Avro file into a sink, which counts the bytes."""

    def __init__(self, sink: Sink, schema: pa.Schema, options: WriterOptions) -> None:
        self._sink = sink
        self._avro = _fastavro()
        self._codec = _CODECS[options.compression]
        self._zstd = _zstd() if self._codec == "zstandard" else None
        self._columns = avro_names(schema)
        described = avro_schema_of(schema, self._columns)
        self._avro.parse_schema(described)
        self._sync = secrets.token_bytes(_SYNC_BYTES)
        self._rows = self.size_bytes = 0
        meta = {"avro.schema": described, "avro.codec": self._codec, COLUMNS_KEY: columns_to_json(schema)}
        texts = {key: (value if isinstance(value, str) else json.dumps(value)).encode() for key, value in meta.items()}
        self._write(self._encode(_HEADER_SCHEMA, {"magic": _MAGIC, "meta": texts, "sync": self._sync}))

    def write_group(self, table: pa.Table) -> None:
        """Write a table's rows as blocks."""
        step = max(1, table.num_rows * _ENCODED_BYTES // max(1, table.nbytes))
        for batch in table.combine_chunks().to_batches(step):
            columns = renamed(batch.columns, self._columns)
            row_offsets, data = encode_rows(pa.RecordBatch.from_arrays(columns, schema=self._columns))
            first = 0
            while first < batch.num_rows:
                last = int(np.searchsorted(row_offsets, row_offsets[first] + _BLOCK_BYTES, side="right")) - 1
                last = min(max(last, first + 1), first + BATCH_ROWS)
                self._write_block(data[row_offsets[first] : row_offsets[last]], last - first)
                first = last

    def _write_block(self, items: memoryview, count: int) -> None:
        data = _compress(items, self._codec) if self._zstd is None else self._zstd.compress(items)
        self._write(b"".join((_long(count), _long(len(data)), data, self._sync)))
        self._rows += count

    def finish(self) -> StagedFile:
        """Return the staged file."""
        return self._sink.finish(self._rows)

    def abort(self) -> None:
        """Discard the file."""
        self._sink.abort()

    def _encode(self, schema: Any, value: Any) -> bytes:
        out = io.BytesIO()
        self._avro.schemaless_writer(out, schema, value)
        return out.getvalue()

    def _write(self, data: bytes) -> None:
        self.size_bytes += self._sink.write(data)


@dataclass(frozen=True)
class _Header:
    meta: dict[str, bytes]
    sync: bytes
    end: int


class AvroReader(FileReader):
    """Reader of one Avro file by ranges of blocks."""

    def __init__(self, store: ObjectStore, entry: StoredObject, _: ReadOptions) -> None:
        self._store, self._entry = store, entry
        self._avro = _fastavro()
        self._header = self._read_header()
        self._codec = self._header.meta.get("avro.codec", b"null").decode(errors="replace")
        try:
            described = json.loads(self._header.meta["avro.schema"])
            # It resolves the names that the schema itself defines, and refuses an invalid schema.
            self._rows_schema = self._avro.parse_schema({"type": "array", "items": as_stored(described)})
            require_bytes(described)
            self._columns, self._schema = arrow_schema_of_avro(described, self._header.meta.get(COLUMNS_KEY))
        except DecodeError:
            raise
        except Exception as error:
            raise DecodeError(f"its header has no Avro schema that can be read: {error}") from error

    def parts(self) -> Parts:
        """Return ranges of the file; a block belongs to the range in which it starts."""
        body_bytes = self._entry.size_bytes - self._header.end
        count = max(1, body_bytes // _PART_BYTES)
        return Parts((self._entry.size_bytes // count,) * count, None, (0, *[None] * (count - 1)))

    def unwritable_type(self) -> str:
        """Return the first type that ddbio would write as another one, or an empty text; ddbio wrote the file if so."""
        is_own = COLUMNS_KEY in self._header.meta
        return "" if is_own else unwritable_type(json.loads(self._header.meta["avro.schema"]))

    def schema(self) -> pa.Schema:
        """Return the Arrow schema, with DynamoDB's types if ddbio wrote the file."""
        return self._schema

    def read(self, part: int, _: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the blocks that start in a range, one batch per block."""
        count = len(self.parts().sizes_bytes)
        body_bytes = self._entry.size_bytes - self._header.end
        start, end = (self._header.end + body_bytes * number // count for number in (part, part + 1))
        ranges: Any = RangeFile(self._store, self._entry)
        file = io.BufferedReader(ranges, _BUFFER_BYTES)
        file.seek(self._after_sync(file, start) if part else start)
        while file.tell() < min(end, self._entry.size_bytes):
            yield self._read_block(file)

    def sample(self, rows: int) -> Sample | None:
        """Return the first rows."""
        for batch in self.read(0, BATCH_ROWS):
            if batch.num_rows:
                row_bytes = batch.nbytes / batch.num_rows
                return Sample(batch.slice(0, rows), row_bytes)
        return None

    def _read_header(self) -> _Header:
        for length in (_HEADER_BYTES, _MAX_HEADER_BYTES):
            source = io.BytesIO(self._store.read_range(self._entry, 0, min(self._entry.size_bytes, length)))
            try:
                header = self._avro.schemaless_reader(source, _HEADER_SCHEMA, None)
                break
            except Exception as error:
                if length == _MAX_HEADER_BYTES or self._entry.size_bytes <= length:
                    raise DecodeError(f"it does not begin as a file of Avro does: {error!r}") from error
        if header["magic"] != _MAGIC:
            raise DecodeError("it does not begin as a file of Avro does")
        return _Header(header["meta"], header["sync"], source.tell())

    def _after_sync(self, file: io.BufferedReader, start: int) -> int:
        """Return the offset of the first block that starts at or after ``start``."""
        at = max(self._header.end, start - _SYNC_BYTES)
        file.seek(at)
        buffer = b""
        while chunk := file.read(_BUFFER_BYTES):
            buffer += chunk
            index = buffer.find(self._header.sync)
            if index >= 0:
                return at + index + _SYNC_BYTES
            at += max(0, len(buffer) - _SYNC_BYTES + 1)
            buffer = buffer[-_SYNC_BYTES + 1 :]
        return self._entry.size_bytes

    def _read_block(self, file: io.BufferedReader) -> pa.RecordBatch:
        block_offset = file.tell()
        rows, size = _read_long(file), _read_long(file)
        if not 0 <= rows <= _MAX_BLOCK_ROWS or not 0 <= size <= _MAX_BLOCK_BYTES:
            raise DecodeError(f"the block at byte {block_offset} claims {rows} rows in {size} bytes")
        data = file.read(size)
        if len(data) < size or file.read(_SYNC_BYTES) != self._header.sync:
            raise DecodeError(
                f"the block at byte {block_offset} does not end at its stated size: the file is cut short or damaged"
            )
        try:
            items = _decompress(data, self._codec)
            # Rows may take no bytes in the file, but they take memory.
            check_expansion(len(items), _ROW_BYTES * rows, advice="write fewer rows in a block")
            return self._decode(rows, items)
        except DecodeError as error:
            raise DecodeError(f"the block at byte {block_offset} cannot be read: {error}") from None
        except MemoryError:
            raise
        except Exception as error:
            # The library raises any exception for damaged bytes.
            raise DecodeError(f"the block at byte {block_offset} cannot be read: {error!r}") from error

    def _decode(self, rows: int, items: bytes) -> pa.RecordBatch:
        source = io.BytesIO(b"".join((_long(rows), items, b"\0")) if rows else b"\0")
        records = self._avro.schemaless_reader(source, self._rows_schema, None)
        if source.read(1) or len(records) != rows:
            raise DecodeError(f"its rows do not fill exactly the {len(items)} bytes of the block")
        return from_records(records, self._columns, self._schema)


def _long(value: int) -> bytes:
    """Return a non-negative number in Avro's encoding: zigzag, seven bits per byte."""
    coded, out = value << 1, bytearray()
    while coded > 0x7F:  # noqa: PLR2004 - seven bits
        out.append(coded & 0x7F | 0x80)
        coded >>= 7
    out.append(coded)
    return bytes(out)


def _read_long(file: io.BufferedReader) -> int:
    coded = 0
    for index in range(_LONG_BYTES):
        byte = file.read(1)
        if not byte:
            raise DecodeError("the file ends within a block: it is cut short")
        coded |= (byte[0] & 0x7F) << 7 * index
        if byte[0] < 0x80:  # noqa: PLR2004 - the last byte
            break
    return coded >> 1 ^ -(coded & 1)


def _compress(data: memoryview, codec: str) -> bytes | memoryview:
    if codec == "snappy":
        return pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4, "big")
    if codec == "deflate":
        return isal_zlib.compress(data, _DEFLATE_LEVEL, wbits=_RAW_DEFLATE)
    return data


def _decompress(data: bytes, codec: str) -> bytes:
    if codec == "null":
        return data
    if codec == "zstandard":
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            parts = list[bytes]()
            while part := stream.read(_BUFFER_BYTES):
                parts.append(part)
                check_expansion(len(data), len(parts) * _BUFFER_BYTES, _MAX_BLOCK_BYTES)
            return b"".join(parts)
    if codec == "snappy":
        size = _uint(data)
        check_expansion(len(data), size, _MAX_BLOCK_BYTES)
        text: bytes = pa.Codec("snappy").decompress(data[:-4], size, asbytes=True)
        if zlib.crc32(text).to_bytes(4, "big") != data[-4:]:
            raise DecodeError("its checksum does not match")
        return text
    if codec == "deflate":
        inflated: bytes = isal_zlib.decompressobj(wbits=_RAW_DEFLATE).decompress(data, _MAX_BLOCK_BYTES + 1)
        check_expansion(len(data), len(inflated), _MAX_BLOCK_BYTES)
        return inflated
    raise DecodeError(f"its codec {codec!r} is not supported: write it with null, deflate, snappy or zstandard")


def _uint(data: bytes) -> int:
    """Return the number that a snappy block starts with: the size of the uncompressed data."""
    size = 0
    for index, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:  # noqa: PLR2004 - the last byte
            break
    return size


# The stubs lack attributes of nested and computed arrays.
_Array: TypeAlias = Any

_BYTES = pa.large_binary()
# The branches of a union by Avro's numbers, and the empty block that ends an array or a map.


def _constant(value: bytes) -> Any:
    # pa.scalar imports pandas.
    buffers = [None, pa.py_buffer(np.array([0, len(value)], np.int64).tobytes()), pa.py_buffer(value)]
    return pa.Array.from_buffers(_BYTES, 1, buffers)[0]


_NULL, _VALUE, _END, _NOTHING = map(_constant, (b"\x00", b"\x02", b"\x00", b""))


def encode_rows(batch: pa.RecordBatch) -> tuple[_Numbers, memoryview]:
    """Return the offsets of the rows, with the end of the last one, in the bytes of all rows; and these bytes.

    Parameters
    ----------
    batch
        Columns of the types that :func:`ddbio.formats.avro_schema.avro_names` returns.
    """
    rows = _members(batch.columns, batch.num_rows)
    _, offsets, data = rows.buffers()
    row_offsets = np.frombuffer(offsets, np.int64)[rows.offset : rows.offset + len(rows) + 1]
    return row_offsets, memoryview(b"" if data is None else data)


def _members(columns: Sequence[_Array], count: int) -> _Array:
    """Return the encoded records, by the values of their fields."""
    if not columns:
        return pa.repeat(_NOTHING, count)
    return _join(*(_union(column) for column in columns))


def _union(values: _Array) -> _Array:
    encoded = _join(_VALUE, _encode_values(values))
    return pc.if_else(values.is_valid(), encoded, _NULL) if values.null_count else encoded


def _encode_values(values: _Array) -> _Array:  # noqa: PLR0911 - one line a type
    """Return the encoded values; null values get any bytes."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _members(values.flatten(), len(values))
    if pa.types.is_map(kind):
        keys, items = _entries(values)
        return _items(values, _join(_encode_values(keys), _union(items)))
    if is_list(kind):
        return _items(values, _union(values.flatten()))
    if is_decimal(kind):
        return _with_length(_decimals(values))
    if pa.types.is_boolean(kind):
        return _fixed(np.asarray(values.cast(pa.uint8()).fill_null(0)))
    if pa.types.is_floating(kind):
        return _fixed(np.asarray(values.fill_null(0.0)))
    if pa.types.is_integer(kind) or is_time_column(kind):
        numbers = values.cast(pa.int32()) if pa.types.is_date32(kind) else values
        return _longs(np.asarray(numbers.cast(pa.int64()).fill_null(0)))
    return _with_length(values.cast(_BYTES).fill_null(b""))


def _entries(maps: _Array) -> tuple[_Array, _Array]:
    """Return the keys and the values of all maps that are not null."""
    offsets = np.asarray(maps.offsets)
    keys, items = (array[offsets[0] : offsets[-1]] for array in (maps.keys, maps.items))
    is_valid = np.repeat(np.asarray(maps.is_valid()), np.diff(offsets))
    return (keys, items) if is_valid.all() else (keys.filter(is_valid), items.filter(is_valid))


def _items(values: _Array, encoded: _Array) -> _Array:
    """Return the encoded arrays or maps, by the encoded items of those that are not null: one block per value."""
    counts = np.where(np.asarray(values.is_valid()), np.diff(np.asarray(values.offsets)), 0)
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int64())
    lists: Any = pa.LargeListArray
    joined = pc.binary_join(lists.from_arrays(offsets, encoded), _NOTHING)
    blocks = _join(_longs(counts), joined, _END)
    return pc.if_else(pa.array(counts > 0), blocks, _END)


def _with_length(values: _Array) -> _Array:
    return _join(_longs(np.asarray(pc.binary_length(values))), values)


def _decimals(values: _Array) -> _Array:
    """Return decimals as two's complements, in big-endian order and without needless bytes."""
    width = values.type.byte_width
    if values.buffers()[1] is None:
        return pa.repeat(_NOTHING, len(values))
    data = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * width :][: len(values) * width]
    cells = data.reshape(len(values), width)[:, ::-1]
    is_negative = cells[:, :1] >> 7
    # A leading byte is needless if it only repeats the sign bit of the next byte.
    needless = (cells[:, :-1] == is_negative * 0xFF) & (cells[:, 1:] >> 7 == is_negative)
    is_used = np.ones(cells.shape, bool)
    is_used[:, :-1] = ~np.logical_and.accumulate(needless, axis=1)
    return _used_bytes(cells, is_used)


def _longs(values: _Numbers) -> _Array:
    """Return integers in zigzag encoding, seven bits per byte."""
    signed = values.astype(np.int64, copy=False)
    zigzag = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    width = max(1, -(-int(zigzag.max(initial=0)).bit_length() // 7))
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    cells = zigzag[:, None] >> shifts
    is_used = cells > 0
    is_used[:, 0] = True
    more = np.zeros(cells.shape, np.uint8)
    more[:, :-1] = is_used[:, 1:] * np.uint8(0x80)
    return _used_bytes((cells & np.uint64(0x7F)).astype(np.uint8) | more, is_used)


def _used_bytes(cells: _Numbers, is_used: _Numbers) -> _Array:
    """Return the used bytes of each row."""
    offsets = np.concatenate(([0], np.cumsum(is_used.sum(axis=1, dtype=np.int64))))
    return _binary(offsets, cells[is_used])


def _fixed(values: _Numbers) -> _Array:
    offsets = np.arange(len(values) + 1, dtype=np.int64) * values.itemsize
    return _binary(offsets, np.ascontiguousarray(values))


def _binary(offsets: Any, data: Any) -> _Array:
    return pa.Array.from_buffers(_BYTES, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _join(*parts: _Array) -> _Array:
    return pc.binary_join_element_wise(*parts, _NOTHING)


AVRO = FileFormat(
    name="avro",
    endings=(".avro",),
    open_reader=AvroReader,
    is_splittable=True,
    keeps_types=True,
    require=_fastavro,
    open_writer=AvroFileWriter,
    extensions={"zstd": "zstd.avro", "snappy": "snappy.avro", "gzip": "deflate.avro", "none": "avro"},
    self_checking=frozenset({"zstd", "snappy"}),
    magic=_MAGIC,
    unwritable_type=lambda store, entry: AvroReader(store, entry, ReadOptions()).unwritable_type(),
)
