"""The commands about native exports: ``export start``, ``wait``, ``read``, ``fold`` and others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import CONF_FLAG, MASTER_FLAG, flags_of, is_quiet, output_flags, parse_conf, parse_flags
from ddbio.cli.progress import ExportProgress, JobWatch
from ddbio.cli.show import (
    catalog_rows,
    counted,
    file_rows,
    format_bytes,
    format_export_plan,
    format_values,
    layout_rows,
    merged_null_rows,
    planned_rows,
    print_plan,
    time_row,
)
from ddbio.options import (
    ConnectionOptions,
    ExportFoldOptions,
    ExportStartOptions,
    ExportToFilesOptions,
    ExportWindowsOptions,
    WaitOptions,
    connection_of,
)

if TYPE_CHECKING:
    from ddbio.export.fold import ExportFoldReport
    from ddbio.export.job import ExportJob
    from ddbio.export.read import ExportReadReport


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
@output_flags
def read(*, as_json: bool, dry_run: bool, master: str | None, conf: tuple[str, ...], **flags: Any) -> None:
    """Turn the export in folder SOURCE into files at DEST, every file verified.

    Both are s3://bucket/prefix or a local folder; SOURCE holds manifest-summary.json.
    """
    from ddbio.export.read import read_export_to_files

    options = parse_flags(ExportToFilesOptions, flags)
    if dry_run:
        _print_plan(options, as_json=as_json)
        return
    watch = ExportProgress(show_plan=not (as_json or is_quiet()), quiet=is_quiet())
    report = read_export_to_files(options, master=master, conf=parse_conf(conf), watch=watch)
    click.echo(report.to_json() if as_json else format_export_report(report))


@click.command("export-read")
@click.argument("source")
@click.argument("dest")
@flags_of(ExportToFilesOptions, without=["source", "dest"])
@output_flags
def plan_export_read(*, as_json: bool, **flags: Any) -> None:
    """Verify the export in folder SOURCE, and print how it would be read to DEST."""
    _print_plan(parse_flags(ExportToFilesOptions, flags), as_json=as_json)


def _print_plan(options: ExportToFilesOptions, *, as_json: bool) -> None:
    from ddbio.export.read import plan_of

    plan = plan_of(options)
    click.echo(plan.to_json() if as_json else format_export_plan(plan))


@export.command()
@click.argument("table")
@click.argument("dest")
@flags_of(ExportStartOptions, without=["table", "dest"])
@click.option("--dry-run", is_flag=True, help="Check everything, print the plan, start nothing.")
@click.option("--wait", "waits", is_flag=True, help="Wait until the export has completed, as export wait does.")
@output_flags
def start(*, as_json: bool, dry_run: bool, waits: bool, **flags: Any) -> None:
    """Start the service's own export of TABLE to DEST, s3://bucket/prefix; it costs no read units.

    With --from and --to it is incremental.
    """
    from ddbio.export import jobs

    options = parse_flags(ExportStartOptions, flags)
    if dry_run:
        print_plan(jobs.plan_of(options), as_json=as_json)
        return
    job = jobs.start(options)
    if waits:
        awaited = WaitOptions(**connection_of(options), arn=job.arn)
        job = jobs.wait(awaited, JobWatch("export", quiet=is_quiet()).look)
    click.echo(job.to_json() if as_json else format_export(job))


@export.command()
@click.argument("arn")
@flags_of(WaitOptions, without=["arn"])
@output_flags
def wait(*, as_json: bool, **flags: Any) -> None:
    """Wait until the export ARN has completed; fail if it fails."""
    from ddbio.export import jobs

    job = jobs.wait(parse_flags(WaitOptions, flags), JobWatch("export", quiet=is_quiet()).look)
    click.echo(job.to_json() if as_json else format_export(job))


@export.command("list")
@click.argument("table", required=False)
@flags_of(ConnectionOptions)
@output_flags
def list_exports(*, as_json: bool, table: str | None, **flags: Any) -> None:
    """List the exports of the last 90 days, of TABLE or of all."""
    from ddbio.export import jobs

    found = jobs.list_of(table, parse_flags(ConnectionOptions, flags))
    if as_json:
        click.echo(json.dumps({"exports": [each.to_dict() for each in found]}))
    else:
        click.echo("\n".join(f"{each.status:<12}{each.kind:<12}{each.arn}" for each in found) or "no export")


@export.command()
@click.argument("arn")
@flags_of(ConnectionOptions)
@output_flags
def describe(*, as_json: bool, arn: str, **flags: Any) -> None:
    """Show what is known of the export ARN."""
    from ddbio.export import jobs

    job = jobs.describe(arn, parse_flags(ConnectionOptions, flags))
    click.echo(job.to_json() if as_json else format_export(job))


@export.command()
@click.argument("base")
@click.argument("increments", nargs=-1, required=True)
@click.argument("dest")
@flags_of(ExportFoldOptions, without=["source", "dest", "key", "buckets"])
@MASTER_FLAG
@CONF_FLAG
@output_flags
def fold(
    *, as_json: bool, master: str | None, conf: tuple[str, ...], base: str, increments: tuple[str, ...], **flags: Any
) -> None:
    """Write at DEST the table's state after the full export BASE and the incremental exports INCREMENTS.

    Each is the folder of one export; increments come in any order, and each begins where what is before it ends.
    """
    from ddbio.export.fold import fold_to_files

    options = parse_flags(ExportFoldOptions, {**flags, "source": base})
    report = fold_to_files(options, increments, master=master, conf=parse_conf(conf))
    click.echo(report.to_json() if as_json else format_fold_report(report))


@export.command()
@click.argument("base")
@click.argument("increments", nargs=-1)
@flags_of(ExportWindowsOptions, without=["source"])
@output_flags
def windows(*, as_json: bool, base: str, increments: tuple[str, ...], **flags: Any) -> None:
    """Tell which incremental exports to request so that they follow the full export BASE without a gap.

    INCREMENTS are those that are there already. Nothing is requested: each line has the flags of ddbio export start.
    """
    from ddbio.export.fold import windows_to_request

    found = windows_to_request(parse_flags(ExportWindowsOptions, {**flags, "source": base}), increments)
    times = [{"from_time": each.start.isoformat(), "to_time": each.end.isoformat()} for each in found]
    if as_json:
        click.echo(json.dumps({"windows": times}))
    else:
        lines = [f"--from {each['from_time']} --to {each['to_time']}" for each in times]
        click.echo("\n".join(lines) or "nothing to request yet")


@click.command("export-fold")
@click.argument("base")
@click.argument("increments", nargs=-1, required=True)
@click.argument("dest")
@flags_of(ExportFoldOptions, without=["source", "dest", "key", "buckets"])
@output_flags
def plan_export_fold(*, as_json: bool, base: str, increments: tuple[str, ...], **flags: Any) -> None:
    """Verify the full export BASE and the INCREMENTS, and print how they would be folded to DEST."""
    from ddbio.export.fold import plan_of

    print_plan(plan_of(parse_flags(ExportFoldOptions, {**flags, "source": base}), increments), as_json=as_json)


def format_export_report(report: ExportReadReport) -> str:
    """Return the report for people, as lines of name and value, then its files."""
    speed = report.json_bytes / 1e6 / max(report.cpu_seconds, 1e-9)
    rows = [
        ("export", report.kind + (", FILTERED: it is not the whole table" if report.filtered else "")),
        ("items", f"{report.items:,} read, {report.rows:,} rows written, {report.rescued:,} with a rescued value"),
        ("source", f"{counted(report.files_read, 'file')}, {report.json_bytes / 1e6:,.1f} MB of text, all verified"),
        time_row(report),
        ("speed", f"{speed:,.1f} MB of text a CPU-second"),
        *planned_rows(report.planned, report.actual),
    ]
    rows += [("misfit", f"{m.count} × {m.path}: {m.kind}, e.g. {m.example}") for m in report.misfits]
    rows += merged_null_rows(report.merged_nulls)
    rows += catalog_rows(report.catalog) + layout_rows(report.layout) + file_rows(report.files)
    return "\n".join(f"{name:<10}{value}" for name, value in rows)


def format_fold_report(report: ExportFoldReport) -> str:
    """Return the report for people, as lines of name and value, then its files."""
    rows = [
        ("state", f"at {report.state_at}, {counted(report.windows, 'window')} after the full export"),
        ("items", f"{report.items:,} items and {report.changes:,} changes read, {report.rows:,} rows written"),
        ("source", f"{counted(report.files_read, 'file')}, {report.json_bytes / 1e6:,.1f} MB of text, all verified"),
        ("time", f"{report.seconds:.1f} s, of CPU {report.cpu_seconds:.1f} s ({report.engine})"),
        *planned_rows(report.planned, report.actual),
    ]
    rows += [("misfit", f"{m.count} × {m.path}: {m.kind}, e.g. {m.example}") for m in report.misfits]
    rows += merged_null_rows(report.merged_nulls)
    rows += catalog_rows(report.catalog) + layout_rows(report.layout) + file_rows(report.files)
    return "\n".join(f"{name:<10}{value}" for name, value in rows)


def format_export(job: ExportJob) -> str:
    """Return what is known of an export as lines of name and value."""
    values = job.to_dict()
    if job.billed_bytes is not None:
        values["billed_bytes"] = f"{job.billed_bytes:,} ({format_bytes(job.billed_bytes)})"
    return format_values(values)
