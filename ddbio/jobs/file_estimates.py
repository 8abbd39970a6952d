"""Estimate jobs that read files and write others: their time, and the partitions and files that they make."""

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

# Below this a file costs its readers more to open than to read.
_SMALL_FILE_BYTES = 16 * 1024 * 1024
# A few small files do nobody harm.
_FEW_FILES = 16
_MIB = 1024 * 1024


@dataclass(frozen=True)
class PartitionSample:
    """What a sample of rows shows of partitions: how many rows each has, and what a row takes in a file."""

    counts: tuple[int, ...]
    row_bytes: float

    @property
    def rows(self) -> int:
        """Return the number of rows in the sample."""
        return sum(self.counts)


@dataclass(frozen=True)
class FilesEstimate:
    """About how many partitions and files a job makes, and how large a file is."""

    partitions: int
    files: int
    file_bytes: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what is to be said of small files, with numbers; nothing if they are large or few."""
        if self.file_bytes >= _SMALL_FILE_BYTES or self.files <= _FEW_FILES:
            return ()
        size = f"{self.file_bytes / _MIB:,.2f} MiB"
        advice = "partition by fewer columns, use fewer tasks, or compact the folder afterwards"
        return (f"about {self.files:,} files of {size} in {self.partitions:,} partitions: {advice}",)


def estimate_files(sample: PartitionSample, rows: int, tasks: int, target_bytes: int) -> FilesEstimate:
    """Return the estimate for so many rows, written by so many tasks of which each meets all partitions.

    How many partitions the sample has not seen is estimated from those that it has seen once or twice (Chao 1984).
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
    """Return the partitions of sampled rows, and what a row takes in a file; None if there are no rows.

    Rows that are not partitioned are of one partition.
    """
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return None
    if options.partition_by is None:
        rows = pa.Table.from_batches(filled)
        return PartitionSample((rows.num_rows,), file_row_bytes(rows, options.format, options.compression))
    partitioner = Partitioner(partitioning_of(partition_by_of(options), schema), schema)
    found = [partitioner.sort(batch) for batch in filled]
    counts = Counter[tuple[str | None, ...]]()
    for each in found:
        counts.update(dict(zip(each.partitions, each.counts, strict=True)))
    rows = pa.Table.from_batches([each.rows for each in found])
    return PartitionSample(tuple(counts.values()), file_row_bytes(rows, options.format, options.compression))


def file_estimate(
    options: PriceOptions,
    parts: Iterable[Part],
    size_bytes: int,
    work_bytes: float,
    speed: float,
) -> Estimate:
    """Return what a job on files takes and costs.

    Parameters
    ----------
    size_bytes
        What is read, as stored.
    work_bytes, speed
        Bytes that go through the processors, and how many of them one core processes in a second.

    Raises
    ------
    LimitError
        If it is above a limit.
    """
    known = list(parts)
    cores = running_spark_parallelism() or available_cores()
    seconds = START_SECONDS + work_bytes / (speed * cores)
    cost = prices_of(options.region, options.prices).cost([*known, *compute_parts(options.compute, seconds)])
    made = Estimate(0.0, s3_requests(known), size_bytes, seconds, PROCESSORS, cost)
    check_estimate(options, made)
    return made


def run_limits(options: PriceOptions, estimate: Estimate) -> JobLimits:
    """Return when a job that writes files is stopped: a tenth above its limits, or when its cluster costs too much."""
    if isinstance(options, LimitOptions):
        return check_limits(options, estimate.units, estimate.seconds, estimate.cost)
    most = options.max_seconds if isinstance(options, TimeLimitOptions) else None
    seconds = math.inf if most is None else STOP_RATIO * most
    if options.max_usd is not None and options.compute is not None:
        prices = prices_of(options.region, options.prices)
        hour_usd, planned_usd = (
            prices.cost(compute_parts(options.compute, each)).usd for each in (3600.0, estimate.seconds)
        )
        if hour_usd:
            left_usd = STOP_RATIO * options.max_usd - (estimate.cost.usd - planned_usd)
            seconds = min(seconds, 3600 * left_usd / hour_usd)
    return JobLimits(seconds=seconds)


def file_figures(options: PriceOptions, parts: Iterable[Part], size_bytes: int | None, seconds: float) -> Figures:
    """Return what a job on files took."""
    cost = prices_of(options.region, options.prices).cost([*parts, *compute_parts(options.compute, seconds)])
    return Figures(0.0, seconds, size_bytes, cost.usd)
