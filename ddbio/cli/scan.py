"""Offer the verbs that scan a table; decide nothing that a verb should decide."""

from __future__ import annotations

import json
from typing import Any

import click

from ddbio.cli.flags import CONF_FLAG, JSON_FLAG, MASTER_FLAG, QUIET_FLAG, flags_of, parse_conf, parse_flags
from ddbio.cli.progress import ProgressWatch
from ddbio.cli.show import format_plan, format_report
from ddbio.ops.scans.plan import plan_of, plan_to_files
from ddbio.ops.scans.to_files import scan_to_files
from ddbio.options import ScanToFilesOptions

_DIGEST_NOTE = "          of the table: where items hold NULL the files have another, unless --nulls keep is given"
# A plan needs no target; no path has a NUL.
_UNPLANNED = "\0"


@click.command()
@click.argument("table")
@click.argument("dest")
@flags_of(ScanToFilesOptions, without=["table", "dest"])
@MASTER_FLAG
@CONF_FLAG
@click.option("--dry-run", is_flag=True, help="Stop after the plan; write nothing.")
@QUIET_FLAG
@JSON_FLAG
def scan(*, as_json: bool, quiet: bool, dry_run: bool, master: str | None, conf: tuple[str, ...], **flags: Any) -> None:
    """Scan TABLE into Parquet files at DEST: s3://bucket/prefix or a local folder."""
    options = parse_flags(ScanToFilesOptions, flags)
    if dry_run:
        _print_plan(options, as_json=as_json)
        return
    watch = None if quiet else ProgressWatch(show_plan=not as_json)
    report = scan_to_files(options, master=master, conf=parse_conf(conf), watch=watch)
    click.echo(report.to_json() if as_json else format_report(report))
    if report.digest is not None and options.nulls == "merge" and not as_json:
        click.echo(_DIGEST_NOTE)


@click.command("scan")
@click.argument("table")
@click.argument("dest", required=False, default=_UNPLANNED)
@flags_of(ScanToFilesOptions, without=["table", "dest"])
@JSON_FLAG
def plan_scan(*, as_json: bool, **flags: Any) -> None:
    """Describe and sample TABLE, and print how it would be scanned."""
    _print_plan(parse_flags(ScanToFilesOptions, flags), as_json=as_json)


def _print_plan(options: ScanToFilesOptions, *, as_json: bool) -> None:
    dest = None if options.dest == _UNPLANNED else options.dest
    made = plan_of(options) if dest is None else plan_to_files(options)
    if as_json:
        click.echo(json.dumps(made.to_dict() | {"dest": dest}, ensure_ascii=False))
    else:
        target = "" if dest is None else f"{'target':<9}{dest} (mode {options.mode})\n"
        click.echo(target + format_plan(made))
