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

from ddbio.jobs.prices import OWN_REGION, Price, PriceBook

if TYPE_CHECKING:
    from collections.abc import Iterable

_OWN_NAMES = re.compile(r"^(?:[A-Z]{2,4}[0-9]?[0-9A-Z]*-)?")
# What is bought beforehand is a term of what it is bought for.
_RESERVED = re.compile(r"^reserved_(?P<noun>read|write)_(?P<part>upfront|hours)_(?P<years>[13])y$")
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
        if price.service:
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
    prices: dict[str, Price] = {}
    for name, price in book.prices.items():
        if reserved := _RESERVED.match(name):
            noun = reserved["noun"]
            usages = (price.usage_type, f"{noun.title()}CapacityUnit-Hrs")
            offers_of = [found[price.service, usage] for usage in usages if (price.service, usage) in found]
            hour = prices.get(f"{noun}_capacity_unit_hours")
            new = None if hour is None else _reserved_price(price, reserved, offers_of, hour.of(1))
        else:
            offer = found.get((price.service, price.usage_type))
            new = None if offer is None else _price(price, offer)
        if new is not None:
            prices[name] = new
        elif region == book.region:
            prices[name] = price
    return PriceBook(region, prices)


def _reserved_price(
    price: Price, wanted: re.Match[str], offers: Iterable[dict[str, Any]], hour_usd: float
) -> Price | None:
    """Return a price of reserved capacity, as a term of one or three years has it.

    Parameters
    ----------
    hour_usd
        What a unit costs an hour that is not reserved, which is more: that tells whether a term is of one unit, or of
        the hundred that are bought at once.
    """
    for offer in offers:
        for term in offer.get("terms", {}).get("Reserved", {}).values():
            if term.get("termAttributes", {}).get("LeaseContractLength", "")[:1] != wanted["years"]:
                continue
            dimensions = term["priceDimensions"].values()
            usd = {each["unit"] == "Quantity": float(each["pricePerUnit"]["USD"]) for each in dimensions}
            if usd.keys() != {True, False}:
                continue
            scale = price.per if usd[False] < hour_usd else 1.0
            return _renewed(price, offer, usd[wanted["part"] == "upfront"] * scale, ())
    return None


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
    return _renewed(price, offer, paid[0][1], tuple(paid) if len(paid) > 1 else ())


def _renewed(price: Price, offer: dict[str, Any], usd: float, tiers: tuple[tuple[float, float], ...]) -> Price:
    """Return a price with what an offer says, and its day."""
    return replace(
        price,
        usd=usd,
        tiers=tiers,
        usage_type=offer["product"]["attributes"]["usagetype"],
        source=f"https://pricing.{OWN_REGION}.amazonaws.com/offers/v1.0/aws/{price.service}/index.json",
        date=date.fromisoformat(offer["publicationDate"][:10]),
    )
