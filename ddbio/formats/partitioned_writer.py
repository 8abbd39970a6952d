"""Writer of a task's record batches to files of one target size in the folders of their partitions."""

from __future__ import annotations

import contextlib
import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from ddbio.errors import TargetError
from ddbio.formats.parquet import dictionary_columns
from ddbio.formats.partitions import Partitioner, Partitioning
from ddbio.formats.rolling_writer import RollingWriter
from ddbio.storage.local_store import LocalStore, temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Buffer

    from ddbio.formats.partitions import PartitionedRows
    from ddbio.formats.rolling_writer import FileOptions
    from ddbio.items.rescue import MisfitLog
    from ddbio.storage.object_store import ObjectStore, Sink, SinkMaker
    from ddbio.storage.staged import FileNaming, StagedFile

_CHUNK_BYTES = 1024 * 1024


class SpooledSink:
    """Sink that writes to a local file, and copies it to the store when it is complete."""

    def __init__(self, store: SinkMaker, path: str, path_on_disk: Path) -> None:
        self._store, self._path, self._path_on_disk = store, path, path_on_disk
        self.closed = False
        try:
            self._file = path_on_disk.open("wb")
        except OSError as error:
            raise _write_error(path_on_disk, error) from error

    def write(self, data: Buffer, /) -> int:
        """Write all of the bytes; return their number."""
        if not self.closed:
            try:
                self._file.write(data)
            except OSError as error:
                raise _write_error(self._path_on_disk, error) from error
        return memoryview(data).nbytes

    def finish(self, rows: int) -> StagedFile:
        """Copy the bytes to the store, and return the staged file."""
        try:
            self._file.close()
        except OSError as error:
            raise _write_error(self._path_on_disk, error) from error
        self.closed = True
        sink: Sink = self._store.create(self._path)
        try:
            with self._path_on_disk.open("rb") as file:
                while data := file.read(_CHUNK_BYTES):
                    sink.write(data)
            staged = sink.finish(rows)
        except BaseException:
            sink.abort()
            raise
        self._path_on_disk.unlink()
        return staged

    def abort(self) -> None:
        """Discard the bytes; the owner of the folder deletes the folder."""
        self.closed = True
        # The bytes in the buffer may not fit on the disk, and are not needed.
        with contextlib.suppress(OSError):
            self._file.close()


class SpooledStore:
    """Store of sinks that keep their bytes in a folder of this machine until they are finished.

    Parameters
    ----------
    folder
        Returns the folder; the caller deletes it.
    """

    def __init__(self, store: SinkMaker, folder: Callable[[], Path]) -> None:
        self._store, self._folder = store, folder
        self._numbers = itertools.count()

    def create(self, path: str) -> SpooledSink:
        """Return a sink for a file of the store."""
        return SpooledSink(self._store, path, self._folder() / f"{next(self._numbers)}.spooled")


def _write_error(path: Path, error: OSError) -> TargetError:
    return TargetError(
        f"an unfinished file cannot be written to {path.parent} ({error.strerror}): free space there, or "
        "name another folder by the environment variable TMPDIR",
        str(path.parent),
    )


# Memory of all partitions together. Above it, large partitions are written to their files, the others to a disk.
_MEMORY_BYTES = 64 * 1024 * 1024
# Even partitions become large enough at the same time: twice the memory gives row groups of 8 MiB to sixteen of them.
_EVEN_MEMORY_BYTES = 128 * 1024 * 1024
# Rows are sorted in blocks of this part of the memory, so that the rows of a partition in a block are worth a copy.
_BLOCK_RATIO = 1 / 4
_MAX_BLOCK_BYTES = 16 * 1024 * 1024
# Fewer rows of a partition than this part of the memory would be a poor row group.
_GROUP_RATIO = 1 / 8
_EVEN_GROUP_RATIO = 1 / 32
# An upload to S3 holds up to 32 MiB while it is open.
_MAX_OPEN_FILES = 4
# Smaller partitions are written concurrently, since most of the time is spent on requests to the store.
_SMALL_BYTES = 4 * 1024 * 1024
_SMALL_CONCURRENCY = 4


class RowPartitioner(Protocol):
    """Converter of batches to the rows of files, sorted by partition."""

    @property
    def names(self) -> Sequence[str]:
        """Return the columns of the folders."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the files."""
        ...

    @property
    def log(self) -> MisfitLog:
        """Return the counts of values without their own partition."""
        ...

    @property
    def is_even(self) -> bool:
        """Whether the rows of all partitions are alike, so that options chosen for the file of one suit the others."""
        ...

    def sort_block(self, batches: Sequence[pa.RecordBatch]) -> Iterator[PartitionedRows]:
        """Yield the rows of some batches by partition, preferably all together; a partition's rows keep their order."""
        ...


@dataclass
class _Partition:
    """The unwritten rows of one partition, and its files."""

    number: int
    writer: RollingWriter
    gathered: list[pa.RecordBatch] = field(default_factory=list)
    gathered_bytes: float = 0.0
    spilled: list[int] = field(default_factory=list)
    """Bytes of each message in its file on the disk."""
    spilled_bytes: float = 0.0

    @property
    def pending_bytes(self) -> float:
        return self.gathered_bytes + self.spilled_bytes


class PartitionedWriter:
    """Writer of one task's rows by partition: all files of a partition except its last have the target size.

    At most 64 MiB of rows wait in memory, for any number of partitions. Above that, a partition with enough rows for a
    row
    group is written to its file, if at most four files are open. The rows of the others are written to a temporary
    folder
    of this machine, and are read back when the partition is written.

    If partitions are alike, such as hash buckets, 128 MiB wait, and then each partition is written to its file. If
    files
    are not local, this is a file in the temporary folder, which is uploaded when it is complete.

    Parameters
    ----------
    store, naming, schema, options
        As of :class:`ddbio.formats.rolling_writer.RollingWriter`; the schema is that of the batches.
    partitioning
        The columns by which rows are partitioned, or the object that does it.
    memory_bytes
        Maximum bytes of rows that wait in memory; None for the values above.
    """

    def __init__(
        self,
        store: ObjectStore,
        naming: FileNaming,
        schema: pa.Schema,
        options: FileOptions,
        partitioning: Partitioning | RowPartitioner,
        memory_bytes: int | None = None,
    ) -> None:
        self._store: SinkMaker = store
        self._naming, self._options = naming, options
        self._partitioner: RowPartitioner = (
            Partitioner(partitioning, schema) if isinstance(partitioning, Partitioning) else partitioning
        )
        self._names = list(self._partitioner.names)
        is_even = self._partitioner.is_even
        self._memory_bytes = memory_bytes or (_EVEN_MEMORY_BYTES if is_even else _MEMORY_BYTES)
        self._block_limit = min(_BLOCK_RATIO * self._memory_bytes, _MAX_BLOCK_BYTES)
        self._group_bytes = self._memory_bytes * (_EVEN_GROUP_RATIO if is_even else _GROUP_RATIO)
        self._partitions: dict[tuple[str | None, ...], _Partition] = {}
        self._block: list[pa.RecordBatch] = []
        self._block_bytes, self._gathered_bytes = 0, 0.0
        self._disk = contextlib.ExitStack()
        self._folder: Path | None = None
        if is_even and not isinstance(store, LocalStore):
            self._store = SpooledStore(store, self._temporary)

    @property
    def log(self) -> MisfitLog:
        """Return the counts of values without their own partition."""
        return self._partitioner.log

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch's rows.

        Raises
        ------
        TargetError, EndpointError, ServiceError, AccessDeniedError
            If the store, or the temporary folder, refuses bytes; then call ``abort``.
        """
        if not batch.num_rows:
            return
        self._block.append(batch)
        self._block_bytes += batch.nbytes
        if self._block_bytes >= self._block_limit:
            self._sort_block()
            if self._gathered_bytes >= self._memory_bytes:
                self._free_memory()

    def finish(self, *, keep_empty: bool = False) -> list[StagedFile]:
        """Return the staged files of this task; none if there was no row.

        Parameters
        ----------
        keep_empty
            Stage a file without rows in the null partition if there was no row, so that readers get the columns.
        """
        self._sort_block()
        if keep_empty and not self._partitions:
            return self._open((None,) * len(self._names)).writer.finish(keep_empty=True)
        return self.close_files()

    def close_files(self) -> list[StagedFile]:
        """Stage all rows written until now, even in small files; return all files staged until now."""
        self._sort_block()
        waiting = list(self._partitions.values())
        # Rows that are in memory anyway take no more memory when written concurrently.
        is_even = self._partitioner.is_even
        small = [
            partition
            for partition in waiting
            if partition.pending_bytes < _SMALL_BYTES or (is_even and not partition.spilled)
        ]
        for partition in waiting:
            if partition not in small:
                self._finish(partition)
        with ThreadPoolExecutor(_SMALL_CONCURRENCY, thread_name_prefix="ddbio-partition") as pool:
            for _ in pool.map(self._finish, small):
                pass
        staged = [file for partition in waiting for file in partition.writer.finish()]
        self._disk.close()
        self._folder, self._gathered_bytes = None, 0.0
        return staged

    def abort(self) -> None:
        """Discard the open files and the spilled rows; the job's abort discards the finished files."""
        for partition in self._partitions.values():
            partition.writer.abort()
        self._disk.close()

    def _sort_block(self) -> None:
        if not self._block:
            return
        block, self._block, self._block_bytes = self._block, [], 0
        for block_rows in self._partitioner.sort_block(block):
            if self._partitioner.is_even and self._options.dictionaries is None:
                chosen = dictionary_columns(pa.Table.from_batches([block_rows.rows]))
                self._options = replace(self._options, dictionaries=tuple(chosen))
            row_bytes, start = block_rows.rows.nbytes / block_rows.rows.num_rows, 0
            for values, count in zip(block_rows.partitions, block_rows.counts, strict=True):
                if count:
                    partition = self._partitions.get(values) or self._open(values)
                    partition.gathered.append(block_rows.rows.slice(start, count))
                    partition.gathered_bytes += row_bytes * count
                start += count
            self._gathered_bytes += block_rows.rows.nbytes

    def _open(self, values: tuple[str | None, ...]) -> _Partition:
        folders = dict(zip(self._names, values, strict=True))
        writer = RollingWriter(self._store, self._naming, self._partitioner.schema, self._options, folders)
        self._partitions[values] = _Partition(len(self._partitions), writer)
        return self._partitions[values]

    def _free_memory(self) -> None:
        """Write all gathered rows to files or to the disk, the largest partitions first."""
        order = sorted(self._partitions.values(), key=lambda partition: -partition.pending_bytes)
        n_open = sum(partition.writer.has_open_file for partition in order)
        for partition in order:
            if not partition.gathered:
                continue
            may_open = self._partitioner.is_even or partition.writer.has_open_file or n_open < _MAX_OPEN_FILES
            if may_open and (partition.gathered_bytes >= self._group_bytes or self._fills_file(partition)):
                n_open -= partition.writer.has_open_file
                self._write(partition)
                n_open += partition.writer.has_open_file
            if partition.gathered:
                self._spill(partition)
        self._gathered_bytes = 0.0

    def _fills_file(self, partition: _Partition) -> bool:
        return partition.pending_bytes * partition.writer.ratio >= self._options.target_file_bytes

    def _write(self, partition: _Partition) -> None:
        """Write a partition's rows to its files; rows that remain after a file was closed are gathered again."""
        for batch in self._pending(partition):
            partition.writer.write(batch)
        min_bytes = self._group_bytes if self._partitioner.is_even else math.inf
        partition.gathered = partition.writer.settle(min_bytes)
        partition.gathered_bytes = float(sum(batch.nbytes for batch in partition.gathered))

    def _finish(self, partition: _Partition) -> None:
        for batch in self._pending(partition):
            partition.writer.write(batch)
        partition.writer.finish()

    def _pending(self, partition: _Partition) -> Iterator[pa.RecordBatch]:
        """Yield and clear the unwritten rows of a partition."""
        spilled, gathered = partition.spilled, partition.gathered
        partition.spilled, partition.gathered = [], []
        partition.spilled_bytes = partition.gathered_bytes = 0.0
        if spilled:
            path = self._path_on_disk(partition)
            with path.open("rb") as file:
                for size in spilled:
                    yield pa.ipc.read_record_batch(pa.py_buffer(file.read(size)), self._partitioner.schema)
            path.unlink()
        yield from gathered

    def _spill(self, partition: _Partition) -> None:
        rows = pa.Table.from_batches(partition.gathered, self._partitioner.schema).combine_chunks()
        try:
            with self._path_on_disk(partition).open("ab") as file:
                for batch in rows.to_batches():
                    partition.spilled.append(file.write(batch.serialize()))
        except OSError as error:
            raise TargetError(
                f"rows that wait for their partition cannot be written to {self._folder} ({error.strerror}): free "
                "space there, or name another folder by the environment variable TMPDIR",
                str(self._folder),
            ) from error
        partition.spilled_bytes += partition.gathered_bytes
        partition.gathered, partition.gathered_bytes = [], 0.0

    def _path_on_disk(self, partition: _Partition) -> Path:
        return self._temporary() / f"{partition.number}.arrow"

    def _temporary(self) -> Path:
        if self._folder is None:
            self._folder = Path(self._disk.enter_context(temporary_folder()))
        return self._folder
