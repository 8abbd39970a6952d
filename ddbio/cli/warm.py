"""The command that compiles all loops ahead of their first use."""

from __future__ import annotations

import json
import time

import click

from ddbio.cli.flags import output_flags


@click.command()
@click.option("--to", metavar="PLACE", help="Compile for every processor of this kind, into a folder or .zip to ship.")
@output_flags
def warm(*, as_json: bool, to: str | None) -> None:
    """Compile all loops ahead of their first use, or load stored ones."""
    from ddbio.advice.warming import warm_all

    began = time.monotonic()
    folder = warm_all(to)
    seconds = round(time.monotonic() - began, 3)
    done = {"seconds": seconds, "folder": None if folder is None else str(folder)}
    click.echo(json.dumps(done) if as_json else f"the kernel is ready after {seconds:.1f} s; stored in {folder}")
