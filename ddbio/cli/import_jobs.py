"""Offer the verbs that start, await and list the service's own imports; decide nothing that a verb should decide."""

from __future__ import annotations

import json
from typing import Any

import click

from ddbio.cli.flags import JSON_FLAG, flags_of, parse_flags
from ddbio.cli.show import format_values
from ddbio.cli.waiting import JobWatch
from ddbio.ops.imports import jobs as import_start
from ddbio.options import ConnectionOptions, ImportStartOptions, ImportWaitOptions


@click.command()
@click.argument("source")
@click.argument("table")
@flags_of(ImportStartOptions, without=["source", "table"])
@click.option("--dry-run", is_flag=True, help="Check everything, print the plan, start nothing.")
@JSON_FLAG
def start(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Start the service's own import of the objects below SOURCE, s3://bucket/prefix, into a new TABLE."""
    options = parse_flags(ImportStartOptions, flags)
    result = import_start.plan_of(options) if dry_run else import_start.start(options)
    click.echo(result.to_json() if as_json else format_values(result.to_dict()))


@click.command()
@click.argument("arn")
@flags_of(ImportWaitOptions, without=["arn"])
@JSON_FLAG
def wait(*, as_json: bool, **flags: Any) -> None:
    """Wait until the import ARN has completed; fail if it fails, or wrote another number of items than its files."""
    job = import_start.wait(parse_flags(ImportWaitOptions, flags), JobWatch("import").look)
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


@click.command("list")
@click.argument("table", required=False)
@flags_of(ConnectionOptions)
@JSON_FLAG
def list_imports(*, as_json: bool, table: str | None, **flags: Any) -> None:
    """List the imports of the last 90 days, of TABLE or of all."""
    found = import_start.list_of(table, parse_flags(ConnectionOptions, flags))
    if as_json:
        click.echo(json.dumps({"imports": [each.to_dict() for each in found]}))
    else:
        click.echo("\n".join(f"{each.status:<12}{each.source}  {each.arn}" for each in found) or "no import")


@click.command()
@click.argument("arn")
@flags_of(ConnectionOptions)
@JSON_FLAG
def show(*, as_json: bool, arn: str, **flags: Any) -> None:
    """Show what is known of the import ARN."""
    job = import_start.describe(arn, parse_flags(ConnectionOptions, flags))
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))
