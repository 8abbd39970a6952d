"""Load files into a live table from the command line; print what became of every row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import JSON_FLAG, flags_of, parse_flags
from ddbio.ops.load import load as load_files
from ddbio.options import LoadOptions

if TYPE_CHECKING:
    from ddbio.ops.report import WriteReport


@click.command()
@click.argument("source")
@click.argument("table")
@flags_of(LoadOptions, without=["source", "table"])
@JSON_FLAG
def load(*, as_json: bool, **flags: Any) -> None:
    """Write the rows of SOURCE, a file, folder or glob of any format, here or on S3, into TABLE."""
    report = load_files(parse_flags(LoadOptions, flags))
    click.echo(report.to_json() if as_json else format_write(report))


def format_write(report: WriteReport) -> str:
    """Return a write's report as lines of name and value."""
    asked = "no budget" if report.wcu_asked_per_second is None else f"asked {report.wcu_asked_per_second:g} WCU/s"
    peak = "" if report.wcu_peak_10s_ratio is None else f", busiest 10 s at {report.wcu_peak_10s_ratio:.1%} of it"
    fates = f"{report.written:,} written, {report.skipped:,} skipped, {report.rejected:,} rejected"
    rows = [
        ("rows", f"{report.rows:,}: {fates}"),
        ("time", f"{report.seconds:.1f} s, of CPU {report.cpu_seconds:.1f} s, writing {report.write_seconds:.1f} s"),
        ("capacity", f"{report.wcu_consumed:,.1f} WCU used, {asked}{peak}"),
        ("retries", f"{report.retries:,}"),
    ]
    if report.throttles:
        rows.append(("throttled", ", ".join(f"{count} × {reason}" for reason, count in report.throttles.items())))
    return "\n".join(f"{name:<10}{value}" for name, value in rows)
