"""Offer the verbs about the service's own import from S3; decide nothing that a verb should decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddbio.cli import import_jobs
from ddbio.cli.flags import JSON_FLAG, flags_of, parse_flags
from ddbio.cli.show import counted, file_rows
from ddbio.ops.imports import files as import_files
from ddbio.options import ImportFilesFromOptions

if TYPE_CHECKING:
    from ddbio.ops.imports.files import ImportFilesReport


@click.group("import")
def import_table() -> None:
    """Work with DynamoDB's own import of new tables from S3."""


@import_table.command()
@click.argument("source")
@click.argument("dest")
@flags_of(ImportFilesFromOptions, without=["source", "dest"])
@click.option("--dry-run", is_flag=True, help="Read and check every row; write nothing.")
@JSON_FLAG
def files(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Write the rows of SOURCE, a file, folder or glob, as files for an import, to DEST.

    Every item is checked and every key occurs once, or nothing is written.
    """
    options = parse_flags(ImportFilesFromOptions, flags)
    report = import_files.check_files(options) if dry_run else import_files.write_files(options)
    click.echo(report.to_json() if as_json else format_import_files(report))


for verb in (import_jobs.start, import_jobs.wait, import_jobs.list_imports, import_jobs.show):
    import_table.add_command(verb)


def format_import_files(report: ImportFilesReport) -> str:
    """Return the report for people, as lines of name and value, then its files."""
    speed = report.json_bytes / 1e6 / max(report.cpu_seconds, 1e-9)
    rows = [
        ("items", f"{report.items:,} of {counted(report.rows, 'row')}, {report.duplicates:,} left out for their key"),
        ("import", f"{report.uri}, key {report.key}, {report.format}, {report.compression}"),
        ("text", f"{report.json_bytes / 1e6:,.1f} MB before compression, {speed:,.1f} MB a CPU-second"),
        ("time", f"{report.seconds:.1f} s, of CPU {report.cpu_seconds:.1f} s"),
    ]
    if report.digest is not None:
        rows.append(("digest", report.digest))
    rows += file_rows(report.files, "item")
    return "\n".join(f"{name:<10}{value}" for name, value in rows)
