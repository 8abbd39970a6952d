"""Describe how a dataset lies in files: their sizes, small ones, partitions, row groups, and what each column takes."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MIB = 1024 * 1024

SIZE_BOUNDS_BYTES = (_MIB, 8 * _MIB, 32 * _MIB, 64 * _MIB, 128 * _MIB, 256 * _MIB, 512 * _MIB, 1024 * _MIB)
"""The bounds between the classes of the histogram of file sizes."""


@dataclass(frozen=True)
class Footer:
    """Hold what a file says of itself.

    Attributes
    ----------
    rows
        Rows in the file.
    groups
        Row groups or stripes.
    columns
        Stored and uncompressed bytes of each column; empty if the format does not tell.
    """

    rows: int
    groups: int
    columns: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class SizeClass(Result):
    """Count the files of a class of sizes.

    Attributes
    ----------
    from_bytes, to_bytes
        The least size, and the first beyond the class; null where there is no bound.
    files, bytes
        How many files, and their bytes together.
    """

    from_bytes: int
    to_bytes: int | None
    files: int
    bytes: int


@dataclass(frozen=True)
class LayoutSummary(Result):
    """Tell the sizes of files, as they are known when a job has written them.

    Attributes
    ----------
    files, bytes
        How many files, and their bytes together.
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
        """Return the summary of files of some sizes."""
        known = list(sizes)
        return LayoutSummary(len(known), sum(known), _small_ratio(known, small_than), small_than, _histogram(known))

    @staticmethod
    def from_dict(values: Mapping[str, Any] | None) -> LayoutSummary | None:
        """Return the summary that ``to_dict`` turned into plain values."""
        if values is None:
            return None
        return LayoutSummary(**{**values, "histogram": tuple(SizeClass(**each) for each in values["histogram"])})


@dataclass(frozen=True)
class PartitionLayout(Result):
    """Describe one partition.

    Attributes
    ----------
    partition
        The value of each partition column; null is the null partition.
    files, bytes, rows
        What it holds; rows are null if they are not known.
    small_files
        Files below the size that counts as small.
    """

    partition: dict[str, str | None]
    files: int
    bytes: int
    rows: int | None
    small_files: int


@dataclass(frozen=True)
class ColumnLayout(Result):
    """Describe what a column takes in all files that tell.

    Attributes
    ----------
    name
        The column, nested ones as one.
    bytes, uncompressed_bytes
        Bytes as stored, and before the codec.
    bytes_per_row
        Stored bytes a row.
    """

    name: str
    bytes: int
    uncompressed_bytes: int
    bytes_per_row: float


@dataclass(frozen=True)
class LayoutReport(Result):
    """Describe how a dataset lies in files.

    Attributes
    ----------
    path
        The folder as given.
    files, bytes, rows
        Live files, their size, and their rows; null if some file does not tell its rows.
    small_file_ratio
        Share of the files that are small.
    small_than
        Bytes below which a file is small.
    median_file_bytes
        Half of the files are smaller.
    formats
        Files by format.
    row_groups
        Row groups and stripes of the files whose footers were read; null if none was.
    row_groups_per_file, rows_per_file, bytes_per_row
        Means; null where they are not known.
    compression_ratio
        Bytes of all columns before the codec by stored bytes; null if no footer tells.
    skew
        Bytes of the largest partition by those of the median one; null unless there are several.
    histogram
        Files by size.
    partitions
        Each partition, the largest first; a dataset that is not partitioned has none.
    columns
        Each column, the largest first.
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
    """Count files one by one, in memory that grows with partitions and columns, and by eight bytes a file.

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
        """Count a file; its footer, where there is one, tells its rows."""
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
        self._rows = _added(self._rows, rows)
        self._formats[file_format] += 1
        if partition:
            found = self._partitions.setdefault(tuple(partition.items()), _Partition(dict(partition)))
            found.files += 1
            found.bytes += size_bytes
            found.small_files += size_bytes < self._small_than
            found.rows = _added(found.rows, rows)

    def report(self, path: str, seconds: float, cpu_seconds: float) -> LayoutReport:
        """Return the report of all files that were counted."""
        sizes = sorted(self._sizes)
        files, whole = len(sizes), sum(sizes)
        stored = sum(sums[0] for sums in self._columns.values())
        plain = sum(sums[1] for sums in self._columns.values())
        return LayoutReport(
            path=path,
            files=files,
            bytes=whole,
            rows=self._rows,
            small_file_ratio=_small_ratio(sizes, self._small_than),
            small_than=self._small_than,
            median_file_bytes=round(statistics.median(sizes)) if files else 0,
            formats=dict(self._formats.most_common()),
            row_groups=self._groups if self._footers else None,
            row_groups_per_file=_ratio(self._groups, self._footers),
            rows_per_file=_ratio(self._rows, files),
            bytes_per_row=None if self._rows is None else _ratio(whole, self._rows),
            compression_ratio=_ratio(plain, stored),
            skew=self._skew(),
            histogram=_histogram(sizes),
            partitions=tuple(
                PartitionLayout(each.partition, each.files, each.bytes, each.rows, each.small_files)
                for each in sorted(self._partitions.values(), key=lambda each: -each.bytes)
            ),
            columns=tuple(
                ColumnLayout(name, sums[0], sums[1], _ratio(sums[0], sums[2]) or 0.0)
                for name, sums in sorted(self._columns.items(), key=lambda each: -each[1][0])
            ),
            seconds=round(seconds, 3),
            cpu_seconds=round(cpu_seconds, 3),
        )

    def _skew(self) -> float | None:
        sizes = [each.bytes for each in self._partitions.values()]
        return _ratio(max(sizes), statistics.median(sizes)) if len(sizes) > 1 else None


def _small_ratio(sizes: Sequence[int], small_than: int) -> float:
    return round(sum(size < small_than for size in sizes) / len(sizes), 4) if sizes else 0.0


def _added(total: int | None, count: int | None) -> int | None:
    return None if total is None or count is None else total + count


def _ratio(count: float | None, by: float | None) -> float | None:
    return None if count is None or not by else round(count / by, 3)


def _histogram(sizes: Sequence[int]) -> tuple[SizeClass, ...]:
    """Return the classes from the smallest to the largest file, empty ones between them included."""
    files, sums = Counter[int](), Counter[int]()
    for size in sizes:
        place = bisect_right(SIZE_BOUNDS_BYTES, size)
        files[place] += 1
        sums[place] += size
    bounds = (0, *SIZE_BOUNDS_BYTES, None)
    return tuple(
        SizeClass(bounds[place] or 0, bounds[place + 1], files[place], sums[place])
        for place in range(min(files, default=0), max(files, default=-1) + 1)
    )


def class_text(given: SizeClass) -> str:
    """Return the bounds of a class of sizes."""
    least = f"{given.from_bytes // _MIB:,}"
    return f"≥ {least} MiB" if given.to_bytes is None else f"{least}–{given.to_bytes // _MIB:,} MiB"


def partition_text(given: PartitionLayout) -> str:
    """Return a partition as name=value pairs."""
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in given.partition.items())
