"""Runner of a job that writes items as rows, into a folder of files or as the base of a lake table."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ddbio.catalog.sync import check_catalog
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.file import schema_to_json
from ddbio.jobs.engine import open_engine
from ddbio.jobs.estimate import output_parts
from ddbio.jobs.report import RowsReport, file_reports, merged_nulls, misfit_reports
from ddbio.jobs.staging import open_staging, require_same_columns, stored_format, target_of
from ddbio.jobs.stores import protect_sources
from ddbio.options.lake_formats import LAKE_FORMATS
from ddbio.runner.files_job import FilesJob, TaskResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    import pyarrow as pa

    from ddbio.commit.committer import Committer
    from ddbio.export.options import ExportToFilesOptions
    from ddbio.items.rescue import MisfitLog
    from ddbio.jobs.estimate import Part
    from ddbio.options import FilesOptions
    from ddbio.scan.options import ScanToFilesOptions
    from ddbio.storage.staged import StagedFile


class RowsResult(TaskResult, Protocol):
    """Result of a task that writes rows."""

    @property
    def misfits(self) -> MisfitLog:
        """Return the misfits."""
        ...


RowsResultT = TypeVar("RowsResultT", bound=RowsResult)
ReportT = TypeVar("ReportT", bound=RowsReport)


class RowsOutput:
    """Target of rows: files in a folder.

    Attributes
    ----------
    staging
        The staging of the rows, complete when ``check`` has returned.
    committer
        The committer that publishes the staged files.
    """

    committer: Committer

    def __init__(self, options: FilesOptions, file_format: str, keys: Iterable[str] = ()) -> None:
        self.options, self.file_format = options, file_format
        self.staging = open_staging(options, stored_format(file_format), keys)
        self.committer = target_of(options, self.staging.store)

    def check(self, columns: pa.Schema, keys: Sequence[str], table_arn: str | None) -> None:
        """Raise if the rows do not match the rows at the target, or the table of a catalog.

        Parameters
        ----------
        keys
            Key attributes of the items; empty if unknown.
        table_arn
            The table of the items, if known.
        """
        del keys, table_arn
        require_same_columns(self.options, self.staging, columns)
        check_catalog(self.options, self.staging, columns, self.file_format)

    def without_rows(self, columns: pa.Schema) -> tuple[StagedFile, ...]:
        """Return the staged files of a job without rows."""
        # Without rows no partition is overwritten.
        return () if self.options.overwrite_partitions else self.staging.empty(columns)

    def remaining(self, staged: Sequence[StagedFile]) -> Sequence[StagedFile]:
        """Return the staged files that still exist after the commit."""
        return staged


class LakeOutput(RowsOutput):
    """Target of rows that are the base of a lake table, to which changes are applied."""

    def __init__(
        self, options: ScanToFilesOptions | ExportToFilesOptions, keys: Iterable[str], instant: datetime | None
    ) -> None:
        # Imported only here, so that jobs that write plain files start faster.
        from ddbio.lake_formats.base_load import base_target  # noqa: PLC0415

        super().__init__(options, options.format, keys)
        self._buckets = options.buckets
        instant_us = None if instant is None else round(instant.timestamp() * 1_000_000)
        self._table = base_target(options, options.format, instant_us)
        self.committer = self._table

    def check(self, columns: pa.Schema, keys: Sequence[str], table_arn: str | None) -> None:
        """Set the columns of the table."""
        key_option = getattr(self.options, "key", None)
        key_names = key_option or keys or self._table.keys_of(self.options, table_arn)
        self._table.describe(columns, key_names, self._buckets)
        self.staging = self._table.staging(self.staging)

    def without_rows(self, columns: pa.Schema) -> tuple[StagedFile, ...]:
        """Return no files: a table stores its columns without files."""
        del columns
        return ()

    def remaining(self, staged: Sequence[StagedFile]) -> Sequence[StagedFile]:
        """Return the staged files that are in the table."""
        return () if LAKE_FORMATS[self.file_format].is_written_by_spark else staged


def open_output(
    options: ScanToFilesOptions | ExportToFilesOptions,
    keys: Iterable[str] = (),
    instant: Callable[[], datetime] | None = None,
) -> RowsOutput:
    """Return the output for the rows of a job, according to the format of its options.

    Parameters
    ----------
    keys
        Key attributes, which have statistics in each file.
    instant
        Returns the time of the snapshot of the rows, for a lake table; by default, they are read from now on.

    Raises
    ------
    OptionError, TargetError
        If the target does not accept these rows.
    """
    if options.format in LAKE_FORMATS:
        return LakeOutput(options, keys, None if instant is None else instant())
    return RowsOutput(options, options.format, keys)


class RowsJob(FilesJob[RowsResultT, ReportT]):
    """Job that writes items as rows.

    Attributes
    ----------
    output
        The target of the rows.
    columns
        Columns of the rows.
    keys
        Key attributes of the items; empty if unknown.
    table_arn
        The table of the items, if known.
    other_misfits
        Misfits in addition to those of the tasks.
    """

    output: RowsOutput
    columns: pa.Schema
    keys: Sequence[str] = ()
    table_arn: str | None = None
    other_misfits: Sequence[MisfitLog] = ()

    def run(self) -> ReportT:
        """Run the job; if Spark writes its files, one session is used from the beginning to the commit."""
        facts = LAKE_FORMATS.get(self.options.format)
        if facts is None or not facts.is_written_by_spark:
            return super().run()
        # Missing libraries of the session are reported before anything is read.
        with closing(open_engine("spark", master=self._master, conf=self._conf)):
            self._master = self._conf = None
            return super().run()

    def open_output(self, sources: Iterable[str] = (), instant: Callable[[], datetime] | None = None) -> None:
        """Open the target.

        Parameters
        ----------
        sources
            Paths that the job reads, which an overwrite must not delete.
        instant
            Returns the time of the snapshot of the rows.
        """
        self.use_output(open_output(self.options, self.keys, instant))
        protect_sources(self.output.staging.store, self.options.mode, sources)

    def use_output(self, output: RowsOutput) -> None:
        """Set the output of the rows."""
        self.output, self.target = output, output.committer
        self.job_id = output.staging.job_id

    def prepare(self) -> None:
        """Raise if the rows do not match the content of the target."""
        self.output.check(self.columns, self.keys, self.table_arn)

    def staged(self, results: Sequence[RowsResultT]) -> Sequence[StagedFile]:
        """Return the files that the tasks have staged, or a file without rows if there are none."""
        return super().staged(results) or self.output.without_rows(self.columns)

    def counts(self, results: Sequence[RowsResultT], staged: Sequence[StagedFile]) -> dict[str, Any]:
        """Return the fields of reports on rows."""
        logs = [*(result.misfits for result in results), *self.other_misfits]
        return {
            "files": file_reports(self.dest, self.output.remaining(staged)),
            "misfits": misfit_reports(logs),
            "merged_nulls": merged_nulls(logs),
        }

    def written_parts(self, report: ReportT) -> list[Part]:
        """Return the cost items of the written files."""
        return written_parts(self.options, len(report.files), sum(file.bytes for file in report.files))

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """Return the source of the rows, for the manifest."""

    def described(self, report: ReportT, results: Sequence[RowsResultT]) -> dict[str, Any]:
        """Return the description of the job for the manifest."""
        del results
        return {
            "source": self.source(),
            "schema": schema_to_json(normalize_schema(self.columns)),
            "digest": getattr(report, "digest", None),
            "partition_by": self.output.staging.described_partitions(self.columns),
        }


def written_parts(options: FilesOptions, files: int, size_bytes: float) -> list[Part]:
    """Return the cost items of the files of a job at the target of its options."""
    return output_parts(options.dest, files, size_bytes, is_encrypted=options.s3_sse_kms_key_id is not None)
