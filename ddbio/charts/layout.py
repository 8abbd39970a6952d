"""Make the page of a layout report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddbio.charts.drawing import Bars
from ddbio.charts.page import Page, Table

if TYPE_CHECKING:
    from ddbio.formats.layout import LayoutReport, PartitionLayout, SizeClass

_MIB = 1024 * 1024
_SHOWN = 30


def layout_page(report: LayoutReport) -> Page:
    """Return the page of a layout report: the histogram, the largest partitions and the largest columns."""
    facts = [
        ("files", f"{report.files:,}, half of them below {_mebibytes(report.median_file_bytes)}"),
        ("size", _mebibytes(report.bytes)),
        ("rows", "not known" if report.rows is None else f"{report.rows:,}"),
        ("small files", f"{report.small_file_ratio:.1%} below {_mebibytes(report.small_than)}"),
        ("formats", ", ".join(f"{name} {count:,}" for name, count in report.formats.items())),
        *_where_known("row groups a file", report.row_groups_per_file),
        *_where_known("bytes a row", report.bytes_per_row),
        *_where_known("compression ratio", report.compression_ratio),
        *_where_known("skew of partitions", report.skew),
    ]
    bars = [
        Bars(
            "Files by size",
            "files",
            tuple(map(class_text, report.histogram)),
            tuple(each.files for each in report.histogram),
        )
    ]
    if report.partitions:
        shown = report.partitions[:_SHOWN]
        bars.append(
            Bars(
                _titled("Partitions by size", len(report.partitions)),
                "MiB",
                tuple(map(partition_text, shown)),
                tuple(round(each.bytes / _MIB, 3) for each in shown),
            )
        )
    if report.columns:
        largest = report.columns[:_SHOWN]
        bars.append(
            Bars(
                _titled("Columns by stored size", len(report.columns)),
                "MiB",
                tuple(each.name for each in largest),
                tuple(round(each.bytes / _MIB, 3) for each in largest),
            )
        )
    return Page(f"Layout of {report.path}", tuple(facts), (*bars, *_tables(report)))


def class_text(given: SizeClass) -> str:
    """Return the bounds of a class of sizes."""
    least = f"{given.from_bytes // _MIB:,}"
    return f"≥ {least} MiB" if given.to_bytes is None else f"{least}–{given.to_bytes // _MIB:,} MiB"


def partition_text(given: PartitionLayout) -> str:
    """Return a partition as name=value pairs."""
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in given.partition.items())


def _tables(report: LayoutReport) -> list[Table]:
    tables = []
    if report.columns:
        rows = tuple(
            (each.name, f"{each.bytes:,}", f"{each.uncompressed_bytes:,}", f"{each.bytes_per_row:g}")
            for each in report.columns
        )
        tables.append(Table("Columns", ("column", "bytes", "uncompressed", "bytes a row"), rows))
    if report.partitions:
        shown = tuple(map(_cells, report.partitions[: 10 * _SHOWN]))
        tables.append(Table("Partitions", ("partition", "files", "bytes", "rows", "small files"), shown))
    return tables


def _cells(each: PartitionLayout) -> tuple[str, ...]:
    rows = "" if each.rows is None else f"{each.rows:,}"
    return partition_text(each), f"{each.files:,}", f"{each.bytes:,}", rows, f"{each.small_files:,}"


def _titled(title: str, count: int) -> str:
    return title if count <= _SHOWN else f"{title}: the largest {_SHOWN} of {count:,}"


def _where_known(name: str, value: float | None) -> list[tuple[str, str]]:
    return [] if value is None else [(name, f"{value:,g}")]


def _mebibytes(count: int) -> str:
    return f"{count / _MIB:,.1f} MiB" if count >= _MIB else f"{count:,} bytes"
