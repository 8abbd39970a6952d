"""Report how a dataset lies in files, reading the footers of Parquet and ORC and no row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddbio.charts.page import Bars, report_page, write_page
from ddbio.formats.lake_columns import LAKE_ROWS
from ddbio.formats.layout import LayoutCounter, class_text, partition_text
from ddbio.formats.parquet import PARQUET
from ddbio.formats.registry import format_of
from ddbio.formats.row_files import FooterReader
from ddbio.jobs.report import Clock
from ddbio.sources.data_files import find_data

if TYPE_CHECKING:
    from ddbio.folders.options import LayoutOptions
    from ddbio.formats.layout import LayoutReport
    from ddbio.storage.staged import StoredObject

_MIB = 1024 * 1024
# Bars in one chart.
_DRAWN = 30


def layout(options: LayoutOptions) -> LayoutReport:
    """Return how a dataset lies in files: their sizes, small ones, row groups, partitions, and what each column takes.

    Only the footers of Parquet and ORC are read, and no row.

    Raises
    ------
    NotFoundError
        If the folder holds no file of rows.
    DecodeError
        If the footer of a file is damaged.
    OptionError
        If charts are asked for and matplotlib is not installed.
    TargetError
        If a page cannot be written.
    """
    clock = Clock()
    found = find_data(options.path, options, options.input_format)
    files = [(found.live_file(each), _stored_as(each)) for each in found.files]
    counter = LayoutCounter(int(options.small_than))
    footers = FooterReader(found.store).read_ahead(entry for _, entry in files)
    for (file, entry), footer in zip(files, footers, strict=True):
        # Of a file that was replaced nobody noted the rows.
        rows = file.rows if file.size_bytes == entry.size_bytes else None
        counter.add(entry.size_bytes, _format_name(entry), file.partition, rows, footer)
    report = counter.report(options.path, clock.seconds(), clock.cpu_seconds())
    if options.html is not None or options.png is not None:
        page = report_page(f"Layout of {report.path}", report, _charts(report))
        write_page(page, options.html, options.png)
    return report


def _charts(report: LayoutReport) -> list[Bars]:
    """Return the histogram, the largest partitions and the largest columns."""
    files = [each.files for each in report.histogram]
    charts = [Bars("Files by size", "files", list(map(class_text, report.histogram)), files)]
    partitions, columns = report.partitions[:_DRAWN], report.columns[:_DRAWN]
    if partitions:
        sizes = [round(each.bytes / _MIB, 3) for each in partitions]
        charts.append(Bars("Largest partitions", "MiB", list(map(partition_text, partitions)), sizes))
    if columns:
        sizes = [round(each.bytes / _MIB, 3) for each in columns]
        charts.append(Bars("Largest columns, as stored", "MiB", [each.name for each in columns], sizes))
    return charts


def _format_name(entry: StoredObject) -> str:
    found = format_of(entry)
    return "other" if found is None else found.name


def _stored_as(entry: StoredObject) -> StoredObject:
    """Return a file by the format in which it is stored, also if only some of its rows are items."""
    return replace(entry, format=PARQUET.name) if entry.format == LAKE_ROWS.name else entry
