"""The command ``capture``, and its parts ``status``, ``verify`` and ``heal``."""

from __future__ import annotations

import json
import signal
import threading
from typing import Any

import click

from ddbio.cli.flags import flags_of, output_flags, parse_flags
from ddbio.cli.parts import CommandWithParts
from ddbio.cli.show import format_values, planned_rows, print_plan
from ddbio.options import CaptureHealOptions, CaptureOptions, CaptureStatusOptions, CaptureVerifyOptions


@click.command(cls=CommandWithParts)
@click.argument("table")
@click.argument("dest")
@flags_of(CaptureOptions, without=["table", "dest"])
@output_flags
def capture(*, as_json: bool, **flags: Any) -> None:
    """Write every change of TABLE once into a log of Parquet files at DEST, s3://bucket/prefix or a folder.

    It goes on where the last run stopped. SIGTERM or Ctrl-C ends it when its batch is written.
    """
    from ddbio.cdc.capture import capture as run

    options, stop = parse_flags(CaptureOptions, flags), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    report = run(options, stop)
    planned = {"planned": None, "actual": None, **dict(planned_rows(report.planned, report.actual))}
    click.echo(report.to_json() if as_json else format_values({**report.to_dict(), **planned}))


@capture.part("status")
@click.command("status")
@click.argument("dest")
@flags_of(CaptureStatusOptions, without=["dest"])
@output_flags
def status(*, as_json: bool, **flags: Any) -> None:
    """Print how the captures stand that write the log at DEST: positions, batches, what is running."""
    from ddbio.cdc.audit import capture_status

    found = [each.to_dict() for each in capture_status(parse_flags(CaptureStatusOptions, flags))]
    click.echo(json.dumps({"captures": found}) if as_json else "\n\n".join(map(format_values, found)))


@capture.part("verify")
@click.command("verify")
@click.argument("dest")
@flags_of(CaptureVerifyOptions, without=["dest"])
@output_flags
def verify(*, as_json: bool, **flags: Any) -> None:
    """Tell whether the log at DEST is whole: files against records, gaps, lost changes; exit code 1 if it is not."""
    from ddbio.cdc.audit import verify_capture

    report = verify_capture(parse_flags(CaptureVerifyOptions, flags))
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))
    if not report.is_whole:
        click.get_current_context().exit(1)


@capture.part("heal")
@click.command("heal")
@click.argument("table")
@click.argument("dest")
@flags_of(CaptureHealOptions, without=["table", "dest"])
@click.option("--dry-run", is_flag=True, help="Print the gaps, and what healing them takes and costs; change nothing.")
@output_flags
def heal(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Fill the gaps of the log at DEST from incremental exports of TABLE."""
    from ddbio.cdc.heal import heal_capture, plan_of

    options = parse_flags(CaptureHealOptions, flags)
    if dry_run:
        print_plan(plan_of(options), as_json=as_json)
        return
    report = heal_capture(options)
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))
