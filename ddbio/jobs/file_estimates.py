"""Estimates of jobs that read and write files: their time, and the number of partitions and files."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.budget.job_limits import STOP_RATIO, JobLimits, check_estimate, check_limits
from ddbio.formats.partitions import Partitioner, partitioning_of
from ddbio.formats.registry import file_row_bytes
from ddbio.jobs.costs import prices_of
from ddbio.jobs.engine import available_cores, running_spark_parallelism
from ddbio.jobs.estimate import PROCESSORS, START_SECONDS, Estimate, Figures, compute_parts, s3_requests
from ddbio.jobs.staging import partition_by_of
from ddbio.options import LimitOptions, TimeLimitOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.export.options import ExportToFilesOptions
    from ddbio.jobs.estimate import Part
    from ddbio.options import PriceOptions
    from ddbio.scan.options import ScanToFilesOptions

# Opening a smaller file takes readers longer than reading it.
_SMALL_FILE_BYTES = 16 * 1024 * 1024
# This number of small files is harmless.
_FEW_FILES = 16
_MIB = 1024 * 1024


@dataclass(frozen=True)
class PartitionSample:
    """Number of rows per partition in a sample, and the size of a row in a file."""

    counts: tuple[int, ...]
    row_bytes: float

    @property
    def rows(self) -> int:
        """Return the number of rows in the sample."""
        return sum(self.counts)


@dataclass(frozen=True)
class FilesEstimate:
    """Approximate number of partitions and files of a job, and the size of a file."""

    partitions: int
    files: int
    file_bytes: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return warnings about small files, with numbers; empty if files are large or few."""
        if self.file_bytes >= _SMALL_FILE_BYTES or self.files <= _FEW_FILES:
            return ()
        size = f"{self.file_bytes / _MIB:,.2f} MiB"
        advice = "partition by fewer columns, use fewer tasks, or compact the folder afterwards"
        return (f"about {self.files:,} files of {size} in {self.partitions:,} partitions: {advice}",)


def estimate_files(sample: PartitionSample, rows: int, tasks: int, target_bytes: int) -> FilesEstimate:
    """Return the estimate for ``rows`` that ``tasks`` write, where each task writes to all partitions.

    The number of partitions outside the sample is estimated from those with one or two rows in it (Chao 1984).
    """
    rows = max(rows, sample.rows)
    once, twice = sample.counts.count(1), sample.counts.count(2)
    unseen = 0 if rows == sample.rows else once * (once - 1) / (2 * (twice + 1))
    partitions = max(1, min(rows, round(len(sample.counts) + unseen)))
    writers = partitions * max(1, min(tasks, rows // partitions))
    whole_bytes = rows * sample.row_bytes
    files = max(writers, round(whole_bytes / target_bytes))
    return FilesEstimate(partitions, files, round(whole_bytes / files))


def sampled_partitions(
    options: ScanToFilesOptions | ExportToFilesOptions, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> PartitionSample | None:
    """Return the partitions of sampled rows, and the size of a row in a file; None if there are no rows.

    Unpartitioned rows have a single partition.
    """
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return None
    if options.partition_by is None:
        rows = pa.Table.from_batches(filled)
        return PartitionSample((rows.num_rows,), file_row_bytes(rows, options.format, options.compression))
    partitioner = Partitioner(partitioning_of(partition_by_of(options), schema), schema)
    parts = [partitioner.sort(batch) for batch in filled]
    counts = Counter[tuple[str | None, ...]]()
    for part in parts:
        counts.update(dict(zip(part.partitions, part.counts, strict=True)))
    rows = pa.Table.from_batches([part.rows for part in parts])
    return PartitionSample(tuple(counts.values()), file_row_bytes(rows, options.format, options.compression))


def file_estimate(
    options: PriceOptions,
    parts: Iterable[Part],
    size_bytes: int,
    work_bytes: float,
    speed: float,
) -> Estimate:
    """Return the resources and cost of a job on files.

    Parameters
    ----------
    size_bytes
        Stored size of the input.
    work_bytes, speed
        Bytes to process, and the bytes per second of one core.

    Raises
    ------
    LimitError
        If the estimate is above a limit.
    """
    all_parts = list(parts)
    cores = running_spark_parallelism() or available_cores()
    seconds = START_SECONDS + work_bytes / (speed * cores)
    cost = prices_of(options.region, options.prices).cost([*all_parts, *compute_parts(options.compute, seconds)])
    made = Estimate(0.0, s3_requests(all_parts), size_bytes, seconds, PROCESSORS, cost)
    check_estimate(options, made)
    return made


def run_limits(options: PriceOptions, estimate: Estimate) -> JobLimits:
    """Return the limits of a job that writes files: 10 % above its options, or the maximum cost of its cluster."""
    if isinstance(options, LimitOptions):
        return check_limits(options, estimate.units, estimate.seconds, estimate.cost)
    most = options.max_seconds if isinstance(options, TimeLimitOptions) else None
    seconds = math.inf if most is None else STOP_RATIO * most
    if options.max_usd is not None and options.compute is not None:
        prices = prices_of(options.region, options.prices)
        hour_usd, planned_usd = (
            prices.cost(compute_parts(options.compute, seconds)).usd for seconds in (3600.0, estimate.seconds)
        )
        if hour_usd:
            left_usd = STOP_RATIO * options.max_usd - (estimate.cost.usd - planned_usd)
            seconds = min(seconds, 3600 * left_usd / hour_usd)
    return JobLimits(seconds=seconds)


def file_figures(options: PriceOptions, parts: Iterable[Part], size_bytes: int | None, seconds: float) -> Figures:
    """Return the actual resources of a job on files."""
    cost = prices_of(options.region, options.prices).cost([*parts, *compute_parts(options.compute, seconds)])
    return Figures(0.0, seconds, size_bytes, cost.usd)
