"""Inflate gzip files in bounded memory, as blocks of whole lines, with the MD5 of the bytes as stored.

Refuses files that end early, and bombs: more text than any item could have been deflated from.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from isal import igzip_lib

from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BLOCK_BYTES = 4 * 1024 * 1024
"""A block is a little larger: up to the end of a line."""

MAX_LINE_BYTES = 32 * 1024 * 1024
"""The largest item, a list of the longest numbers, is a line of 18.4 MB; a change holds two images of one."""

MAX_CHANGE_BYTES = 2 * MAX_LINE_BYTES

MAX_RATIO = 1000
"""Deflate itself ends at 1,032:1; the item that compresses best comes to 856:1."""

_RATIO_FROM_BYTES = 64 * 1024 * 1024


class GunzipLines:
    """Iterate over a gzip file's text in blocks that end where a line ends.

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
    raw_bytes, text_bytes
        Bytes read and bytes inflated so far.
    """

    def __init__(self, chunks: Iterable[bytes], place: str, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._chunks = iter(chunks)
        self._place = place
        self._max_line_bytes = max_line_bytes
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.raw_bytes = 0
        self.text_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the blocks; the last one may lack its line end.

        Raises
        ------
        DecodeError
            The bytes are not a whole gzip file, or one that inflates beyond all measure.
        """
        held: list[bytes] = []
        held_bytes = 0
        for piece in self._inflate():
            held.append(piece)
            held_bytes += len(piece)
            if held_bytes < BLOCK_BYTES:
                continue
            end = piece.rfind(b"\n") + 1
            if end:
                held[-1] = piece[:end]
                yield b"".join(held)
                held = [piece[end:]]
                held_bytes = len(piece) - end
            elif held_bytes > self._max_line_bytes + BLOCK_BYTES:
                raise self._refusal(f"has a line of more than {self._max_line_bytes} bytes")
        if held_bytes:
            yield b"".join(held)

    def md5(self) -> bytes:
        """Return the MD5 of the file as stored, reading what is left of it."""
        for _ in self._counted():
            pass
        return self._md5.digest()

    def _counted(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._md5.update(chunk)
            self.raw_bytes += len(chunk)
            yield chunk

    def _inflate(self) -> Iterator[bytes]:
        inflater = None
        for chunk in self._counted():
            rest = chunk
            while rest:
                # A gzip file may have several members.
                inflater = inflater or igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
                yield from self._member(inflater, rest)
                rest = inflater.unused_data if inflater.eof else b""
                if inflater.eof:
                    inflater = None
        if inflater is not None or not self.raw_bytes:
            raise self._refusal("ends early")

    def _member(self, inflater: igzip_lib.IgzipDecompressor, data: bytes) -> Iterator[bytes]:
        while True:
            try:
                piece = inflater.decompress(data, BLOCK_BYTES)
            except igzip_lib.error as error:  # type: ignore[misc] # its stub has no base
                raise self._refusal(f"is not a gzip file ({error})") from None
            data = b""
            self.text_bytes += len(piece)
            if self.text_bytes > max(_RATIO_FROM_BYTES, MAX_RATIO * self.raw_bytes):
                raise self._refusal(f"inflates to more than {MAX_RATIO} times its size")
            if piece:
                yield piece
            if inflater.eof or inflater.needs_input:
                return

    def _refusal(self, what: str) -> DecodeError:
        return DecodeError(f"{self._place} {what}", uri=self._place)
