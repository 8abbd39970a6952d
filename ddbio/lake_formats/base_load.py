"""Base load of a lake table: the rows of a scan or an export, each at epoch 0, in one commit of the table."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ddbio.aws.control_plane import describe_table
from ddbio.commit.committer import AlreadyCommittedError, Claim
from ddbio.commit.protocol import DEAD_AFTER, abort_old
from ddbio.errors import AccessDeniedError, DdbioError, OptionError, TargetError
from ddbio.formats.partitioned_writer import PartitionedWriter
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.staging import Staging
from ddbio.lake_formats.base_rows import BaseRows
from ddbio.lake_formats.bucket_files import STATISTICS_COLUMNS
from ddbio.lake_formats.registry import TABLE_FORMATS, open_lake_table, require_writable
from ddbio.lake_formats.rows import LakeShape, new_shape, shape_of
from ddbio.lake_formats.table import BASE, BUCKETS, EPOCHS, EXPORTED_TO, KEYS, WRITER, Commit, retry_conflicts
from ddbio.storage.job_state import JobState
from ddbio.storage.staged import FileNaming

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from ddbio.commit.committer import CommitInfo, WriteMode
    from ddbio.items.rescue import MisfitLog
    from ddbio.lake_formats.table import LakeState, LakeTable
    from ddbio.options import ConnectionOptions, FilesOptions
    from ddbio.storage.staged import StagedFile

_KIND, _DONE = "load", "done"


@dataclass(frozen=True)
class LakeStaging(Staging):
    """Staging of rows as files of a lake table, in the folders of their buckets.

    Attributes
    ----------
    shape
        The columns, keys and buckets of the table.
    loaded_us
        The start of the load, in microseconds since 1970.
    keeps_bucket
        Whether files also have the column of the bucket.
    """

    shape: LakeShape = dataclasses.field(kw_only=True)
    loaded_us: int = dataclasses.field(kw_only=True)
    keeps_bucket: bool = dataclasses.field(kw_only=True)

    def write(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, task: int, log: MisfitLog
    ) -> tuple[StagedFile, ...]:
        """Stage the batches of one attempt of one task; after an error, no files stay staged."""
        del schema, log
        naming = FileNaming(self.job_id, task, secrets.randbelow(10**6))
        rows = BaseRows(self.shape, self.loaded_us, keeps_bucket=self.keeps_bucket)
        noted = tuple({*STATISTICS_COLUMNS} - {*rows.statistics})
        files = dataclasses.replace(self.files, statistics=(), column_statistics=noted)
        writer = PartitionedWriter(self.store, naming, rows.item_schema, files, rows)
        try:
            for batch in batches:
                if batch.num_rows:
                    writer.write(rows.fit(batch))
            staged = writer.finish()
        except BaseException:
            writer.abort()
            raise
        return tuple(
            dataclasses.replace(file, statistics={**(file.statistics or {}), **rows.statistics}) for file in staged
        )

    def empty(self, schema: pa.Schema) -> tuple[StagedFile, ...]:
        """Return no files: a table stores its columns without files."""
        del schema
        return ()


@dataclass
class LakeTarget:
    """Commits of the files of jobs to a lake table.

    Attributes
    ----------
    mode
        ``error`` requires that there is no table, ``append`` adds rows unchanged, ``overwrite`` replaces all rows.
    loaded_us
        The start of the load, or the time of the export. Changes from this time on are applied, with new positions.
    shape
        The columns, keys and buckets of the table; it is set before anything is staged.
    is_instant
        Whether the rows are a snapshot of one time, such as an export, after which incremental exports can be applied.
    """

    table: LakeTable
    mode: WriteMode
    loaded_us: int
    shape: LakeShape | None = None
    is_instant: bool = False

    def describe(self, columns: pa.Schema, keys: Sequence[str], buckets: int) -> None:
        """Set the shape of the table for items with these columns."""
        self.shape = shape_for(self.table, columns, keys, buckets)

    def keys(self) -> tuple[str, ...]:
        """Return the key attributes of the table; empty if there is no table yet."""
        state = self.table.load()
        return () if state is None else tuple(json.loads(state.properties.get(KEYS, "[]")))

    def keys_of(self, options: ConnectionOptions, table_arn: str | None) -> tuple[str, ...]:
        """Return the key attributes of a table that is created from an export, from the table or from DynamoDB.

        Raises
        ------
        OptionError
            If the key attributes are unknown.
        """
        stored_keys = self.keys()
        if stored_keys:
            return stored_keys
        try:
            described = describe_table(dynamodb_spec(options), table_arn or "")
        except DdbioError as error:
            message = (
                f"the export does not contain the key attributes of {table_arn}, and DynamoDB cannot be asked "
                f"({error}): give key"
            )
            if isinstance(error, AccessDeniedError):
                raise AccessDeniedError(message, error.action, error.resource) from error
            raise OptionError(message) from error
        return tuple(name for name, _ in described.key_types)

    def staging(self, staging: Staging) -> LakeStaging:
        """Return the staging of files of the table."""
        assert self.shape is not None  # noqa: S101 - the job described it
        return LakeStaging(
            store=staging.store,
            job_id=staging.job_id,
            files=dataclasses.replace(staging.files, format="parquet"),
            shape=self.shape,
            loaded_us=self.loaded_us,
            keeps_bucket=self.table.keeps_bucket,
        )

    def prepare(self, job_id: str) -> tuple[str, ...]:
        """Claim the table for a job; the replaced files are determined by the commit."""
        others = self._claim(job_id).take()
        try:
            for other in others:
                if not other.is_live:
                    self.abort(other.job_id)
            with contextlib.suppress(DdbioError):
                abort_old(
                    self.table.store, datetime.now(UTC) - DEAD_AFTER, {other.job_id for other in others} | {job_id}
                )
            state = self.table.load()
            if state is not None and self.table.position(state, _job_name(job_id)):
                raise AlreadyCommittedError(self._done(job_id).read(_DONE) or {"job_id": job_id})  # noqa: TRY301 - the claim goes
            if self.mode == "error" and state is not None:
                raise TargetError(  # noqa: TRY301 - the claim goes
                    f"{self.table.store.uri} is a table already: choose another folder, or mode append or overwrite",
                    self.table.store.uri,
                )
            if state is None and any(not entry.path.startswith("_ddbio/") for entry in self.table.store.list()):
                raise TargetError(  # noqa: TRY301 - the claim goes
                    f"{self.table.store.uri} has files but is not a table: choose another folder", self.table.store.uri
                )
            require_writable(self.table.store)
        except BaseException:
            self.abort(job_id)
            raise
        return ()

    def renewed(self, job_id: str) -> contextlib.AbstractContextManager[None]:
        """Renew the job's claim while the context is open."""
        return self._claim(job_id).renewed()

    def commit(self, job_id: str, staged: Sequence[StagedFile], info: CommitInfo, replaced: Sequence[str] = ()) -> int:
        """Complete the files, and add them to the table in one version."""
        del replaced
        self._claim(job_id).require()
        self._complete(staged)
        # The table decides whether the job is committed; its report is stored before.
        self._done(job_id).put(_DONE, {"job_id": job_id, "report": info.report})
        return retry_conflicts(self.table.store, lambda: self._commit(job_id, staged), attempts=20)

    def abort(self, job_id: str) -> None:
        """Delete what a job has staged, and its claim."""
        self.table.store.abort(job_id)
        self.release(job_id)

    def release(self, job_id: str) -> None:
        """Remove the claim of a job."""
        self._claim(job_id).release()

    def _complete(self, staged: Sequence[StagedFile]) -> None:
        for staged_file in staged:
            self.table.store.complete(staged_file)

    def _commit(self, job_id: str, staged: Sequence[StagedFile]) -> int:
        assert self.shape is not None  # noqa: S101 - the job described it
        state = open_or_create(self.table, self.shape)
        column_names = {*state.schema.names}
        new = [field for field in self.shape.schema if field.name not in column_names]
        if new:
            state = self.table.alter(state, new, {})
        is_base = self.mode != "append"
        commit = Commit(
            added=staged,
            removed=state.files if is_base else (),
            positions={_job_name(job_id): 1, **(self._base(state) if is_base else {})},
            metadata={"ddbio": json.dumps({"job": job_id, "mode": self.mode})},
            exact=True,
        )
        return self.table.commit(state, commit)

    def _base(self, state: LakeState) -> dict[str, int]:
        """Return the positions of a new base: its number is its time, decremented until no earlier base had it."""
        number = self.loaded_us
        while self.table.position(state, f"{BASE}/{number}"):
            # Decremented, so that no change since the load is before it.
            number -= 1
        positions = {BASE: number, f"{BASE}/{number}": 1}
        return positions | ({f"ddbio/{number}/{EXPORTED_TO}": self.loaded_us} if self.is_instant else {})

    def _claim(self, job_id: str) -> Claim:
        return Claim(self.table.store, job_id, self.mode)

    def _done(self, job_id: str) -> JobState:
        return JobState(self.table.store, job_id, _KIND)


def open_or_create(table: LakeTable, shape: LakeShape, epochs: Sequence[str] = ()) -> LakeState:
    """Return the state of a table, which is created if it does not exist."""
    state = table.load()
    if state is not None:
        return state
    properties = {
        KEYS: json.dumps(shape.keys),
        BUCKETS: str(shape.buckets),
        EPOCHS: json.dumps(list(epochs)),
        WRITER: "local",
    }
    return table.create(shape.schema, properties)


def shape_for(table: LakeTable, columns: pa.Schema, keys: Sequence[str], buckets: int) -> LakeShape:
    """Return the shape of a table for items with these columns: its own shape with new columns, or a new one.

    Raises
    ------
    OptionError
        If the table has another key, or ddbio did not create it.
    """
    state = table.load()
    if state is None:
        return new_shape(columns, keys, buckets)
    if KEYS not in state.properties:
        raise OptionError(f"{table.store.uri} is a table that ddbio did not create: choose another folder")
    stored_keys = json.loads(state.properties[KEYS])
    if stored_keys != list(keys):
        raise OptionError(f"the table {table.store.uri} has the key {stored_keys}, but the rows have {list(keys)}")
    return shape_of(state.schema, keys, int(state.properties[BUCKETS])).grown(columns)


def _job_name(job_id: str) -> str:
    return f"ddbio/load/{job_id}"


def base_target(options: FilesOptions, table_format: str, instant_us: int | None = None) -> LakeTarget:
    """Return the target that commits a base load to the table that the options name.

    Parameters
    ----------
    instant_us
        The time of the snapshot of the rows, in microseconds since 1970; by default, they are read from now on.
    """
    loaded_us = int(time.time() * 1_000_000) if instant_us is None else instant_us
    if (writer := TABLE_FORMATS[table_format].spark_writer()) is not None:
        target: LakeTarget = writer.hudi_target(options, loaded_us, is_instant=instant_us is not None)
        return target
    table = open_lake_table(options.dest, table_format, options)
    return LakeTarget(table, options.mode, loaded_us, is_instant=instant_us is not None)
