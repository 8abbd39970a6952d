"""Decompression of Firehose's text: gzip, ZIP and all framings of Snappy. Formats without changes are refused."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.formats.decompress import decompress, decompress_head, is_compressed
from ddbio.items.expansion import MAX_UNSPLIT_BYTES, check_expansion

if TYPE_CHECKING:
    from collections.abc import Iterator

# Firehose's ``Snappy`` is the stream of snappy-java, its ``HADOOP_SNAPPY`` the blocks of Hadoop; both end with .snappy.
_SNAPPY_JAVA, _SNAPPY_JAVA_HEAD_BYTES = b"\x82SNAPPY\x00", 16
_SNAPPY_FRAMED, _FRAME_COMPRESSED, _FRAME_PLAIN, _FRAME_CHECKSUM_BYTES = b"\xff\x06\x00\x00sNaPpY", 0x00, 0x01, 4
_FRAME_SKIPPABLE = 0x80
_ZIP = b"PK\x03\x04"
# A block of Hadoop starts with its length: no text starts with this byte.
_HADOOP = b"\x00"
_OTHERS = {
    b"Obj\x01": "Avro",
    b"ARROW1": "an Arrow file",
    b"\xfd7zXZ": "xz",
    b"\x04\x22\x4d\x18": "LZ4",
    b"%PDF": "PDF",
}
_CSV = (".csv", ".tsv")
# A copy of 64 bytes takes three bytes.
_SNAPPY_RATIO, _SNAPPY_SLACK = 32, 64
_INT_BYTES, _VARINT_BYTES = 4, 5


def delivered_text(data: bytes, uri: str) -> bytes:
    """Return the text of an object, decompressed.

    Raises
    ------
    DecodeError
        If the object is cut short or damaged, or if Firehose does not deliver changes in its format, which the message
        names.
    """
    text = _check_format(decompress(data, uri), uri)
    if not _needs_complete_object(text):
        return text
    kind = "ZIP" if text.startswith(_ZIP) else "Snappy"
    try:
        return _unzip(text) if kind == "ZIP" else _join(_snappy_blocks(text), len(text))
    except (
        OSError,
        ValueError,
        IndexError,
        RuntimeError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DecodeError(f"{uri} is not a whole {kind} file: {error}", uri=uri) from error


def delivered_head(head: bytes, uri: str, most_bytes: int) -> bytes | None:
    """Return text from the start of an object; None if only the complete object can be decompressed.

    Raises
    ------
    DecodeError
        If Firehose does not deliver changes in the object's format.
    """
    if not is_compressed(head) and _needs_complete_object(head):
        return None
    text = decompress_head(head, most_bytes)[0]
    # A block of bzip2 may be longer than the head.
    return _check_format(text, uri) if text or not head else None


def _check_format(text: bytes, uri: str) -> bytes:
    format_name = next((name for magic, name in _OTHERS.items() if text.startswith(magic)), None)
    if uri.removesuffix(".gz").endswith(_CSV) and text.lstrip()[:1] != b"{":
        format_name = "CSV"
    if format_name is not None:
        raise DecodeError(
            f"{uri} is {format_name}: changes are read from JSON (plain, gzip, ZIP, Snappy), Parquet and ORC", uri=uri
        )
    return text


def _needs_complete_object(data: bytes) -> bool:
    return data.startswith((_SNAPPY_JAVA, _SNAPPY_FRAMED, _ZIP, _HADOOP))


def _unzip(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        check_expansion(len(data), sum(entry.file_size for entry in entries), MAX_UNSPLIT_BYTES)
        return b"".join(archive.read(entry) for entry in entries)


def _join(blocks: Iterator[bytes], stored_bytes: int) -> bytes:
    texts, text_bytes = list[bytes](), 0
    for block in blocks:
        texts.append(block)
        text_bytes += len(block)
        check_expansion(stored_bytes, text_bytes, MAX_UNSPLIT_BYTES)
    return b"".join(texts)


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    """Yield the blocks of a stream in any of the three framings."""
    if data.startswith(_SNAPPY_FRAMED):
        yield from _framed_blocks(data)
        return
    is_java = data.startswith(_SNAPPY_JAVA)
    offset = _SNAPPY_JAVA_HEAD_BYTES if is_java else 0
    while offset < len(data):
        # Hadoop writes the length of a block before its parts, and the length of each part before the part.
        remaining = 1
        if not is_java:
            remaining, offset = _integer(data, offset), offset + _INT_BYTES
        while remaining > 0:
            size = _integer(data, offset)
            offset += _INT_BYTES
            block = _decompress_block(_part(data, offset, size))
            yield block
            offset += size
            remaining -= remaining if is_java else max(1, len(block))


def _framed_blocks(data: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < len(data):
        kind, size = data[offset], int.from_bytes(_part(data, offset + 1, _INT_BYTES - 1), "little")
        chunk = _part(data, offset + _INT_BYTES, size)
        offset += _INT_BYTES + size
        if kind == _FRAME_COMPRESSED:
            yield _decompress_block(chunk[_FRAME_CHECKSUM_BYTES:])
        elif kind == _FRAME_PLAIN:
            yield chunk[_FRAME_CHECKSUM_BYTES:]
        elif kind < _FRAME_SKIPPABLE:
            raise ValueError(f"a chunk has the unknown type {kind}")


def _integer(data: bytes, offset: int) -> int:
    return int.from_bytes(_part(data, offset, _INT_BYTES), "big")


def _part(data: bytes, offset: int, size: int) -> bytes:
    part = data[offset : offset + size]
    if len(part) != size:
        raise ValueError("it ends early")
    return part


def _decompress_block(block: bytes) -> bytes:
    """Decompress one block, which starts with the length of its text."""
    size = 0
    for index, byte in enumerate(block[:_VARINT_BYTES]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a number
            break
    if size > _SNAPPY_RATIO * len(block) + _SNAPPY_SLACK:
        raise ValueError(f"a block of {len(block)} bytes claims a text of {size}")
    text: Any = pa.Codec("snappy").decompress(block, decompressed_size=size, asbytes=True)
    return bytes(text)
