"""The command that measures this machine for plans: ``calibrate``."""

from __future__ import annotations

import click

from ddbio.cli.flags import output_flags


@click.command()
@output_flags
def calibrate(*, as_json: bool) -> None:
    """Measure what a core of this machine does in a second, and store it for plans.

    Takes some seconds, and compiles loops before if that was not done.
    """
    from ddbio.ops.calibration import calibrate as measure
    from ddbio.ops.user_files import SPEEDS, user_file

    speeds = measure()
    if as_json:
        click.echo(speeds.to_json())
        return
    rows = [
        (name, f"{value / 1e6:,.0f} MB/s")
        for name, value in speeds.to_dict().items()
        if isinstance(value, (int, float))
    ]
    rows.append(("stored in", str(user_file(SPEEDS))))
    click.echo("\n".join(f"{name.replace('_', ' '):<15}{value}" for name, value in rows))
