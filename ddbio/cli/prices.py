"""The commands about the book of prices: ``prices show`` and ``prices refresh``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddbio.cli.flags import flags_of, output_flags, parse_flags
from ddbio.options import PriceOptions, PricesRefreshOptions

if TYPE_CHECKING:
    from ddbio.jobs.prices import PriceBook


@click.group()
def prices() -> None:
    """Show and refresh the prices that plans use."""


@prices.command()
@flags_of(PriceOptions, without=["max_usd", "compute"])
@output_flags
def show(*, as_json: bool, **flags: Any) -> None:
    """Print the prices of a region, with their source and the day as of which they are known."""
    from ddbio.jobs.costs import book_of

    options = parse_flags(PriceOptions, flags)
    _print(book_of(options.region, options.prices), as_json=as_json)


@prices.command()
@flags_of(PricesRefreshOptions)
@output_flags
def refresh(*, as_json: bool, **flags: Any) -> None:
    """Ask the AWS Price List for the prices of --region, and store them for plans; asking is free."""
    from ddbio.jobs.costs import refresh_prices

    _print(refresh_prices(parse_flags(PricesRefreshOptions, flags)), as_json=as_json)


def _print(book: PriceBook, *, as_json: bool) -> None:
    if as_json:
        click.echo(book.to_json().rstrip())
        return
    click.echo(f"{book.region}, USD")
    for name, price in book.prices.items():
        per = "" if price.per == 1 else f"{price.per:,.0f} "
        until = f", up to {price.tiers[0][0]:,.0f} a month" if price.tiers else ""
        click.echo(f"  {name:<30}{price.usd:>12,.7g} a {per}{price.unit}{until}  ({price.date}, {price.usage_type})")
