"""The commands about the service's own imports from S3: those of ``import`` and those of ``bulk``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import flags_of, is_quiet, output_flags, parse_flags
from ddbio.cli.progress import JobWatch
from ddbio.cli.show import counted, file_rows, format_values, layout_rows, print_plan, skipped_rows
from ddbio.options import (
    BulkReportOptions,
    BulkStartOptions,
    ConnectionOptions,
    ImportFilesFromOptions,
    ImportStartOptions,
    ImportWaitOptions,
    WaitOptions,
)

if TYPE_CHECKING:
    from ddbio.load.import_files import ImportFilesReport


@click.group("import")
def import_table() -> None:
    """Work with DynamoDB's own import of new tables from S3."""


@import_table.command()
@click.argument("source")
@click.argument("dest")
@flags_of(ImportFilesFromOptions, without=["source", "dest"])
@click.option("--dry-run", is_flag=True, help="Read and check every row; write nothing.")
@output_flags
def files(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Write the rows of SOURCE, a file, folder or glob, as files for an import, to DEST.

    Every item is checked and every key occurs once, or nothing is written.
    """
    from ddbio.load import import_files

    options = parse_flags(ImportFilesFromOptions, flags)
    report = import_files.check_files(options) if dry_run else import_files.write_files(options)
    click.echo(report.to_json() if as_json else format_import_files(report))


@import_table.command()
@click.argument("source")
@click.argument("table")
@flags_of(ImportStartOptions, without=["source", "table"])
@click.option("--dry-run", is_flag=True, help="Check everything, print the plan, start nothing.")
@output_flags
def start(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Start the service's own import of the objects below SOURCE, s3://bucket/prefix, into a new TABLE."""
    from ddbio.export import imports as jobs

    options = parse_flags(ImportStartOptions, flags)
    if dry_run:
        print_plan(jobs.plan_of(options), as_json=as_json)
        return
    job = jobs.start(options)
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


@import_table.command()
@click.argument("arn")
@flags_of(ImportWaitOptions, without=["arn"])
@output_flags
def wait(*, as_json: bool, **flags: Any) -> None:
    """Wait until the import ARN has completed; fail if it fails, or wrote another number of items than its files."""
    from ddbio.export import imports as jobs

    job = jobs.wait(parse_flags(ImportWaitOptions, flags), JobWatch("import", quiet=is_quiet()).look)
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


@import_table.command("list")
@click.argument("table", required=False)
@flags_of(ConnectionOptions)
@output_flags
def list_imports(*, as_json: bool, table: str | None, **flags: Any) -> None:
    """List the imports of the last 90 days, of TABLE or of all."""
    from ddbio.export import imports as jobs

    found = jobs.list_of(table, parse_flags(ConnectionOptions, flags))
    if as_json:
        click.echo(json.dumps({"imports": [each.to_dict() for each in found]}))
    else:
        click.echo("\n".join(f"{each.status:<12}{each.source}  {each.arn}" for each in found) or "no import")


@import_table.command()
@click.argument("arn")
@flags_of(ConnectionOptions)
@output_flags
def describe(*, as_json: bool, arn: str, **flags: Any) -> None:
    """Show what is known of the import ARN."""
    from ddbio.export import imports as jobs

    job = jobs.describe(arn, parse_flags(ConnectionOptions, flags))
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


@click.group()
def bulk() -> None:
    """Let the service put files from S3 into a table that is there (new; experimental)."""


@bulk.command("start")
@click.argument("source")
@click.argument("table")
@click.argument("reports")
@flags_of(BulkStartOptions, without=["source", "table", "reports"])
@click.option("--dry-run", is_flag=True, help="Check everything, print the plan, start nothing.")
@output_flags
def start_bulk_put(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Start to put the objects below SOURCE into TABLE; what is refused goes to REPORTS. All on S3."""
    from ddbio.export import bulk as bulk_puts

    options = parse_flags(BulkStartOptions, flags)
    if dry_run:
        print_plan(bulk_puts.plan_of(options), as_json=as_json)
        return
    job = bulk_puts.start(options)
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


@bulk.command("wait")
@click.argument("arn")
@flags_of(WaitOptions, without=["arn"])
@output_flags
def wait_bulk_put(*, as_json: bool, **flags: Any) -> None:
    """Wait until the bulk operation ARN has put every item; fail if it fails or refuses some."""
    from ddbio.export import bulk as bulk_puts

    job = bulk_puts.wait(parse_flags(WaitOptions, flags), JobWatch("bulk put", quiet=is_quiet()).look)
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


@bulk.command("list")
@flags_of(ConnectionOptions)
@output_flags
def list_operations(*, as_json: bool, **flags: Any) -> None:
    """List the bulk operations of the last 90 days."""
    from ddbio.export import bulk as bulk_puts

    found = bulk_puts.list_of(parse_flags(ConnectionOptions, flags))
    if as_json:
        click.echo(json.dumps({"bulk_puts": [each.to_dict() for each in found]}))
    else:
        click.echo("\n".join(f"{each.status:<22}{each.arn}" for each in found) or "no bulk operation")


@bulk.command("describe")
@click.argument("arn")
@flags_of(ConnectionOptions)
@output_flags
def describe_bulk_put(*, as_json: bool, arn: str, **flags: Any) -> None:
    """Show what is known of the bulk operation ARN."""
    from ddbio.export import bulk as bulk_puts

    job = bulk_puts.describe(arn, parse_flags(ConnectionOptions, flags))
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


@bulk.command()
@click.argument("arn")
@flags_of(ConnectionOptions)
@output_flags
def cancel(*, as_json: bool, arn: str, **flags: Any) -> None:
    """Ask that the bulk operation ARN stops; what it has put stays."""
    from ddbio.export import bulk as bulk_puts

    job = bulk_puts.cancel(arn, parse_flags(ConnectionOptions, flags))
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


@bulk.command()
@click.argument("place")
@flags_of(BulkReportOptions, without=["place"])
@output_flags
def report(*, as_json: bool, **flags: Any) -> None:
    """Count what the bulk operation PLACE, an ARN, or reports below a prefix, say was not put, by reason."""
    from ddbio.export import bulk as bulk_puts

    found = bulk_puts.read_reports(parse_flags(BulkReportOptions, flags)).summary
    click.echo(found.to_json() if as_json else format_values(found.to_dict()))


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
    rows += layout_rows(report.layout) + file_rows(report.files, "item") + skipped_rows(report.files_skipped)
    return "\n".join(f"{name:<10}{value}" for name, value in rows)
