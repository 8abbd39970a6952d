"""Offer the plans of verbs; decide nothing that a verb should decide."""

from __future__ import annotations

import click

from ddbio.cli.load import plan_load
from ddbio.cli.scan import plan_scan


@click.group()
def plan() -> None:
    """Print what a verb would do and cost, and do none of it."""


plan.add_command(plan_scan)
plan.add_command(plan_load)
