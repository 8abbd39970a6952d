"""The commands about changes as Firehose delivers them: ``changes`` and ``replay``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ddbio.cli.flags import JSON_FLAG, QUIET_FLAG, flags_of, output_flags, parse_flags
from ddbio.cli.show import format_values
from ddbio.options import ChangesReadOptions, ChangesWriteOptions, ReplayOptions


@click.group()
def changes() -> None:
    """Read and write changes as Firehose delivers them."""


@changes.command("read")
@click.argument("source")
@flags_of(ChangesReadOptions, without=["source"])
@QUIET_FLAG
def read_changes(**flags: Any) -> None:
    """Print the changes that Firehose delivered under SOURCE on stdout, one a line of JSON."""
    from ddbio.cdc.delivered import read_changes_batches
    from ddbio.cli.rows import print_json

    print_json(read_changes_batches(parse_flags(ChangesReadOptions, flags)), sys.stdout)


@changes.command("write")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("dest")
@flags_of(ChangesWriteOptions, without=["dest"])
@JSON_FLAG
def write_changes(*, as_json: bool, files: tuple[Path, ...], **flags: Any) -> None:
    """Write the change records in FILES below DEST as Firehose would deliver them."""
    from ddbio.cdc.delivery import write_changes as run

    report = run((each.read_bytes() for each in files), parse_flags(ChangesWriteOptions, flags))
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))


@click.command()
@click.argument("source")
@click.argument("dest", required=False)
@flags_of(ReplayOptions, without=["source", "dest"])
@click.option("--dry-run", is_flag=True, help="Print what would be read, and put nothing through.")
@output_flags
def replay(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Put the changes under SOURCE, delivered or failed, through again: into a log at DEST, or a --table.

    Each object is put through once, however often the command runs.
    """
    from ddbio.cdc.replay import plan_replay
    from ddbio.cdc.replay import replay as run

    options = parse_flags(ReplayOptions, flags)
    found = plan_replay(options) if dry_run else run(options)
    click.echo(found.to_json() if as_json else format_values(found.to_dict()))
