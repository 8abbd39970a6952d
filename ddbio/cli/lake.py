"""The commands about tables of a lake."""

from __future__ import annotations

from typing import Any

import click

from ddbio.cli.flags import CONF_FLAG, MASTER_FLAG, flags_of, output_flags, parse_conf, parse_flags
from ddbio.cli.show import format_values
from ddbio.options import ApplyOptions, MaintainOptions


@click.command()
@click.argument("source", metavar="LOG")
@click.argument("table")
@flags_of(ApplyOptions, without=["source", "table", "key", "stream", "batch_id"])
@MASTER_FLAG
@CONF_FLAG
@click.option("--dry-run", is_flag=True, help="Stop after the plan; write nothing.")
@output_flags
def apply(*, dry_run: bool, as_json: bool, master: str | None, conf: tuple[str, ...], **flags: Any) -> None:
    """Merge what is new of LOG into TABLE of a lake: the newest state of each item wins.

    LOG is the folder that capture writes, or that of an incremental export.
    """
    from ddbio.ops.lake.apply import apply_log, plan_apply

    options = parse_flags(ApplyOptions, flags)
    report = plan_apply(options) if dry_run else apply_log(options, master=master, conf=parse_conf(conf))
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))


@click.command()
@click.argument("table")
@flags_of(MaintainOptions, without=["table"])
@output_flags
def maintain(*, as_json: bool, **flags: Any) -> None:
    """Rewrite the small files of the lake table TABLE, and let old tombstones go."""
    from ddbio.ops.lake.maintain import maintain as run

    report = run(parse_flags(MaintainOptions, flags))
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))
