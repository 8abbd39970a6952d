"""Stage rows as files that nobody sees before the job's commit; commit nothing."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeVar

from ddbio.core.staged import FileNaming, Staged
from ddbio.errors import OptionError
from ddbio.files.commit import Target
from ddbio.files.writer import FileOptions, RollingWriter
from ddbio.ops.job.report import Report
from ddbio.ops.job.target import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from ddbio.files.commit import AlreadyCommittedError
    from ddbio.files.store import ObjectStore
    from ddbio.options import FilesOptions, ImportFilesOptions

ReportT = TypeVar("ReportT", bound=Report)
_LOG = logging.getLogger("ddbio.commit")


@dataclass(frozen=True)
class Staging:
    """Say where a job's files are staged, and what they are like; travels to workers."""

    store: ObjectStore
    job_id: str
    files: FileOptions

    def write(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, task: int) -> tuple[Staged, ...]:
        """Stage the batches of one attempt of one task; leave nothing staged when it fails.

        The attempt in the file names is drawn at random: no attempt, speculative or not, meets another's files.
        """
        writer = RollingWriter(self.store, FileNaming(self.job_id, task, secrets.randbelow(10**6)), schema, self.files)
        try:
            for batch in batches:
                writer.write(batch)
            return tuple(writer.finish())
        except BaseException:
            writer.abort()
            raise

    def empty(self, schema: pa.Schema) -> tuple[Staged, ...]:
        """Stage a file without rows: whoever reads the output of an empty source finds its columns."""
        writer = RollingWriter(self.store, FileNaming(self.job_id, 0), schema, self.files)
        return tuple(writer.finish(keep_empty=True))


def open_staging(options: FilesOptions, file_format: Literal["parquet", "orc"] = "parquet") -> Staging:
    """Return the staging of a job at the target that its options name.

    Raises
    ------
    OptionError, DdbioError
        As :func:`ddbio.ops.job.target.open_store` says.
    """
    files = FileOptions(
        compression=options.compression, target_file_bytes=int(options.target_file_bytes), format=file_format
    )
    return Staging(open_store(options.dest, options), options.job_id or new_job_id(), files)


def target_of(options: FilesOptions | ImportFilesOptions, store: ObjectStore) -> Target:
    """Return what a job's commit has to know of its target."""
    asked = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    del asked["job_id"]
    command = hashlib.blake2b(f"{type(options).__name__} {asked}".encode(), digest_size=16).hexdigest()
    return Target(store=store, mode=options.mode, overwrite_foreign=options.overwrite_foreign, command=command)


def report_again(kind: type[ReportT], committed: AlreadyCommittedError) -> ReportT:
    """Return the report of an earlier run of the same job, and log that nothing was done.

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
    """Return a new job id: its UTC instant, so that ids sort by age, and eight random digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}_{secrets.token_hex(4)}"
