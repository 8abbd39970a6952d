"""Layout of a dataset in files: file sizes, small files, partitions, row groups, and the bytes of each column."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddbio.formats.scanned_bytes import QueryCost

_MIB = 1024 * 1024

SIZE_BOUNDS_BYTES = (_MIB, 8 * _MIB, 32 * _MIB, 64 * _MIB, 128 * _MIB, 256 * _MIB, 512 * _MIB, 1024 * _MIB)
"""The bounds between the classes of the histogram of file sizes."""


@dataclass(frozen=True)
class Footer:
    """Facts in the footer of a file.

    Attributes
    ----------
    rows
        Rows in the file.
    groups
        Row groups or stripes.
    columns
        Stored and uncompressed bytes of each column; empty if the format does not record them.
    streams
        Stored bytes of each column in a format that records only these; empty unless requested.
    """

    rows: int
    groups: int
    columns: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    streams: Mapping[str, int] = field(default_factory=dict)

    @property
    def stored_bytes(self) -> Mapping[str, int]:
        """Return the stored bytes of each column; empty if they are unknown."""
        return self.streams or {name: stored for name, (stored, _) in self.columns.items()}


@dataclass(frozen=True)
class SizeClass(Result):
    """Number of files in a class of sizes.

    Attributes
    ----------
    from_bytes, to_bytes
        Inclusive minimum and exclusive maximum size; null where there is no bound.
    files, bytes
        Number of files, and their total bytes.
    """

    from_bytes: int
    to_bytes: int | None
    files: int
    bytes: int


@dataclass(frozen=True)
class LayoutSummary(Result):
    """Sizes of files, from their metadata when a job has written them.

    Attributes
    ----------
    files, bytes
        Number of files, and their total bytes.
    small_file_ratio
        Share of the files that are small.
    small_than
        Bytes below which a file is small.
    histogram
        Files by size.
    """

    files: int
    bytes: int
    small_file_ratio: float
    small_than: int
    histogram: tuple[SizeClass, ...]

    @staticmethod
    def of_sizes(sizes: Iterable[int], small_than: int) -> LayoutSummary:
        """Return the summary of files of these sizes."""
        all_sizes = list(sizes)
        return LayoutSummary(
            len(all_sizes), sum(all_sizes), _small_ratio(all_sizes, small_than), small_than, _histogram(all_sizes)
        )

    @staticmethod
    def from_dict(values: Mapping[str, Any] | None) -> LayoutSummary | None:
        """Return the summary from the plain values of ``to_dict``."""
        if values is None:
            return None
        return LayoutSummary(
            **{**values, "histogram": tuple(SizeClass(**size_class) for size_class in values["histogram"])}
        )


@dataclass(frozen=True)
class PartitionLayout(Result):
    """Layout of one partition.

    Attributes
    ----------
    partition
        The value of each partition column; null is the null partition.
    files, bytes, rows
        Its contents; rows are null if their number is unknown.
    small_files
        Files below the small-file size.
    """

    partition: dict[str, str | None]
    files: int
    bytes: int
    rows: int | None
    small_files: int


@dataclass(frozen=True)
class ColumnLayout(Result):
    """Size of a column in all files that record it.

    Attributes
    ----------
    name
        The name of the column; a nested column is one column.
    bytes, uncompressed_bytes
        Stored bytes, and bytes before compression.
    bytes_per_row
        Stored bytes per row.
    """

    name: str
    bytes: int
    uncompressed_bytes: int
    bytes_per_row: float


@dataclass(frozen=True)
class LayoutReport(Result):
    """Layout of a dataset in files.

    Attributes
    ----------
    path
        The folder, as passed.
    files, bytes, rows
        Live files, their size, and their rows; rows are null if a file does not record them.
    small_file_ratio
        Share of the files that are small.
    small_than
        Bytes below which a file is small.
    median_file_bytes
        Median size of a file.
    formats
        Files by format.
    row_groups
        Row groups and stripes of the files whose footers were read; null if none was.
    row_groups_per_file, rows_per_file, bytes_per_row
        Means; null if unknown.
    compression_ratio
        Ratio of uncompressed to stored bytes of all columns; null if no footer records them.
    skew
        Ratio of the bytes of the largest partition to those of the median one; null unless there are several.
    histogram
        Files by size.
    partitions
        All partitions, the largest first; empty if the dataset is not partitioned.
    columns
        All columns, the largest first.
    queries
        Costs of queries: of all columns and files, and of the requested columns or partition.
    notes
        Notes about the prices.
    seconds, cpu_seconds
        Wall time, and user + system seconds of this process.
    """

    path: str
    files: int
    bytes: int
    rows: int | None
    small_file_ratio: float
    small_than: int
    median_file_bytes: int
    formats: dict[str, int]
    row_groups: int | None
    row_groups_per_file: float | None
    rows_per_file: float | None
    bytes_per_row: float | None
    compression_ratio: float | None
    skew: float | None
    histogram: tuple[SizeClass, ...]
    partitions: tuple[PartitionLayout, ...]
    columns: tuple[ColumnLayout, ...]
    queries: tuple[QueryCost, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass
class _Partition:
    partition: dict[str, str | None]
    files: int = 0
    bytes: int = 0
    small_files: int = 0
    rows: int | None = 0


class LayoutCounter:
    """Counter of files, whose memory grows with partitions and columns, and by eight bytes per file.

    Parameters
    ----------
    small_than
        Bytes below which a file is small.
    """

    def __init__(self, small_than: int) -> None:
        self._small_than = small_than
        self._sizes: list[int] = []
        self._rows: int | None = 0
        self._formats: Counter[str] = Counter()
        self._partitions: dict[tuple[tuple[str, str | None], ...], _Partition] = {}
        self._columns: dict[str, list[int]] = {}
        self._footers, self._footer_rows, self._groups = 0, 0, 0

    def add(
        self, size_bytes: int, file_format: str, partition: Mapping[str, str | None], rows: int | None,
        footer: Footer | None,
    ) -> None:  # fmt: skip
        """Count a file; the rows of its footer, if there is one, take precedence."""
        if footer is not None:
            rows = footer.rows
            self._footers += 1
            self._groups += footer.groups
            for name, (stored, plain) in footer.columns.items():
                sums = self._columns.setdefault(name, [0, 0, 0])
                sums[0] += stored
                sums[1] += plain
                sums[2] += footer.rows
        self._sizes.append(size_bytes)
        self._rows = _sum(self._rows, rows)
        self._formats[file_format] += 1
        if partition:
            totals = self._partitions.setdefault(tuple(partition.items()), _Partition(dict(partition)))
            totals.files += 1
            totals.bytes += size_bytes
            totals.small_files += size_bytes < self._small_than
            totals.rows = _sum(totals.rows, rows)

    def report(self, path: str, seconds: float, cpu_seconds: float) -> LayoutReport:
        """Return the report of all counted files."""
        sizes = sorted(self._sizes)
        files, total_bytes = len(sizes), sum(sizes)
        stored = sum(sums[0] for sums in self._columns.values())
        plain = sum(sums[1] for sums in self._columns.values())
        return LayoutReport(
            path=path,
            files=files,
            bytes=total_bytes,
            rows=self._rows,
            small_file_ratio=_small_ratio(sizes, self._small_than),
            small_than=self._small_than,
            median_file_bytes=round(statistics.median(sizes)) if files else 0,
            formats=dict(self._formats.most_common()),
            row_groups=self._groups if self._footers else None,
            row_groups_per_file=_ratio(self._groups, self._footers),
            rows_per_file=_ratio(self._rows, files),
            bytes_per_row=None if self._rows is None else _ratio(total_bytes, self._rows),
            compression_ratio=_ratio(plain, stored),
            skew=self._skew(),
            histogram=_histogram(sizes),
            partitions=tuple(
                PartitionLayout(
                    partition.partition, partition.files, partition.bytes, partition.rows, partition.small_files
                )
                for partition in sorted(self._partitions.values(), key=lambda partition: -partition.bytes)
            ),
            columns=tuple(
                ColumnLayout(name, sums[0], sums[1], _ratio(sums[0], sums[2]) or 0.0)
                for name, sums in sorted(self._columns.items(), key=lambda item: -item[1][0])
            ),
            seconds=round(seconds, 3),
            cpu_seconds=round(cpu_seconds, 3),
        )

    def _skew(self) -> float | None:
        sizes = [partition.bytes for partition in self._partitions.values()]
        return _ratio(max(sizes), statistics.median(sizes)) if len(sizes) > 1 else None


def _small_ratio(sizes: Sequence[int], small_than: int) -> float:
    return round(sum(size < small_than for size in sizes) / len(sizes), 4) if sizes else 0.0


def _sum(total: int | None, count: int | None) -> int | None:
    return None if total is None or count is None else total + count


def _ratio(count: float | None, by: float | None) -> float | None:
    return None if count is None or not by else round(count / by, 3)


def _histogram(sizes: Sequence[int]) -> tuple[SizeClass, ...]:
    """Return the classes from the smallest to the largest file, including empty ones between them."""
    files, sums = Counter[int](), Counter[int]()
    for size in sizes:
        index = bisect_right(SIZE_BOUNDS_BYTES, size)
        files[index] += 1
        sums[index] += size
    bounds = (0, *SIZE_BOUNDS_BYTES, None)
    return tuple(
        SizeClass(bounds[index] or 0, bounds[index + 1], files[index], sums[index])
        for index in range(min(files, default=0), max(files, default=-1) + 1)
    )


def class_text(size_class: SizeClass) -> str:
    """Return the bounds of a class of sizes, as text."""
    least = f"{size_class.from_bytes // _MIB:,}"
    return f"≥ {least} MiB" if size_class.to_bytes is None else f"{least}–{size_class.to_bytes // _MIB:,} MiB"


def partition_text(layout: PartitionLayout) -> str:
    """Return a partition as name=value pairs."""
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in layout.partition.items())
