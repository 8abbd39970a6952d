"""Open the stores that a job reads and writes, by their URIs, and stage its files in them.

Staged files stay invisible until the job's commit.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ddbio.aws.s3_store import S3Store
from ddbio.core.partitions import PartitionBy, Partitioning, partitioning_of
from ddbio.core.staged import FileNaming, StagedFile
from ddbio.errors import OptionError, TargetError
from ddbio.files import appending
from ddbio.files.commit import Target
from ddbio.files.formats import FORMATS
from ddbio.files.local_store import LocalStore
from ddbio.files.partitioned_writer import PartitionedWriter
from ddbio.files.rolling_writer import FileOptions, RollingWriter
from ddbio.ops.job.clients import s3_spec
from ddbio.ops.job.report import Report
from ddbio.options.files import LAKE_FORMATS
from ddbio.options.parsing import PYTHON_ONLY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from ddbio.core.rescue import MisfitLog
    from ddbio.files.claim import WriteMode
    from ddbio.files.committer import AlreadyCommittedError
    from ddbio.files.object_store import ObjectStore
    from ddbio.options import (
        ConnectionOptions,
        FilesOptions,
        ImportFilesOptions,
    )

_ONE_SLASH = re.compile(r"s3[an]?:/?(?!/)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")

_LOG = logging.getLogger("ddbio.commit")


def open_store(uri: str, options: ConnectionOptions, *, is_temporary: bool = False) -> ObjectStore:
    """Return the store behind an ``s3://`` URI (``s3a://`` is the same) or a local path.

    Parameters
    ----------
    is_temporary
        Whether what is written there is deleted again: it has no storage class of its own, and is not locked.

    Raises
    ------
    OptionError
        If the URI has another scheme, or is not a complete one of S3.
    """
    scheme = _SCHEME.match(uri)
    if _ONE_SLASH.match(uri):
        raise OptionError(f"{uri!r} has one slash behind its scheme: write s3://bucket/prefix, or ./{uri} for a folder")
    if scheme is None or scheme[1] == "file":
        return LocalStore(uri)
    if scheme[1] in {"s3", "s3a", "s3n"}:
        spec = s3_spec(options)
        if is_temporary:
            spec = dataclasses.replace(spec, members_of_keys=())
        return S3Store(spec, "s3://" + uri[scheme.end() :])
    raise OptionError(f"{uri!r} is neither s3://bucket/prefix nor a local path")


def protect_sources(target: ObjectStore, mode: WriteMode, sources: Iterable[str]) -> None:
    """Refuse to overwrite a target that holds what the job reads.

    Raises
    ------
    TargetError
        Naming the source that would be deleted.
    """
    below = f"{_real(target.uri)}/"
    for source in sources if mode == "overwrite" else ():
        if f"{_real(source)}/".startswith(below):
            ways = "choose another target, or use mode append"
            raise TargetError(
                f"target {target.uri} holds {source}, which mode overwrite would delete: {ways}", target.uri
            )


def require_shared(cluster: str | None, places: Mapping[str, str | None], *, shared_paths: bool) -> None:
    """Refuse local paths if the tasks run on a cluster, whose workers have disks of their own.

    Parameters
    ----------
    cluster
        The master of the cluster that runs the tasks; None if this machine does.
    places
        The paths or URIs that the tasks read or write, by the option that names them.

    Raises
    ------
    OptionError
        Naming the first such path.
    """
    for option, place in places.items() if cluster is not None and not shared_paths else ():
        scheme = _SCHEME.match(place) if place is not None else None
        if place is not None and (scheme is None or scheme[1] == "file"):
            raise OptionError(
                f"{option} is {place!r}, a path of this machine, and the workers of {cluster} have disks of their own: "
                "give an s3:// URI, or shared_paths if all of them reach that path"
            )


def _real(uri: str) -> str:
    return uri if _SCHEME.match(uri) else str(Path(uri).resolve())


ReportT = TypeVar("ReportT", bound=Report)


@dataclass(frozen=True)
class Staging:
    """Say where a job's files are staged, and their format and size. Picklable."""

    store: ObjectStore
    job_id: str
    files: FileOptions
    partition_by: PartitionBy | None = None

    def write(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, task: int, log: MisfitLog
    ) -> tuple[StagedFile, ...]:
        """Stage the batches of one attempt of one task; if it fails, nothing stays staged.

        The attempt's number in the file names is random, so that no two attempts use the same names.

        Parameters
        ----------
        log
            Where values without a partition are counted.
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
        """Stage a file without rows, so that readers of an empty source's output find its columns."""
        return tuple(self.writer(schema, FileNaming(self.job_id, 0)).finish(keep_empty=True))

    def partitioning(self, schema: pa.Schema) -> Partitioning | None:
        """Return how rows of a schema are partitioned, if they are.

        Raises
        ------
        OptionError
            If the schema lacks a column, or has one of the same name.
        """
        return None if self.partition_by is None else partitioning_of(self.partition_by, schema)

    def described_partitions(self, schema: pa.Schema) -> list[dict[str, Any]]:
        """Return the columns of the folders as a manifest says them; none if rows are not partitioned."""
        partitioning = self.partitioning(schema)
        return [] if partitioning is None else partitioning.describe()

    def writer(self, schema: pa.Schema, naming: FileNaming) -> RollingWriter | PartitionedWriter:
        """Return a writer of the files of one attempt of one task."""
        partitioning = self.partitioning(schema)
        if partitioning is None:
            return RollingWriter(self.store, naming, schema, self.files)
        times = tuple(column.attribute for column in partitioning.columns if column.part is not None)
        files = dataclasses.replace(self.files, statistics=(*self.files.statistics, *times))
        return PartitionedWriter(self.store, naming, schema, files, partitioning)


def open_staging(options: FilesOptions, file_format: str = "parquet", keys: Iterable[str] = ()) -> Staging:
    """Return the staging of a job at the target that its options name.

    Parameters
    ----------
    keys
        Key attributes, of which each file's statistics are noted.

    Raises
    ------
    OptionError, DdbioError
        As :func:`ddbio.ops.job.storage.open_store` says; or if the format has no such compression, or its library is
        not installed.
    """
    FORMATS[file_format].codec(options.compression)
    files = FileOptions(
        compression=options.compression,
        target_file_bytes=int(options.target_file_bytes),
        format=file_format,
        statistics=tuple(keys),
    )
    by = None if options.partition_by is None else partition_by_of(options)
    return Staging(open_store(options.dest, options), options.job_id or new_job_id(), files, by)


def stored_format(asked: str) -> str:
    """Return the format of the data files of what a job writes, which may be more than files."""
    if asked in LAKE_FORMATS:
        return "parquet"
    return "dynamodb-json" if asked == "dynamodb-export" else asked


def partition_by_of(options: FilesOptions) -> PartitionBy:
    """Return what the options say of partitions."""
    return PartitionBy(
        texts=options.partition_by or (),
        time_unit=options.partition_time_unit,
        time_zone=options.partition_time_zone,
        keep_columns=options.keep_partition_columns,
    )


def target_of(options: FilesOptions | ImportFilesOptions, store: ObjectStore) -> Target:
    """Return the target of a job's commit."""
    names = {field.name for field in dataclasses.fields(options)} - PYTHON_ONLY
    given = {name: getattr(options, name) for name in sorted(names)}
    del given["job_id"]
    command = hashlib.blake2b(f"{type(options).__name__} {given}".encode(), digest_size=16).hexdigest()
    return Target(
        store=store,
        mode=options.mode,
        overwrite_foreign=options.overwrite_foreign,
        command=command,
        partitions_only=getattr(options, "overwrite_partitions", False),
    )


def require_same_columns(options: FilesOptions, staging: Staging, schema: pa.Schema) -> None:
    """Refuse columns to add that have another type in the files of the target, or other partitions.

    Raises
    ------
    TargetError
        As :func:`ddbio.files.appending.require_same_types` and ``require_same_partitions`` say.
    OptionError
        If the rows cannot be partitioned as asked.
    """
    partitioning = staging.partitioning(schema)
    if options.mode == "append" or options.overwrite_partitions:
        appending.require_same_types(staging.store, schema)
        appending.require_same_partitions(staging.store, partitioning)


def committed_report(kind: type[ReportT], committed: AlreadyCommittedError) -> ReportT:
    """Return the report of an earlier run of the same job, and log that nothing was run.

    Raises
    ------
    OptionError
        If the job of that id was another verb's.
    """
    manifest = committed.manifest
    _LOG.warning("job %s is committed already: this is its report, nothing was run", manifest["job_id"])
    try:
        return kind.from_dict(manifest["report"])
    except (KeyError, TypeError):
        raise OptionError(f"job id {manifest['job_id']!r} belongs to a job of another kind: choose another") from None


def new_job_id() -> str:
    """Return a new job id: the UTC time, so that ids sort by age, and eight random digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}_{secrets.token_hex(4)}"
