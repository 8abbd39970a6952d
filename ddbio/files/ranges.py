"""Read parts of a stored object as a seekable file, so that a Parquet footer costs no whole file; write nothing."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddbio.core.staged import StoredObject
    from ddbio.files.store import ObjectStore


class RangeFile(io.RawIOBase):
    """Be a readable, seekable file over ranges of one object; every read is a request of its own."""

    def __init__(self, store: ObjectStore, entry: StoredObject) -> None:
        self._store, self._entry = store, entry
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def size(self) -> int:
        """Return the object's size in bytes."""
        return self._entry.size_bytes

    def tell(self) -> int:
        """Return the place of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the place of the next read; return it."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size()}[whence]
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """Return so many bytes from here, fewer at the end, all that follow if no number is given."""
        left = max(0, self.size() - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._store.read_range(self._entry, self._at, wanted) if wanted else b""
        self._at += len(data)
        return data
