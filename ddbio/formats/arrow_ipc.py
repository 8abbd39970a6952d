"""Read files of Arrow IPC and Feather whole, compressed or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.formats.arrow_messages import MAGIC, check_messages
from ddbio.formats.decompress import decompress
from ddbio.formats.file_format import BATCH_ROWS, FileFormat, Parts, ReadOptions, Sample
from ddbio.items.arrow_input import checked_batches
from ddbio.storage.object_store import RangeFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject


class ArrowReader:
    """Read one file as one part."""

    def __init__(self, store: ObjectStore, entry: StoredObject, _: ReadOptions) -> None:
        self._store, self._entry = store, entry

    def parts(self) -> Parts:
        """Return the file as one part of unknown rows."""
        return Parts((self._entry.size_bytes,), None)

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows, by the footer if there is one; otherwise they are read for that."""
        if self._store.read_range(self._entry, 0, len(MAGIC)) == MAGIC:
            with pa.PythonFile(RangeFile(self._store, self._entry), "r") as file:
                return pa.ipc.open_file(file).schema
        return next((batch.schema for batch in self.read(0, BATCH_ROWS)), pa.schema([]))

    def read(self, _: int, __: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the file."""
        data = decompress(self._store.read(self._entry.path), self._entry.path)
        check_messages(data)
        source = pa.BufferReader(data)
        if not data.startswith(MAGIC):
            yield from checked_batches(pa.ipc.open_stream(source))
            return
        file = pa.ipc.open_file(source)
        yield from checked_batches(file.get_batch(number) for number in range(file.num_record_batches))

    def sample(self, rows: int) -> Sample | None:
        """Return the first rows."""
        return next((Sample(batch.slice(0, rows), None) for batch in self.read(0, BATCH_ROWS)), None)


# DynamoDB's types are in the fields' metadata, if they are anywhere.
ARROW = FileFormat("arrow", (".arrow", ".feather", ".ipc"), ArrowReader, keeps_types=True)
