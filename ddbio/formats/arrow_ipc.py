"""Reader of Arrow IPC and Feather files, which are read as one part, compressed or not.

Arrow verifies the metadata of each message, but trusts the sizes in it. So the inflated sizes that buffers claim are
checked before Arrow reads them.

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
from ddbio.formats.decompress import decompress
from ddbio.formats.file_format import BATCH_ROWS, FileFormat, FileReader, Parts, ReadOptions, Sample
from ddbio.items.arrow_input import checked_batches
from ddbio.items.expansion import check_expansion
from ddbio.storage.object_store import RangeFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject


MAGIC = b"ARROW1"

# Kinds of messages, and field numbers in their tables.
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
        A buffer inflates further, or the file is damaged.
    pyarrow.ArrowInvalid
        It is not an Arrow file.
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
    for field in _FOOTER_LISTS:
        for offset, _, _ in _structs(footer, _member(footer, _root(footer), field), "<qi4xq"):
            if not 0 <= offset <= len(data):
                raise DecodeError("its footer is damaged")
            yield pa.ipc.read_message(source.slice(offset))


def _check(metadata: bytes, body: pa.Buffer | None) -> None:
    message = _root(metadata)
    kind, header = (_member(metadata, message, field) for field in (_KIND, _HEADER))
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


def _indirect(data: bytes, position: int) -> int:
    (offset,) = struct.unpack_from("<I", data, position)
    return position + int(offset)


def _member(data: bytes, table: int, field: int) -> int:
    """Return the position of a field of a table; 0 if the table lacks it."""
    (back,) = struct.unpack_from("<i", data, table)
    entry = 4 + 2 * field
    (size,) = struct.unpack_from("<H", data, table - back)
    if entry >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, table - back + entry)
    return table + int(offset) if offset else 0


def _structs(data: bytes, member: int, layout: str) -> Iterator[tuple[int, ...]]:
    """Yield the structs of a vector; nothing if the table lacks it."""
    if member:
        vector = _indirect(data, member)
        (count,) = struct.unpack_from("<I", data, vector)
        for number in range(count):
            yield struct.unpack_from(layout, data, vector + 4 + number * struct.calcsize(layout))


class ArrowReader(FileReader):
    """Reader of one file as one part."""

    def __init__(self, store: ObjectStore, entry: StoredObject, _: ReadOptions) -> None:
        self._store, self._entry = store, entry

    def parts(self) -> Parts:
        """Return the file as one part with an unknown number of rows."""
        return Parts((self._entry.size_bytes,), None)

    def schema(self) -> pa.Schema:
        """Return the Arrow schema: from the footer, or from the first batch of a file without one."""
        if self._store.read_range(self._entry, 0, len(MAGIC)) == MAGIC:
            with pa.PythonFile(RangeFile(self._store, self._entry), "r") as file:
                return pa.ipc.open_file(file).schema
        return next((batch.schema for batch in self.read(0, BATCH_ROWS)), pa.schema([]))

    def read(self, _: int, __: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the file."""
        data = decompress(self._store.read(self._entry.path), self._entry.path)
        check_messages(data)
        source = pa.BufferReader(data)
        if not data.startswith(MAGIC):
            yield from checked_batches(pa.ipc.open_stream(source))
            return
        file = pa.ipc.open_file(source)
        yield from checked_batches(file.get_batch(number) for number in range(file.num_record_batches))

    def sample(self, rows: int) -> Sample | None:
        """Return the first rows."""
        return next((Sample(batch.slice(0, rows), None) for batch in self.read(0, BATCH_ROWS)), None)


# DynamoDB's types are in the metadata of the fields, if the file has them.
ARROW = FileFormat(
    name="arrow",
    endings=(".arrow", ".feather", ".ipc"),
    open_reader=ArrowReader,
    keeps_types=True,
    magic=MAGIC + b"\0\0",
)
