"""Decompress text as Firehose writes it: gzip, ZIP, and both forms of Snappy; name the formats that hold no changes."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.formats.decompress import decompress, decompress_head, is_compressed
from ddbio.items.expansion import MOST_WHOLE_BYTES, check_expansion

if TYPE_CHECKING:
    from collections.abc import Iterator

# Its ``Snappy`` is the stream of snappy-java, its ``HADOOP_SNAPPY`` the blocks of Hadoop; both end with .snappy.
_SNAPPY_JAVA, _SNAPPY_JAVA_HEAD_BYTES = b"\x82SNAPPY\x00", 16
_SNAPPY_FRAMED, _FRAME_COMPRESSED, _FRAME_PLAIN, _FRAME_CHECKSUM_BYTES = b"\xff\x06\x00\x00sNaPpY", 0x00, 0x01, 4
_FRAME_SKIPPABLE = 0x80
_ZIP = b"PK\x03\x04"
# A block of Hadoop begins with its length: no text begins with this byte.
_HADOOP = b"\x00"
_OTHERS = {
    b"Obj\x01": "Avro",
    b"ARROW1": "an Arrow file",
    b"\xfd7zXZ": "xz",
    b"\x04\x22\x4d\x18": "LZ4",
    b"%PDF": "PDF",
}
_CSV = (".csv", ".tsv")
# A copy of 64 bytes takes three.
_SNAPPY_RATIO, _SNAPPY_SLACK = 32, 64
_INT_BYTES, _VARINT_BYTES = 4, 5


def delivered_text(data: bytes, place: str) -> bytes:
    """Return the text of an object, decompressed.

    Raises
    ------
    DecodeError
        If it is cut short or damaged, or of a format that Firehose does not deliver changes in; the message names it.
    """
    text = _checked(decompress(data, place), place)
    if not _needs_all(text):
        return text
    kind = "ZIP" if text.startswith(_ZIP) else "Snappy"
    try:
        return _unzipped(text) if kind == "ZIP" else _joined(_snappy(text), len(text))
    except (
        OSError,
        ValueError,
        IndexError,
        RuntimeError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DecodeError(f"{place} is not a whole {kind} file: {error}", uri=place) from error


def delivered_head(head: bytes, place: str, most_bytes: int) -> bytes | None:
    """Return the text that an object begins with; None if only the whole object can be decompressed.

    Raises
    ------
    DecodeError
        If it is of a format that Firehose does not deliver changes in.
    """
    if not is_compressed(head) and _needs_all(head):
        return None
    text = decompress_head(head, most_bytes)[0]
    # A block of bzip2 may be longer than the head.
    return _checked(text, place) if text or not head else None


def _checked(text: bytes, place: str) -> bytes:
    found = next((name for magic, name in _OTHERS.items() if text.startswith(magic)), None)
    if place.removesuffix(".gz").endswith(_CSV) and text.lstrip()[:1] != b"{":
        found = "CSV"
    if found is not None:
        raise DecodeError(
            f"{place} is {found}: changes are read from JSON (plain, gzip, ZIP, Snappy), Parquet and ORC", uri=place
        )
    return text


def _needs_all(data: bytes) -> bool:
    return data.startswith((_SNAPPY_JAVA, _SNAPPY_FRAMED, _ZIP, _HADOOP))


def _unzipped(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [each for each in archive.infolist() if not each.is_dir()]
        check_expansion(len(data), sum(each.file_size for each in entries), MOST_WHOLE_BYTES)
        return b"".join(archive.read(each) for each in entries)


def _joined(blocks: Iterator[bytes], stored_bytes: int) -> bytes:
    held, held_bytes = list[bytes](), 0
    for block in blocks:
        held.append(block)
        held_bytes += len(block)
        check_expansion(stored_bytes, held_bytes, MOST_WHOLE_BYTES)
    return b"".join(held)


def _snappy(data: bytes) -> Iterator[bytes]:
    """Yield the blocks of a stream of any of the three framings."""
    if data.startswith(_SNAPPY_FRAMED):
        yield from _framed(data)
        return
    is_java = data.startswith(_SNAPPY_JAVA)
    place = _SNAPPY_JAVA_HEAD_BYTES if is_java else 0
    while place < len(data):
        # Hadoop writes the length of a block, which may have several parts, before that of each part.
        left = 1
        if not is_java:
            left, place = _integer(data, place), place + _INT_BYTES
        while left > 0:
            size = _integer(data, place)
            place += _INT_BYTES
            block = _raw(_part(data, place, size))
            yield block
            place += size
            left -= left if is_java else max(1, len(block))


def _framed(data: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        kind, size = data[place], int.from_bytes(_part(data, place + 1, _INT_BYTES - 1), "little")
        chunk = _part(data, place + _INT_BYTES, size)
        place += _INT_BYTES + size
        if kind == _FRAME_COMPRESSED:
            yield _raw(chunk[_FRAME_CHECKSUM_BYTES:])
        elif kind == _FRAME_PLAIN:
            yield chunk[_FRAME_CHECKSUM_BYTES:]
        elif kind < _FRAME_SKIPPABLE:
            raise ValueError(f"a chunk has the unknown type {kind}")


def _integer(data: bytes, place: int) -> int:
    return int.from_bytes(_part(data, place, _INT_BYTES), "big")


def _part(data: bytes, place: int, size: int) -> bytes:
    found = data[place : place + size]
    if len(found) != size:
        raise ValueError("it ends early")
    return found


def _raw(block: bytes) -> bytes:
    """Decompress one block, which begins with the length of its text."""
    size = 0
    for place, byte in enumerate(block[:_VARINT_BYTES]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a number
            break
    if size > _SNAPPY_RATIO * len(block) + _SNAPPY_SLACK:
        raise ValueError(f"a block of {len(block)} bytes claims a text of {size}")
    found: Any = pa.Codec("snappy").decompress(block, decompressed_size=size, asbytes=True)
    return bytes(found)
