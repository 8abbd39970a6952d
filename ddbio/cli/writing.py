"""The commands that write tables: ``load`` and ``copy``."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import (
    CONF_FLAG,
    FROM_FILE_FLAG,
    MASTER_FLAG,
    command_of,
    flags_of,
    is_quiet,
    output_flags,
    parse_conf,
    parse_flags,
)
from ddbio.cli.progress import CopyProgress, LoadProgress
from ddbio.cli.show import counted, format_copy_plan, format_load_plan, planned_rows, skipped_rows
from ddbio.options import CopyOptions, LoadOptions

if TYPE_CHECKING:
    from ddbio.jobs.report import WriteReport
    from ddbio.load.copy import CopyReport

_STDIN = "-"
_STDIN_FORMATS = ["csv", "json", "jsonl", "parquet", "orc", "arrow"]


@click.command()
@click.argument("source")
@click.argument("table")
@flags_of(LoadOptions, without=["source", "table"])
@MASTER_FLAG
@CONF_FLAG
@click.option("--format", "form", type=click.Choice(_STDIN_FORMATS), help="Format of stdin, for a SOURCE of -.")
@click.option("--dry-run", is_flag=True, help="Stop after the plan; write nothing.")
@output_flags
def load(*, source: str, form: str | None, **flags: Any) -> None:
    """Write the rows of SOURCE, a file, folder or glob of any format, here or on S3, into TABLE.

    A SOURCE of - is stdin, whose format --format says.
    """
    if (source == _STDIN) != (form is not None):
        raise click.UsageError("--format is for a SOURCE of -, which is stdin, and is needed there")
    if form is None:
        _load(source=source, **flags)
        return
    if flags["job_id"] is not None or flags["state"] is not None:
        raise click.UsageError("a load of stdin cannot be continued: give neither --job-id nor --state")
    with tempfile.TemporaryDirectory(prefix="ddbio-stdin-") as folder:
        path = Path(folder) / f"stdin.{form}"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        _load(source=str(path), can_continue=False, **flags)


def _load(
    *, as_json: bool, dry_run: bool, master: str | None, conf: tuple[str, ...], can_continue: bool = True, **flags: Any
) -> None:
    from ddbio.jobs.stores import new_job_id
    from ddbio.load.load import load_files

    options = parse_flags(LoadOptions, flags)
    if dry_run:
        _print_plan(options, as_json=as_json)
        return
    if not options.retry_rejects:
        # Known from the start, so that also a load that is killed can go on.
        options = dataclasses.replace(options, job_id=options.job_id or new_job_id())
    watch = LoadProgress(show_plan=not (as_json or is_quiet()), quiet=is_quiet(), job_id=options.job_id)
    try:
        report = load_files(options, master=master, conf=parse_conf(conf), watch=watch, can_continue=can_continue)
    except KeyboardInterrupt:
        reached = f"{counted(watch.written, 'row')} reached table {options.table!r}"
        if not can_continue:
            raise KeyboardInterrupt(f"{reached}; a load of stdin cannot be continued: load all rows again") from None
        given = {
            **flags,
            "master": master,
            "conf": conf,
            "json": as_json,
            "quiet": is_quiet(),
            "job_id": options.job_id,
        }
        command = command_of("load", ["source", "table"], given)
        ways = "try the others again by" if options.retry_rejects else "go on after what is finished by"
        raise KeyboardInterrupt(f"{reached}; {ways}: {command}") from None
    click.echo(report.to_json() if as_json else format_write(report))


@click.command("load")
@click.argument("source")
@click.argument("table")
@flags_of(LoadOptions, without=["source", "table"])
@FROM_FILE_FLAG
@output_flags
def plan_load(*, as_json: bool, from_file: str | None, **flags: Any) -> None:
    """Describe TABLE and SOURCE, sample one file, and print how it would be loaded."""
    _print_plan(parse_flags(LoadOptions, flags), as_json=as_json, from_file=from_file)


def _print_plan(options: LoadOptions, *, as_json: bool, from_file: str | None = None) -> None:
    from ddbio.load.load import load_plan_of

    made = load_plan_of(options, from_file)
    click.echo(made.to_json() if as_json else format_load_plan(made))


@click.command()
@click.argument("source")
@click.argument("target")
@flags_of(CopyOptions, without=["source", "target"])
@click.option("--dry-run", is_flag=True, help="Stop after the plan; create and write nothing.")
@output_flags
def copy(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Copy every item of table SOURCE into table TARGET, also of another region or account."""
    from ddbio.load import copy as copying

    options = parse_flags(CopyOptions, flags)
    if dry_run:
        _print_copy_plan(options, as_json=as_json)
        return
    watch = CopyProgress(show_plan=not (as_json or is_quiet()), quiet=is_quiet())
    try:
        report = copying.copy(options, watch)
    except KeyboardInterrupt:
        command = command_of("copy", ["source", "target"], {**flags, "json": as_json, "quiet": is_quiet()})
        message = f"{counted(watch.written, 'item')} reached table {options.target!r}; copy all again by: {command}"
        raise KeyboardInterrupt(message) from None
    click.echo(report.to_json() if as_json else format_copy(report))


@click.command("copy")
@click.argument("source")
@click.argument("target")
@flags_of(CopyOptions, without=["source", "target"])
@FROM_FILE_FLAG
@output_flags
def plan_copy(*, as_json: bool, from_file: str | None, **flags: Any) -> None:
    """Describe tables SOURCE and TARGET, sample SOURCE, and print how it would be copied."""
    _print_copy_plan(parse_flags(CopyOptions, flags), as_json=as_json, from_file=from_file)


def _print_copy_plan(options: CopyOptions, *, as_json: bool, from_file: str | None = None) -> None:
    from ddbio.load import copy as copying

    made = copying.plan_copy(options, from_file)
    click.echo(made.to_json() if as_json else format_copy_plan(made))


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
        *planned_rows(report.planned, report.actual),
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
    if report.earlier_job_id is not None:
        rows.append(("before", f"the same load ran as job {report.earlier_job_id}"))
    rows += skipped_rows(report.files_skipped)
    return "\n".join(f"{name:<10}{value}" for name, value in rows)


def format_copy(report: CopyReport) -> str:
    """Return a copy's report as lines of name and value."""
    fates = f"{report.written:,} written, {report.skipped:,} skipped, {report.rejected:,} rejected"
    made = ", which was created" if report.created else ""
    rows = [
        ("tables", f"{report.source} to {report.target}{made}"),
        ("items", f"{report.items:,} read: {fates}"),
        ("capacity", f"{report.rcu_consumed:,.1f} RCU and {report.wcu_consumed:,.1f} WCU used"),
        ("time", f"{report.seconds:.1f} s, of CPU {report.cpu_seconds:.1f} s"),
        *planned_rows(report.planned, report.actual),
    ]
    if report.throttles:
        rows.append(("throttled", ", ".join(f"{count} × {reason}" for reason, count in report.throttles.items())))
    if report.verified:
        rows.append(("verified", f"both tables have the digest {report.digest}"))
    return "\n".join(f"{name:<10}{value}" for name, value in rows)
