"""Estimate the files that reading exports makes, from the first lines of some of the export's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.export.tasks import sampled_rows, spark_task_count
from ddbio.jobs.engine import available_cores, running_spark_parallelism
from ddbio.jobs.file_estimates import sampled_partitions
from ddbio.jobs.partition_estimate import estimate_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.export.tasks import ExportColumns
    from ddbio.jobs.partition_estimate import FilesEstimate
    from ddbio.options import ExportToFilesOptions
    from ddbio.sources.export_source import ExportSource


def export_tasks_of(options: ExportToFilesOptions, engine: str, sizes: Mapping[str, int]) -> int:
    """Return about how many tasks read an export on an engine."""
    if options.tasks is not None:
        return options.tasks
    if engine == "spark":
        return spark_task_count(sizes, running_spark_parallelism() or available_cores())
    return available_cores()


def files_of_plan(found: FilesEstimate | None) -> dict[str, Any]:
    """Return what a plan says of the files that are written."""
    if found is None:
        return {}
    return {
        "partitions": found.partitions,
        "estimated_files": found.files,
        "estimated_file_bytes": found.file_bytes,
        "warnings": found.warnings,
    }


def estimate_output(
    options: ExportToFilesOptions, source: ExportSource, columns: ExportColumns, tasks: int
) -> FilesEstimate | None:
    """Return the estimate of the files into which so many tasks write an export; None if it has no rows.

    Raises
    ------
    ExportIncompleteError, DecodeError
        If a file of the sample is missing, or is not the file of an export.
    """
    sample = sampled_partitions(options, columns.rows, sampled_rows(source, columns, options.sample_items))
    if sample is None:
        return None
    return estimate_files(sample, source.summary.items, tasks, options.target_file_bytes)
