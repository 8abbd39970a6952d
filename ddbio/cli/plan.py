"""The commands that print a plan: what ``--dry-run`` of the command of that name prints."""

from __future__ import annotations

import click

from ddbio.cli.exports import plan_export_read
from ddbio.cli.folders import plan_compact
from ddbio.cli.inspection import plan_validate
from ddbio.cli.reading import plan_scan
from ddbio.cli.writing import plan_copy, plan_load


@click.group()
def plan() -> None:
    """Print what a verb would do and cost, and do none of it."""


for command in (plan_scan, plan_load, plan_copy, plan_export_read, plan_validate, plan_compact):
    plan.add_command(command)
