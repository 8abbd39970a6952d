"""The commands about catalogs: ``catalog sync`` and ``catalog ddl``."""

from __future__ import annotations

from typing import Any

import click

from ddbio.cli.flags import JSON_FLAG, flags_of, parse_flags
from ddbio.cli.terminal import data_out
from ddbio.options import CatalogDdlOptions, CatalogSyncOptions


@click.group()
def catalog() -> None:
    """Make folders of files tables of a catalog."""


@catalog.command()
@click.argument("path")
@click.argument("target", metavar="glue://DATABASE.TABLE")
@flags_of(CatalogSyncOptions, without=["path", "target"])
@JSON_FLAG
def sync(*, as_json: bool, **flags: Any) -> None:
    """Make or update the Glue table of the live files of folder PATH, and register its partitions."""
    from ddbio.catalog import sync as catalogs
    from ddbio.cli.show import format_values

    report = catalogs.sync(parse_flags(CatalogSyncOptions, flags))
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))


@catalog.command()
@click.argument("path")
@flags_of(CatalogDdlOptions, without=["path"])
def ddl(**flags: Any) -> None:
    """Print the statements that make a table of the live files of folder PATH, or name the lake table there."""
    from ddbio.catalog import sync as catalogs

    data_out().write(catalogs.write_ddl(parse_flags(CatalogDdlOptions, flags)))
