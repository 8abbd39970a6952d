"""Staging of a job's files, which stay invisible until its commit."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.commit import appending
from ddbio.commit.contents import require_target
from ddbio.commit.protocol import Target
from ddbio.formats.partitioned_writer import PartitionedWriter
from ddbio.formats.partitions import PartitionBy, Partitioning, partitioning_of
from ddbio.formats.registry import FORMATS
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.jobs.stores import new_job_id, open_store
from ddbio.options.lake_formats import LAKE_FORMATS
from ddbio.options.parsing import PYTHON_ONLY
from ddbio.storage.staged import FileNaming, StagedFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from ddbio.items.rescue import MisfitLog
    from ddbio.load.options import ImportFilesOptions
    from ddbio.options import FilesOptions
    from ddbio.storage.object_store import ObjectStore


@dataclass(frozen=True)
class Staging:
    """Staging location, format and size of a job's files. Picklable."""

    store: ObjectStore
    job_id: str
    files: FileOptions
    partition_by: PartitionBy | None = None

    def write(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, task: int, log: MisfitLog
    ) -> tuple[StagedFile, ...]:
        """Stage the batches of one attempt of a task. A failed attempt leaves no staged files.

        The attempt number in the file names is random, so that no two attempts use the same names.

        Parameters
        ----------
        log
            Log of values without a partition.
        """
        writer = self.writer(schema, FileNaming(self.job_id, task, secrets.randbelow(10**6)))
        try:
            for batch in batches:
                writer.write(batch)
            staged = tuple(writer.finish())
        except BaseException:
            writer.abort()
            raise
        if isinstance(writer, PartitionedWriter):
            log.merge(writer.log)
        return staged

    def empty(self, schema: pa.Schema) -> tuple[StagedFile, ...]:
        """Stage a file without rows, so that readers of an empty output can read its columns."""
        return tuple(self.writer(schema, FileNaming(self.job_id, 0)).finish(keep_empty=True))

    def partitioning(self, schema: pa.Schema) -> Partitioning | None:
        """Return the partitioning of rows of a schema, or None.

        Raises
        ------
        OptionError
            If the schema lacks a column, or has a column of the same name.
        """
        return None if self.partition_by is None else partitioning_of(self.partition_by, schema)

    def described_partitions(self, schema: pa.Schema) -> list[dict[str, Any]]:
        """Return the columns of the folders in the format of a manifest; empty if rows are not partitioned."""
        partitioning = self.partitioning(schema)
        return [] if partitioning is None else partitioning.describe()

    def writer(self, schema: pa.Schema, naming: FileNaming) -> RollingWriter | PartitionedWriter:
        """Return the writer of one attempt of a task."""
        partitioning = self.partitioning(schema)
        if partitioning is None:
            return RollingWriter(self.store, naming, schema, self.files)
        times = tuple(column.attribute for column in partitioning.columns if column.part is not None)
        files = dataclasses.replace(self.files, statistics=(*self.files.statistics, *times))
        return PartitionedWriter(self.store, naming, schema, files, partitioning)


def open_staging(options: FilesOptions, file_format: str = "parquet", keys: Iterable[str] = ()) -> Staging:
    """Return the staging of a job at the target in its options.

    Parameters
    ----------
    keys
        Key attributes, whose statistics are recorded for each file.

    Raises
    ------
    OptionError, DdbioError
        See :func:`ddbio.jobs.stores.open_store` and :func:`ddbio.commit.contents.require_target`. Also if the format
        does not support the compression, or its library is not installed.
    """
    FORMATS[file_format].codec(options.compression)
    files = FileOptions(
        compression=options.compression,
        target_file_bytes=int(options.target_file_bytes),
        format=file_format,
        statistics=tuple(keys),
    )
    by = None if options.partition_by is None else partition_by_of(options)
    store, asked = open_store(options.dest, options), getattr(options, "format", file_format)
    require_target(store, asked if asked in LAKE_FORMATS else None)
    return Staging(store, options.job_id or new_job_id(), files, by)


def stored_format(asked: str) -> str:
    """Return the format of the data files of an output, which may be a lake table."""
    if asked in LAKE_FORMATS:
        return "parquet"
    return "dynamodb-json" if asked == "dynamodb-export" else asked


def partition_by_of(options: FilesOptions) -> PartitionBy:
    """Return the partitioning options."""
    return PartitionBy(
        texts=options.partition_by or (),
        time_unit=options.partition_time_unit,
        time_zone=options.partition_time_zone,
        keep_columns=options.keep_partition_columns,
    )


def target_of(options: FilesOptions | ImportFilesOptions, store: ObjectStore) -> Target:
    """Return the target of a job's commit."""
    names = {field.name for field in dataclasses.fields(options)} - PYTHON_ONLY
    values = {name: getattr(options, name) for name in sorted(names)}
    del values["job_id"]
    command = hashlib.blake2b(f"{type(options).__name__} {values}".encode(), digest_size=16).hexdigest()
    return Target(
        store=store,
        mode=options.mode,
        overwrite_foreign=options.overwrite_foreign,
        command=command,
        partitions_only=getattr(options, "overwrite_partitions", False),
    )


def require_same_columns(options: FilesOptions, staging: Staging, schema: pa.Schema) -> None:
    """Raise if added columns have another type than in the files of the target, or other partitions.

    Raises
    ------
    TargetError
        See :func:`ddbio.commit.appending.require_same_types` and ``require_same_partitions``.
    OptionError
        If the rows cannot be partitioned as requested.
    """
    partitioning = staging.partitioning(schema)
    if options.mode == "append" or options.overwrite_partitions:
        appending.require_same_types(staging.store, schema)
        appending.require_same_partitions(staging.store, partitioning)
