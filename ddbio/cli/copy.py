"""Copy tables and create them like others from the command line; decide nothing that a verb should decide."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import JSON_FLAG, QUIET_FLAG, command_of, flags_of, parse_flags
from ddbio.cli.progress import CopyProgress
from ddbio.cli.show import counted, format_plan
from ddbio.ops import copy as copying
from ddbio.options import CopyOptions, CreateLikeOptions

if TYPE_CHECKING:
    from ddbio.ops.copy import CopyPlan, CopyReport


@click.command()
@click.argument("source")
@click.argument("target")
@flags_of(CopyOptions, without=["source", "target"])
@click.option("--dry-run", is_flag=True, help="Stop after the plan; create and write nothing.")
@QUIET_FLAG
@JSON_FLAG
def copy(*, as_json: bool, quiet: bool, dry_run: bool, **flags: Any) -> None:
    """Copy every item of table SOURCE into table TARGET, also of another region or account."""
    options = parse_flags(CopyOptions, flags)
    if dry_run:
        plan = copying.plan_copy(options)
        click.echo(plan.to_json() if as_json else format_copy_plan(plan))
        return
    watch = CopyProgress(show_plan=not (as_json or quiet), quiet=quiet)
    try:
        report = copying.copy(options, watch)
    except KeyboardInterrupt:
        command = command_of("copy", ["source", "target"], {**flags, "json": as_json, "quiet": quiet})
        told = f"{counted(watch.brought, 'item')} reached table {options.target!r}; copy all again by: {command}"
        raise KeyboardInterrupt(told) from None
    click.echo(report.to_json() if as_json else format_copy(report))


@click.group()
def table() -> None:
    """Create tables."""


@table.command("create-like")
@click.argument("source")
@click.argument("target")
@flags_of(CreateLikeOptions, without=["source", "target"])
@JSON_FLAG
def create_like(*, as_json: bool, **flags: Any) -> None:
    """Create table TARGET like table SOURCE, without its items, and wait until it is ACTIVE."""
    made = copying.create_like(parse_flags(CreateLikeOptions, flags))
    click.echo(made.to_json() if as_json else f"table {made.table} is ACTIVE")


def format_copy_plan(plan: CopyPlan) -> str:
    """Return a copy's plan as lines: how the source is read, and how the target is written or created."""
    if plan.write is None:
        told = f"is created by {json.dumps(plan.creates)}"
    else:
        budget = "unbounded" if plan.write.wcu_per_second is None else f"{plan.write.wcu_per_second:g} WCU/s"
        told = f"{plan.write.table}: {plan.write.mode}, {counted(plan.write.lanes, 'lane')}, {budget}"
    return f"{format_plan(plan.scan)}\n\n{'target':<10}{told}"


def format_copy(report: CopyReport) -> str:
    """Return a copy's report as lines of name and value."""
    fates = f"{report.written:,} written, {report.skipped:,} skipped, {report.rejected:,} rejected"
    made = ", which was created" if report.created else ""
    rows = [
        ("tables", f"{report.source} to {report.target}{made}"),
        ("items", f"{report.items:,} read: {fates}"),
        ("capacity", f"{report.rcu_consumed:,.1f} RCU and {report.wcu_consumed:,.1f} WCU used"),
        ("time", f"{report.seconds:.1f} s, of CPU {report.cpu_seconds:.1f} s"),
    ]
    if report.throttles:
        rows.append(("throttled", ", ".join(f"{count} × {reason}" for reason, count in report.throttles.items())))
    if report.verified:
        rows.append(("verified", f"both tables have the digest {report.digest}"))
    return "\n".join(f"{name:<10}{value}" for name, value in rows)
