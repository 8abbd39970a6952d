"""Spill of rows into buckets by the hash of their key; all workers can read them until the end of the job.

A worker writes few objects: each contains rows of all buckets, sorted by bucket, after an index of the start of each
bucket. A reader reads only its buckets. Spilled rows of a killed job are deleted by the next job in the same folder.
"""

from __future__ import annotations

import contextlib
import io
import logging
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.commit.committer import Claim
from ddbio.items.kernel.arrays import joined_batches, take_rows
from ddbio.storage.meta import claim_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

    Hashes: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

# Rows that a writer buffers before it writes an object.
_FLUSH_BYTES = 32 * 1024 * 1024
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_OFFSET_BYTES = 8
_SORTED_ROWS = 4096
_LOG = logging.getLogger("ddbio.export")


@dataclass(frozen=True)
class Spill:
    """Location of spilled rows and number of buckets; a picklable value.

    Attributes
    ----------
    store
        The folder of the job.
    run
        The id of this run of the job; tasks of a killed run, with another id, may still write.
    """

    store: ObjectStore
    buckets: int
    run: str = field(default_factory=lambda: secrets.token_hex(4))

    def folder(self, kind: str) -> str:
        """Return the folder of spilled data of one kind."""
        return f"{self.run}/{kind}"

    def put_hashes(self, name: str, hashes: Hashes) -> None:
        """Write the hashes of one task's keys."""
        self.store.put(f"{self.folder('hashes')}/{name}", np.unique(hashes).tobytes())

    def hashes(self) -> Hashes:
        """Return the hashes of all tasks, sorted and without duplicates."""
        arrays = [
            np.frombuffer(self.store.read(entry.path), np.uint64)
            for entry in self.store.list(f"{self.folder('hashes')}/")
        ]
        return np.unique(np.concatenate([np.zeros(0, np.uint64), *arrays]))

    def clear(self, job_id: str) -> None:
        """Delete everything, including data of killed runs."""
        self.store.delete([entry.path for entry in self.store.list()])
        self.store.abort(job_id)


class SpillWriter:
    """Writer of the rows of one task. A repeated task replaces the objects of its first attempt.

    Parameters
    ----------
    spill
        The location of spilled rows.
    kind, name
        The kind of data, and the name of the task: rows are read back in the order of the names.
    """

    def __init__(self, spill: Spill, kind: str, name: str) -> None:
        self._spill, self._path = spill, f"{spill.folder(kind)}/{name}"
        self._pending: list[list[pa.RecordBatch]] = [[] for _ in range(spill.buckets)]
        self._pending_bytes = 0
        self._objects = 0
        # Sorting the few rows of a batch takes as long as sorting many, so they wait for more.
        self._unsorted: list[tuple[pa.RecordBatch, Hashes]] = []
        self._unsorted_rows = 0

    def write(self, batch: pa.RecordBatch, hashes: Hashes) -> None:
        """Add rows and the hashes of their keys."""
        if not batch.num_rows:
            return
        self._unsorted.append((batch, hashes))
        self._unsorted_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        if self._unsorted_rows >= _SORTED_ROWS:
            self._sort()
        if self._pending_bytes >= _FLUSH_BYTES:
            self.flush()

    def _sort(self) -> None:
        """Move the rows added since the last call to their buckets."""
        batches, hashes = zip(*self._unsorted, strict=True)
        self._unsorted, self._unsorted_rows = [], 0
        buckets = (np.concatenate(hashes) % np.uint64(self._spill.buckets)).astype(np.int64)
        sorted_rows = take_rows(joined_batches(batches), np.argsort(buckets, kind="stable"))
        start = 0
        for bucket, count in enumerate(np.bincount(buckets, minlength=self._spill.buckets).tolist()):
            if count:
                self._pending[bucket].append(sorted_rows.slice(start, count))
            start += count

    def flush(self) -> None:
        """Write one object with all rows added since the last one."""
        if not self._pending_bytes:
            return
        if self._unsorted:
            self._sort()
        offsets, body = np.empty(self._spill.buckets + 1, np.int64), io.BytesIO()
        for bucket, batches in enumerate(self._pending):
            offsets[bucket] = body.tell()
            if batches:
                table = pa.Table.from_batches(batches).combine_chunks()
                with pa.ipc.new_stream(body, table.schema, options=_OPTIONS) as stream:
                    stream.write_table(table)
                batches.clear()
        offsets[-1] = body.tell()
        self._spill.store.put(
            f"{self._path}-{self._objects:05d}", (offsets + offsets.nbytes).tobytes() + body.getvalue()
        )
        self._pending_bytes = 0
        self._objects += 1


class SpillReader:
    """Reader of the rows of neighbouring buckets, one bucket at a time.

    Parameters
    ----------
    spill
        The location of spilled rows.
    kind
        The kind of data.
    buckets
        The buckets to read; only their part of each index is in memory.
    """

    def __init__(self, spill: Spill, kind: str, buckets: range) -> None:
        self._store, self._buckets = spill.store, buckets
        self._objects = [
            (entry, self._offsets(entry))
            for entry in sorted(spill.store.list(f"{spill.folder(kind)}/"), key=lambda entry: entry.path)
        ]

    def tables(self, bucket: int) -> list[pa.Table]:
        """Return the rows of a bucket, in the order of their writers' names."""
        read = (self._read(*entry_and_offsets, bucket - self._buckets.start) for entry_and_offsets in self._objects)
        return [table for table in read if table is not None]

    def _offsets(self, entry: StoredObject) -> list[int]:
        length = (len(self._buckets) + 1) * _OFFSET_BYTES
        index = self._store.read_range(entry, self._buckets.start * _OFFSET_BYTES, length)
        offsets: list[int] = np.frombuffer(index, np.int64).tolist()
        return offsets

    def _read(self, entry: StoredObject, offsets: list[int], index: int) -> pa.Table | None:
        start, end = offsets[index], offsets[index + 1]
        if start == end:
            return None
        return pa.ipc.open_stream(self._store.read_range(entry, start, end - start)).read_all()


@contextlib.contextmanager
def claimed_folder(root: ObjectStore, job_id: str) -> Iterator[None]:
    """Claim the folder of a job below ``root`` while the context is open, and delete folders of dead jobs.

    Raises
    ------
    TargetError
        If another job has assumed meanwhile that this one is dead, since data may then be missing.
    """
    claim = Claim(root, job_id, "append")
    try:
        for other in claim.take():
            if not other.is_live:
                _LOG.info("%s has died: deleting what it spilled to %s", other, root.uri)
                # The claim is deleted first, so that a job that only paused notices it after reading, and fails.
                root.delete([claim_path(other.job_id)])
                root.delete([entry.path for entry in root.list(f"{other.job_id}/")])
        with claim.renewed():
            yield
        claim.require()
    finally:
        claim.release()
        root.abort(job_id)
