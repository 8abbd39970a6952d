"""Report of a dataset's layout in files, from the footers of Parquet and ORC; no row is read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddbio.charts.page import Bars, report_page, write_page
from ddbio.formats.lake_columns import LAKE_ROWS
from ddbio.formats.layout import LayoutCounter, class_text, partition_text
from ddbio.formats.parquet import PARQUET
from ddbio.formats.registry import format_of
from ddbio.formats.row_files import FooterReader
from ddbio.formats.scanned_bytes import ScannedBytes, charged_bytes
from ddbio.jobs.costs import prices_of
from ddbio.jobs.report import Clock
from ddbio.sources.data_files import find_data

if TYPE_CHECKING:
    from ddbio.folders.options import LayoutOptions
    from ddbio.formats.layout import LayoutReport
    from ddbio.formats.scanned_bytes import QueryCost
    from ddbio.jobs.estimate import Prices
    from ddbio.storage.staged import StoredObject

_MIB = 1024 * 1024
TB = 1024**4
"""A TB as AWS bills it."""
_ATHENA, _SPECTRUM = "athena_scan", "spectrum_scan"
# Maximum number of bars in a chart.
_MAX_BARS = 30


def layout(options: LayoutOptions) -> LayoutReport:
    """Return the layout of a dataset: file sizes, small files, row groups, partitions, bytes of columns, query costs.

    Only the footers of Parquet and ORC are read, and no row.

    Raises
    ------
    NotFoundError
        If the folder has no file of rows.
    DecodeError
        If the footer of a file is damaged.
    OptionError
        If charts are requested and matplotlib is not installed, or no file has a requested column or partition.
    TargetError
        If a page cannot be written.
    """
    clock = Clock()
    data = find_data(options.path, options, options.input_format)
    files = [(data.live_file(file), _stored_as(file)) for file in data.files]
    counter, queries = LayoutCounter(int(options.small_than)), _queries(options)
    reader = FooterReader(data.store, reads_streams=options.columns is not None)
    footers = reader.read_ahead(entry for _, entry in files)
    for (file, entry), footer in zip(files, footers, strict=True):
        # The number of rows of a replaced file is not recorded.
        rows = file.rows if file.size_bytes == entry.size_bytes else None
        counter.add(entry.size_bytes, _format_name(entry), file.partition, rows, footer)
        for query in queries:
            query.add(entry.size_bytes, file.partition, footer)
    prices = prices_of(options.region, options.prices)
    report = replace(
        counter.report(options.path, clock.seconds(), clock.cpu_seconds()),
        queries=tuple(_priced(query.cost(), prices) for query in queries),
        notes=prices.cost([("scan", name, 1.0) for name in (_ATHENA, _SPECTRUM)]).notes,
    )
    if options.html is not None or options.png is not None:
        page = report_page(f"Layout of {report.path}", report, _charts(report))
        write_page(page, options.html, options.png)
    return report


def _queries(options: LayoutOptions) -> list[ScannedBytes]:
    """Return the counters of a query of everything, and of the requested columns and partition."""
    pairs = (text.partition("=") for text in options.partition or ())
    partition = {name: value for name, _, value in pairs}
    everything = [ScannedBytes(None, {})]
    if options.columns is None and not partition:
        return everything
    return [*everything, ScannedBytes(options.columns, partition)]


def _priced(query: QueryCost, prices: Prices) -> QueryCost:
    """Return a query with its cost in Athena and in Redshift Spectrum."""
    terabytes = charged_bytes(query.bytes) / TB
    return replace(
        query,
        athena_usd=prices.book.usd(_ATHENA, terabytes),
        spectrum_usd=prices.book.usd(_SPECTRUM, terabytes),
    )


def _charts(report: LayoutReport) -> list[Bars]:
    """Return the histogram, the largest partitions and the largest columns."""
    files = [size_class.files for size_class in report.histogram]
    charts = [Bars("Files by size", "files", list(map(class_text, report.histogram)), files)]
    partitions, columns = report.partitions[:_MAX_BARS], report.columns[:_MAX_BARS]
    if partitions:
        sizes = [round(partition.bytes / _MIB, 3) for partition in partitions]
        charts.append(Bars("Largest partitions", "MiB", list(map(partition_text, partitions)), sizes))
    if columns:
        sizes = [round(column.bytes / _MIB, 3) for column in columns]
        charts.append(Bars("Largest columns, as stored", "MiB", [column.name for column in columns], sizes))
    return charts


def _format_name(entry: StoredObject) -> str:
    file_format = format_of(entry)
    return "other" if file_format is None else file_format.name


def _stored_as(entry: StoredObject) -> StoredObject:
    """Return a file with its stored format, even if only some of its rows are items."""
    return replace(entry, format=PARQUET.name) if entry.format == LAKE_ROWS.name else entry
