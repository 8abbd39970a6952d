"""Spill rows into buckets by the hash of their key, where every worker can read them, until the end of the job.

A worker writes few objects: each holds rows of all buckets, sorted by bucket, behind an index of where each bucket
begins. A reader fetches only its buckets. What a killed job has spilled is deleted by the next one at the same place.
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

# Held by a writer before it writes an object.
_FLUSH_BYTES = 32 * 1024 * 1024
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_PLACE_BYTES = 8
_SORTED_ROWS = 4096
_LOG = logging.getLogger("ddbio.export")


@dataclass(frozen=True)
class Spill:
    """Hold the place of spilled rows and the number of buckets; a picklable value.

    Attributes
    ----------
    store
        The folder of the job.
    run
        Distinguishes this run of the job from one that was killed, whose tasks may still write.
    """

    store: ObjectStore
    buckets: int
    run: str = field(default_factory=lambda: secrets.token_hex(4))

    def folder(self, kind: str) -> str:
        """Return the folder of what is spilled of one kind."""
        return f"{self.run}/{kind}"

    def put_hashes(self, name: str, hashes: Hashes) -> None:
        """Write the hashes of one task's keys."""
        self.store.put(f"{self.folder('hashes')}/{name}", np.unique(hashes).tobytes())

    def hashes(self) -> Hashes:
        """Return the hashes of all tasks, sorted and without duplicates."""
        found = [
            np.frombuffer(self.store.read(each.path), np.uint64)
            for each in self.store.list(f"{self.folder('hashes')}/")
        ]
        return np.unique(np.concatenate([np.zeros(0, np.uint64), *found]))

    def clear(self, job_id: str) -> None:
        """Delete everything, also of runs that were killed."""
        self.store.delete([each.path for each in self.store.list()])
        self.store.abort(job_id)


class SpillWriter:
    """Spill the rows of one task. A task that is run again replaces the objects of its first run.

    Parameters
    ----------
    spill
        The place.
    kind, name
        What is spilled, and by which task: rows are read back in the order of the names.
    """

    def __init__(self, spill: Spill, kind: str, name: str) -> None:
        self._spill, self._path = spill, f"{spill.folder(kind)}/{name}"
        self._pending: list[list[pa.RecordBatch]] = [[] for _ in range(spill.buckets)]
        self._pending_bytes = 0
        self._objects = 0
        # A batch leaves few rows, and to sort them takes as long as to sort many: these wait for more.
        self._unsorted: list[tuple[pa.RecordBatch, Hashes]] = []
        self._unsorted_rows = 0

    def write(self, batch: pa.RecordBatch, hashes: Hashes) -> None:
        """Take rows and the hashes of their keys."""
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
        """Give each bucket its rows of those that were taken since the last time."""
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
        """Write one object with all rows taken since the last one."""
        if not self._pending_bytes:
            return
        if self._unsorted:
            self._sort()
        places, body = np.empty(self._spill.buckets + 1, np.int64), io.BytesIO()
        for bucket, batches in enumerate(self._pending):
            places[bucket] = body.tell()
            if batches:
                table = pa.Table.from_batches(batches).combine_chunks()
                with pa.ipc.new_stream(body, table.schema, options=_OPTIONS) as stream:
                    stream.write_table(table)
                batches.clear()
        places[-1] = body.tell()
        self._spill.store.put(f"{self._path}-{self._objects:05d}", (places + places.nbytes).tobytes() + body.getvalue())
        self._pending_bytes = 0
        self._objects += 1


class SpillReader:
    """Read the rows of neighbouring buckets, one bucket at a time.

    Parameters
    ----------
    spill
        The place.
    kind
        What was spilled.
    buckets
        The buckets to read; only their part of each index is held in memory.
    """

    def __init__(self, spill: Spill, kind: str, buckets: range) -> None:
        self._store, self._buckets = spill.store, buckets
        self._objects = [
            (each, self._places(each))
            for each in sorted(spill.store.list(f"{spill.folder(kind)}/"), key=lambda each: each.path)
        ]

    def tables(self, bucket: int) -> list[pa.Table]:
        """Return the rows of a bucket, in the order of their writers' names."""
        read = (self._read(*each, bucket - self._buckets.start) for each in self._objects)
        return [table for table in read if table is not None]

    def _places(self, entry: StoredObject) -> list[int]:
        length = (len(self._buckets) + 1) * _PLACE_BYTES
        index = self._store.read_range(entry, self._buckets.start * _PLACE_BYTES, length)
        places: list[int] = np.frombuffer(index, np.int64).tolist()
        return places

    def _read(self, entry: StoredObject, places: list[int], at: int) -> pa.Table | None:
        start, end = places[at], places[at + 1]
        if start == end:
            return None
        return pa.ipc.open_stream(self._store.read_range(entry, start, end - start)).read_all()


@contextlib.contextmanager
def claimed_folder(root: ObjectStore, job_id: str) -> Iterator[None]:
    """Claim the folder of a job below ``root`` while the context is open, and delete those of dead jobs.

    Raises
    ------
    TargetError
        If another job has meanwhile taken this one for dead: what was read of the folder may then be incomplete.
    """
    claim = Claim(root, job_id, "append")
    try:
        for other in claim.take():
            if not other.is_live:
                _LOG.info("%s has died: deleting what it spilled to %s", other, root.uri)
                # The claim goes first: a job that only slept finds it gone after reading, and fails.
                root.delete([claim_path(other.job_id)])
                root.delete([each.path for each in root.list(f"{other.job_id}/")])
        with claim.renewed():
            yield
        claim.require()
    finally:
        claim.release()
        root.abort(job_id)
