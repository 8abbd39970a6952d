"""The commands that simulate jobs: ``simulate scan`` and ``simulate load``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import flags_of, given, output_flags, parse_flags
from ddbio.cli.show import counted, format_bytes, format_duration
from ddbio.options import SimulateLoadOptions, SimulateScanOptions

if TYPE_CHECKING:
    from ddbio.advice.simulation import SimulationReport
    from ddbio.options.simulation import SimulateOptions

_LIMITS = {"key_range": "partitions", "table": "the table", "account": "the account"}


@click.group()
def simulate() -> None:
    """Find out how long a job of any size would take, without AWS."""


@simulate.command("scan")
@flags_of(SimulateScanOptions)
@output_flags
def simulate_scan(*, as_json: bool, **flags: Any) -> None:
    """Simulate a scan: how long it takes, how much of the budget it leaves idle, how often it is throttled."""
    from ddbio.advice.simulate import simulate_scan as run

    options = parse_flags(SimulateScanOptions, given(flags))
    report = run(options)
    size = f"table of {format_bytes(options.table_bytes)}"
    text = report.to_json() if as_json else format_simulation(report, options, size, options.rcu_per_second)
    click.echo(text if as_json or options.scenario is None else f"{'scenario':<10}{options.scenario}\n{text}")


@simulate.command("load")
@flags_of(SimulateLoadOptions)
@output_flags
def simulate_load(*, as_json: bool, **flags: Any) -> None:
    """Simulate a load: how long it takes, how much of the budget it leaves idle, how often it is throttled."""
    from ddbio.advice.simulate import simulate_load as run

    options = parse_flags(SimulateLoadOptions, given(flags))
    report = run(options)
    size = f"items of {format_bytes(options.source_bytes)}"
    click.echo(report.to_json() if as_json else format_simulation(report, options, size, options.wcu_per_second))


def format_simulation(report: SimulationReport, options: SimulateOptions, size: str, rate: float) -> str:
    """Return a simulation's report as lines of name and value."""
    what = "RCU" if report.segments else "WCU"
    shares = "a fixed share for each task" if options.static_shares else "one budget for all tasks, by leases"
    peak = "" if report.peak_ratio is None else f", busiest 10 s at {report.peak_ratio:.1%} of it"
    split = [counted(report.segments, "segment")] if report.segments else []
    split += [counted(report.tasks, "task"), counted(report.lanes, "lane")]
    ideal = format_duration(report.ideal_seconds)
    half, most = format_duration(report.progress[4]), format_duration(report.progress[8])
    limits = ", ".join(f"{times:,} by {_LIMITS[limit]}" for limit, times in report.throttled_by.items())
    throttled = f"throttled {limits}" if limits else "none throttled"
    rows = [
        ("data", f"{size}, {counted(report.partitions, 'partition')}"),
        ("split", f"{', '.join(split)}; the largest task has {report.largest_task_ratio:.2f} × the mean"),
        ("budget", f"{rate:,.0f} {what}/s, {shares}{peak}"),
        ("consumes", f"{report.units:,.0f} {what} in {report.requests:,} requests, {throttled}"),
        ("time", f"{format_duration(report.seconds)}, {report.ratio:.3f} × the ideal {ideal}"),
        ("progress", f"half after {half}, 90 % after {most}"),
        ("idle", f"{report.idle_ratio:.1%} of the budget"),
    ]
    if report.splits:
        rows.append(("split", f"{counted(report.splits, 'partition')} under load"))
    if report.lost_tasks:
        rows.append(("lost", f"{counted(report.lost_tasks, 'task')}, {report.repeated_units:,.0f} {what} repeated"))
    return "\n".join(f"{name:<10}{value}" for name, value in rows)
