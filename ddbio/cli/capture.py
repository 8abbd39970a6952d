"""The command ``capture``."""

from __future__ import annotations

import signal
import threading
from typing import Any

import click

from ddbio.cli.flags import flags_of, output_flags, parse_flags
from ddbio.cli.show import format_values
from ddbio.options import CaptureOptions


@click.command()
@click.argument("table")
@click.argument("dest")
@flags_of(CaptureOptions, without=["table", "dest"])
@output_flags
def capture(*, as_json: bool, **flags: Any) -> None:
    """Write every change of TABLE once into a log of Parquet files at DEST, s3://bucket/prefix or a folder.

    It goes on where the last run stopped. SIGTERM or Ctrl-C ends it when its batch is written.
    """
    from ddbio.ops.capture.capture import capture as run

    options, stop = parse_flags(CaptureOptions, flags), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    report = run(options, stop)
    click.echo(report.to_json() if as_json else format_values(report.to_dict()))
