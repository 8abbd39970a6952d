"""Offer the verbs about backups; decide nothing that a verb should decide."""

from __future__ import annotations

import json
from typing import Any

import click

from ddbio.cli.flags import JSON_FLAG, flags_of, parse_flags
from ddbio.cli.show import format_bytes, format_values
from ddbio.cli.waiting import JobWatch
from ddbio.ops import backup as ops
from ddbio.options import BackupCreateOptions, ConnectionOptions, RestoreOptions

_DRY_RUN = click.option("--dry-run", is_flag=True, help="Check everything, print what would be done, do none of it.")


@click.group()
def backup() -> None:
    """Make backups of tables, and new tables of backups or of a table's past."""


@backup.command()
@click.argument("table")
@flags_of(BackupCreateOptions, without=["table"])
@_DRY_RUN
@JSON_FLAG
def create(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Back TABLE up, and wait until the backup can be restored."""
    options = parse_flags(BackupCreateOptions, flags)
    result: Any = ops.describe_source(options) if dry_run else ops.create(options, JobWatch("backup").look)
    click.echo(result.to_json() if as_json else format_values(result.to_dict()))


@backup.command("list")
@click.argument("table", required=False)
@flags_of(ConnectionOptions)
@JSON_FLAG
def list_backups(*, as_json: bool, table: str | None, **flags: Any) -> None:
    """List the backups of TABLE or of all tables, those of AWS Backup included."""
    found = ops.list_of(table, parse_flags(ConnectionOptions, flags))
    if as_json:
        click.echo(json.dumps({"backups": [each.to_dict() for each in found]}))
        return
    lines = (
        f"{each.status:<11}{each.table}  {format_bytes(each.size_bytes)}  {each.name}  {each.arn}" for each in found
    )
    click.echo("\n".join(lines) or "no backup")


@backup.command()
@click.argument("source")
@click.argument("target")
@flags_of(RestoreOptions, without=["source", "target"])
@_DRY_RUN
@JSON_FLAG
def restore(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Make the new table TARGET of SOURCE, and wait until it can be used.

    SOURCE is the ARN of a backup, or a table that has point-in-time recovery: then as of --at, or of the latest time.
    """
    options = parse_flags(RestoreOptions, flags)
    result: Any = ops.plan_of(options) if dry_run else ops.restore(options, JobWatch("restore").look)
    click.echo(result.to_json() if as_json else format_values(result.to_dict()))
