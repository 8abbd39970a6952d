"""Decompression of gzip, zstd and bzip2: complete files, their heads, and streams of blocks that end at a line end.

The stream takes bounded memory and computes the MD5 of the stored bytes. It refuses files that end early, and
decompression bombs: more text than any item could have been compressed from.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import re
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from isal import igzip, isal_zlib

from ddbio.errors import DdbioError, DecodeError
from ddbio.items.expansion import FREE_BYTES, MAX_UNSPLIT_BYTES, check_expansion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Literal, TypeAlias

    from typing_extensions import Buffer

    _Codec: TypeAlias = Literal["gzip", "zstd", "bz2"]

BLOCK_BYTES = 4 * 1024 * 1024
"""Maximum size of a block, unless one line is longer."""

MAX_LINE_BYTES = 32 * 1024 * 1024
"""The largest item, a list of the longest numbers, is a line of 18.4 MB; a change has two images of an item."""

MAX_CHANGE_BYTES = 2 * MAX_LINE_BYTES

_GZIP_BITS = zlib.MAX_WBITS | 16
_READ_BYTES = 256 * 1024
_HEAD_BLOCK_BYTES = 64 * 1024
_STREAM_BLOCK_BYTES = 1024 * 1024


# Plain text may start with the same bytes as bzip2 up to its level, a digit.
_MAGIC = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<zstd>\x28\xb5\x2f\xfd)|(?P<bz2>BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90))"
)


def decompress(data: bytes, uri: str) -> bytes:
    """Return the bytes of a file, decompressed if it is gzip, zstd or bzip2.

    Raises
    ------
    DecodeError
        If the bytes are cut short or damaged, or inflate beyond ``check_expansion``.
    """
    codec = _codec_of(data)
    if codec is None:
        return data
    if codec == "gzip" and (text := _only_member(data)) is not None:
        return text
    blocks, text_bytes = list[bytes](), 0
    for block in _inflate([data], uri, codec):
        blocks.append(block)
        text_bytes += len(block)
        if text_bytes > MAX_UNSPLIT_BYTES:
            raise _refusal(uri, f"inflates to more than {MAX_UNSPLIT_BYTES:,} bytes in one step: decompress it before")
    return b"".join(blocks)


def _only_member(data: bytes) -> bytes | None:
    """Return the text of a small gzip file of one member; None for other files."""
    inflater = isal_zlib.decompressobj(wbits=_GZIP_BITS)
    try:
        text = inflater.decompress(data, FREE_BYTES)
    except isal_zlib.error:  # type: ignore[misc] # its stub has no base
        return None
    return text if inflater.eof and not inflater.unused_data else None


def is_compressed(head: bytes) -> bool:
    """Return whether a file with this head is gzip, zstd or bzip2."""
    return _codec_of(head) is not None


def _codec_of(head: bytes) -> _Codec | None:
    """Return Arrow's name of the codec of a file with this head; None if it is not compressed."""
    match = _MAGIC.match(head)
    return None if match is None else cast("_Codec", match.lastgroup)


def decompress_head(head: bytes, most_bytes: int) -> tuple[bytes, int]:
    """Return at least ``most_bytes`` of text from the start of a file, if any, and the number of stored bytes."""
    codec = _codec_of(head)
    if codec == "gzip":
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)
        text = inflater.decompress(head, most_bytes)
        return text, len(head) - len(inflater.unconsumed_tail)
    if codec is None:
        return head, len(head)
    source, blocks, read_bytes = pa.BufferReader(head), list[bytes](), 0
    # A truncated stream raises an error, after the readable bytes were returned.
    with pa.CompressedInputStream(source, codec) as stream, suppress(OSError):
        while len(blocks) * _HEAD_BLOCK_BYTES < most_bytes and (block := stream.read(_HEAD_BLOCK_BYTES)):
            blocks.append(block)
            read_bytes = source.tell()
    return b"".join(blocks), read_bytes


def line_blocks(
    chunks: Iterable[bytes], uri: str, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[bytes | memoryview]:
    """Yield the text of a file, decompressed if it is gzip, zstd or bzip2, in blocks that end at a line end.

    Parameters
    ----------
    chunks, uri, max_line_bytes
        As of ``GzipReader``, whose blocks are valid until the next one is read.

    Raises
    ------
    DecodeError
        If a compressed file is incomplete or inflates beyond ``check_expansion``, or if a line is too long.
    """
    chunks = iter(chunks)
    first = next(chunks, b"")
    codec = _codec_of(first)
    if codec == "gzip":
        yield from GzipReader(itertools.chain([first], chunks), uri, max_line_bytes)
        return
    all_chunks = itertools.chain([first], chunks)
    pending, held_bytes = list[bytes](), 0
    for chunk in all_chunks if codec is None else _inflate(all_chunks, uri, codec):
        pending.append(chunk)
        held_bytes += len(chunk)
        end = chunk.rfind(b"\n") + 1 if held_bytes >= BLOCK_BYTES else 0
        if not end and held_bytes > max(BLOCK_BYTES, max_line_bytes):
            raise _refusal(uri, f"has a line of more than {max_line_bytes} bytes")
        if end:
            pending[-1] = chunk[:end]
            yield b"".join(pending)
            pending, held_bytes = [chunk[end:]], len(chunk) - end
    if held_bytes:
        yield b"".join(pending)


def _inflate(chunks: Iterable[bytes], uri: str, codec: _Codec) -> Iterator[bytes]:
    stored: Any = _StoredBytes(chunks)
    text_bytes = 0
    try:
        with _open(stored, codec) as stream:
            while block := stream.read(_STREAM_BLOCK_BYTES):
                text_bytes += len(block)
                _check_ratio(stored.size_bytes, text_bytes, uri)
                yield block
    except (OSError, EOFError, isal_zlib.error) as error:  # type: ignore[misc] # its stub has no base
        if isinstance(error, DdbioError):
            raise
        raise DecodeError(f"{uri} is not a whole {codec} file: {error}", uri=uri) from error


def _open(stored: Any, codec: _Codec) -> Any:
    if codec == "gzip":
        return igzip.IGzipFile(fileobj=stored, mode="rb")  # type: ignore[no-untyped-call] # its stub has no types
    return pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), codec)


def _check_ratio(stored_bytes: int, text_bytes: int, uri: str) -> None:
    try:
        check_expansion(stored_bytes, text_bytes)
    except DecodeError as error:
        raise DecodeError(f"{uri}: {error}", uri=uri) from None


def _refusal(uri: str, what: str) -> DecodeError:
    return DecodeError(f"{uri} {what}", uri=uri)


class GzipReader:
    """Iterator over the text of a gzip file in blocks that end at a line end.

    All blocks are views of one buffer: new memory for each block would cost a third as much as decompressing it.

    Parameters
    ----------
    chunks
        The file's bytes, in order.
    uri
        The file, for messages.
    max_line_bytes
        Longer lines are refused.

    Attributes
    ----------
    text_bytes
        Number of bytes decompressed until now.
    """

    def __init__(self, chunks: Iterable[bytes], uri: str, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._stored = _StoredBytes(chunks)
        self._uri = uri
        self._max_line_bytes = max_line_bytes
        self.text_bytes = 0

    @property
    def raw_bytes(self) -> int:
        """Return the number of stored bytes read until now."""
        return self._stored.size_bytes

    def __iter__(self) -> Iterator[memoryview]:
        """Yield the blocks, each valid until the next one is read; the last one may lack its line end.

        Raises
        ------
        DecodeError
            If the bytes are not a complete gzip file, or inflate beyond ``check_expansion``.
        """
        # igzip.open reads from it. No other interface inflates into existing memory.
        stored: Any = self._stored
        reader = isal_zlib._GzipReader(stored, _READ_BYTES)  # noqa: SLF001
        buffer, pending_bytes = bytearray(BLOCK_BYTES), 0
        while (pending_bytes := self._fill(reader, buffer, pending_bytes)) == len(buffer):
            end = buffer.rfind(b"\n") + 1
            if end:
                yield memoryview(buffer)[:end]
                pending_bytes -= end
                buffer[:pending_bytes] = buffer[end:]
            elif pending_bytes > self._max_line_bytes:
                raise _refusal(self._uri, f"has a line of more than {self._max_line_bytes} bytes")
            else:
                # A new buffer: the previous block still refers to the old one.
                buffer = buffer + bytes(pending_bytes)
        if pending_bytes:
            yield memoryview(buffer)[:pending_bytes]

    def md5(self) -> bytes:
        """Return the MD5 of the stored file, after reading the remaining bytes."""
        return self._stored.md5()

    def _fill(self, reader: isal_zlib._GzipReader, buffer: bytearray, pending_bytes: int) -> int:
        """Return the number of bytes in the buffer: all of it, unless the file has ended."""
        free = memoryview(buffer)[pending_bytes:]
        while free:
            try:
                inflated = reader.readinto(free)
            except EOFError:
                raise _refusal(self._uri, "ends early") from None
            except (gzip.BadGzipFile, isal_zlib.error) as error:  # type: ignore[misc] # its stub has no base
                raise _refusal(self._uri, f"is not a gzip file ({error})") from None
            if not inflated:
                break
            free = free[inflated:]
            self.text_bytes += inflated
            _check_ratio(self.raw_bytes, self.text_bytes, self._uri)
        if not self.raw_bytes:
            raise _refusal(self._uri, "ends early")
        return len(buffer) - len(free)


class _StoredBytes(io.RawIOBase):
    """The chunks of a file as one stream, which counts the bytes and computes their MD5."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._unread = memoryview(b"")
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.size_bytes = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill the buffer from the current chunk; return the number of bytes read."""
        while not self._unread and self._next_chunk():
            pass
        view = memoryview(buffer)
        count = min(len(view), len(self._unread))
        view[:count] = self._unread[:count]
        self._unread = self._unread[count:]
        return count

    def md5(self) -> bytes:
        """Return the MD5 of all bytes, after reading the remaining ones."""
        while self._next_chunk():
            pass
        return self._md5.digest()

    def _next_chunk(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._md5.update(chunk)
        self.size_bytes += len(chunk)
        self._unread = memoryview(chunk)
        return True
