"""Decompress gzip, zstd and bzip2: whole files, their heads, and as a stream of blocks that end where a line ends.

The stream takes bounded memory and the MD5 of the bytes as stored. It refuses files that end early, and bombs: more
text than any item could have been compressed from.
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
from ddbio.items.expansion import FREE_BYTES, MOST_WHOLE_BYTES, check_expansion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Literal, TypeAlias

    from typing_extensions import Buffer

    _Codec: TypeAlias = Literal["gzip", "zstd", "bz2"]

BLOCK_BYTES = 4 * 1024 * 1024
"""A block is at most so much, unless one line is more."""

MAX_LINE_BYTES = 32 * 1024 * 1024
"""The largest item, a list of the longest numbers, is a line of 18.4 MB; a change holds two images of one."""

MAX_CHANGE_BYTES = 2 * MAX_LINE_BYTES

_GZIP_BITS = zlib.MAX_WBITS | 16
_READ_BYTES = 256 * 1024
_HEAD_BLOCK_BYTES = 64 * 1024
_STREAM_BLOCK_BYTES = 1024 * 1024


# Text may begin like bzip2 up to its level, a digit.
_MAGIC = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<zstd>\x28\xb5\x2f\xfd)|(?P<bz2>BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90))"
)


def decompress(data: bytes, place: str) -> bytes:
    """Return a file's bytes, decompressed if they are those of gzip, zstd or bzip2.

    Raises
    ------
    DecodeError
        If they are cut short or damaged, or inflate beyond ``check_expansion``.
    """
    codec = _codec_of(data)
    if codec is None:
        return data
    if codec == "gzip" and (text := _only_member(data)) is not None:
        return text
    blocks, held = list[bytes](), 0
    for block in _inflated([data], place, codec):
        blocks.append(block)
        held += len(block)
        if held > MOST_WHOLE_BYTES:
            raise _refusal(place, f"inflates to more than {MOST_WHOLE_BYTES:,} bytes at once: decompress it before")
    return b"".join(blocks)


def _only_member(data: bytes) -> bytes | None:
    """Return the text of a gzip file of one member that inflates to little; None for others."""
    inflater = isal_zlib.decompressobj(wbits=_GZIP_BITS)
    try:
        text = inflater.decompress(data, FREE_BYTES)
    except isal_zlib.error:  # type: ignore[misc] # its stub has no base
        return None
    return text if inflater.eof and not inflater.unused_data else None


def is_compressed(head: bytes) -> bool:
    """Return whether a file that begins so is gzip, zstd or bzip2."""
    return _codec_of(head) is not None


def _codec_of(head: bytes) -> _Codec | None:
    """Return the name of the codec of a file that begins so, as Arrow calls it; None if it has none."""
    found = _MAGIC.match(head)
    return None if found is None else cast("_Codec", found.lastgroup)


def decompress_head(head: bytes, most_bytes: int) -> tuple[bytes, int]:
    """Return the text that a file begins with, at least so much of it, and how many of the bytes it was stored as."""
    codec = _codec_of(head)
    if codec == "gzip":
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)
        text = inflater.decompress(head, most_bytes)
        return text, len(head) - len(inflater.unconsumed_tail)
    if codec is None:
        return head, len(head)
    source, blocks, read_bytes = pa.BufferReader(head), list[bytes](), 0
    # What is cut short ends in an error, after what can be read.
    with pa.CompressedInputStream(source, codec) as stream, suppress(OSError):
        while len(blocks) * _HEAD_BLOCK_BYTES < most_bytes and (block := stream.read(_HEAD_BLOCK_BYTES)):
            blocks.append(block)
            read_bytes = source.tell()
    return b"".join(blocks), read_bytes


def line_blocks(
    chunks: Iterable[bytes], place: str, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[bytes | memoryview]:
    """Yield a file's text, decompressed if it is gzip, zstd or bzip2, in blocks that end where a line ends.

    Parameters
    ----------
    chunks, place, max_line_bytes
        As of ``GzipReader``, whose blocks are good until the next is asked for.

    Raises
    ------
    DecodeError
        It is a compressed file that is not whole, or inflates beyond ``check_expansion``; or a line is too long.
    """
    chunks = iter(chunks)
    first = next(chunks, b"")
    codec = _codec_of(first)
    if codec == "gzip":
        yield from GzipReader(itertools.chain([first], chunks), place, max_line_bytes)
        return
    whole = itertools.chain([first], chunks)
    held, held_bytes = list[bytes](), 0
    for chunk in whole if codec is None else _inflated(whole, place, codec):
        held.append(chunk)
        held_bytes += len(chunk)
        end = chunk.rfind(b"\n") + 1 if held_bytes >= BLOCK_BYTES else 0
        if not end and held_bytes > max(BLOCK_BYTES, max_line_bytes):
            raise _refusal(place, f"has a line of more than {max_line_bytes} bytes")
        if end:
            held[-1] = chunk[:end]
            yield b"".join(held)
            held, held_bytes = [chunk[end:]], len(chunk) - end
    if held_bytes:
        yield b"".join(held)


def _inflated(chunks: Iterable[bytes], place: str, codec: _Codec) -> Iterator[bytes]:
    stored: Any = _StoredBytes(chunks)
    text_bytes = 0
    try:
        with _opened(stored, codec) as stream:
            while block := stream.read(_STREAM_BLOCK_BYTES):
                text_bytes += len(block)
                _check_ratio(stored.size_bytes, text_bytes, place)
                yield block
    except (OSError, EOFError, isal_zlib.error) as error:  # type: ignore[misc] # its stub has no base
        if isinstance(error, DdbioError):
            raise
        raise DecodeError(f"{place} is not a whole {codec} file: {error}", uri=place) from error


def _opened(stored: Any, codec: _Codec) -> Any:
    if codec == "gzip":
        return igzip.IGzipFile(fileobj=stored, mode="rb")  # type: ignore[no-untyped-call] # its stub has no types
    return pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), codec)


def _check_ratio(stored_bytes: int, text_bytes: int, place: str) -> None:
    try:
        check_expansion(stored_bytes, text_bytes)
    except DecodeError as error:
        raise DecodeError(f"{place}: {error}", uri=place) from None


def _refusal(place: str, what: str) -> DecodeError:
    return DecodeError(f"{place} {what}", uri=place)


class GzipReader:
    """Iterate over a gzip file's text in blocks that end where a line ends.

    All blocks are views of one buffer: fresh memory for each would cost a third as much as decompressing it.

    Parameters
    ----------
    chunks
        The file's bytes, in order.
    place
        The file, for messages.
    max_line_bytes
        A longer line is refused.

    Attributes
    ----------
    text_bytes
        Bytes decompressed so far.
    """

    def __init__(self, chunks: Iterable[bytes], place: str, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._stored = _StoredBytes(chunks)
        self._place = place
        self._max_line_bytes = max_line_bytes
        self.text_bytes = 0

    @property
    def raw_bytes(self) -> int:
        """Return the bytes read so far."""
        return self._stored.size_bytes

    def __iter__(self) -> Iterator[memoryview]:
        """Yield the blocks, each to be used before the next is asked for; the last one may lack its line end.

        Raises
        ------
        DecodeError
            The bytes are not a whole gzip file, or one that inflates beyond all measure.
        """
        # What igzip.open reads from: it alone inflates into memory that is there already.
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
                raise _refusal(self._place, f"has a line of more than {self._max_line_bytes} bytes")
            else:
                # A new one: the last block still shows the old.
                buffer = buffer + bytes(pending_bytes)
        if pending_bytes:
            yield memoryview(buffer)[:pending_bytes]

    def md5(self) -> bytes:
        """Return the MD5 of the file as stored, reading what is left of it."""
        return self._stored.md5()

    def _fill(self, reader: isal_zlib._GzipReader, buffer: bytearray, pending_bytes: int) -> int:
        """Return how much of the buffer is full: all of it, unless the file has ended."""
        rest = memoryview(buffer)[pending_bytes:]
        while rest:
            try:
                inflated = reader.readinto(rest)
            except EOFError:
                raise _refusal(self._place, "ends early") from None
            except (gzip.BadGzipFile, isal_zlib.error) as error:  # type: ignore[misc] # its stub has no base
                raise _refusal(self._place, f"is not a gzip file ({error})") from None
            if not inflated:
                break
            rest = rest[inflated:]
            self.text_bytes += inflated
            _check_ratio(self.raw_bytes, self.text_bytes, self._place)
        if not self.raw_bytes:
            raise _refusal(self._place, "ends early")
        return len(buffer) - len(rest)


class _StoredBytes(io.RawIOBase):
    """Read the chunks of a file as one stream; count the bytes, and take their MD5, as they come."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.size_bytes = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill as much of the buffer as the present chunk does; return how much that was."""
        while not self._rest and self._take():
            pass
        view = memoryview(buffer)
        taken = min(len(view), len(self._rest))
        view[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken

    def md5(self) -> bytes:
        """Return the MD5 of all bytes, reading what is left of them."""
        while self._take():
            pass
        return self._md5.digest()

    def _take(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._md5.update(chunk)
        self.size_bytes += len(chunk)
        self._rest = memoryview(chunk)
        return True
