"""The commands that look at what is there: ``layout``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import flags_of, output_flags, parse_flags
from ddbio.cli.show import counted, format_bytes
from ddbio.options import LayoutOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from ddbio.core.layout import LayoutReport

_SHOWN = 20


@click.command()
@click.argument("path")
@flags_of(LayoutOptions, without=["path"])
@output_flags
def layout(*, as_json: bool, **flags: Any) -> None:
    """Report how a dataset at PATH lies in files: sizes, small files, partitions, columns.

    Only the footers of Parquet and ORC are read, and no row.
    """
    from ddbio.ops import layout as layouts

    report = layouts.layout(parse_flags(LayoutOptions, flags))
    if as_json:
        click.echo(report.to_json())
    else:
        _print_layout(report)


def _print_layout(report: LayoutReport) -> None:
    from rich.console import Console

    from ddbio.charts.layout import class_text, partition_text

    rows = "rows not known" if report.rows is None else counted(report.rows, "row")
    means = {
        "row groups a file": report.row_groups_per_file,
        "rows a file": report.rows_per_file,
        "bytes a row": report.bytes_per_row,
        "compression": report.compression_ratio,
        "skew": report.skew,
    }
    lines = [
        ("files", f"{report.files:,} ({', '.join(f'{name} {n:,}' for name, n in report.formats.items())}), {rows}"),
        ("size", f"{format_bytes(report.bytes)}, half of the files below {format_bytes(report.median_file_bytes)}"),
        ("small", f"{report.small_file_ratio:.1%} of the files are below {format_bytes(report.small_than)}"),
        ("means", ", ".join(f"{name} {value:,g}" for name, value in means.items() if value is not None)),
    ]
    click.echo("\n".join(f"{name:<9}{value}" for name, value in lines if value))
    console = Console(file=sys.stdout, highlight=False)
    _print_table(
        console, ("size", "files", "bytes"),
        [(class_text(each), f"{each.files:,}", format_bytes(each.bytes)) for each in report.histogram],
    )  # fmt: skip
    if report.partitions:
        found = [
            (
                partition_text(each), f"{each.files:,}", format_bytes(each.bytes),
                "" if each.rows is None else f"{each.rows:,}", f"{each.small_files:,}",
            )
            for each in report.partitions[:_SHOWN]
        ]  # fmt: skip
        _print_table(console, ("partition", "files", "bytes", "rows", "small files"), found, len(report.partitions))
    if report.columns:
        largest = [
            (each.name, format_bytes(each.bytes), format_bytes(each.uncompressed_bytes), f"{each.bytes_per_row:,g}")
            for each in report.columns[:_SHOWN]
        ]
        _print_table(console, ("column", "stored", "uncompressed", "bytes a row"), largest, len(report.columns))


def _print_table(console: Console, names: Sequence[str], rows: Iterable[Sequence[str]], whole: int = 0) -> None:
    """Print a table, its first column as text and the others as numbers, and how many rows there are beyond it."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    for place, name in enumerate(names):
        shown.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        # A name in brackets is no style.
        shown.add_row(*(each.replace("[", r"\[") for each in row))
    console.print()
    console.print(shown)
    if whole > _SHOWN:
        console.print(f"… and {whole - _SHOWN:,} more: --json has all")
