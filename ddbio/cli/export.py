"""Offer the verbs about native exports; decide nothing that a verb should decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddbio.cli import export_jobs
from ddbio.cli.export_fold import fold, windows
from ddbio.cli.flags import CONF_FLAG, JSON_FLAG, MASTER_FLAG, flags_of, parse_conf, parse_flags
from ddbio.cli.progress import ExportProgress
from ddbio.cli.show import counted, file_rows, format_export_plan, time_row
from ddbio.ops.exports.read import plan_of, read_export_to_files
from ddbio.options import ExportToFilesOptions

if TYPE_CHECKING:
    from ddbio.ops.exports.read import ExportReadReport


@click.group()
def export() -> None:
    """Work with DynamoDB's native exports to S3."""


@export.command()
@click.argument("source")
@click.argument("dest")
@flags_of(ExportToFilesOptions, without=["source", "dest"])
@MASTER_FLAG
@CONF_FLAG
@click.option("--dry-run", is_flag=True, help="Verify the manifests, see that every file is there, and write nothing.")
@JSON_FLAG
def read(*, as_json: bool, dry_run: bool, master: str | None, conf: tuple[str, ...], **flags: Any) -> None:
    """Turn the export in folder SOURCE into files at DEST, every file verified.

    Both are s3://bucket/prefix or a local folder; SOURCE holds manifest-summary.json.
    """
    options = parse_flags(ExportToFilesOptions, flags)
    if dry_run:
        plan = plan_of(options)
        click.echo(plan.to_json() if as_json else format_export_plan(plan))
        return
    watch = ExportProgress(show_plan=not as_json)
    report = read_export_to_files(options, master=master, conf=parse_conf(conf), watch=watch)
    click.echo(report.to_json() if as_json else format_export_report(report))


for verb in (export_jobs.start, export_jobs.wait, export_jobs.list_exports, export_jobs.show, fold, windows):
    export.add_command(verb)


def format_export_report(report: ExportReadReport) -> str:
    """Return the report for people, as lines of name and value, then its files."""
    speed = report.json_bytes / 1e6 / max(report.cpu_seconds, 1e-9)
    rows = [
        ("export", report.kind + (", FILTERED: it is not the whole table" if report.filtered else "")),
        ("items", f"{report.items:,} read, {report.rows:,} rows written, {report.rescued:,} with a rescued value"),
        ("source", f"{counted(report.files_read, 'file')}, {report.json_bytes / 1e6:,.1f} MB of text, all verified"),
        time_row(report),
        ("speed", f"{speed:,.1f} MB of text a CPU-second"),
    ]
    rows += [("misfit", f"{m.count} × {m.path}: {m.kind}, e.g. {m.example}") for m in report.misfits]
    rows += file_rows(report.files)
    return "\n".join(f"{name:<10}{value}" for name, value in rows)
