"""Read prices out of the AWS Price List.

References
----------
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from ddbio.core.prices import OWN_REGION, Price, PriceBook

if TYPE_CHECKING:
    from collections.abc import Iterable

_OWN_NAMES = re.compile(r"^(?:[A-Z]{2,4}[0-9]?[0-9A-Z]*-)?")
# What is bought beforehand is no term on demand: it stays as it is known.
_RESERVED = "HeavyUsage:"
_INSTANCE = re.compile(r"^ec2_(?P<kind>.+)_hours$")


@dataclass(frozen=True)
class PriceQuery:
    """Ask for the products of a service; all of them have these attributes."""

    service: str
    attributes: tuple[tuple[str, str], ...]


def price_queries(book: PriceBook, region: str) -> tuple[PriceQuery, ...]:
    """Return what to ask the Price List for, to find every price of a book in a region."""
    queries: dict[PriceQuery, None] = {}
    for name, price in book.prices.items():
        instance = _INSTANCE.match(name)
        attributes = {"regionCode": region}
        if instance is not None:
            attributes |= {
                "instanceType": instance["kind"],
                "operatingSystem": "Linux",
                "preInstalledSw": "NA",
                "tenancy": "Shared",
                "capacitystatus": "Used",
            }
        if price.service and not price.usage_type.startswith(_RESERVED):
            queries[PriceQuery(price.service, tuple(attributes.items()))] = None
    return tuple(queries)


def refreshed_book(book: PriceBook, region: str, offers: Iterable[str]) -> PriceBook:
    """Return the prices of a region: those of a book's names that the Price List has.

    What it does not have keeps its price and date if the book is of that region, and is left out if not.

    Parameters
    ----------
    offers
        Products of the Price List as JSON, as GetProducts returns them.
    """
    found = {}
    for offer in map(json.loads, offers):
        usage = offer["product"]["attributes"].get("usagetype", "")
        found[offer.get("serviceCode", ""), _OWN_NAMES.sub("", usage, count=1)] = offer
        found.setdefault((offer.get("serviceCode", ""), usage), offer)
    prices = {}
    for name, price in book.prices.items():
        offer = found.get((price.service, price.usage_type))
        new = None if offer is None or price.usage_type.startswith(_RESERVED) else _price(price, offer)
        if new is not None:
            prices[name] = new
        elif region == book.region:
            prices[name] = price
    return PriceBook(region, prices)


def _price(price: Price, offer: dict[str, Any]) -> Price | None:
    """Return a price as an offer has it; quantities that are free are not."""
    ranges = []
    for term in offer.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            end = dimension.get("endRange", "Inf")
            usd = float(dimension["pricePerUnit"]["USD"])
            ranges.append((math.inf if end == "Inf" else float(end), usd * price.per))
    paid = sorted(each for each in ranges if each[1])
    if not paid:
        return None
    usage = offer["product"]["attributes"]["usagetype"]
    return replace(
        price,
        usd=paid[0][1],
        tiers=tuple(paid) if len(paid) > 1 else (),
        usage_type=usage,
        source=f"https://pricing.{OWN_REGION}.amazonaws.com/offers/v1.0/aws/{price.service}/index.json",
        date=date.fromisoformat(offer["publicationDate"][:10]),
    )
