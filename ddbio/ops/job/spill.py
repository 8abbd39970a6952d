"""Spill rows into buckets by the hashes of their keys, to be read again by any worker of the job."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from typing import TypeAlias

    from ddbio.files.object_store import ObjectStore

    Hashes: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

_HELD_BYTES = 32 * 1024 * 1024
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class Spill:
    """Say where rows are spilled, and into how many buckets. Picklable."""

    store: ObjectStore
    buckets: int

    def put_hashes(self, name: str, hashes: Hashes) -> None:
        """Write the hashes of keys."""
        self.store.put(f"hashes/{name}", np.unique(hashes).tobytes())

    def hashes(self) -> Hashes:
        """Return the hashes of all tasks, sorted, each once."""
        found = [np.frombuffer(self.store.read(each.path), np.uint64) for each in self.store.list("hashes/")]
        return np.unique(np.concatenate([np.zeros(0, np.uint64), *found]))

    def tables(self, kind: str, bucket: int) -> list[pa.Table]:
        """Return what was spilled into a bucket, in the order of the writers' names."""
        paths = sorted(each.path for each in self.store.list(f"{kind}/{bucket:05d}/"))
        return [pa.ipc.open_file(self.store.read(path)).read_all() for path in paths]

    def clear(self, job_id: str) -> None:
        """Delete everything."""
        self.store.delete([each.path for each in self.store.list()])
        self.store.abort(job_id)


class SpillWriter:
    """Spill one task's rows; a repeated task replaces what it wrote before.

    Parameters
    ----------
    spill
        The place.
    kind, name
        The kind of the rows, and the writer: rows come back in the order of the writers' names.
    """

    def __init__(self, spill: Spill, kind: str, name: str) -> None:
        self._spill, self._kind, self._name = spill, kind, name
        self._held: list[list[pa.RecordBatch]] = [[] for _ in range(spill.buckets)]
        self._held_bytes = 0
        self._flushed = 0

    def write(self, batch: pa.RecordBatch, hashes: Hashes) -> None:
        """Take rows and the hashes of their keys."""
        if not batch.num_rows:
            return
        buckets = (hashes % np.uint64(self._spill.buckets)).astype(np.int64)
        order: Any = pa.array(np.argsort(buckets, kind="stable"))
        sorted_rows = batch.take(order)
        start = 0
        for bucket, count in enumerate(np.bincount(buckets, minlength=self._spill.buckets).tolist()):
            if count:
                self._held[bucket].append(sorted_rows.slice(start, count))
            start += count
        self._held_bytes += sorted_rows.nbytes
        if self._held_bytes >= _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows held in memory to the store."""
        for bucket, batches in enumerate(self._held):
            if batches:
                sink = io.BytesIO()
                with pa.ipc.new_file(sink, batches[0].schema, options=_OPTIONS) as file:
                    for batch in batches:
                        file.write_batch(batch)
                path = f"{self._kind}/{bucket:05d}/{self._name}-{self._flushed:05d}"
                self._spill.store.put(path, sink.getvalue())
                batches.clear()
        self._held_bytes = 0
        self._flushed += 1
