"""Estimate how many files a partitioned job writes, and how large they are, from a sample of its rows."""

from __future__ import annotations

from dataclasses import dataclass

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
