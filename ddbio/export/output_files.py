"""Plan the files that are made of exports: by the sizes of what is read, and by the first lines of some files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.export.tasks import sampled_rows, spark_task_count
from ddbio.formats.file_facts import file_bytes
from ddbio.jobs.engine import available_cores, engine_for, running_spark_parallelism
from ddbio.jobs.estimate import EXPORT_SPEED, SENT_RATIO, Estimate, EstimatedPlan, input_parts
from ddbio.jobs.file_estimates import estimate_files, file_estimate, sampled_partitions
from ddbio.jobs.service_estimates import TEXT_RATIOS
from ddbio.jobs.staging import stored_format
from ddbio.runner.rows_job import written_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.export.options import ExportToFilesOptions
    from ddbio.export.tasks import ExportColumns
    from ddbio.jobs.file_estimates import FilesEstimate
    from ddbio.sources.export_source import ExportSource

# Changes are read, spilled, and read again with the items that they change.
_READS_OF_CHANGES = 3.0


@dataclass(frozen=True, kw_only=True)
class ExportFilesPlan(EstimatedPlan):
    """Base of the plans of jobs that make files of exports, whose manifests are verified.

    Attributes
    ----------
    source, dest
        The export, or the full one, and the target as given.
    engine
        ``local`` or ``spark``.
    items
        Items of the export, as its manifests say.
    files, file_bytes
        Data files that are read, and their size as stored.
    columns
        Names and Arrow types of the columns.
    estimate
        What the job takes and costs: the text is assumed to be five times its stored size, and changes are read thrice.
    partitions, estimated_files, estimated_file_bytes
        About how many partitions and files there will be, and how large a file, by a sample of the items; of a run only
        if the files are partitioned.
    warnings
        What is to be said of small files.
    """

    source: str
    dest: str
    engine: str
    items: int
    files: int
    file_bytes: int
    columns: dict[str, str]
    estimate: Estimate
    partitions: int | None = None
    estimated_files: int | None = None
    estimated_file_bytes: int | None = None
    warnings: tuple[str, ...] = ()


def plan_files(
    options: ExportToFilesOptions,
    source: ExportSource,
    columns: ExportColumns,
    sizes: Sequence[Mapping[str, int]],
    *,
    estimates_files: bool,
) -> dict[str, Any]:
    """Return the fields of a plan that are those of ``ExportFilesPlan``.

    Parameters
    ----------
    sizes
        Sizes of the data files of the export, and of each increment that is folded into it.
    estimates_files
        Whether rows of the export are read, to tell how the files will be.

    Raises
    ------
    LimitError
        If the plan is above a limit.
    ExportIncompleteError, DecodeError
        If a file of the sample is missing, or is not the file of an export.
    """
    own, *others = (sum(each.values()) for each in sizes)
    changed, count = sum(others), sum(map(len, sizes))
    text = (own + _READS_OF_CHANGES * changed) * TEXT_RATIOS["gzip"]
    stored = file_bytes(stored_format(options.format), own * TEXT_RATIOS["gzip"] / SENT_RATIO)
    written = max(1, -(-stored // options.target_file_bytes))
    found = _estimate_files(options, source, columns, sizes[0]) if estimates_files else None
    if found is not None:
        written, stored = found.files, found.files * found.file_bytes
    parts = [*input_parts(options.source, count), *written_parts(options, written, stored)]
    fields: dict[str, Any] = {
        "source": options.source,
        "dest": options.dest,
        "engine": engine_for(options.engine),
        "items": source.summary.items,
        "files": count,
        "file_bytes": own + changed,
        "columns": {field.name: str(field.type) for field in columns.rows},
        "estimate": file_estimate(options, parts, own + changed, text, EXPORT_SPEED),
    }
    if found is not None:
        fields |= {"partitions": found.partitions, "estimated_files": found.files, "warnings": found.warnings}
        fields["estimated_file_bytes"] = found.file_bytes
    return fields


def _estimate_files(
    options: ExportToFilesOptions, source: ExportSource, columns: ExportColumns, sizes: Mapping[str, int]
) -> FilesEstimate | None:
    """Return the estimate of the files into which an export is written; None if it has no rows."""
    sample = sampled_partitions(options, columns.rows, sampled_rows(source, columns, options.sample_items))
    if sample is None:
        return None
    tasks = available_cores()
    if engine_for(options.engine) == "spark":
        tasks = spark_task_count(sizes, running_spark_parallelism() or tasks)
    tasks = min(len(sizes), options.tasks or tasks)
    return estimate_files(sample, source.summary.items, tasks, options.target_file_bytes)
