"""The command that advises: ``advise``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import flags_of, output_flags, parse_flags
from ddbio.cli.show import format_bytes
from ddbio.cli.terminal import print_table
from ddbio.options import AdviseOptions

if TYPE_CHECKING:
    from ddbio.advice.advice import Advice


@click.command()
@click.argument("table", required=False)
@flags_of(AdviseOptions, without=["table"])
@output_flags
def advise(*, as_json: bool, **flags: Any) -> None:
    """Compare the ways to keep a copy of TABLE in S3: what each costs a month, takes, and cannot do.

    The table is described, and CloudWatch asked how much changes; no item is read.
    """
    from ddbio.advice.advise import advise as run

    advice = run(parse_flags(AdviseOptions, flags))
    if as_json:
        click.echo(advice.to_json())
    else:
        _print_advice(advice)


def _print_advice(advice: Advice) -> None:
    from ddbio.advice.advice import break_even_cells, time_text, usd_text

    asked = advice.workload
    size = f"{format_bytes(asked.size_bytes)}, items of {format_bytes(asked.item_bytes)}"
    rows = [
        ("advice", f"{advice.recommended}" if advice.recommended else "none"),
        *(("", reason) for reason in advice.why),
        ("table", f"{asked.table}: {size}, {asked.changes_per_second:,g} changes a second"),
        ("asked", f"a copy that is brought up to date every {time_text(asked.freshness_seconds)}"),
        (
            "scan",
            f"ends within it up to {format_bytes(advice.largest_scan_bytes)}, at {asked.rcu_per_second:,.0f} RCU/s",
        ),
        *(("note", note) for note in advice.notes),
    ]
    click.echo("\n".join(f"{name:<8}{value}" for name, value in rows))
    print_table(
        ("road", "USD a month", "once", "a run takes", "RCU a month", "of the capacity", ""),
        [
            (
                each.name, f"{each.usd:,.2f}" + ("+" if each.unpriced else ""), usd_text(each.usd_once),
                time_text(each.seconds), f"{each.read_units:,.0f}", "" if each.load is None else f"{each.load:.0%}",
                "" if each.possible else "not possible",
            )
            for each in advice.roads
        ],
    )  # fmt: skip
    best = next((each for each in advice.roads if each.name == advice.recommended), None)
    if best is not None:
        lines = [
            (line.what, f"{line.quantity:,.4g} {line.unit}", usd_text(line.usd))
            for line in (*best.lines, *best.lines_once)
        ]
        print_table((best.name, "quantity", "USD"), lines)
    print_table(("break even", "at", "below", "above"), list(map(break_even_cells, advice.break_evens)))
    click.echo()
    for each in advice.roads:
        click.echo(f"{each.name} cannot\n" + "\n".join(f"  {text}" for text in each.cannot))
