"""The commands about whole tables: ``table create-like``, ``describe`` and ``backup create``, ``list``, ``restore``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import flags_of, is_quiet, output_flags, parse_flags
from ddbio.cli.progress import JobWatch
from ddbio.cli.show import format_bytes, format_values, print_plan
from ddbio.options import BackupCreateOptions, ConnectionOptions, CreateLikeOptions, CreateTableOptions, RestoreOptions

if TYPE_CHECKING:
    from ddbio.aws.table_description import TableDescription

_DRY_RUN = click.option("--dry-run", is_flag=True, help="Check everything, print what would be done, do none of it.")


@click.group()
def table() -> None:
    """Create and describe tables."""


@table.command("create")
@click.argument("table")
@flags_of(CreateTableOptions, without=["table"])
@output_flags
def create_table(*, as_json: bool, **flags: Any) -> None:
    """Create table TABLE with the key --key, and wait until it is ACTIVE."""
    from ddbio.load import tables

    made = tables.create(parse_flags(CreateTableOptions, flags))
    click.echo(made.to_json() if as_json else f"table {made.table} is ACTIVE")


@table.command()
@click.argument("table")
@flags_of(ConnectionOptions)
@output_flags
def describe(*, as_json: bool, table: str, **flags: Any) -> None:
    """Print key, size, billing and indexes of TABLE."""
    from ddbio.load import tables

    found = tables.describe(table, parse_flags(ConnectionOptions, flags))
    click.echo(found.to_json() if as_json else format_table(found))


@table.command("create-like")
@click.argument("source")
@click.argument("target")
@flags_of(CreateLikeOptions, without=["source", "target"])
@output_flags
def create_like(*, as_json: bool, **flags: Any) -> None:
    """Create table TARGET like table SOURCE, without its items, and wait until it is ACTIVE."""
    from ddbio.load import tables

    made = tables.create_like(parse_flags(CreateLikeOptions, flags))
    click.echo(made.to_json() if as_json else f"table {made.table} is ACTIVE")


@click.group()
def backup() -> None:
    """Make backups of tables, and new tables of backups or of a table's past."""


@backup.command()
@click.argument("table")
@flags_of(BackupCreateOptions, without=["table"])
@_DRY_RUN
@output_flags
def create(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Back TABLE up, and wait until the backup can be restored."""
    from ddbio.export import backup as ops

    options = parse_flags(BackupCreateOptions, flags)
    if dry_run:
        print_plan(ops.plan_of_backup(options), as_json=as_json)
        return
    job = ops.create(options, JobWatch("backup", quiet=is_quiet()).look)
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


@backup.command("list")
@click.argument("table", required=False)
@flags_of(ConnectionOptions)
@output_flags
def list_backups(*, as_json: bool, table: str | None, **flags: Any) -> None:
    """List the backups of TABLE or of all tables, those of AWS Backup included."""
    from ddbio.export import backup as ops

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
@output_flags
def restore(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Make the new table TARGET of SOURCE, and wait until it can be used.

    SOURCE is the ARN of a backup, or a table that has point-in-time recovery: then as of --at, or of the latest time.
    """
    from ddbio.export import backup as ops

    options = parse_flags(RestoreOptions, flags)
    if dry_run:
        print_plan(ops.plan_of(options), as_json=as_json)
        return
    job = ops.restore(options, JobWatch("restore", quiet=is_quiet()).look)
    click.echo(job.to_json() if as_json else format_values(job.to_dict()))


# Also `table restore`: what is made is a table.
table.add_command(restore)


def format_table(found: TableDescription) -> str:
    """Return a table's description as lines of name and value."""
    billing = "on-demand" if found.on_demand else f"provisioned, {found.rcu:g} RCU/s and {found.wcu:g} WCU/s"
    rows = [
        ("table", f"{found.name} ({found.status})"),
        ("arn", found.arn),
        ("key", ", ".join(f"{name}:{tag}" for name, tag in found.key_types)),
        ("size", f"{found.item_count:,} items, {format_bytes(found.size_bytes)}, as the service last counted"),
        ("billing", billing),
    ]
    rows += [("index", f"{index.name} ({', '.join(index.key_names)})") for index in found.indexes]
    return "\n".join(f"{name:<9}{value}" for name, value in rows)
