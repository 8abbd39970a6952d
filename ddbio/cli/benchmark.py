"""The command that measures ddbio on this machine: ``bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import CONF_FLAG, MASTER_FLAG, flags_of, output_flags, parse_conf, parse_flags
from ddbio.options import BenchOptions

if TYPE_CHECKING:
    from ddbio.core.benchmark import BenchFigure, BenchReport


@click.command()
@click.argument("table", required=False)
@flags_of(BenchOptions, without=["table"])
@MASTER_FLAG
@CONF_FLAG
@output_flags
def bench(*, table: str | None, as_json: bool, master: str | None, conf: tuple[str, ...], **flags: Any) -> None:
    """Measure ddbio on this machine, and on TABLE, which is only read, beside the figures that come with it."""
    from ddbio.ops.benchmark import run_bench

    report = run_bench(parse_flags(BenchOptions, {"table": table, **flags}), master=master, conf=parse_conf(conf))
    click.echo(report.to_json() if as_json else format_bench(report))


def format_bench(report: BenchReport) -> str:
    """Return a report as lines: each figure, and how many times the shipped one, or the one of a file, it is."""
    machine = report.machine
    lines = [f"{machine['cores']} × {machine['cpu']}, load {machine['load_1m']}, ddbio {report.version}"]
    lines += [
        f"{each['tasks']} tasks on {each['host']}: {each['cores']} × {each['cpu']}, load {each['load_1m']}"
        for each in report.workers
    ]
    compared = "shipped" if report.compare_with is None else "earlier"
    lines += [_line(each, compared) for each in report.figures]
    if report.rcu_consumed or report.wcu_consumed:
        lines.append(f"consumed {report.rcu_consumed:,.1f} RCU and {report.wcu_consumed:,.1f} WCU")
    there = report.shipped_machine
    shipped = "this package has no figures to compare with" if there is None else (
        f"{compared} figures: {there['cores']} × {there['cpu']}, Python {there['python']}"
    )  # fmt: skip
    return "\n".join([*lines, shipped])


def _line(figure: BenchFigure, compared: str) -> str:
    spread = f" ± {figure.spread / 2:.0%}" if figure.spread else ""
    beside = f"   {figure.ratio:.2f} × the {compared} {figure.shipped:,.1f}" if figure.ratio is not None else ""
    return f"{figure.name:36}{figure.value:>12,.1f} {figure.unit}{spread}{beside}"
