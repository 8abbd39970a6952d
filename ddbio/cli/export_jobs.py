"""Offer the verbs that start, await and list native exports; decide nothing that a verb should decide."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import JSON_FLAG, flags_of, parse_flags
from ddbio.cli.show import format_bytes, format_values
from ddbio.cli.waiting import JobWatch
from ddbio.ops.exports import jobs as export_start
from ddbio.options import ConnectionOptions, ExportStartOptions, WaitOptions

if TYPE_CHECKING:
    from ddbio.core.exports.jobs import ExportJob


@click.command()
@click.argument("table")
@click.argument("dest")
@flags_of(ExportStartOptions, without=["table", "dest"])
@click.option("--dry-run", is_flag=True, help="Check everything, print the plan, start nothing.")
@JSON_FLAG
def start(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Start the service's own export of TABLE to DEST, s3://bucket/prefix; it costs no read units.

    With --from and --to it is incremental.
    """
    options = parse_flags(ExportStartOptions, flags)
    result = export_start.plan_of(options) if dry_run else export_start.start(options)
    click.echo(result.to_json() if as_json else format_values(result.to_dict()))


@click.command()
@click.argument("arn")
@flags_of(WaitOptions, without=["arn"])
@JSON_FLAG
def wait(*, as_json: bool, **flags: Any) -> None:
    """Wait until the export ARN has completed; fail if it fails."""
    job = export_start.wait(parse_flags(WaitOptions, flags), JobWatch("export").look)
    click.echo(job.to_json() if as_json else format_export(job))


@click.command("list")
@click.argument("table", required=False)
@flags_of(ConnectionOptions)
@JSON_FLAG
def list_exports(*, as_json: bool, table: str | None, **flags: Any) -> None:
    """List the exports of the last 90 days, of TABLE or of all."""
    found = export_start.list_of(table, parse_flags(ConnectionOptions, flags))
    if as_json:
        click.echo(json.dumps({"exports": [each.to_dict() for each in found]}))
    else:
        click.echo("\n".join(f"{each.status:<12}{each.kind:<12}{each.arn}" for each in found) or "no export")


@click.command()
@click.argument("arn")
@flags_of(ConnectionOptions)
@JSON_FLAG
def show(*, as_json: bool, arn: str, **flags: Any) -> None:
    """Show what is known of the export ARN."""
    job = export_start.describe(arn, parse_flags(ConnectionOptions, flags))
    click.echo(job.to_json() if as_json else format_export(job))


def format_export(job: ExportJob) -> str:
    """Return what is known of an export as lines of name and value."""
    values = job.to_dict()
    if job.billed_bytes is not None:
        values["billed_bytes"] = f"{job.billed_bytes:,} ({format_bytes(job.billed_bytes)})"
    return format_values(values)
