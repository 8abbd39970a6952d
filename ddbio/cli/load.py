"""Load files into a live table from the command line; print what became of every row."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import CONF_FLAG, JSON_FLAG, MASTER_FLAG, QUIET_FLAG, command_of, flags_of, parse_conf, parse_flags
from ddbio.cli.progress import LoadProgress
from ddbio.cli.show import counted, format_load_plan
from ddbio.ops.job.storage import new_job_id
from ddbio.ops.loads.load import load_files, load_plan_of
from ddbio.options import LoadOptions

if TYPE_CHECKING:
    from ddbio.ops.job.report import WriteReport


@click.command()
@click.argument("source")
@click.argument("table")
@flags_of(LoadOptions, without=["source", "table"])
@MASTER_FLAG
@CONF_FLAG
@click.option("--dry-run", is_flag=True, help="Stop after the plan; write nothing.")
@QUIET_FLAG
@JSON_FLAG
def load(*, as_json: bool, quiet: bool, dry_run: bool, master: str | None, conf: tuple[str, ...], **flags: Any) -> None:
    """Write the rows of SOURCE, a file, folder or glob of any format, here or on S3, into TABLE."""
    options = parse_flags(LoadOptions, flags)
    if dry_run:
        _print_plan(options, as_json=as_json)
        return
    if not options.retry_rejects:
        # Known from the start, so that also a load that is killed can go on.
        options = dataclasses.replace(options, job_id=options.job_id or new_job_id())
    watch = LoadProgress(show_plan=not (as_json or quiet), quiet=quiet, job_id=options.job_id)
    try:
        report = load_files(options, master=master, conf=parse_conf(conf), watch=watch)
    except KeyboardInterrupt:
        given = {**flags, "master": master, "conf": conf, "json": as_json, "quiet": quiet, "job_id": options.job_id}
        command = command_of("load", ["source", "table"], given)
        ways = "try the others again by" if options.retry_rejects else "go on after what is finished by"
        told = f"{counted(watch.brought, 'row')} reached table {options.table!r}; {ways}: {command}"
        raise KeyboardInterrupt(told) from None
    click.echo(report.to_json() if as_json else format_write(report))


@click.command("load")
@click.argument("source")
@click.argument("table")
@flags_of(LoadOptions, without=["source", "table"])
@JSON_FLAG
def plan_load(*, as_json: bool, **flags: Any) -> None:
    """Describe TABLE and SOURCE, sample one file, and print how it would be loaded."""
    _print_plan(parse_flags(LoadOptions, flags), as_json=as_json)


def _print_plan(options: LoadOptions, *, as_json: bool) -> None:
    made = load_plan_of(options)
    click.echo(made.to_json() if as_json else format_load_plan(made))


def format_write(report: WriteReport) -> str:
    """Return a write's report as lines of name and value."""
    asked = "no budget" if report.wcu_asked_per_second is None else f"asked {report.wcu_asked_per_second:g} WCU/s"
    peak = "" if report.wcu_peak_10s_ratio is None else f", busiest 10 s at {report.wcu_peak_10s_ratio:.1%} of it"
    fates = f"{report.written:,} written, {report.skipped:,} skipped, {report.rejected:,} rejected"
    rows = [
        ("rows", f"{report.rows:,}: {fates}"),
        ("time", f"{report.seconds:.1f} s, of CPU {report.cpu_seconds:.1f} s, writing {report.write_seconds:.1f} s"),
        ("capacity", f"{report.wcu_consumed:,.1f} WCU used, {asked}{peak}"),
        ("retries", f"{report.retries:,}"),
    ]
    if report.throttles:
        rows.append(("throttled", ", ".join(f"{count} × {reason}" for reason, count in report.throttles.items())))
    if report.hottest_keys:
        rows.append(("hottest", ", ".join(f"{key} {times} times" for key, times in report.hottest_keys.items())))
    if report.rejects_uri is not None:
        rows.append(("rejects", report.rejects_uri))
    if report.job_id is not None:
        before = f", after {counted(report.resumed_rows, 'row')} of earlier runs" if report.resumed_rows else ""
        rows.append(("job", report.job_id + before))
    return "\n".join(f"{name:<10}{value}" for name, value in rows)
