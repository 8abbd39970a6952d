"""The commands that make tables of a lake follow DynamoDB tables, and repair their logs."""

from __future__ import annotations

from typing import Any

import click

from ddbio.cli.flags import CONF_FLAG, MASTER_FLAG, flags_of, output_flags, parse_conf, parse_flags
from ddbio.cli.show import format_values, print_plan
from ddbio.options import BootstrapOptions, ReconcileOptions


@click.command()
@click.argument("table")
@click.argument("target", metavar="LAKE")
@flags_of(BootstrapOptions, without=["table", "target"])
@MASTER_FLAG
@CONF_FLAG
@output_flags
def bootstrap(*, as_json: bool, master: str | None, conf: tuple[str, ...], **flags: Any) -> None:
    """Make LAKE, a table of a lake, hold what TABLE holds, or bring it up to date: log, base and changes.

    A run that was killed is gone on with by the same command.
    """
    from ddbio.lake.bootstrap import bootstrap as run

    report = run(parse_flags(BootstrapOptions, flags), master=master, conf=parse_conf(conf))
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))


@click.command()
@click.argument("table")
@click.argument("dest", metavar="LOG")
@click.argument("target", metavar="LAKE", required=False)
@flags_of(ReconcileOptions, without=["table", "dest", "target"])
@click.option("--dry-run", is_flag=True, help="Print the windows, and what their exports cost; change nothing.")
@MASTER_FLAG
@CONF_FLAG
@output_flags
def reconcile(*, as_json: bool, dry_run: bool, master: str | None, conf: tuple[str, ...], **flags: Any) -> None:
    """Compare closed windows of LOG with incremental exports of TABLE; count and repair what was lost."""
    from ddbio.lake.reconcile import plan_reconcile
    from ddbio.lake.reconcile import reconcile as run

    options = parse_flags(ReconcileOptions, flags)
    if dry_run:
        print_plan(plan_reconcile(options), as_json=as_json)
        return
    report = run(options, master=master, conf=parse_conf(conf))
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))
