"""Offer the verbs about increments: fold them into a full export, and tell which to request; decide nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import CONF_FLAG, JSON_FLAG, MASTER_FLAG, flags_of, parse_conf, parse_flags
from ddbio.cli.show import counted, file_rows
from ddbio.ops.exports.fold import fold_to_files, windows_to_request
from ddbio.options import ExportFoldOptions, ExportWindowsOptions

if TYPE_CHECKING:
    from ddbio.ops.exports.fold import ExportFoldReport


@click.command()
@click.argument("base")
@click.argument("increments", nargs=-1, required=True)
@click.argument("dest")
@flags_of(ExportFoldOptions, without=["source", "dest"])
@MASTER_FLAG
@CONF_FLAG
@JSON_FLAG
def fold(
    *, as_json: bool, master: str | None, conf: tuple[str, ...], base: str, increments: tuple[str, ...], **flags: Any
) -> None:
    """Write at DEST the table's state after the full export BASE and the incremental exports INCREMENTS.

    Each is the folder of one export; increments come in any order, and each begins where what is before it ends.
    """
    options = parse_flags(ExportFoldOptions, {**flags, "source": base})
    report = fold_to_files(options, increments, master=master, conf=parse_conf(conf))
    click.echo(report.to_json() if as_json else format_fold_report(report))


@click.command()
@click.argument("base")
@click.argument("increments", nargs=-1)
@flags_of(ExportWindowsOptions, without=["source"])
@JSON_FLAG
def windows(*, as_json: bool, base: str, increments: tuple[str, ...], **flags: Any) -> None:
    """Tell which incremental exports to request so that they follow the full export BASE without a gap.

    INCREMENTS are those that are there already. Nothing is requested: each line has the flags of ddbio export start.
    """
    found = windows_to_request(parse_flags(ExportWindowsOptions, {**flags, "source": base}), increments)
    times = [{"from_time": each.start.isoformat(), "to_time": each.end.isoformat()} for each in found]
    if as_json:
        click.echo(json.dumps({"windows": times}))
    else:
        lines = [f"--from {each['from_time']} --to {each['to_time']}" for each in times]
        click.echo("\n".join(lines) or "nothing to request yet")


def format_fold_report(report: ExportFoldReport) -> str:
    """Return the report for people, as lines of name and value, then its files."""
    rows = [
        ("state", f"at {report.state_at}, {counted(report.windows, 'window')} after the full export"),
        ("items", f"{report.items:,} items and {report.changes:,} changes read, {report.rows:,} rows written"),
        ("source", f"{counted(report.files_read, 'file')}, {report.json_bytes / 1e6:,.1f} MB of text, all verified"),
        ("time", f"{report.seconds:.1f} s, of CPU {report.cpu_seconds:.1f} s ({report.engine})"),
    ]
    rows += [("misfit", f"{m.count} × {m.path}: {m.kind}, e.g. {m.example}") for m in report.misfits]
    rows += file_rows(report.files)
    return "\n".join(f"{name:<10}{value}" for name, value in rows)
