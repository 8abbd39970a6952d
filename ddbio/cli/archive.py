"""The command ``archive`` and its parts ``restore`` and ``expired``."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from ddbio.cli.flags import flags_of, output_flags, parse_flags
from ddbio.cli.parts import CommandWithParts
from ddbio.cli.show import format_values
from ddbio.options import ArchiveOptions, ArchiveRestoreOptions, ExpiredReadOptions


@click.command(cls=CommandWithParts)
@click.argument("source")
@click.argument("dest")
@flags_of(ArchiveOptions, without=["source", "dest"])
@output_flags
def archive(*, as_json: bool, **flags: Any) -> None:
    """Archive at DEST the items that the time to live has deleted, by SOURCE, the log of a table's changes.

    With --log, SOURCE is the table, whose changes are captured into that log first.
    """
    from ddbio.cdc.archive import archive as run

    report = run(parse_flags(ArchiveOptions, flags))
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))


@archive.part("restore")
@click.command("restore")
@click.argument("source")
@click.argument("table")
@flags_of(ArchiveRestoreOptions, without=["source", "table"])
@output_flags
def restore(*, as_json: bool, **flags: Any) -> None:
    """Put items of the archive SOURCE back into TABLE, each as it was when it last expired."""
    from ddbio.cdc.archive import restore_archived

    report = restore_archived(parse_flags(ArchiveRestoreOptions, flags))
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))


@archive.part("expired")
@click.command("expired")
@click.argument("source")
@flags_of(ExpiredReadOptions, without=["source"])
@output_flags
def expired(*, as_json: bool, **flags: Any) -> None:
    """Print the items of SOURCE, a table or an export, that are expired and not deleted yet; --json counts them."""
    from ddbio.cdc.archive import read_expired_batches
    from ddbio.cli.rows import print_json

    options = parse_flags(ExpiredReadOptions, flags)
    batches = read_expired_batches(options)
    if as_json:
        items = sum(batch.num_rows for batch in batches)
        click.echo(json.dumps({"source": options.source, "items": items}))
    else:
        print_json(batches, sys.stdout)
