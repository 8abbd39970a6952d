"""Read the types of an ORC file's columns from its footer: Arrow tells ``char`` and ``varchar`` as strings.

References
----------
https://orc.apache.org/specification/ORCv1/
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.items.expansion import MOST_WHOLE_BYTES, check_expansion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

# https://github.com/apache/orc-format/blob/main/src/main/proto/orc/proto/orc_proto.proto
_UNWRITABLE = {13: "uniontype", 16: "varchar", 17: "char", 19: "geometry", 20: "geography"}
_TAIL_BYTES = 16 * 1024
_HEADER_BYTES = 3
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_BYTES = 1, 2, 3
_TYPES, _KIND = 4, 1
# The length of a block has 23 bits; a writer that names none has this.
_MOST_BLOCK_BYTES, _USUAL_BLOCK_BYTES = 1 << 23, 256 * 1024
_MOST_BITS = 63
_NONE, _ZLIB, _SNAPPY, _LZ4, _ZSTD = 0, 1, 2, 4, 5


def unwritable_type(store: ObjectStore, entry: StoredObject) -> str:
    """Return a type of a column that Arrow would write as another, or nothing; also if the footer cannot be read.

    Raises
    ------
    NotFoundError
        If the file is gone.
    """
    tail = _tail(store, entry, _TAIL_BYTES)
    try:
        end = len(tail) - 1 - tail[-1]
        told = dict(_fields(tail[end:-1]))
        length = told[_FOOTER_LENGTH]
        if length > end:
            tail = _tail(store, entry, length + len(tail) - end)
            end = length
        block_bytes = min(told.get(_BLOCK_BYTES) or _USUAL_BLOCK_BYTES, _MOST_BLOCK_BYTES)
        footer = _decompressed(tail[end - length : end], told.get(_COMPRESSION, 0), block_bytes)
        kinds = {dict(_fields(value)).get(_KIND, 0) for field, value in _fields(footer) if field == _TYPES}
    except (IndexError, KeyError, TypeError, ValueError, zlib.error, pa.ArrowException, OSError, DecodeError):
        # Whoever reads its rows says what is wrong with it.
        return ""
    return ", ".join(name for kind, name in _UNWRITABLE.items() if kind in kinds)


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
        if wire == 2:  # noqa: PLR2004 - of so many bytes
            length, at = _number(data, at)
        else:
            length = {1: 8, 5: 4}[wire]
        yield key >> 3, data[at : at + length]
        at += length


def _number(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last byte
            return found, at
        shift += 7
        if shift > _MOST_BITS:
            raise ValueError(shift)


def _decompressed(data: bytes, codec: int, block_bytes: int) -> bytes:
    if codec == _NONE:
        return data
    found, at = bytearray(), 0
    while at < len(data):
        header = int.from_bytes(data[at : at + _HEADER_BYTES], "little")
        at += _HEADER_BYTES
        chunk = data[at : at + (header >> 1)]
        at += header >> 1
        found += chunk if header & 1 else _inflated(chunk, codec, block_bytes)
        check_expansion(len(data), len(found), MOST_WHOLE_BYTES)
    return bytes(found)


def _inflated(chunk: bytes, codec: int, block_bytes: int) -> bytes:
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
