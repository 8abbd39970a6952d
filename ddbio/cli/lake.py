"""The commands about tables of a lake."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from ddbio.cli.flags import CONF_FLAG, MASTER_FLAG, flags_of, given, output_flags, parse_conf, parse_flags
from ddbio.cli.show import format_values
from ddbio.options import ApplyOptions, ConnectionOptions, MaintainOptions

_CONNECTION = [field.name for field in dataclasses.fields(ConnectionOptions)]


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
    from ddbio.lake.apply import apply_log, plan_apply

    options = parse_flags(ApplyOptions, flags)
    report = plan_apply(options) if dry_run else apply_log(options, master=master, conf=parse_conf(conf))
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))


@click.command()
@click.argument("table", required=False)
@flags_of(MaintainOptions, without=["table"])
@click.option("--policy", metavar="FILE", help="File of TOML or YAML that says this of several tables; give no TABLE.")
@click.option("--dry-run", is_flag=True, help="Print what would be rewritten and deleted; write nothing.")
@MASTER_FLAG
@CONF_FLAG
@output_flags
def maintain(
    *,
    as_json: bool,
    dry_run: bool,
    policy: str | None,
    table: str | None,
    master: str | None,
    conf: tuple[str, ...],
    **flags: Any,
) -> None:
    """Rewrite small files of the lake table TABLE; let old tombstones and files go."""
    import functools
    import json

    from ddbio.lake.maintain import maintain as run
    from ddbio.lake.maintain import plan_maintain
    from ddbio.lake.policy import read_policy

    step = plan_maintain if dry_run else functools.partial(run, master=master, conf=parse_conf(conf))
    if policy is None:
        found = step(parse_flags(MaintainOptions, given({"table": table, **flags})))
        click.echo(found.to_json() if as_json else format_values(found.to_dict()))
        return
    if table is not None:
        raise click.UsageError("a policy names its tables: give TABLE or --policy")
    connection = parse_flags(ConnectionOptions, {name: flags.pop(name) for name in _CONNECTION if name in flags})
    if more := given(flags):
        raise click.UsageError(f"a policy has the options of its tables: leave {', '.join(more)} out")
    done = [step(each) for each in read_policy(policy, connection)]
    values = [each.to_dict() for each in done]
    click.echo(json.dumps({"tables": values}) if as_json else "\n\n".join(map(format_values, values)))
