"""Checksums of files whose format has none: a CRC-32 of each mebibyte, taken as one is written, compared as it is read.

A job's manifest keeps them. Whoever reads rows has entries from :func:`ddbio.formats.manifests.look_up`, and reads
through :func:`checked`.
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
"""The bytes that have one checksum; those of the last one of a file are fewer."""

_SUM_BYTES = 4
# Small reads next to each other, as those of a footer, are of one block.
_HELD_BYTES = 2 * BLOCK_BYTES


class _BlockSums:
    """Take the checksums of blocks whose bytes come in any pieces."""

    def __init__(self) -> None:
        self._sums, self._sum, self._left = bytearray(), 0, BLOCK_BYTES

    def add(self, data: Buffer) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            piece, rest = rest[: self._left], rest[self._left :]
            self._sum = isal_zlib.crc32(piece, self._sum)
            self._left -= len(piece)
            if not self._left:
                self._end_block()

    def finish(self) -> bytes:
        """Return the checksums of all blocks, four bytes each; the last block may be a short one."""
        if self._left < BLOCK_BYTES:
            self._end_block()
        return bytes(self._sums)

    def _end_block(self) -> None:
        self._sums += self._sum.to_bytes(_SUM_BYTES, "big")
        self._sum, self._left = 0, BLOCK_BYTES


class ChecksumSink:
    """Pass bytes on to a sink, and take their checksums."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self._sums = sink, _BlockSums()
        self.closed = False

    def write(self, data: Buffer, /) -> int:
        """Take all of the bytes; return how many that were."""
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
    """Return the store, or if the entry has checksums one that compares what is read of this object with them."""
    reader: Any = _CheckedObject(store, entry)
    return reader if entry.crc32 else store


class _CheckedObject:
    """Read one object of a store; whole blocks are read until each was found to be as it was written."""

    def __init__(self, store: ObjectStore, entry: StoredObject) -> None:
        self._store, self._entry = store, entry
        self._sums = base64.b64decode(entry.crc32 or "")
        self._is_known = bytearray(len(self._sums) // _SUM_BYTES)
        self._held = 0, b""

    @property
    def uri(self) -> str:
        """The target of the store."""
        return self._store.uri

    def read(self, path: str) -> bytes:
        """Return the object's bytes.

        Raises
        ------
        DecodeError
            If they are not those that were written; so do the other methods.
        """
        data = self._store.read(path)
        self._compare(0, len(self._is_known), data)
        return data

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yield the object's bytes in pieces of some blocks."""
        held, block = b"", 0
        for chunk in self._store.read_chunks(path):
            # The pieces of a local file are blocks already.
            text = held + chunk if held else chunk
            count = len(text) // BLOCK_BYTES
            whole, held = text[: count * BLOCK_BYTES], text[count * BLOCK_BYTES :]
            self._compare(block, block + count, whole)
            block += count
            if whole:
                yield whole
        self._compare(block, len(self._is_known), held)
        if held:
            yield held

    def read_range(self, entry: StoredObject, start: int, length: int) -> bytes:
        """Return a range of the object."""
        end = min(start + length, entry.size_bytes)
        at, held = self._held
        if at <= start and end <= at + len(held):
            return held[start - at : end - at]
        unknown = self._is_known.find(0, start // BLOCK_BYTES, -(-end // BLOCK_BYTES))
        if unknown < 0:
            return self._store.read_range(entry, start, length)
        last = self._is_known.rfind(0, unknown, -(-end // BLOCK_BYTES)) + 1
        first_byte, last_byte = unknown * BLOCK_BYTES, min(last * BLOCK_BYTES, entry.size_bytes)
        if length > _HELD_BYTES and isinstance(self._store, LocalStore):
            # Little is read beside the range, which is not copied.
            before = self._store.read_range(entry, first_byte, max(0, start - first_byte))
            data = self._store.read_range(entry, start, end - start)
            after = self._store.read_range(entry, end, max(0, last_byte - end))
            within = memoryview(data)[max(0, first_byte - start) : last_byte - start]
            self._compare(unknown, last, before, within, after)
            return data
        # One request.
        at = min(start, first_byte)
        data = self._store.read_range(entry, at, max(end, last_byte) - at)
        self._compare(unknown, last, memoryview(data)[first_byte - at : last_byte - at])
        if len(data) <= _HELD_BYTES:
            self._held = at, data
        return data[start - at : end - at]

    def _compare(self, first: int, last: int, *pieces: Buffer) -> None:
        """Compare the bytes of some blocks, in any pieces, with what was written."""
        sums = _BlockSums()
        for each in pieces:
            sums.add(each)
        found, wanted = sums.finish(), self._sums[first * _SUM_BYTES : last * _SUM_BYTES]
        if found != wanted:
            same = next(at for at in range(len(found) + 1) if found[: at + 1] != wanted[: at + 1]) // _SUM_BYTES
            self._refuse((first + same) * BLOCK_BYTES)
        self._is_known[first:last] = b"\1" * (last - first)

    def _refuse(self, start: int) -> None:
        uri = f"{self._store.uri}/{self._entry.path}"
        end = min(start + BLOCK_BYTES, self._entry.size_bytes)
        raise DecodeError(
            f"{uri} is damaged: its bytes {start:,} to {end:,} are not those that were written; restore the file, or "
            "run the job again that wrote it; if it was changed on purpose, give it a name of its own",
            uri=uri,
        )


# The checksums of S3 that Python's own library does not have.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
# https://reveng.sourceforge.io/crc-catalogue/all.htm (CRC-32/ISCSI, CRC-64/NVME)
CRC_POLYNOMIALS = {"CRC32C": (0x82F63B78, 32), "CRC64NVME": (0x9A6C9329AC4BC9B5, 64)}
"""The reflected polynomial and the bits of each checksum."""


def checksum(algorithm: str, data: bytes | memoryview) -> bytes:
    """Return the checksum of bytes, its highest byte first."""
    # Whoever has asked for no such checksum does not wait for the compiler.
    import numpy as np  # noqa: PLC0415

    from ddbio.items.kernel.crc import crc  # noqa: PLC0415

    polynomial, bits = CRC_POLYNOMIALS[algorithm]
    ones = (1 << bits) - 1
    found = crc(np.frombuffer(data, np.uint8), _tables(polynomial), np.uint64(ones))
    return (int(found) ^ ones).to_bytes(bits // 8, "big")


@functools.cache
def _tables(polynomial: int) -> Any:
    from ddbio.items.kernel.crc import tables_of  # noqa: PLC0415

    return tables_of(polynomial)
