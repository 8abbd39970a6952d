"""Checksums of files whose format lacks them: a CRC-32 of each mebibyte, computed by writes and verified by reads.

A job's manifest stores them. Readers of rows get entries with checksums from :func:`ddbio.formats.manifests.look_up`,
and
read through :func:`checked`.
"""

from __future__ import annotations

import base64
import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from isal import isal_zlib

from ddbio.errors import DecodeError
from ddbio.storage.local_store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from ddbio.storage.object_store import ObjectStore, Sink
    from ddbio.storage.staged import StagedFile, StoredObject

BLOCK_BYTES = 1024 * 1024
"""Number of bytes per checksum; the last block of a file may be shorter."""

_SUM_BYTES = 4
# Small reads next to each other, such as those of a footer, are often in one block.
_CACHED_BYTES = 2 * BLOCK_BYTES


class _BlockSums:
    """Checksums of blocks whose bytes are added in any pieces."""

    def __init__(self) -> None:
        self._sums, self._sum, self._remaining = bytearray(), 0, BLOCK_BYTES

    def add(self, data: Buffer) -> None:
        unread = memoryview(data).cast("B")
        while unread:
            piece, unread = unread[: self._remaining], unread[self._remaining :]
            self._sum = isal_zlib.crc32(piece, self._sum)
            self._remaining -= len(piece)
            if not self._remaining:
                self._end_block()

    def finish(self) -> bytes:
        """Return the checksums of all blocks, four bytes each; the last block may be shorter."""
        if self._remaining < BLOCK_BYTES:
            self._end_block()
        return bytes(self._sums)

    def _end_block(self) -> None:
        self._sums += self._sum.to_bytes(_SUM_BYTES, "big")
        self._sum, self._remaining = 0, BLOCK_BYTES


class ChecksumSink:
    """Sink that passes bytes to another sink, and computes their checksums."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self._sums = sink, _BlockSums()
        self.closed = False

    def write(self, data: Buffer, /) -> int:
        """Write all of the bytes; return their number."""
        self._sums.add(data)
        return self._sink.write(data)

    def finish(self, rows: int) -> StagedFile:
        """Return the staged file with its checksums."""
        staged = self._sink.finish(rows)
        self.closed = True
        return replace(staged, crc32=base64.b64encode(self._sums.finish()).decode())

    def abort(self) -> None:
        """Discard the bytes."""
        self.closed = True
        self._sink.abort()


def checked(store: ObjectStore, entry: StoredObject) -> ObjectStore:
    """Return a store that verifies reads of this object by the entry's checksums, if it has any; else the store."""
    reader: Any = _CheckedObject(store, entry)
    return reader if entry.crc32 else store


class _CheckedObject:
    """One object of a store; complete blocks are read until each of them has been verified."""

    def __init__(self, store: ObjectStore, entry: StoredObject) -> None:
        self._store, self._entry = store, entry
        self._sums = base64.b64decode(entry.crc32 or "")
        self._is_verified = bytearray(len(self._sums) // _SUM_BYTES)
        self._cached = 0, b""

    @property
    def uri(self) -> str:
        """The target of the store."""
        return self._store.uri

    def read(self, path: str) -> bytes:
        """Return the object's bytes.

        Raises
        ------
        DecodeError
            If they are not those that were written; all other methods raise it, too.
        """
        data = self._store.read(path)
        self._compare(0, len(self._is_verified), data)
        return data

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yield the object's bytes in pieces of some blocks."""
        remainder, block = b"", 0
        for chunk in self._store.read_chunks(path):
            # The pieces of a local file are blocks already.
            text = remainder + chunk if remainder else chunk
            count = len(text) // BLOCK_BYTES
            blocks, remainder = text[: count * BLOCK_BYTES], text[count * BLOCK_BYTES :]
            self._compare(block, block + count, blocks)
            block += count
            if blocks:
                yield blocks
        self._compare(block, len(self._is_verified), remainder)
        if remainder:
            yield remainder

    def read_range(self, entry: StoredObject, start: int, length: int) -> bytes:
        """Return a range of the object."""
        end = min(start + length, entry.size_bytes)
        at, cached = self._cached
        if at <= start and end <= at + len(cached):
            return cached[start - at : end - at]
        unverified = self._is_verified.find(0, start // BLOCK_BYTES, -(-end // BLOCK_BYTES))
        if unverified < 0:
            return self._store.read_range(entry, start, length)
        last = self._is_verified.rfind(0, unverified, -(-end // BLOCK_BYTES)) + 1
        first_byte, last_byte = unverified * BLOCK_BYTES, min(last * BLOCK_BYTES, entry.size_bytes)
        if length > _CACHED_BYTES and isinstance(self._store, LocalStore):
            # Only little is read in addition to the range, which is not copied.
            before = self._store.read_range(entry, first_byte, max(0, start - first_byte))
            data = self._store.read_range(entry, start, end - start)
            after = self._store.read_range(entry, end, max(0, last_byte - end))
            within = memoryview(data)[max(0, first_byte - start) : last_byte - start]
            self._compare(unverified, last, before, within, after)
            return data
        # One request.
        at = min(start, first_byte)
        data = self._store.read_range(entry, at, max(end, last_byte) - at)
        self._compare(unverified, last, memoryview(data)[first_byte - at : last_byte - at])
        if len(data) <= _CACHED_BYTES:
            self._cached = at, data
        return data[start - at : end - at]

    def _compare(self, first: int, last: int, *pieces: Buffer) -> None:
        """Compare the bytes of some blocks, in any pieces, with the stored checksums."""
        sums = _BlockSums()
        for piece in pieces:
            sums.add(piece)
        actual, expected = sums.finish(), self._sums[first * _SUM_BYTES : last * _SUM_BYTES]
        if actual != expected:
            same = next(at for at in range(len(actual) + 1) if actual[: at + 1] != expected[: at + 1]) // _SUM_BYTES
            self._refuse((first + same) * BLOCK_BYTES)
        self._is_verified[first:last] = b"\1" * (last - first)

    def _refuse(self, start: int) -> None:
        uri = f"{self._store.uri}/{self._entry.path}"
        end = min(start + BLOCK_BYTES, self._entry.size_bytes)
        raise DecodeError(
            f"{uri} is damaged: its bytes {start:,} to {end:,} are not those that were written; restore the file, or "
            "rerun the job that wrote it; if it was changed on purpose, rename it",
            uri=uri,
        )


# The checksums of S3 that Python's standard library lacks.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
# https://reveng.sourceforge.io/crc-catalogue/all.htm (CRC-32/ISCSI, CRC-64/NVME)
CRC_POLYNOMIALS = {"CRC32C": (0x82F63B78, 32), "CRC64NVME": (0x9A6C9329AC4BC9B5, 64)}
"""The reflected polynomial and the number of bits of each checksum."""


def checksum(algorithm: str, data: bytes | memoryview) -> bytes:
    """Return the checksum of bytes, in big-endian order."""
    # Other users need not wait for the compiler.
    import numpy as np  # noqa: PLC0415

    from ddbio.items.kernel.crc import crc  # noqa: PLC0415

    polynomial, bits = CRC_POLYNOMIALS[algorithm]
    ones = (1 << bits) - 1
    remainder = crc(np.frombuffer(data, np.uint8), _tables(polynomial), np.uint64(ones))
    return (int(remainder) ^ ones).to_bytes(bits // 8, "big")


@functools.cache
def _tables(polynomial: int) -> Any:
    from ddbio.items.kernel.crc import tables_of  # noqa: PLC0415

    return tables_of(polynomial)
