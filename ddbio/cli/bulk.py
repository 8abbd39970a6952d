"""Offer the verbs about bulk puts; decide nothing that a verb should decide."""

from __future__ import annotations

import json
from typing import Any

import click

from ddbio.cli.flags import JSON_FLAG, flags_of, parse_flags
from ddbio.cli.show import format_values
from ddbio.cli.waiting import JobWatch
from ddbio.ops.imports import bulk as ops
from ddbio.options import BulkReportOptions, BulkStartOptions, ConnectionOptions, WaitOptions


@click.group()
def bulk() -> None:
    """Let the service put files from S3 into a table that is there (new; experimental)."""


@bulk.command()
@click.argument("source")
@click.argument("table")
@click.argument("reports")
@flags_of(BulkStartOptions, without=["source", "table", "reports"])
@click.option("--dry-run", is_flag=True, help="Check everything, print the plan, start nothing.")
@JSON_FLAG
def start(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Start to put the objects below SOURCE into TABLE; what is refused goes to REPORTS. All on S3."""
    options = parse_flags(BulkStartOptions, flags)
    result: Any = ops.plan_of(options) if dry_run else ops.start(options)
    click.echo(result.to_json() if as_json else format_values(result.to_dict()))


@bulk.command()
@click.argument("arn")
@flags_of(WaitOptions, without=["arn"])
@JSON_FLAG
def wait(*, as_json: bool, **flags: Any) -> None:
    """Wait until the bulk operation ARN has put every item; fail if it fails or refuses some."""
    job = ops.wait(parse_flags(WaitOptions, flags), JobWatch("bulk put").look)
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


@bulk.command("list")
@flags_of(ConnectionOptions)
@JSON_FLAG
def list_operations(*, as_json: bool, **flags: Any) -> None:
    """List the bulk operations of the last 90 days."""
    found = ops.list_of(parse_flags(ConnectionOptions, flags))
    if as_json:
        click.echo(json.dumps({"bulk_puts": [each.to_dict() for each in found]}))
    else:
        click.echo("\n".join(f"{each.status:<22}{each.arn}" for each in found) or "no bulk operation")


@bulk.command()
@click.argument("arn")
@flags_of(ConnectionOptions)
@JSON_FLAG
def show(*, as_json: bool, arn: str, **flags: Any) -> None:
    """Show what is known of the bulk operation ARN."""
    job = ops.describe(arn, parse_flags(ConnectionOptions, flags))
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


@bulk.command()
@click.argument("arn")
@flags_of(ConnectionOptions)
@JSON_FLAG
def cancel(*, as_json: bool, arn: str, **flags: Any) -> None:
    """Ask that the bulk operation ARN stops; what it has put stays."""
    job = ops.cancel(arn, parse_flags(ConnectionOptions, flags))
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


@bulk.command()
@click.argument("place")
@flags_of(BulkReportOptions, without=["place"])
@JSON_FLAG
def report(*, as_json: bool, **flags: Any) -> None:
    """Count what the bulk operation PLACE, an ARN, or reports below a prefix, say was not put, by reason."""
    found = ops.read_reports(parse_flags(BulkReportOptions, flags)).summary
    click.echo(found.to_json() if as_json else format_values(found.to_dict()))
