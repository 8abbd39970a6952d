"""Describe a fold: what it reads, its plan and its report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddbio.export.fold_tasks import ResultColumns
from ddbio.export.output_files import estimate_output, files_of_plan
from ddbio.export.read import engine_name
from ddbio.export.tasks import ExportColumns
from ddbio.formats.file_facts import file_bytes
from ddbio.jobs.engine import available_cores, running_spark_parallelism
from ddbio.jobs.estimate import (
    SENT_RATIO,
    Estimate,
    EstimatedPlan,
    Figures,
    input_parts,
    output_parts,
)
from ddbio.jobs.file_estimates import file_estimate, file_figures
from ddbio.jobs.report import FileReport, MisfitReport, Report
from ddbio.jobs.service_estimates import TEXT_RATIOS
from ddbio.jobs.speeds import EXPORT_SPEED
from ddbio.jobs.staging import stored_format

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from ddbio.catalog.glue import CatalogReport
    from ddbio.formats.layout import LayoutSummary
    from ddbio.jobs.estimate import Part
    from ddbio.options import ExportFoldOptions, ExportReadOptions
    from ddbio.sources.export_source import ExportSource

# Changes are read, spilled, and read again with the items that they change.
_READS_OF_CHANGES = 3.0


@dataclass(frozen=True)
class FoldSources:
    """Hold a full export and the increments to fold into it, with the columns into which all of them are read.

    Attributes
    ----------
    options
        How everything is read, with the columns as schema.
    rows
        The columns of the result, which may be times.
    windows
        Number of increments that follow the full export, including those without changes.
    reached
        The end of the last one.
    folders
        The folders of all exports that were given, including those that are not folded.
    """

    options: ExportReadOptions
    full: ExportSource
    columns: ExportColumns
    rows: pa.Schema
    changed: tuple[tuple[ExportSource, ExportColumns], ...]
    windows: int
    reached: datetime
    folders: tuple[str, ...]

    @property
    def result(self) -> ResultColumns:
        """Return what the rows of the result are."""
        return ResultColumns(self.rows, self.options.on_misfit, self.options.drop or ())

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the table's key attributes; they are not known if nothing has changed."""
        return (self.changed[0][1].keys or ()) if self.changed else ()


@dataclass(frozen=True)
class ExportFoldReport(Report):
    """Describe what was read of a full export and its increments, and the state that was written.

    Attributes
    ----------
    source, dest
        The full export and the target as given.
    job_id
        The job; its manifest is ``_ddbio/<job_id>.json`` under the target.
    engine
        ``local`` or ``spark``.
    windows
        Incremental exports that were folded; those that end before the full export are not counted.
    state_at
        The time at which the table held these rows.
    items, changes
        Items of the full export, and changes of the increments.
    rows
        Rows in the files: the items at that time.
    files_read
        Data files read and verified; empty files are not opened.
    seconds
        Wall time from the verb's start, engine start included.
    cpu_seconds
        User + system seconds of the driver's Python, all workers and the JVM.
    json_bytes
        Bytes of text in the files, uncompressed.
    misfits
        Values that did not fit their column, in items and in images.
    files
        What was written.
    merged_nulls
        NULLs that are no longer told from missing values, by attribute, in items and in images: see ``nulls``.
    catalog
        What was registered in the catalog, if that was asked for.
    layout
        How the files lie: their sizes, and how many are small.
    planned, actual
        Seconds, bytes of files and USD, as planned and as it was.
    """

    source: str
    dest: str
    job_id: str
    engine: str
    windows: int
    state_at: str
    items: int
    changes: int
    rows: int
    files_read: int
    seconds: float
    cpu_seconds: float
    json_bytes: int
    misfits: tuple[MisfitReport, ...] = ()
    files: tuple[FileReport, ...] = ()
    merged_nulls: dict[str, int] = field(default_factory=dict)
    catalog: CatalogReport | None = None
    layout: LayoutSummary | None = None
    planned: Figures | None = None
    actual: Figures | None = None


@dataclass(frozen=True)
class ExportFoldPlan(EstimatedPlan):
    """Describe what folding exports would do; their manifests are verified.

    Attributes
    ----------
    source, dest
        The full export and the target as given.
    engine
        ``local`` or ``spark``.
    windows
        Incremental exports that are folded.
    state_at
        The time at which the table held the rows.
    items, changes
        Items of the full export and changes of the increments, as their manifests say.
    files, file_bytes
        Data files that are read, and their size as stored.
    columns
        Names and Arrow types of the columns.
    estimate
        What folding takes and costs: the text is assumed to be five times its stored size, and changes are read thrice.
    partitions, estimated_files, estimated_file_bytes
        About how many partitions and files there will be, and how large a file, by a sample of the full export; of a
        run only if the files are partitioned.
    warnings
        What is to be said of small files.
    """

    source: str
    dest: str
    engine: str
    windows: int
    state_at: str
    items: int
    changes: int
    files: int
    file_bytes: int
    columns: dict[str, str]
    estimate: Estimate
    partitions: int | None = None
    estimated_files: int | None = None
    estimated_file_bytes: int | None = None
    warnings: tuple[str, ...] = ()


def plan_fold_files(
    options: ExportFoldOptions, sources: FoldSources, *, estimates_files: bool = True
) -> ExportFoldPlan:
    """Return the plan of a fold of opened exports.

    Parameters
    ----------
    estimates_files
        Whether rows of the full export are read, to tell how the files will be.

    Raises
    ------
    LimitError
        If the plan is above a limit.
    """
    full, increments = sources.full.sizes(), [source.sizes() for source, _ in sources.changed]
    changed = sum(sum(sizes.values()) for sizes in increments)
    size, files = sum(full.values()) + changed, len(full) + sum(map(len, increments))
    text = (sum(full.values()) + _READS_OF_CHANGES * changed) * TEXT_RATIOS["gzip"]
    stored = file_bytes(stored_format(options.format), sum(full.values()) * TEXT_RATIOS["gzip"] / SENT_RATIO)
    written, found, engine = max(1, -(-stored // options.target_file_bytes)), None, engine_name(options)
    if estimates_files and sources.full.files:
        tasks = options.tasks or (running_spark_parallelism() if engine == "spark" else None) or available_cores()
        found = estimate_output(options, sources.full, ExportColumns(sources.rows), tasks)
    if found is not None:
        written, stored = found.files, found.files * found.file_bytes
    parts = _parts(options, files, written, stored)
    return ExportFoldPlan(
        source=options.source,
        dest=options.dest,
        engine=engine,
        windows=sources.windows,
        state_at=sources.reached.isoformat(),
        items=sources.full.summary.items,
        changes=sum(source.summary.items for source, _ in sources.changed),
        files=files,
        file_bytes=size,
        columns={field.name: str(field.type) for field in sources.rows},
        estimate=file_estimate(options, parts, size, text, EXPORT_SPEED),
        **files_of_plan(found),
    )


def fold_figures(options: ExportFoldOptions, plan: ExportFoldPlan, report: ExportFoldReport) -> Figures:
    """Return what a fold took."""
    parts = _parts(options, report.files_read, len(report.files), sum(file.bytes for file in report.files))
    return file_figures(options, parts, plan.file_bytes, report.seconds)


def _parts(options: ExportFoldOptions, read: int, written: int, size: int) -> list[Part]:
    is_encrypted = options.s3_sse_kms_key_id is not None
    return [*input_parts(options.source, read), *output_parts(options.dest, written, size, is_encrypted=is_encrypted)]
