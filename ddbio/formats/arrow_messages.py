"""Check what the buffers of an Arrow file or stream claim to inflate to, before Arrow takes that much memory.

Arrow verifies the metadata of a message when it is read, but takes the sizes in it as they are.

References
----------
https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
https://github.com/apache/arrow/blob/main/format/Message.fbs, File.fbs; https://flatbuffers.dev/internals
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.items.expansion import check_expansion

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"ARROW1"

# Kinds of messages, and places of members in their tables.
_DICTIONARY, _BATCH = 2, 3
_KIND, _HEADER = 1, 2
_DICTIONARY_BATCH, _BUFFERS, _COMPRESSION = 1, 2, 3
_FOOTER_LISTS = 2, 3
_PLAIN = -1


def check_messages(data: bytes) -> None:
    """Check that no compressed buffer inflates beyond ``check_expansion``.

    Raises
    ------
    DecodeError
        One does, or the file is damaged.
    pyarrow.ArrowInvalid
        It is no file of Arrow.
    """
    read_bytes = 0
    try:
        for message in _messages(data):
            metadata, body = message.metadata.to_pybytes(), message.body
            read_bytes += len(metadata) + (body.size if body is not None else 0)
            if read_bytes > len(data):
                raise DecodeError("its footer is damaged: it names a batch twice")
            _check(metadata, body)
    except struct.error as error:
        raise DecodeError(f"its metadata is damaged: {error}") from None


def _messages(data: bytes) -> Iterator[pa.Message]:
    source = pa.py_buffer(data)
    if not data.startswith(MAGIC):
        yield from pa.ipc.MessageReader.open_stream(source)
        return
    end = len(data) - len(MAGIC)
    (size,) = struct.unpack_from("<i", data, end - 4)
    if not 0 < size <= end - 4:
        raise DecodeError("its footer is damaged")
    footer = data[end - 4 - size : end - 4]
    for place in _FOOTER_LISTS:
        for offset, _, _ in _structs(footer, _member(footer, _root(footer), place), "<qi4xq"):
            if not 0 <= offset <= len(data):
                raise DecodeError("its footer is damaged")
            yield pa.ipc.read_message(source.slice(offset))


def _check(metadata: bytes, body: pa.Buffer | None) -> None:
    message = _root(metadata)
    kind, header = (_member(metadata, message, place) for place in (_KIND, _HEADER))
    if body is None or not kind or metadata[kind] not in {_DICTIONARY, _BATCH}:
        return
    batch = _indirect(metadata, header)
    if metadata[kind] == _DICTIONARY:
        batch = _indirect(metadata, _member(metadata, batch, _DICTIONARY_BATCH))
    if not _member(metadata, batch, _COMPRESSION):
        return
    total = 0
    for offset, length in _structs(metadata, _member(metadata, batch, _BUFFERS), "<qq"):
        if length:
            (inflated,) = struct.unpack_from("<q", body, offset)
            total += length if inflated == _PLAIN else max(0, inflated)
    check_expansion(body.size, total, advice="write it without compression")


def _root(data: bytes) -> int:
    return _indirect(data, 0)


def _indirect(data: bytes, place: int) -> int:
    (offset,) = struct.unpack_from("<I", data, place)
    return place + int(offset)


def _member(data: bytes, table: int, place: int) -> int:
    """Return where a member of a table is; 0 if the table lacks it."""
    (back,) = struct.unpack_from("<i", data, table)
    entry = 4 + 2 * place
    (size,) = struct.unpack_from("<H", data, table - back)
    if entry >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, table - back + entry)
    return table + int(offset) if offset else 0


def _structs(data: bytes, member: int, form: str) -> Iterator[tuple[int, ...]]:
    """Yield the structs of a list; none if the table lacks it."""
    if member:
        vector = _indirect(data, member)
        (count,) = struct.unpack_from("<I", data, vector)
        for number in range(count):
            yield struct.unpack_from(form, data, vector + 4 + number * struct.calcsize(form))
