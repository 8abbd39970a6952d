"""The command that plans the capacity of a table: ``capacity``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import flags_of, output_flags, parse_flags
from ddbio.cli.terminal import print_table
from ddbio.options import PlanCapacityOptions

if TYPE_CHECKING:
    from ddbio.advice.provisioning import CapacityPlan


@click.command()
@click.argument("table")
@flags_of(PlanCapacityOptions, without=["table"])
@output_flags
def capacity(*, as_json: bool, **flags: Any) -> None:
    """Recommend mode, capacity and class of TABLE by what it has consumed.

    CloudWatch is asked, or a file; nothing of the table is read or changed.
    """
    from ddbio.advice.capacity import plan_capacity as run

    plan = run(parse_flags(PlanCapacityOptions, flags))
    if as_json:
        click.echo(plan.to_json())
    else:
        _print_capacity(plan)


def _print_capacity(plan: CapacityPlan) -> None:
    from ddbio.advice.provisioning import need_names, need_rows

    breaks = ", ".join(f"{what} {share:.1%}" for what, share in plan.mode_break_even.items())
    rows = [
        ("capacity", f"{plan.mode}, class {plan.table_class}: {plan.usd:,.2f} USD a month"),
        ("now", f"{plan.mode_now}, class {plan.table_class_now}: {plan.usd_now:,.2f} USD a month"),
        *(("", reason) for reason in plan.why),
        ("seen", f"{plan.days:g} days in steps of {plan.period_seconds:g} s"),
        ("mode", f"provisioned is cheaper from this share consumed: {breaks}"),
        *(("note", note) for note in plan.notes),
    ]
    if plan.class_break_even_gb is not None:
        rows.append(("class", f"Standard-IA is cheaper from {plan.class_break_even_gb:,.1f} GB"))
    for each in plan.reserved:
        what = f"{each.units:,} {each.what} for {each.years} y, {each.usd_upfront:,.2f} USD upfront"
        saved = f"saves {each.usd_saved:,.2f} USD a month; breaks even at {each.break_even:.0%} of the hours"
        rows.append(("reserve", f"{what}, {saved}"))
    click.echo("\n".join(f"{name:<10}{value}" for name, value in rows))
    print_table(need_names(), need_rows(plan))
    choices = [(each.mode, each.table_class, f"{each.usd:,.2f}") for each in plan.choices]
    print_table(("mode", "class", "USD a month"), choices)
